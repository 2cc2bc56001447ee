"""Bad input gets the answer that a Kafka client expects, changes nothing, and does not disturb the next request."""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headwater.log.batch import TRANSACTIONAL_BIT
from headwater.wire.messages import decode_response
from tests.faults.raw import API_VERSIONS, FETCH, LIST_OFFSETS, METADATA, PRODUCE, Closed, Raw, frame, fresh, start
from tests.support.batches import Rec, batch
from tests.support.running import Running

PROMISES = ("K1",)

GOOD = fresh([b"one", b"two"])
NOW_MS = int(time.time() * 1000)
OFFSET_OUT_OF_RANGE, UNKNOWN_LEADER_EPOCH = ErrorCode.offset_out_of_range, ErrorCode.unknown_leader_epoch


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("bad-input")) as running:
        yield running
        failures = [line for line in running.log_lines() if line["message"] == "a handler failed"]
        assert not failures, failures[0]


@pytest.fixture
def topic(server: Running) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    server.create(name, 2)
    return name


@pytest.fixture
def connection(server: Running, topic: str) -> Iterator[Raw]:
    """A connection; after the test the same broker serves a good request, and nothing was written before it."""
    pid = server.broker(1).pid
    with Raw(server.port) as raw:
        yield raw
    with Raw(server.port) as fresh:
        assert [fresh.end_of(topic, p) for p in range(2)] == [0, 0]
        answer = fresh.produce(topic, GOOD)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 0)
        assert fresh.fetch(topic, 0).error_code is ErrorCode.none
    assert server.broker(1).pid == pid


def still_answers(connection: Raw, topic: str) -> None:
    """The same connection goes on after an error that has an answer."""
    assert connection.end_of(topic) == 0


# --- batches ------------------------------------------------------------------------------------------------


def broken_crc() -> bytes:
    data = bytearray(GOOD)
    data[-1] ^= 1
    return bytes(data)


def cut(data: bytes, by: int) -> bytes:
    return data[:-by]


