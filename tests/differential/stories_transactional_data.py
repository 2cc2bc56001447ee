"""Stories about records in transactions: producing them, and what readers of either isolation see of them."""

from __future__ import annotations

from tests.differential.stories_records import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    READ_COMMITTED,
    START,
    fetch,
    offsets,
    produce,
    records,
)
from tests.differential.stories_topics import existing
from tests.differential.stories_transactions import (
    ABORT,
    BOTH,
    COMMIT,
    CONTROL,
    FIRST,
    NO_PRODUCER,
    SECOND,
    TRANSACTIONAL,
    Generation,
    described,
    each,
    init,
    producer,
)
from tests.differential.story import Steps, Story, Told, Until, add, call, story

READ_UNCOMMITTED = 0
SHORT_MS = 1_500
"""The time-out of transactions that take too long. A slow machine has to write a batch before it is over."""
ISOLATIONS = (READ_UNCOMMITTED, READ_COMMITTED)


def seen(topic: str, *at: int, version: int = 12) -> Steps:
    """What readers of both isolations see from some offsets on, and where the log and what is stable end for them."""
    for isolation in ISOLATIONS:
        for offset in at:
            yield fetch(topic, offset, version=version, isolation_level=isolation)
        yield from offsets(topic, EARLIEST, LATEST, isolation_level=isolation)


def producers(topic: str, *partitions: int) -> Until:
    """DescribeProducers. Apache Kafka forgets a transaction that ended a moment after readers see the end."""
    rows = [{"name": topic, "partition_indexes": list(partitions or (0,))}]
    return Until(call("describe_producers", 0, topics=rows), lambda _: True)


# --- produce -----------------------------------------------------------------------------------------


def _written_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        made = yield from existing(told.name(), 3)
        one = yield from producer(told.name("tx"), SECOND if version >= 12 else FIRST)
        here = told.name()
        topic = made.topics[0].topic_id if version >= 13 else here
        yield one.write(topic, 0, version=version, sequence=0)
        yield one.add({here: [0]})
        yield one.write(topic, 0, version=version)
        yield one.write(topic, 0, version=version)
        yield one.write(topic, 0, version=version, sequence=2)
        yield one.write(topic, 0, version=version, sequence=9)
        yield one.write(topic, 1, version=version, sequence=0)
        yield one.write(topic, 7, version=version, sequence=0)
        yield one.write(topic, 0, version=version, producer_epoch=one.epoch + 1, sequence=0)
        yield one.write(topic, 0, version=version, producer_id=NO_PRODUCER, sequence=0)
        yield one.write(topic, 2, version=version, producer_id=NO_PRODUCER, sequence=0)
        yield one.write(topic, 2, version=version, transactional_id=told.name("nobody"), sequence=0)
        yield one.write(topic, 2, version=version, transactional_id=None, sequence=0)
        yield one.write(topic, 2, version=version, transactional_id="", sequence=0)
        yield described(one.id)
        yield from one.ended(COMMIT)
        yield one.write(topic, 0, version=version)
        yield described(one.id)
        yield from seen(here, 0)

    return steps


each("produce_in_a_transaction", _written_in_version, (3, 8, 10, 11, 12, 13))


def _written_otherwise(by: Generation) -> Story:
    """Batches that are no part of a transaction, or should not be."""

    def steps(told: Told) -> Steps:
        yield from existing(told.name(), 3)
        one = yield from producer(told.name("tx"), by)
        here = told.name()
        yield one.write(here, 0, attributes=0, sequence=0)
        yield one.add({here: [1]})
        yield one.write(here, 1)
        yield one.write(here, 1, attributes=0, sequence=2)
        yield one.write(here, 1, attributes=0, sequence=2, transactional_id=None)
        yield one.write(here, 0, attributes=0, sequence=2, transactional_id=None)
        yield one.write(here, 1, attributes=TRANSACTIONAL | CONTROL, sequence=2)
        yield one.write(here, 1, attributes=CONTROL, sequence=2)
        yield produce(here, records(1), 1, transactional_id=one.id, version=by.produce)
        yield produce(here, records(1), 1, version=by.produce)
        yield one.write(here, 1, acks=1)
        yield one.write(here, 1, acks=0)
        yield one.write(here, 1)
        yield described(one.id)
        yield from one.ended(COMMIT)
        yield from seen(here, 0)
        yield fetch(here, 0, 1)

    return steps


