"""Stories about the lives of transactional ids: how producers start, join partitions, end, and are fenced."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.differential.stories_records import LATEST, offsets, produce, records
from tests.differential.stories_topics import delete, existing, gone
from tests.differential.story import Call, Steps, Story, Told, Until, add, call, story

NO_PRODUCER = 999_999_999
"""A producer id that was not given to anybody."""
TRANSACTIONAL, CONTROL = 0x10, 0x20
TIMEOUT_MS = 60_000
MAX_TIMEOUT_MS = 900_000
"""The longest time-out that a broker allows by default."""
COMMIT, ABORT = True, False


@dataclass(frozen=True, slots=True)
class Generation:
    """The versions that clients of one generation use. Those of the second end a transaction with a new epoch."""

    number: int
    produce: int
    stage: int
    end: int


FIRST = Generation(1, produce=11, stage=4, end=4)
SECOND = Generation(2, produce=12, stage=5, end=5)
BOTH = (FIRST, SECOND)


@dataclass(slots=True)
class Producer:
    """A producer as the story knows it. Its requests name what it was given last, unless they are told otherwise."""

    id: str
    who: int
    epoch: int
    by: Generation
    sequences: dict[tuple[str | uuid.UUID, int], int] = field(default_factory=dict)

    def init(self, **more: Any) -> Call:
        return init(self.id, self.who, self.epoch, **more)

    def add(self, parts: Mapping[str, Sequence[int]], *, version: int = 3, **more: Any) -> Call:
        return add_partitions([self._named(more)], parts, version=version)

    def add_offsets(self, group: str, *, version: int = 4, **more: Any) -> Call:
        return call("add_offsets_to_txn", version, **self._named(more), group_id=group)

    def write(
        self, topic: str | uuid.UUID, partition: int = 0, number: int = 2, *, version: int | None = None, **more: Any
    ) -> Call:
        """A batch with the next sequence. One whose sequence is given does not count."""
        place = topic, partition
        sequence = more.pop("sequence", None)
        if sequence is None:
            sequence = self.sequences.get(place, 0)
            self.sequences[place] = sequence + number
        who, epoch = more.pop("producer_id", self.who), more.pop("producer_epoch", self.epoch)
        attributes = more.pop("attributes", TRANSACTIONAL)
        data = records(number, sequence, producer=(who, epoch, sequence), attributes=attributes)
        fields: dict[str, Any] = {"transactional_id": self.id, **more}
        return produce(topic, data, partition, version=self.by.produce if version is None else version, **fields)

    def stage(self, group: str, topic: str, *places: tuple[int, int], version: int | None = None, **more: Any) -> Call:
        rows = [{"partition_index": p, "committed_offset": at, "committed_metadata": "note"} for p, at in places]
        fields: dict[str, Any] = {"generation_id": -1, "member_id": "", "group_instance_id": None}
        fields |= {"group_id": group, "topics": [{"name": topic, "partitions": rows}], **self._named(more), **more}
        return call("txn_offset_commit", self.by.stage if version is None else version, **fields)

    def end(self, commit: bool, *, version: int | None = None, **more: Any) -> Call:
        return call("end_txn", self.by.end if version is None else version, **self._named(more), committed=commit)

    def ended(self, commit: bool) -> Steps:
        """End the transaction, take the epoch that is given, and wait until readers see it."""
        answer = yield self.end(commit)
        self.take(answer)
        yield settled(self.id)
        return answer

    def take(self, answer: Any) -> None:
        """Go on with the producer id and the epoch of an answer, if it has them."""
        if answer.error_code.value == 0 and getattr(answer, "producer_id", -1) >= 0:
            self.sequences = {} if answer.producer_epoch != self.epoch else self.sequences
            self.who, self.epoch = answer.producer_id, answer.producer_epoch

    def taken_over(self, *, expected: bool = False) -> Steps:
        """Start anew while a transaction is open. Apache Kafka leaves out an epoch then; after this both have."""
        answer = yield self.init() if expected else init(self.id)
        if answer.producer_id == self.who and answer.producer_epoch == self.epoch + 1:
            answer = yield Until(init(self.id), lambda _: True, recorded=False)
        self.take(answer)
        yield settled(self.id)

    def before(self) -> Producer:
        """The same producer as it is now, for requests that come later."""
        return dataclasses.replace(self, sequences=dict(self.sequences))

    def _named(self, more: dict[str, Any]) -> dict[str, Any]:
        """Who asks; a story may say something else."""
        own = {"transactional_id": self.id, "producer_id": self.who, "producer_epoch": self.epoch}
        return {name: more.pop(name, value) for name, value in own.items()}


def init(id: str | None, who: int = -1, epoch: int = -1, *, version: int = 5, timeout: int = TIMEOUT_MS) -> Call:
    fields = {"transactional_id": id, "transaction_timeout": timeout, "producer_id": who, "producer_epoch": epoch}
    return call("init_producer_id", version, **fields)


def producer(id: str, by: Generation, **more: Any) -> Steps:
    """A producer that starts."""
    answer = yield init(id, **more)
    return Producer(id, answer.producer_id, answer.producer_epoch, by)


def add_partitions(
    who: Sequence[Mapping[str, Any]], parts: Mapping[str, Sequence[int]], *, version: int, **more: Any
) -> Call:
    """AddPartitionsToTxn. Versions from 4 on may name several transactions."""
    topics = [{"name": name, "partitions": list(numbers)} for name, numbers in parts.items()]
    if version >= 4:
        rows = [{"verify_only": False, **row, "topics": topics, **more} for row in who]
        return call("add_partitions_to_txn", version, transactions=rows)
    [row] = who
    fields = {f"v3_and_below_{name}": value for name, value in {**row, "topics": topics}.items()}
    return call("add_partitions_to_txn", version, **fields)


def described(*ids: str) -> Call:
    return call("describe_transactions", 0, transactional_ids=list(ids))


def settled(*ids: str) -> Until:
    """Wait until no end of a transaction is under way; Apache Kafka answers EndTxn before readers can see the end."""
    busy = {"PrepareCommit", "PrepareAbort", "PrepareEpochFence"}
    return Until(described(*ids), lambda a: not busy & {t.transaction_state for t in a.transaction_states}, False)


def each(name: str, made: Any, of: Sequence[Any] = BOTH) -> None:
    """One story for each generation, or for each of several versions."""
    for one in of:
        label = f"in_generation_{one.number}" if isinstance(one, Generation) else f"v{one}"
        add(f"{name}_{label}", made(one))


# --- init --------------------------------------------------------------------------------------------


def _init_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        id = told.name("tx")
        made = yield init(id, version=version)
        yield init(id, version=version)
        yield init(told.name("other"), version=version)
        for id_of_nobody in ("", None):
            yield init(id_of_nobody, version=version, timeout=0)
        yield init("", version=version)
        for timeout in (0, -1, 1, MAX_TIMEOUT_MS, MAX_TIMEOUT_MS + 1):
            yield init(told.name(f"timed{timeout}"), version=version, timeout=timeout)
        yield init(told.name("x" * 900), version=version)
        if version < 3:
            return
        current = yield init(id, version=version)
        who, epoch = made.producer_id, current.producer_epoch
        yield init(id, who, epoch, version=version)
        yield init(id, who, epoch, version=version)
        yield init(id, who, epoch - 1, version=version)
        yield init(id, who, epoch + 5, version=version)
        yield init(id, NO_PRODUCER, epoch + 1, version=version)
        yield init(id, who, version=version)
        yield init(id, -1, epoch, version=version)
        yield init(told.name("new"), NO_PRODUCER, 3, version=version)
        yield init(told.name("new"), version=version)

    return steps


each("init_transactions", _init_in_version, (0, 3, 4, 5))


def _init_while_open(by: Generation) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name(), 2)
        one = yield from producer(told.name("tx"), by)
        yield one.add({told.name(): [0]})
        yield one.write(told.name())
        zombie = one.before()
        yield from one.taken_over()
        yield described(one.id)
        yield from offsets(told.name(), LATEST)
        yield zombie.write(told.name())
        yield zombie.write(told.name(), 1)
        yield zombie.write(told.name(), version=9)
        yield zombie.add({told.name(): [1]})
        yield zombie.add({told.name(): [1]}, version=0)
        yield zombie.add_offsets(told.name("g"))
        yield zombie.add_offsets(told.name("g"), version=0)
        yield zombie.stage(told.name("g"), told.name(), (0, 1))
        yield zombie.end(COMMIT)
        yield zombie.end(ABORT)
        yield zombie.end(COMMIT, version=0)
        yield zombie.init()
        yield one.add({told.name(): [0]})
        yield one.write(told.name())
        yield zombie.write(told.name())
        yield from one.ended(COMMIT)
        yield from offsets(told.name(), LATEST)

    return steps


each("init_while_a_transaction_is_open", _init_while_open)


def _init_with_what_is_expected_while_open(by: Generation) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name())
        one = yield from producer(told.name("tx"), by)
        yield one.add({told.name(): [0]})
        yield one.write(told.name())
        yield init(one.id, NO_PRODUCER, one.epoch)
        yield described(one.id)
        before = one.before()
        yield from one.taken_over(expected=True)
        yield before.init()
        yield described(one.id)
        yield before.write(told.name())
        yield one.add({told.name(): [0]})
        yield one.write(told.name())
        yield from one.ended(ABORT)

    return steps


each("init_with_what_is_expected_while_open", _init_with_what_is_expected_while_open)


def _init_with_another_epoch_while_open(by: Generation) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name())
        one = yield from producer(told.name("tx"), by)
        yield one.add({told.name(): [0]})
        yield one.write(told.name())
        yield init(one.id, one.who, one.epoch + 1)
        yield settled(one.id)
        yield described(one.id)

    return steps


each("init_with_another_epoch_while_open", _init_with_another_epoch_while_open)


def _init_after_an_end(by: Generation) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name())
        one = yield from producer(told.name("tx"), by)
        for outcome in (COMMIT, ABORT):
            yield one.add({told.name(): [0]})
            yield one.write(told.name())
            yield from one.ended(outcome)
            one.take((yield one.init()))
        before = one.before()
        one.take((yield init(one.id)))
        yield before.init()
        yield before.end(ABORT)
        yield before.end(COMMIT)
        yield one.end(ABORT)
        yield one.end(COMMIT)

    return steps


each("init_after_an_end", _init_after_an_end)


@story
def a_time_out_is_kept_from_the_last_init(told: Told) -> Steps:
    id = told.name("tx")
    for timeout in (1_000, 30_000):
        yield init(id, timeout=timeout)
        yield described(id)
    yield init(id, timeout=0)
    yield described(id)


# --- joining -----------------------------------------------------------------------------------------


def _joined_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name(), 3)
        one = yield from producer(told.name("tx"), FIRST)
        here, unknown = told.name(), told.name("unknown")
        yield one.add({here: [0]}, version=version)
        yield one.add({here: [0, 1]}, version=version)
        yield one.add({here: [2], unknown: [0]}, version=version)
        yield one.add({here: [2, 7]}, version=version)
        yield one.add({unknown: [0, 1]}, version=version)
        yield one.add({here: [-1]}, version=version)
        yield one.add({"not/a topic": [0]}, version=version)
        yield one.add({"__consumer_offsets": [0]}, version=version)
        yield one.add({here: []}, version=version)
        yield one.add({}, version=version)
        yield one.add({here: [2]}, version=version, producer_epoch=one.epoch + 1)
        yield one.add({here: [2]}, version=version, producer_epoch=-1)
        yield one.add({here: [2]}, version=version, producer_id=NO_PRODUCER)
        yield one.add({here: [2]}, version=version, producer_id=-1)
        yield one.add({here: [2]}, version=version, transactional_id=told.name("nobody"))
        yield one.add({here: [2]}, version=version, transactional_id="")
        yield described(one.id)

    return steps


each("add_partitions_to_a_transaction", _joined_in_version, (0, 2, 3))


def _joined_by_brokers(version: int) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name(), 2)
        one = yield from producer(told.name("one"), FIRST)
        other = yield from producer(told.name("other"), FIRST)
        here = told.name()
        pair = [{"transactional_id": p.id, "producer_id": p.who, "producer_epoch": p.epoch} for p in (one, other)]
        yield add_partitions(pair, {here: [0]}, version=version)
        yield add_partitions(pair, {here: [0]}, version=version, verify_only=True)
        yield add_partitions(pair, {here: [0, 1]}, version=version, verify_only=True)
        yield add_partitions([pair[0], {**pair[1], "producer_epoch": 9}], {here: [1]}, version=version)
        yield one.add({here: [1], told.name("unknown"): [0]}, version=version)
        for wrong in (
            {"producer_epoch": 9}, {"producer_id": NO_PRODUCER}, {"transactional_id": told.name("none")},
            {"transactional_id": ""},
        ):  # fmt: skip
            for verify in (True, False):
                yield add_partitions([{**pair[0], **wrong}], {here: [0]}, version=version, verify_only=verify)
        yield add_partitions(pair[:1], {here: [0, 9]}, version=version, verify_only=True)
        yield described(one.id, other.id)

    return steps


each("add_partitions_to_transactions", _joined_by_brokers, (4, 5))


def _groups_joined_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        one = yield from producer(told.name("tx"), FIRST)
        group = told.name("g")
        yield one.add_offsets(group, version=version)
        yield one.add_offsets(group, version=version)
        yield one.add_offsets("", version=version)
        yield one.add_offsets(group, version=version, producer_epoch=one.epoch + 1)
        yield one.add_offsets(group, version=version, producer_id=NO_PRODUCER)
        yield one.add_offsets(group, version=version, transactional_id=told.name("nobody"))
        yield one.add_offsets(group, version=version, transactional_id="")
        yield call("list_transactions", 0, state_filters=["Ongoing"], producer_id_filters=[])
        yield from one.ended(COMMIT)

    return steps


each("add_offsets_to_a_transaction", _groups_joined_in_version, (0, 3, 4))


# --- the end -----------------------------------------------------------------------------------------


def _ended_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name())
        one = yield from producer(told.name("tx"), SECOND if version >= 5 else FIRST)
        here = told.name()
        for empty in (COMMIT, ABORT):
            answer = yield one.end(empty, version=version)
            one.take(answer)
        for outcome in (COMMIT, ABORT):
            yield one.add({here: [0]})
            yield one.write(here)
            yield one.end(outcome, version=version, producer_epoch=one.epoch + 1)
            yield one.end(outcome, version=version, producer_epoch=-1)
            yield one.end(outcome, version=version, producer_id=NO_PRODUCER)
            yield one.end(outcome, version=version, transactional_id=told.name("nobody"))
            yield one.end(outcome, version=version, transactional_id="")
            before = one.before()
            one.take((yield one.end(outcome, version=version)))
            yield settled(one.id)
            yield described(one.id)
            yield before.end(outcome, version=version)
            yield before.end(not outcome, version=version)
            yield before.end(outcome, version=4 if version >= 5 else 5)
            yield settled(one.id)
            yield described(one.id)
            again = yield one.end(outcome, version=version)
            one.take(again)
            one.take((yield one.end(ABORT, version=version)))
            yield settled(one.id)
            one.take((yield init(one.id)))

    return steps


each("end_a_transaction", _ended_in_version, (0, 3, 4, 5))


def _ended_and_begun_again(by: Generation) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name())
        one = yield from producer(told.name("tx"), by)
        for outcome in (COMMIT, ABORT, ABORT, COMMIT, COMMIT):
            yield one.add({told.name(): [0]})
            yield one.write(told.name())
            before = one.before()
            yield from one.ended(outcome)
            yield before.end(outcome)
            yield one.add({told.name(): [0]})
            yield before.end(outcome, version=5)
            yield settled(one.id)
            yield described(one.id)
            yield from one.taken_over()

    return steps


each("a_late_end_meets_the_next_transaction", _ended_and_begun_again)


def _joined_without_records(by: Generation) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name(), 2)
        one = yield from producer(told.name("tx"), by)
        for outcome in (COMMIT, ABORT):
            yield one.add({told.name(): [0, 1]})
            yield one.write(told.name(), 1)
            yield from one.ended(outcome)
            for partition in (0, 1):
                yield from offsets(told.name(), LATEST, partition=partition)

    return steps


each("partitions_that_join_without_records", _joined_without_records)


def _topic_deleted(by: Generation) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name("goes"))
        yield from existing(told.name("stays"))
        one = yield from producer(told.name("tx"), by)
        for topic in (told.name("goes"), told.name("stays")):
            yield one.add({topic: [0]})
            yield one.write(topic)
        yield delete(told.name("goes"))
        yield gone(told.name("goes"))
        yield from one.ended(COMMIT)
        yield from offsets(told.name("stays"), LATEST)

    return steps


each("a_topic_is_deleted_during_a_transaction", _topic_deleted)
