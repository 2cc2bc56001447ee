"""Stories about producing, fetching, listing and deleting records."""

from __future__ import annotations

import time
import uuid
from typing import Any

import cramjam

from tests.differential.stories_topics import NOBODY, configs, create, delete, existing, gone
from tests.differential.story import Call, Steps, Story, Told, Until, add, call, story
from tests.support.batches import Rec, batch, record

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
START = int(time.time()) * 1000 - 3_600_000
"""Where the timestamps begin: not so far back that retention takes the records."""
READ_COMMITTED = 1


def records(number: int, first: int = 0, **more: Any) -> bytes:
    """A batch whose timestamps go up by ten."""
    return batch([Rec(b"value-%d" % i, b"key-%d" % i, START + 10 * i) for i in range(first, first + number)], **more)


def produce(
    topic: str | uuid.UUID, data: bytes, partition: int = 0, *, acks: int = -1, version: int = 12, **more: Any
) -> Call:
    naming = {"name": topic} if isinstance(topic, str) else {"topic_id": topic}
    parts = [{"index": partition, "records": data}]
    fields = {"acks": acks, "timeout": 10_000, "topic_data": [{**naming, "partition_data": parts}], **more}
    return call("produce", version, answered=acks != 0, **fields)


def fetch(
    topic: str | uuid.UUID, offset: int, partition: int = 0, *, version: int = 12, bytes_: int = 1 << 20, **more: Any
) -> Call:
    naming = {"topic": topic} if isinstance(topic, str) else {"topic_id": topic}
    part = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": bytes_, "current_leader_epoch": -1}
    part |= {"last_fetched_epoch": -1, "log_start_offset": -1, **more.pop("part", {})}
    fields = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_id": 0, "session_epoch": -1, **more}
    fields.setdefault("topics", [{**naming, "partitions": [part]}])
    return call("fetch", version, replica_id=-1, forgotten_topics_data=[], **fields)


def offsets(topic: str, *timestamps: int, partition: int = 0, version: int | None = None, **more: Any) -> Steps:
    """One request for each timestamp."""
    for timestamp in timestamps:
        part = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": -1}
        yield call("list_offsets", version, replica_id=-1, topics=[{"name": topic, "partitions": [part]}], **more)


# --- produce -----------------------------------------------------------------------------------------


def _produced_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        made = yield from existing(told.name(), 2)
        topic = made.topics[0].topic_id if version >= 13 else told.name()
        unknown = NOBODY if version >= 13 else told.name("unknown")
        yield produce(topic, records(2), version=version)
        yield produce(topic, records(3), version=version, acks=1)
        yield produce(topic, records(1), 7, version=version)
        yield produce(unknown, records(1), version=version)
        yield produce(topic, records(1, crc=1), version=version)
        yield produce(topic, records(1), version=version, acks=2)
        yield fetch(told.name(), 0)

    return steps


for _version in range(3, 14):
    add(f"produce_v{_version}", _produced_in_version(_version))


def _bad_batch(name: str, data: bytes, **topic_configs: str) -> None:
    def steps(told: Told) -> Steps:
        yield from existing(told.name(), configs=configs(**topic_configs))
        yield produce(told.name(), data)
        yield from offsets(told.name(), LATEST)

    add(f"produce_{name}", steps)