each("produce_beside_a_transaction", _written_otherwise)


@story
def two_producers_in_one_request(told: Told) -> Steps:
    yield from existing(told.name(), 2)
    one = yield from producer(told.name("one"), SECOND)
    other = yield from producer(told.name("other"), SECOND)
    parts = [
        {"index": i, "records": records(1, producer=(p.who, p.epoch, 0), attributes=TRANSACTIONAL)}
        for i, p in enumerate((one, other))
    ]
    topics = [{"name": told.name(), "partition_data": parts}]
    yield call("produce", 12, acks=-1, timeout=10_000, transactional_id=one.id, topic_data=topics)
    parts = [
        {"index": 0, "records": records(1, producer=(one.who, one.epoch, 0), attributes=TRANSACTIONAL)},
        {"index": 1, "records": records(1)},
    ]
    topics = [{"name": told.name(), "partition_data": parts}]
    yield call("produce", 12, acks=-1, timeout=10_000, transactional_id=one.id, topic_data=topics)
    yield described(one.id, other.id)


@story
def a_transactional_id_without_an_init(told: Told) -> Steps:
    yield from existing(told.name())
    made = yield init(None)
    for version in (3, 9, 10, 11, 12):
        data = records(1, producer=(made.producer_id, 0, 0), attributes=TRANSACTIONAL)
        yield produce(told.name(), data, transactional_id=told.name("tx"), version=version)
    yield from offsets(told.name(), LATEST)


@story
def another_transactional_id_is_named(told: Told) -> Steps:
    yield from existing(told.name())
    one = yield from producer(told.name("tx"), SECOND)
    yield one.write(told.name())
    yield one.stage(told.name("g"), told.name(), (0, 1))
    yield one.write(told.name(), transactional_id=told.name("nobody"))
    yield one.stage(told.name("g"), told.name(), (0, 2), transactional_id=told.name("nobody"))


@story
def a_transactional_batch_without_a_producer(told: Told) -> Steps:
    yield from existing(told.name())
    one = yield from producer(told.name("tx"), SECOND)
    yield produce(told.name(), records(1, attributes=TRANSACTIONAL), transactional_id=one.id)


@story
def a_batch_that_is_refused_does_not_join(told: Told) -> Steps:
    yield from existing(told.name())
    one = yield from producer(told.name("tx"), SECOND)
    yield one.write(told.name(), sequence=5)
    yield described(one.id)


@story
def produce_up_to_the_wrong_partition(told: Told) -> Steps:
    """Some partitions of one request are right."""
    yield from existing(told.name(), 2)
    one = yield from producer(told.name("tx"), SECOND)
    data = records(1, producer=(one.who, one.epoch, 0), attributes=TRANSACTIONAL)
    for version in (11, 12):
        parts = [{"index": i, "records": data} for i in (0, 1, 7)]
        topics = [{"name": told.name(), "partition_data": parts}]
        if version == 11:
            yield one.add({told.name(): [0]})
        yield call("produce", version, acks=-1, timeout=10_000, transactional_id=one.id, topic_data=topics)
    yield described(one.id)


# --- fetch and list ----------------------------------------------------------------------------------


def _read_in_version(by: Generation, version: int) -> Story:
    def steps(told: Told) -> Steps:
        made = yield from existing(told.name())
        here = told.name()
        topic = made.topics[0].topic_id if version >= 13 else here
        one = yield from producer(told.name("tx"), by)

        def read() -> Steps:
            for isolation in ISOLATIONS:
                for offset in (0, 2, 3, 5):
                    yield fetch(topic, offset, version=version, isolation_level=isolation)

        yield produce(here, records(2))
        yield one.add({here: [0]})
        yield from read()
        yield one.write(here)
        yield from read()
        yield from one.ended(COMMIT)
        yield from read()
        yield one.add({here: [0]})
        yield one.write(here)
        yield produce(here, records(1))
        yield from read()
        yield from one.ended(ABORT)
        yield from read()
        for isolation in ISOLATIONS:
            for offset in range(6, 11):
                yield fetch(topic, offset, version=version, isolation_level=isolation)
                yield fetch(topic, offset, version=version, isolation_level=isolation, bytes_=1)

    return steps


