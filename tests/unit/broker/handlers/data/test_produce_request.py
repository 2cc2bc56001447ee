"""A Produce request read in one pass is the one that kio and `check_batch` read, on sound and on spoiled frames."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.broker.handlers.data.produce_request import ProduceRequest, of_body, read_frame, without_repetition
from headwater.errors import CorruptFrame, HeadwaterError
from headwater.log.batch import CRC_FROM, Batch, BatchRules, check_batch
from headwater.log.kernels import switch
from headwater.wire.build import build
from headwater.wire.messages import decode_request, encode_request, read_start, request_type
from headwater.wire.skim import skim
from tests.support.batches import Rec, batch
from tests.support.promise import promise
from tests.support.soak import examples

PRODUCE, FIRST, LAST = 0, 3, 13
NOW = 1_700_000_000_000
LAX = BatchRules(1 << 20, 1 << 20, 1 << 62, 1 << 62, append_time=False, compacted=False)
RULES = (
    LAX,
    BatchRules(150, 1 << 20, 1 << 62, 1 << 62, append_time=False, compacted=False),
    BatchRules(1 << 20, 1 << 20, 1_000, 1_000, append_time=False, compacted=False),
    BatchRules(1 << 20, 1 << 20, 0, 0, append_time=True, compacted=True),
)


@pytest.fixture(scope="module", autouse=True)
def compiled() -> Iterator[None]:
    before = switch.walk_records, switch.produce_rows
    switch.compile_kernels()
    yield
    switch.walk_records, switch.produce_rows = before


blobs = st.none() | st.binary(max_size=30)
times = st.just(NOW) | st.integers(NOW - 2_000, NOW + 2_000) | st.integers(-(1 << 63), (1 << 63) - 1)
recs = st.builds(Rec, blobs, blobs, times, st.just(()) | st.just(((b"name", None),)))
sound = st.builds(
    batch,
    st.lists(st.builds(Rec, blobs, blobs, st.integers(NOW, NOW + 2_000)), min_size=1, max_size=5),
    producer=st.sampled_from([(-1, -1, -1), (7, 0, 0), (1 << 40, 3, (1 << 31) - 1)]),
)
transactional = st.builds(
    batch,
    st.lists(st.builds(Rec, blobs, blobs, st.integers(NOW, NOW + 2_000)), min_size=1, max_size=5),
    producer=st.sampled_from([(7, 0, 0), (7, 1, 5), (1 << 40, 32_766, (1 << 31) - 1)]),
    codec=st.sampled_from([0, 0, 0, 4]),
    attributes=st.just(0x10),
)
odd = st.builds(
    batch,
    st.lists(recs, max_size=4),
    producer=st.sampled_from([(-1, -1, -1), (7, 0, -1), (7, -1, 0)]),
    codec=st.integers(0, 4),
    attributes=st.sampled_from([0, 0, 0x08, 0x10, 0x20]),
    magic=st.sampled_from([2, 2, 2, 1]),
    count=st.none() | st.integers(-1, 5),
    max_timestamp=st.none() | st.just(NOW),
    crc=st.none() | st.just(1),
)
versions = st.integers(FIRST, LAST)


def topics_of(version: int, data: st.SearchStrategy[bytes | None], partitions: int) -> st.SearchStrategy[Any]:
    content = st.fixed_dictionaries({"index": st.integers(-1, 5), "records": data})
    name: dict[str, st.SearchStrategy[Any]] = {"name": st.text(max_size=8)}
    if version >= LAST:
        name = {"topic_id": st.just(uuid.UUID(int=0)) | st.uuids()}
    listed = st.lists(content, min_size=1, max_size=partitions)
    return st.lists(st.fixed_dictionaries({**name, "partition_data": listed}), min_size=1, max_size=3)


def framed(version: int, **fields: Any) -> bytes:
    return b"".join(encode_request(PRODUCE, version, 9, "client", build(request_type(PRODUCE, version), **fields)))[4:]


@st.composite
def sound_frames(draw: st.DrawFn) -> bytes:
    version = draw(versions)
    acks, timeout = draw(st.integers(-2, 2)), draw(st.integers(0, 100_000))
    id, data = draw(st.sampled_from([(None, sound), ("tx", transactional), ("", sound | transactional)]))
    topic_data = draw(topics_of(version, data, 4))
    return framed(version, acks=acks, timeout=timeout, transactional_id=id, topic_data=topic_data)


@st.composite
def odd_frames(draw: st.DrawFn) -> bytes:
    version = draw(versions)
    data = st.none() | st.binary(max_size=70) | sound | odd
    transactional_id = draw(st.none() | st.none() | st.text(max_size=3))
    topic_data = draw(st.just([]) | topics_of(version, data, 3))
    return framed(version, acks=-1, timeout=5, transactional_id=transactional_id, topic_data=topic_data)


def outcome(request: ProduceRequest, partition: Any, rules: BatchRules) -> Batch | tuple[type, str, Any]:
    try:
        quick = request.batches.quick(partition, rules, NOW)
        return quick if quick is not None else check_batch(request.batches.data(partition), rules, NOW)
    except HeadwaterError as error:
        return type(error), str(error), getattr(error, "records", ())


def agrees(frame: bytes) -> bool:
    """Whether the frame was read in one pass; if so, all must be as in the general way."""
    view = memoryview(frame)
    start = read_start(view)
    read = read_frame(start, view)
    if read is None:
        return False
    client, quick = read
    header, body = decode_request(start, skim(request_type(PRODUCE, start.version), view))
    general = of_body(start.version, body)
    assert client == (header.client_id or "")
    assert (quick.acks, quick.timeout_ms) == (general.acks, general.timeout_ms)
    assert (quick.transaction, quick.producers) == (general.transaction, general.producers)
    assert [topic for topic, _ in quick.topics] == [topic for topic, _ in general.topics]
    assert quick.batches.keep(quick.topics) == len(frame)
    for (_, ours), (_, theirs) in zip(quick.topics, general.topics, strict=True):
        assert [partition[0] for partition in ours] == [partition[0] for partition in theirs]
        for one, other in zip(ours, theirs, strict=True):
            for rules in RULES:
                assert outcome(quick, one, rules) == outcome(general, other, rules)
    return True


@promise("K3", "K12")
@settings(max_examples=examples(200), deadline=None)
@given(frame=sound_frames())
def test_sound_requests_are_read_in_one_pass(frame: bytes) -> None:
    """Every version, with and without transactions; nothing that clients usually send is declined."""
    assert agrees(frame)


@promise("K3")
@settings(max_examples=examples(300), deadline=None)
@given(frame=odd_frames())
def test_odd_batches_get_the_same_verdicts(frame: bytes) -> None:
    """Compressed, wrong, empty and transactional ones; nulls; the same errors with the same words."""
    view = memoryview(frame)
    header, body = decode_request(read_start(view), view)
    declined = (
        header.client_id is None
        or not body.topic_data
        or any(p.records is None for t in body.topic_data for p in t.partition_data)
    )
    assert agrees(frame) is not declined


@promise("K3")
@settings(max_examples=examples(600), deadline=None)
@given(frame=sound_frames(), data=st.data())
def test_spoiled_requests(frame: bytes, data: st.DataObject) -> None:
    """A byte changed, cut off or put in; a length that lies; with and without a CRC that fits."""
    spoiled = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(8, len(spoiled) - 1))
        change = data.draw(st.integers(0, 3))
        if change == 0:
            spoiled[at] = data.draw(st.integers(0, 255))
        elif change == 1:
            del spoiled[data.draw(st.integers(at, len(spoiled))) :]
        elif change == 2:
            spoiled[at:at] = data.draw(st.binary(max_size=3))
        else:
            spoiled[at] ^= 1 << data.draw(st.integers(0, 7))
        if len(spoiled) < 9:
            break
    view = memoryview(bytes(spoiled))
    try:
        decode_request(read_start(view), skim(request_type(PRODUCE, read_start(view).version), view))
    except CorruptFrame:
        assert read_frame(read_start(view), view) is None
    else:
        agrees(bytes(view))


@promise("K3")
@settings(max_examples=examples(400), deadline=None)
@given(good=sound, version=versions, data=st.data())
def test_spoiled_records_under_a_sound_crc(good: bytes, version: int, data: st.DataObject) -> None:
    """The loops over records, not only the CRC, see what is wrong."""
    spoiled = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        spoiled[data.draw(st.integers(CRC_FROM, len(spoiled) - 1))] = data.draw(st.integers(0, 255))
    spoiled[17:21] = crc32c(spoiled[CRC_FROM:]).to_bytes(4, "big")
    topic = {"topic_id": uuid.UUID(int=5)} if version >= LAST else {"name": "t"}
    partitions = [{"index": 0, "records": bytes(spoiled)}, {"index": 1, "records": good}]
    frame = framed(version, acks=1, timeout=1, topic_data=[{**topic, "partition_data": partitions}])
    assert agrees(frame)


@promise("K12")
def test_transactional_batches_are_checked_in_the_pass() -> None:
    """`check_batch` sees none of them, unless it is compressed or wrong."""
    data = batch([Rec(b"x", b"k", NOW)], attributes=0x10, producer=(7, 2, 0))
    nobody = batch([Rec(b"x", b"k", NOW)], attributes=0x10)
    for version in range(FIRST, LAST + 1):
        topic = {"topic_id": uuid.UUID(int=5)} if version >= LAST else {"name": "t"}
        partitions = [{"index": 0, "records": data}, {"index": 1, "records": nobody}]
        fields = {"acks": -1, "timeout": 1, "topic_data": [{**topic, "partition_data": partitions}]}
        view = memoryview(framed(version, transactional_id="tx", **fields))
        read = read_frame(read_start(view), view)
        assert read is not None
        request = read[1]
        assert (request.transaction, request.producers) == ("tx", {(7, 2), (-1, -1)})
        [(_, [good, other])] = request.topics
        assert request.batches.quick(good, LAX, NOW) == Batch(data, 1, NOW, NOW, 7, 2, 0, True)
        assert request.batches.quick(other, LAX, NOW) == Batch(nobody, 1, NOW, NOW, -1, -1, -1, False)
        assert agrees(bytes(view))


@promise("K3")
def test_many_partitions_are_declined() -> None:
    """The rows have a limit; beyond it the general way serves."""
    partitions = [{"index": i, "records": b""} for i in range(switch.MAX_ROWS)]
    fields = {"acks": 1, "timeout": 1}
    assert not agrees(framed(9, **fields, topic_data=[{"name": "t", "partition_data": partitions}]))
    assert agrees(framed(9, **fields, topic_data=[{"name": "t", "partition_data": partitions[2:]}]))


@promise("K3")
@given(
    topics=st.lists(
        st.tuples(st.sampled_from("ab"), st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=2)), min_size=1)),
        min_size=1,
    )
)
def test_the_last_of_the_same_partition_counts(topics: list[Any]) -> None:
    """A partition named twice is written once, with what came last."""
    body = build(
        request_type(PRODUCE, 12),
        acks=1,
        timeout=1,
        topic_data=[
            {"name": name, "partition_data": [{"index": i, "records": data} for i, data in partitions]}
            for name, partitions in topics
        ],
    )
    wanted = {(name, index): data for name, partitions in topics for index, data in partitions}
    found = without_repetition(of_body(12, body)).topics
    assert len(found) == len(dict(found))
    assert [(name, i, data) for name, partitions in found for i, data in partitions] == [
        (name, i, wanted[name, i]) for name in dict(topics) for i in dict.fromkeys(i for n, i in wanted if n == name)
    ]