_bad_batch("no_records", b"")
_bad_batch("half_a_batch", records(2)[:40])
_bad_batch("a_few_bytes", b"1234")
_bad_batch("old_magic", records(1, magic=1))
_bad_batch("future_magic", records(1, magic=3))
_bad_batch("two_batches", records(1) + records(1))
_bad_batch("wrong_count", records(2, count=3))
_bad_batch("wrong_last_delta", records(2, last_delta=5))
_bad_batch("no_record_in_a_batch", batch([], count=0, last_delta=0))
_bad_batch("negative_last_delta", batch([], count=0, last_delta=-1))
_bad_batch("garbage_for_records", batch([b"x"], body=b"\xff" * 30))
_bad_batch("unknown_codec", records(1, attributes=6))
_bad_batch("control_batch", records(1, attributes=0x20))
_bad_batch("transactional_without_id", records(1, attributes=0x10, producer=(5, 0, 0)))
_bad_batch("too_large", batch([b"x" * 5_000]), max_message_bytes="1000")
_bad_batch("no_key_on_a_compacted_topic", batch([Rec(b"v", None, START)]), cleanup_policy="compact")
_bad_batch("a_key_on_a_compacted_topic", batch([Rec(b"v", b"k", START)]), cleanup_policy="compact")
_bad_batch("timestamp_far_ahead", batch([Rec(b"v", b"k", 32_000_000_000_000)]))
_bad_batch("timestamp_too_old", batch([Rec(b"v", b"k", 1)]), message_timestamp_before_max_ms="1000")
_bad_batch("negative_timestamp", batch([Rec(b"v", b"k", -5)]))
_bad_batch("without_a_timestamp", batch([Rec(b"v", b"k", -1)]))
_bad_batch(
    "in_lz4_with_linked_blocks",
    batch([b"x"], body=bytes(cramjam.lz4.compress(record(0, Rec(b"x"), START))), attributes=3),
)
for _codec, _name in ((1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")):
    _bad_batch(f"in_{_name}", records(5, codec=_codec))
    _bad_batch(f"garbage_in_{_name}", batch([b"x"], body=b"\xff" * 30, codec=_codec))


@story
def produce_without_acknowledgement(told: Told) -> Steps:
    yield from existing(told.name())
    yield produce(told.name(), records(1), acks=0)
    yield produce(told.name(), records(1))
    yield fetch(told.name(), 0)


@story
def produce_to_the_same_partition_twice_at_once(told: Told) -> Steps:
    yield from existing(told.name())
    part = {"index": 0, "records": records(1)}
    topics = [{"name": told.name(), "partition_data": [part, part]}]
    yield call("produce", 12, acks=-1, timeout=10_000, topic_data=topics)
    yield from offsets(told.name(), LATEST)


@story
def internal_topics_take_no_records(told: Told) -> Steps:
    name = "__consumer_offsets"
    there = call("metadata", 12, topics=[{"topic_id": None, "name": name}], allow_auto_topic_creation=True)
    yield Until(there, lambda a: a.topics[0].error_code.value == 0, recorded=False)
    yield produce(name, records(1))
    yield create(name)


@story
def produce_nothing(told: Told) -> Steps:
    yield call("produce", 12, acks=-1, timeout=10_000, topic_data=[])


@story
def append_time_is_told(told: Told) -> Steps:
    yield from existing(told.name(), configs=configs(message_timestamp_type="CreateTime"))
    yield produce(told.name(), records(3), version=8)
    yield fetch(told.name(), 1)


# --- idempotent producers ----------------------------------------------------------------------------


@story
def an_idempotent_producer(told: Told) -> Steps:
    yield from existing(told.name())
    made = yield call("init_producer_id", 4, transactional_id=None, transaction_timeout=60_000, producer_id=-1)
    who = made.producer_id
    for sequence in (0, 2, 2, 0):
        yield produce(told.name(), records(2, producer=(who, 0, sequence)))
    yield produce(told.name(), records(3, producer=(who, 0, 2)))
    yield produce(told.name(), records(2, producer=(who, 1, 0)))
    yield produce(told.name(), records(2, producer=(who, 0, 2)))
    yield produce(told.name(), records(2, producer=(who, 1, 2)))
    yield from offsets(told.name(), LATEST)


@story
def an_epoch_that_does_not_begin_at_zero(told: Told) -> Steps:
    yield from existing(told.name())
    made = yield call("init_producer_id", 4, transactional_id=None, transaction_timeout=60_000, producer_id=-1)
    yield produce(told.name(), records(1, producer=(made.producer_id, 0, 0)))
    yield produce(told.name(), records(1, producer=(made.producer_id, 1, 4)))
    yield from offsets(told.name(), LATEST)


def _init_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        fresh = {"transactional_id": None, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
        made = yield call("init_producer_id", version, **fresh)
        yield call("init_producer_id", version, **fresh)
        if version >= 3:
            again = {**fresh, "producer_id": made.producer_id, "producer_epoch": 0}
            yield call("init_producer_id", version, **again)
            yield call("init_producer_id", version, **{**fresh, "producer_id": 5})
            yield call("init_producer_id", version, **{**fresh, "producer_epoch": 5})

    return steps


for _version in range(6):
    add(f"init_producer_id_v{_version}", _init_in_version(_version))


# --- fetch -------------------------------------------------------------------------------------------


def _fetched_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        made = yield from existing(told.name())
        topic = made.topics[0].topic_id if version >= 13 else told.name()
        unknown = NOBODY if version >= 13 else told.name("unknown")
        yield produce(told.name(), records(3))
        yield produce(told.name(), records(2, 3))
        for offset in (0, 1, 3, 5, 6, -1):
            yield fetch(topic, offset, version=version)
        yield fetch(topic, 0, 9, version=version)
        yield fetch(unknown, 0, version=version)
        yield fetch(topic, 0, version=version, bytes_=1)
        yield fetch(topic, 0, version=version, isolation_level=READ_COMMITTED)

    return steps


for _version in range(4, 18):
    add(f"fetch_v{_version}", _fetched_in_version(_version))


@story
def fetch_with_epochs_of_leaders(told: Told) -> Steps:
    yield from existing(told.name())
    yield produce(told.name(), records(1))
    yield fetch(told.name(), 0, part={"current_leader_epoch": 0})
    yield fetch(told.name(), 0, part={"current_leader_epoch": 99})
    yield fetch(told.name(), 1, part={"last_fetched_epoch": 0})


@story
def fetch_sessions(told: Told) -> Steps:
    yield from existing(told.name())
    yield produce(told.name(), records(1))
    opened = yield fetch(told.name(), 0, session_epoch=0)
    session = opened.session_id
    yield fetch(told.name(), 0, session_id=session, session_epoch=1, topics=[])
    yield fetch(told.name(), 1, session_id=session, session_epoch=2)
    yield fetch(told.name(), 1, session_id=session, session_epoch=3, topics=[])
    yield fetch(told.name(), 1, session_id=session, session_epoch=9, topics=[])
    yield fetch(told.name(), 1, session_id=session, session_epoch=-1)
    yield fetch(told.name(), 1, session_id=session, session_epoch=4, topics=[])
    yield fetch(told.name(), 1, session_id=session + 1, session_epoch=1, topics=[])


@story
def fetch_from_a_deleted_topic(told: Told) -> Steps:
    made = yield from existing(told.name())
    yield produce(told.name(), records(1))
    yield delete(told.name())
    yield gone(told.name())
    yield fetch(told.name(), 0)
    yield fetch(made.topics[0].topic_id, 0, version=17)


@story
def fetch_several_partitions(told: Told) -> Steps:
    yield from existing(told.name(), 3)
    for partition in range(3):
        yield produce(told.name(), records(2, partition), partition)
    parts = [
        {"partition": p, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1,
         "last_fetched_epoch": -1, "log_start_offset": -1}
        for p in (0, 1, 2, 7)
    ]  # fmt: skip
    yield fetch(told.name(), 0, topics=[{"topic": told.name(), "partitions": parts}])


# --- offsets -----------------------------------------------------------------------------------------


def _listed_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name())
        yield from offsets(told.name(), EARLIEST, LATEST, START, version=version)
        yield produce(told.name(), records(5))
        asked = [EARLIEST, LATEST, START - 1, START, START + 5, START + 40, START + 41]
        asked += [MAX_TIMESTAMP] if version >= 7 else []
        yield from offsets(told.name(), *asked, version=version)
        yield from offsets(told.name(), LATEST, partition=3, version=version)
        yield from offsets(told.name("unknown"), LATEST, version=version)

    return steps


for _version in range(1, 12):
    add(f"list_offsets_v{_version}", _listed_in_version(_version))


@story
def list_offsets_with_timestamps_that_mean_something(told: Told) -> Steps:
    yield from existing(told.name())
    yield produce(told.name(), records(2))
    yield from offsets(told.name(), *range(-7, 0), 0)
    yield from offsets(told.name(), *range(-7, 0), 0, version=3)


@story
def list_offsets_read_committed(told: Told) -> Steps:
    yield from existing(told.name())
    yield produce(told.name(), records(2))
    yield from offsets(told.name(), EARLIEST, LATEST, START, MAX_TIMESTAMP, isolation_level=READ_COMMITTED)


@story
def list_offsets_of_an_empty_partition(told: Told) -> Steps:
    yield from existing(told.name())
    yield from offsets(told.name(), EARLIEST, LATEST, MAX_TIMESTAMP, 0)


@story
def list_offsets_of_the_same_partition_twice(told: Told) -> Steps:
    yield from existing(told.name())
    part = {"partition_index": 0, "timestamp": LATEST, "current_leader_epoch": -1}
    yield call("list_offsets", replica_id=-1, topics=[{"name": told.name(), "partitions": [part, part]}])


@story
def list_offsets_with_disordered_timestamps(told: Told) -> Steps:
    yield from existing(told.name())
    for at in (50, 10, 70, 30):
        yield produce(told.name(), batch([Rec(b"v", b"k", START + at), Rec(b"v", b"k", START + at - 5)]))
    yield from offsets(told.name(), *(START + at for at in (0, 5, 10, 30, 46, 50, 51, 70, 71)), MAX_TIMESTAMP)


# --- deletion and epochs -----------------------------------------------------------------------------


def _deleted_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name())
        yield produce(told.name(), records(5))

        def cut(topic: str, offset: int, partition: int = 0) -> Call:
            part = {"partition_index": partition, "offset": offset}
            return call("delete_records", version, topics=[{"name": topic, "partitions": [part]}], timeout=10_000)

        for offset in (2, 1, 9, -2, 2):
            yield cut(told.name(), offset)
        yield cut(told.name(), 1, 5)
        yield cut(told.name("unknown"), 1)
        yield from offsets(told.name(), EARLIEST, LATEST, START)
        yield fetch(told.name(), 0)
        yield fetch(told.name(), 2)
        yield cut(told.name(), -1)
        yield from offsets(told.name(), EARLIEST, LATEST)
        yield fetch(told.name(), 5)

    return steps


for _version in range(3):
    add(f"delete_records_v{_version}", _deleted_in_version(_version))


@story
def delete_records_of_a_compacted_topic(told: Told) -> Steps:
    yield from existing(told.name(), configs=configs(cleanup_policy="compact"))
    yield produce(told.name(), records(3))
    topics = [{"name": told.name(), "partitions": [{"partition_index": 0, "offset": 1}]}]
    yield call("delete_records", topics=topics, timeout=10_000)


def _ended_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name())
        yield produce(told.name(), records(2))
        for topic, partition, epoch in ((told.name(), 0, 0), (told.name(), 4, 0), (told.name("unknown"), 0, 0)):
            part = {"partition": partition, "leader_epoch": epoch, "current_leader_epoch": -1}
            topics = [{"topic": topic, "partitions": [part]}]
            yield call("offset_for_leader_epoch", version, replica_id=-1, topics=topics)

    return steps


for _version in range(2, 5):
    add(f"offset_for_leader_epoch_v{_version}", _ended_in_version(_version))