for _by in BOTH:
    for _version in (4, 11, 18):
        add(f"fetch_transactions_v{_version}_in_generation_{_by.number}", _read_in_version(_by, _version))


def _listed_in_version(by: Generation, version: int) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name())
        here = told.name()
        one = yield from producer(told.name("tx"), by)
        asked = [EARLIEST, LATEST, START, START + 10, START + 20]

        def listed() -> Steps:
            for isolation in ISOLATIONS if version >= 2 else ISOLATIONS[:1]:
                yield from offsets(here, *asked, version=version, isolation_level=isolation)

        yield produce(here, records(2))
        yield one.add({here: [0]})
        yield one.write(here, number=4)
        yield from listed()
        yield produce(here, records(1, 9))
        yield from listed()
        yield from one.ended(COMMIT)
        yield from listed()
        yield one.add({here: [0]})
        yield one.write(here, number=4)
        yield from listed()
        yield from one.ended(ABORT)
        yield from listed()

    return steps


for _by in BOTH:
    for _version in (1, 2, 11):
        add(f"list_offsets_of_transactions_v{_version}_in_generation_{_by.number}", _listed_in_version(_by, _version))


def _listed_by_the_time_of_markers(version: int) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name())
        one = yield from producer(told.name("tx"), SECOND)
        yield one.write(told.name())
        yield from one.ended(COMMIT)
        asked = (START + 1000, MAX_TIMESTAMP) if version >= 7 else (START + 1000,)
        yield from offsets(told.name(), *asked, version=version)

    return steps


each("look_for_the_time_of_markers", _listed_by_the_time_of_markers, (1, 11))


def _interleaved(by: Generation) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name())
        here = told.name()
        one = yield from producer(told.name("one"), by)
        other = yield from producer(told.name("other"), by)
        for first, second in ((COMMIT, ABORT), (ABORT, COMMIT), (ABORT, ABORT)):
            for who in (one, other):
                yield who.add({here: [0]})
            yield one.write(here)
            yield other.write(here)
            yield one.write(here)
            yield produce(here, records(1))
            yield producers(here)
            yield from seen(here, 0)
            yield from other.ended(second)
            yield from seen(here, 0)
            yield from one.ended(first)
            yield from seen(here, 0)
        for isolation in ISOLATIONS:
            for offset in range(0, 26, 2):
                yield fetch(here, offset, isolation_level=isolation)
                yield fetch(here, offset, isolation_level=isolation, bytes_=1)

    return steps


each("transactions_of_two_producers", _interleaved)


def _crossing(by: Generation) -> Story:
    """One transaction ends while another that began before it goes on."""

    def steps(told: Told) -> Steps:
        yield from existing(told.name())
        here = told.name()
        long = yield from producer(told.name("long"), by)
        short = yield from producer(told.name("short"), by)
        yield long.add({here: [0]})
        yield long.write(here)
        for outcome in (ABORT, COMMIT, ABORT):
            yield short.add({here: [0]})
            yield short.write(here)
            yield from short.ended(outcome)
            yield from seen(here, 0, 4)
        yield long.write(here)
        yield from long.ended(ABORT)
        for at in range(14):
            yield fetch(here, at, isolation_level=READ_COMMITTED)
        yield from seen(here, 0)

    return steps


each("transactions_within_a_transaction", _crossing)