BOMB = "larger than a batch may open to"
BATCHES: dict[str, tuple[Callable[[], bytes | None], ErrorCode]] = {
    "wrong CRC": (broken_crc, ErrorCode.corrupt_message),
    "CRC of nothing": (lambda: batch([b"x"], crc=0), ErrorCode.corrupt_message),
    "magic 0": (lambda: batch([b"x"], magic=0), ErrorCode.invalid_record),
    "magic 1": (lambda: batch([b"x"], magic=1), ErrorCode.invalid_record),
    "magic 3": (lambda: batch([b"x"], magic=3), ErrorCode.corrupt_message),
    "magic -1": (lambda: batch([b"x"], magic=-1), ErrorCode.corrupt_message),
    "codec 5": (lambda: batch([b"x"], attributes=5), ErrorCode.invalid_record),
    "codec 7": (lambda: batch([b"x"], attributes=7), ErrorCode.invalid_record),
    "gzip that is not": (lambda: batch([b"x"], attributes=1), ErrorCode.corrupt_message),
    "snappy that is not": (lambda: batch([b"x"], attributes=2), ErrorCode.corrupt_message),
    "lz4 that is not": (lambda: batch([b"x"], attributes=3), ErrorCode.corrupt_message),
    "zstd that is not": (lambda: batch([b"x"], attributes=4), ErrorCode.corrupt_message),
    "more records than said": (lambda: batch([b"x", b"y"], count=1), ErrorCode.invalid_record),
    "fewer records than said": (lambda: batch([b"x"], count=2), ErrorCode.invalid_record),
    "no records": (lambda: batch([], count=0), ErrorCode.invalid_record),
    "a negative count": (lambda: batch([b"x"], count=-1, last_delta=0), ErrorCode.invalid_record),
    "the largest count": (lambda: batch([b"x"], count=(1 << 31) - 1), ErrorCode.invalid_record),
    "a last delta that does not fit": (lambda: batch([b"x"], last_delta=5), ErrorCode.invalid_record),
    "a negative last delta": (lambda: batch([b"x"], last_delta=-1), ErrorCode.invalid_record),
    "a control batch": (lambda: batch([Rec(b"\0\0\0\0\0\0", b"\0\0\0\1")], attributes=0x20), ErrorCode.invalid_record),
    "log-append time": (lambda: batch([b"x"], attributes=0x08), ErrorCode.invalid_timestamp),
    "a far future": (lambda: batch([Rec(b"x", timestamp=NOW_MS + 10**10)]), ErrorCode.invalid_timestamp),
    "records of nonsense": (lambda: batch([b"x"], body=b"\xff" * 40), ErrorCode.invalid_record),
    "records cut short": (lambda: batch([b"x"], body=b"\x14\0\0\0"), ErrorCode.invalid_record),
    "two batches": (lambda: GOOD + GOOD, ErrorCode.invalid_record),
    "a batch and a half": (lambda: GOOD + GOOD[:30], ErrorCode.invalid_record),
    "a batch cut short": (lambda: cut(GOOD, 3), ErrorCode.invalid_record),
    "a header cut short": (lambda: GOOD[:40], ErrorCode.invalid_record),
    "an empty batch": (lambda: b"", ErrorCode.invalid_record),
    "no batch": (lambda: None, ErrorCode.invalid_record),
    "noise": (lambda: bytes(range(256)), ErrorCode.corrupt_message),
    "too large": (lambda: batch([b"x" * 1_100_000]), ErrorCode.message_too_large),
    BOMB: (lambda: batch([b"\0" * (70 << 20)], codec=4), ErrorCode.message_too_large),
    "a producer without a sequence": (lambda: batch([b"x"], producer=(7, 0, -1)), ErrorCode.invalid_record),
    "a producer without an epoch": (lambda: batch([b"x"], producer=(7, -1, 0)), ErrorCode.invalid_record),
    "a sequence out of nowhere": (lambda: batch([b"x"], producer=(7, 0, 5)), ErrorCode.out_of_order_sequence_number),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_wrong_batch(connection: Raw, topic: str, name: str) -> None:
    make, code = BATCHES[name]
    for version in (12,) if name == BOMB else (3, 8, 12):  # another bomb would have to wait for a while
        answer = connection.produce(topic, make(), version=version)
        assert (answer.error_code, answer.base_offset) == (code, -1), f"v{version}"
    still_answers(connection, topic)


def test_one_wrong_batch_does_not_stop_the_others(connection: Raw, topic: str) -> None:
    """Each partition is judged on its own; the good one is removed again, so that the fixture finds nothing."""
    name = f"{topic}-other"
    data = [
        {"name": topic, "partition_data": [{"index": 0, "records": broken_crc()}, {"index": 7, "records": GOOD}]},
        {"name": name, "partition_data": [{"index": 0, "records": GOOD}]},
    ]
    connection.ask(METADATA, 5, topics=[{"name": name}], allow_auto_topic_creation=True)
    answer = connection.ask(PRODUCE, 9, acks=-1, timeout=10_000, transactional_id=None, topic_data=data)
    codes = [[p.error_code for p in t.partition_responses] for t in answer.responses]
    assert codes == [[ErrorCode.corrupt_message, ErrorCode.unknown_topic_or_partition], [ErrorCode.none]]


# --- produce requests ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", [2, -2, 127, 32767, -32768])
def test_acks_that_do_not_exist(connection: Raw, topic: str, acks: int) -> None:
    assert connection.produce(topic, GOOD, acks=acks).error_code is ErrorCode.invalid_required_acks
    still_answers(connection, topic)


def test_a_wrong_batch_without_acks_is_not_answered(connection: Raw, topic: str) -> None:
    data = [{"name": topic, "partition_data": [{"index": 0, "records": broken_crc()}]}]
    connection.send(frame(PRODUCE, 9, 77, acks=0, timeout=1000, transactional_id=None, topic_data=data))
    still_answers(connection, topic)


@pytest.mark.parametrize("partition", [-1, 2, -(1 << 31), (1 << 31) - 1])
def test_a_partition_that_does_not_exist(connection: Raw, topic: str, partition: int) -> None:
    unknown = ErrorCode.unknown_topic_or_partition
    assert connection.produce(topic, GOOD, partition=partition).error_code is unknown
    assert connection.fetch(topic, 0, partition=partition).error_code is unknown
    asked = [{"partition_index": partition, "timestamp": -1, "current_leader_epoch": -1}]
    answer = connection.ask(LIST_OFFSETS, 5, replica_id=-1, topics=[{"name": topic, "partitions": asked}])
    assert answer.topics[0].partitions[0].error_code is unknown
    still_answers(connection, topic)


@pytest.mark.parametrize("name", ["nobody-made-this", "", "a/b", "..", "x" * 300, "ключ"])
def test_a_topic_that_does_not_exist(connection: Raw, topic: str, name: str) -> None:
    unknown = ErrorCode.unknown_topic_or_partition
    assert connection.produce(name, GOOD).error_code is unknown
    assert connection.fetch(name, 0).error_code is unknown
    still_answers(connection, topic)


def test_a_topic_id_that_does_not_exist(connection: Raw, topic: str) -> None:
    strange = uuid.uuid4()
    data = [{"topic_id": strange, "partition_data": [{"index": 0, "records": GOOD}]}]
    answer = connection.ask(PRODUCE, 13, acks=-1, timeout=1000, transactional_id=None, topic_data=data)
    assert answer.responses[0].partition_responses[0].error_code is ErrorCode.unknown_topic_id
    wanted = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100, "current_leader_epoch": -1}]
    fetched = connection.ask(
        FETCH, 13, max_wait=0, min_bytes=0, max_bytes=100, session_id=0, session_epoch=-1,
        topics=[{"topic_id": strange, "partitions": wanted}],
    )  # fmt: skip
    assert fetched.responses[0].partitions[0].error_code is ErrorCode.unknown_topic_id
    still_answers(connection, topic)