def _cut(by: Generation) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name())
        here = told.name()
        one = yield from producer(told.name("tx"), by)

        def cut(offset: int) -> Steps:
            part = {"partition_index": 0, "offset": offset}
            yield call("delete_records", topics=[{"name": here, "partitions": [part]}], timeout=10_000)

        for _ in range(2):
            yield one.add({here: [0]})
            yield one.write(here, number=3)
            yield from one.ended(ABORT)
        yield from cut(2)
        yield from seen(here, 2)
        yield from cut(4)
        yield from seen(here, 4)
        yield one.add({here: [0]})
        yield one.write(here, number=3)
        yield from seen(here, 8)
        yield from cut(8)
        yield from seen(here, 8)
        yield from one.ended(COMMIT)
        yield from seen(here, 8)
        yield from cut(-1)
        yield from seen(here, 12)

    return steps


each("records_of_transactions_are_deleted", _cut)


@story
def records_of_an_open_transaction_are_deleted(told: Told) -> Steps:
    yield from existing(told.name())
    one = yield from producer(told.name("tx"), SECOND)
    yield one.write(told.name(), number=3)
    topics = [{"name": told.name(), "partitions": [{"partition_index": 0, "offset": 2}]}]
    yield call("delete_records", topics=topics, timeout=10_000)
    yield from seen(told.name(), 2)


@story
def a_producer_does_not_begin_at_zero(told: Told) -> Steps:
    yield from existing(told.name())
    one = yield from producer(told.name("tx"), FIRST)
    yield one.add({told.name(): [0]})
    yield one.write(told.name(), sequence=50)


# --- producers ---------------------------------------------------------------------------------------


def _producers_described(by: Generation) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name(), 3)
        here = told.name()
        yield producers(here, 0, 1, 7)
        yield producers(told.name("unknown"))
        one = yield from producer(told.name("tx"), by)
        yield one.add({here: [0, 1]})
        yield producers(here, 0, 1)
        yield one.write(here)
        yield one.write(here, 1)
        yield producers(here, 0, 1)
        yield one.write(here, number=3)
        yield producers(here, 0)
        yield from one.ended(COMMIT)
        yield producers(here, 0, 1)
        yield one.add({here: [0]})
        yield one.write(here)
        yield producers(here, 0)
        yield from one.ended(ABORT)
        yield producers(here, 0)
        plain = yield init(None)
        yield produce(here, records(2, producer=(plain.producer_id, 0, 0)), 2)
        yield producers(here, 2)
        yield call("describe_producers", 0, topics=[])

    return steps


each("describe_producers", _producers_described)


@story
def a_producer_that_left_markers_only(told: Told) -> Steps:
    yield from existing(told.name())
    one = yield from producer(told.name("tx"), SECOND)
    yield one.add({told.name(): [0]})
    yield from one.ended(COMMIT)
    yield producers(told.name())


def _aborted(id: str) -> Until:
    """Wait until a broker has aborted a transaction."""
    return Until(described(id), lambda a: a.transaction_states[0].transaction_state == "CompleteAbort")


def _takes_too_long(by: Generation) -> Story:
    """A broker ends a transaction, and its producer learns of it and goes on."""

    def steps(told: Told) -> Steps:
        yield from existing(told.name(), 2)
        here = told.name()
        one = yield from producer(told.name("tx"), by, timeout=SHORT_MS)
        yield one.add({here: [0]})
        yield one.write(here)
        yield _aborted(one.id)
        yield from seen(here, 0)
        yield producers(here)
        yield one.write(here, 1, sequence=0)
        yield one.write(here)
        yield one.add({here: [0]})
        yield one.add_offsets(told.name("g"))
        yield one.stage(told.name("g"), here, (0, 1))
        yield one.end(ABORT, version=4)
        yield one.end(COMMIT, version=4)
        yield one.end(ABORT)
        yield described(one.id)
        one.take((yield one.init()))
        yield one.add({here: [0]})
        yield one.write(here)
        yield from one.ended(COMMIT)
        yield from seen(here, 0)

    return steps


each("a_transaction_takes_too_long", _takes_too_long)


@story
def a_commit_after_a_time_out(told: Told) -> Steps:
    yield from existing(told.name())
    one = yield from producer(told.name("tx"), SECOND, timeout=SHORT_MS)
    yield one.write(told.name())
    yield _aborted(one.id)
    yield one.end(COMMIT)