def test_a_transaction_that_nobody_began(connection: Raw, topic: str) -> None:
    strange = batch([Rec(b"x")], attributes=TRANSACTIONAL_BIT, producer=(7, 0, 0))
    answer = connection.produce(topic, strange, transactional_id="tx")
    assert answer.error_code is ErrorCode.invalid_producer_id_mapping
    answer = connection.produce(topic, strange)
    assert answer.error_code is ErrorCode.transactional_id_authorization_failed
    still_answers(connection, topic)


@pytest.mark.parametrize("timeout", [0, -1, -(1 << 31), (1 << 31) - 1])
def test_a_strange_timeout_is_survived(connection: Raw, topic: str, timeout: int) -> None:
    """A wrong batch, so that the outcome does not depend on the time."""
    answer = connection.produce(topic, broken_crc(), timeout=timeout)
    assert answer.error_code is ErrorCode.corrupt_message
    still_answers(connection, topic)


# --- fetch and offsets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [1, -1, -2, 1 << 40, (1 << 63) - 1, -(1 << 63)])
def test_an_offset_outside_the_log(connection: Raw, topic: str, offset: int) -> None:
    for version in (4, 11, 12):
        answer = connection.fetch(topic, offset, version=version)
        assert answer.error_code is OFFSET_OUT_OF_RANGE
        assert not answer.records
    still_answers(connection, topic)


@pytest.mark.parametrize("epoch", [1, (1 << 31) - 1])
def test_a_leader_epoch_that_nobody_had(connection: Raw, topic: str, epoch: int) -> None:
    assert connection.fetch(topic, 0, current_leader_epoch=epoch).error_code is UNKNOWN_LEADER_EPOCH
    wanted = [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": epoch}]
    answer = connection.ask(LIST_OFFSETS, 5, replica_id=-1, topics=[{"name": topic, "partitions": wanted}])
    assert answer.topics[0].partitions[0].error_code is UNKNOWN_LEADER_EPOCH
    ask = [{"partition": 0, "current_leader_epoch": epoch, "leader_epoch": 0}]
    answer = connection.ask(23, 3, replica_id=-1, topics=[{"topic": topic, "partitions": ask}])
    assert answer.topics[0].partitions[0].error_code is UNKNOWN_LEADER_EPOCH
    still_answers(connection, topic)


@pytest.mark.parametrize("size", [0, -1, -(1 << 31), (1 << 31) - 1])
def test_absurd_sizes_of_a_fetch(connection: Raw, topic: str, size: int) -> None:
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": size, "current_leader_epoch": -1}
    for fields in ({"max_bytes": size}, {"min_bytes": size}, {"max_wait": min(size, 100)}):
        asked = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1000, "session_id": 0, "session_epoch": -1, **fields}
        answer = connection.ask(FETCH, 11, replica_id=-1, topics=[{"topic": topic, "partitions": [wanted]}], **asked)
        assert answer.responses[0].partitions[0].error_code is ErrorCode.none
    still_answers(connection, topic)


@pytest.mark.parametrize(
    ("session", "epoch", "code"),
    [
        (12345, 1, ErrorCode.fetch_session_id_not_found),
        (0, 5, ErrorCode.fetch_session_id_not_found),
        (-1, 7, ErrorCode.fetch_session_id_not_found),
        (0, -2, ErrorCode.fetch_session_id_not_found),
    ],
)
def test_a_fetch_session_that_does_not_exist(
    connection: Raw, topic: str, session: int, epoch: int, code: ErrorCode
) -> None:
    answer = connection.ask(
        FETCH, 11, replica_id=-1, max_wait=0, min_bytes=0, max_bytes=100, session_id=session, session_epoch=epoch,
        topics=[],
    )  # fmt: skip
    assert answer.error_code is code
    still_answers(connection, topic)


def test_a_timestamp_that_means_nothing(connection: Raw, topic: str) -> None:
    for timestamp in (-7, -100, -(1 << 63)):
        wanted = [{"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}]
        answer = connection.ask(LIST_OFFSETS, 5, replica_id=-1, topics=[{"name": topic, "partitions": wanted}])
        assert answer.topics[0].partitions[0].error_code is ErrorCode.unsupported_version
    still_answers(connection, topic)


# --- frames -------------------------------------------------------------------------------------------------


def closes(connection: Raw, data: bytes) -> None:
    with pytest.raises(Closed):
        connection.send(data)
        connection.receive()


@pytest.mark.parametrize("key", [-1, 999, 32767, -32768, 4, 11, 71])
def test_an_api_that_is_not_there(connection: Raw, key: int) -> None:
    """4 and 71 exist in Kafka, but are for brokers and for telemetry."""
    closes(connection, start(key, 0, rest=b"\0\0\0\0"))


@pytest.mark.parametrize(("key", "version"), [(0, 2), (0, 99), (1, 3), (1, 19), (3, -1), (3, 14), (19, 1), (22, 32767)])
def test_a_version_that_is_not_served(connection: Raw, key: int, version: int) -> None:
    closes(connection, start(key, version, rest=b"\0\0\0\0"))


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_api_versions_of_the_future_is_answered_in_version_0(connection: Raw, topic: str, version: int) -> None:
    connection.send(start(API_VERSIONS, version, 42, b"whatever the future brings"))
    correlation_id, answer = decode_response(API_VERSIONS, 0, memoryview(connection.receive()))
    assert correlation_id == 42
    assert answer.error_code is ErrorCode.unsupported_version
    [own] = answer.api_keys
    assert (own.api_key, own.min_version, own.max_version) == (API_VERSIONS, 0, 4)
    still_answers(connection, topic)


@pytest.mark.parametrize("name", ["", "a b", "näme/", "-x", "x-"])
def test_api_versions_with_a_strange_client(connection: Raw, topic: str, name: str) -> None:
    answer = connection.ask(API_VERSIONS, 3, client_software_name=name, client_software_version="1")
    assert answer.error_code is ErrorCode.invalid_request
    still_answers(connection, topic)


@pytest.mark.parametrize("size", [-1, 0, 7, -(1 << 31), (1 << 31) - 1, (100 << 20) + 1])
def test_a_frame_of_an_absurd_size(connection: Raw, size: int) -> None:
    closes(connection, struct.pack(">i", size) + b"\0" * 64)


def test_what_is_not_kafka(connection: Raw) -> None:
    closes(connection, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")


def test_tls(connection: Raw) -> None:
    closes(connection, bytes.fromhex("16030100f8010000f40303") + bytes(240))


def mangled(how: str) -> bytes:
    data = [{"name": "t", "partition_data": [{"index": 0, "records": GOOD}]}]
    whole = frame(PRODUCE, 8, acks=-1, timeout=1000, transactional_id=None, topic_data=data)
    body = whole[4:]
    if how == "cut short":
        body = body[:-5]
    elif how == "a huge array":
        body = body[: 8 + 5] + b"\xff\xff\xff\xff\x00\x00\x03\xe8\x7f\xff\xff\xff"
    elif how == "a string that is not UTF-8":
        body = body.replace(b"raw", b"\xff\xfe\xfd")
    elif how == "nothing behind the start":
        body = body[:8]
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize("how", ["cut short", "a huge array", "a string that is not UTF-8", "nothing behind the start"])
def test_a_mangled_request(connection: Raw, how: str) -> None:
    closes(connection, mangled(how))


def test_a_frame_that_never_comes_whole(connection: Raw, server: Running, topic: str) -> None:
    """It waits for its rest while others are served, and is forgotten with its connection."""
    connection.send(struct.pack(">i", 90 << 20) + b"\0\0\0\x09")
    with Raw(server.port) as other:
        still_answers(other, topic)


def flexible(version: int, body: bytes, header_tags: bytes = b"\0") -> bytes:
    """A Metadata request of version 9 or later."""
    return start(METADATA, version, rest=struct.pack(">h", 3) + b"raw" + header_tags + body)


@pytest.mark.parametrize("count", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\x7f", b"\xff\xff\x7f", b"\x7f"])
def test_an_array_of_more_elements_than_bytes(connection: Raw, count: bytes) -> None:
    """kio makes room for the elements first, and ends the process if there is none."""
    closes(connection, flexible(9, count + b"\0" * 8))


def test_a_null_array_out_of_place(connection: Raw) -> None:
    closes(connection, start(LIST_OFFSETS, 1, rest=struct.pack(">hi", -1, -1) + struct.pack(">i", -1)))


def test_tagged_fields_that_nobody_knows_are_ignored(connection: Raw, topic: str) -> None:
    """In the header, in a topic and in the body, as the protocol demands."""
    name = topic.encode()
    wanted = bytes([2, len(name) + 1]) + name + b"\x01\x64\x02ab"
    connection.send(flexible(9, wanted + b"\0\0\0" + b"\x02\x50\x01x\x51\x00", b"\x01\x63\x03abc"))
    _, answer = decode_response(METADATA, 9, memoryview(connection.receive()))
    assert [(t.name, t.error_code) for t in answer.topics] == [(topic, ErrorCode.none)]


@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_a_topic_without_a_name_and_without_an_id(connection: Raw, topic: str, version: int) -> None:
    wanted = [{"name": None, "topic_id": None}]
    [answer] = connection.ask(METADATA, version, topics=wanted, allow_auto_topic_creation=True).topics
    assert answer.error_code is ErrorCode.invalid_request
    wanted = [{"name": None, "topic_id": uuid.uuid4()}]
    [answer] = connection.ask(METADATA, version, topics=wanted, allow_auto_topic_creation=True).topics
    assert answer.error_code is (ErrorCode.unknown_topic_id if version >= 12 else ErrorCode.invalid_request)
    still_answers(connection, topic)


def test_a_cursor_before_the_first_partition(connection: Raw, topic: str) -> None:
    cursor = {"topic_name": topic, "partition_index": -3}
    answer = connection.ask(75, 0, topics=[{"name": topic}], response_partition_limit=10, cursor=cursor)
    assert [t.error_code for t in answer.topics] == [ErrorCode.invalid_request]
    still_answers(connection, topic)


# --- admin --------------------------------------------------------------------------------------------------


CREATIONS: list[tuple[dict[str, Any], ErrorCode]] = [
    ({"name": "", "num_partitions": 1}, ErrorCode.invalid_topic_exception),
    ({"name": "..", "num_partitions": 1}, ErrorCode.invalid_topic_exception),
    ({"name": "a b", "num_partitions": 1}, ErrorCode.invalid_topic_exception),
    ({"name": "x" * 250, "num_partitions": 1}, ErrorCode.invalid_topic_exception),
    ({"name": "n", "num_partitions": 0}, ErrorCode.invalid_partitions),
    ({"name": "n", "num_partitions": -2}, ErrorCode.invalid_partitions),
    ({"name": "n", "num_partitions": 1 << 30}, ErrorCode.invalid_partitions),
    ({"name": "n", "num_partitions": 1, "configs": [{"name": "no.such", "value": "1"}]}, ErrorCode.invalid_config),
    ({"name": "n", "num_partitions": 1, "configs": [{"name": "retention.ms", "value": "x"}]}, ErrorCode.invalid_config),
    ({"name": "n", "num_partitions": 1, "configs": [{"name": "retention.ms", "value": ""}]}, ErrorCode.invalid_config),
    ({"name": "n", "num_partitions": 1, "configs": [{"name": "segment.ms", "value": None}]}, ErrorCode.invalid_config),
    ({"name": "n", "num_partitions": 3, "assignments": [{"partition_index": 9, "broker_ids": [1]}]},
     ErrorCode.invalid_request),
]  # fmt: skip


@pytest.mark.parametrize(("wanted", "code"), CREATIONS)
def test_a_topic_that_cannot_be_made(connection: Raw, topic: str, wanted: dict[str, Any], code: ErrorCode) -> None:
    answer = connection.ask(19, 5, topics=[{"replication_factor": 1, **wanted}], timeout=1000, validate_only=False)
    assert answer.topics[0].error_code is code
    still_answers(connection, topic)
    known = {t.name for t in connection.ask(METADATA, 5, topics=None, allow_auto_topic_creation=False).topics}
    assert wanted["name"] not in known


def test_records_cannot_be_deleted_beyond_the_end(connection: Raw, topic: str) -> None:
    for offset in (1, -2, 1 << 40):
        wanted = [{"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}]
        answer = connection.ask(21, 1, topics=wanted, timeout=1000)
        assert answer.topics[0].partitions[0].error_code is OFFSET_OUT_OF_RANGE
    still_answers(connection, topic)
