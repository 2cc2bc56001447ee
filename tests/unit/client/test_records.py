"""Batches there and back, what other encoders make of them, and what is wrong with wrong ones."""

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.client.partitioner import Sticky, murmur2, partition_of_key
from headwater.client.records import (
    Batch,
    Record,
    decode_batches,
    encode_batch,
    producer_of,
)
from headwater.errors import BadInput, CorruptBatch, HeadwaterError, TooLarge, UnsupportedBatch
from headwater.log.batch import BatchRules, check_batch
from headwater.wire.codecs import GZIP, LZ4, NONE, SNAPPY, ZSTD, decompress
from tests.support.batches import Rec, batch

CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
FIRST_MS = 1_700_000_000_000

blobs = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=20), blobs), max_size=4).map(tuple)
records = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp=st.integers(0, 1 << 45),
        key=blobs,
        value=blobs,
        headers=headers,
    ),
    min_size=1,
    max_size=40,
)


def numbered(wanted: list[Record], base: int = 0) -> tuple[Record, ...]:
    return tuple(Record(base + i, r.timestamp, r.key, r.value, r.headers) for i, r in enumerate(wanted))


def only(data: bytes) -> Batch:
    (found,) = decode_batches(data)
    return found


@given(records, st.sampled_from([NONE, ZSTD]))
def test_what_is_encoded_is_decoded(wanted: list[Record], codec: int) -> None:
    assert only(encode_batch(wanted, codec=codec)) == Batch(0, len(wanted), False, numbered(wanted))


@given(records, st.sampled_from(CODECS))
def test_batches_of_another_encoder(wanted: list[Record], codec: int) -> None:
    foreign = batch(
        [Rec(r.value, r.key, r.timestamp, tuple((name.encode(), value) for name, value in r.headers)) for r in wanted],
        codec=codec,
    )
    assert only(foreign).records == numbered(wanted)
    if codec == NONE:
        assert foreign == encode_batch(wanted)


@given(records, st.sampled_from([NONE, ZSTD]))
def test_the_broker_accepts_what_is_encoded(wanted: list[Record], codec: int) -> None:
    far = 1 << 50
    rules = BatchRules(
        1 << 20, 1 << 26, timestamp_before_ms=far, timestamp_after_ms=far, append_time=False, compacted=False
    )
    data = encode_batch(wanted, codec=codec, producer_id=7, producer_epoch=1, base_sequence=3)
    checked = check_batch(data, rules, FIRST_MS)
    assert checked.data == data
    assert (checked.offsets, checked.producer_id, checked.producer_epoch, checked.base_sequence) == (
        len(wanted),
        7,
        1,
        3,
    )
    assert checked.max_timestamp == max(r.timestamp for r in wanted)


def test_raw_snappy() -> None:
    payload = b"0123456789" * 1000
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(payload)), 1 << 20) == payload


def test_several_batches_and_a_cut_one() -> None:
    first, second = (encode_batch([Record(0, FIRST_MS, None, value)]) for value in (b"one", b"two"))
    moved = (5).to_bytes(8, "big") + second[8:]
    for cut in range(1, len(first)):
        found = list(decode_batches(first + moved + first[:-cut]))
        assert [r.offset for b in found for r in b.records] == [0, 5]


def test_log_append_time_counts_for_all_records() -> None:
    data = batch([Rec(b"a", timestamp=5), Rec(b"b", timestamp=9)], attributes=0x08, max_timestamp=77)
    assert [r.timestamp for r in only(data).records] == [77, 77]


def test_control_and_emptied_batches_have_no_records_but_take_offsets() -> None:
    assert only(batch([b"marker"], attributes=0x20)) == Batch(0, 1, True, ())
    assert only(batch([], last_delta=9, codec=NONE)) == Batch(0, 10, False, ())


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (batch([b"x"], crc=1), CorruptBatch),
        (batch([b"x"], magic=1), UnsupportedBatch),
        (batch([b"x"], attributes=0x07), UnsupportedBatch),
        (batch([b"x", b"y"], count=3, last_delta=2), CorruptBatch),
        (batch([b"x", b"y"], count=1, last_delta=0), CorruptBatch),
        (batch([b"x"], body=b"\x0e\x00\x00\x00\x01\x04x\x00"), CorruptBatch),
        (batch([b"x"], body=b"\xff" * 11), CorruptBatch),
        (batch([b"x"], attributes=ZSTD, body=b"no zstd"), CorruptBatch),
        (b"\x00" * 8 + b"\xff\xff\xff\xff" + b"\x00" * 60, CorruptBatch),
        (b"\x00" * 8 + b"\x00\x00\x00\x01" + b"\x00" * 60, UnsupportedBatch),
    ],
)
def test_wrong_batches_are_refused(data: bytes, error: type[HeadwaterError]) -> None:
    with pytest.raises(error):
        list(decode_batches(data))


@given(st.data())
def test_a_changed_byte_is_an_error_and_never_another_exception(data: st.DataObject) -> None:
    good = encode_batch([Record(0, FIRST_MS, b"key", b"value" * 5, (("h", b"v"),))])
    at = data.draw(st.integers(16, len(good) - 1))
    bad = bytearray(good)
    bad[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises((CorruptBatch, UnsupportedBatch)):
        list(decode_batches(bytes(bad)))


@given(st.binary(max_size=200), st.integers(1, 10))
def test_no_body_makes_another_exception(body: bytes, count: int) -> None:
    try:
        list(decode_batches(batch([b""] * count, body=body)))
    except CorruptBatch:
        pass


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_what_opens_to_too_much_is_refused(codec: int) -> None:
    data = batch([b"\0" * 300_000], codec=codec)
    assert len(only(data).records) == 1
    with pytest.raises(TooLarge):
        list(decode_batches(data, opened_limit=100_000))


def test_what_cannot_be_encoded_is_refused() -> None:
    with pytest.raises(TooLarge):
        encode_batch([])
    with pytest.raises(BadInput):
        encode_batch([Record(0, 1 << 63, None, None)])
    with pytest.raises(BadInput):
        encode_batch([Record(0, 0, None, None, (("\ud800", None),))])
    with pytest.raises(UnsupportedBatch):
        encode_batch([Record(0, 0, None, None)], codec=5)


def test_producer_of() -> None:
    assert producer_of(encode_batch([Record(0, 0, None, None)])) == -1
    assert producer_of(encode_batch([Record(0, 0, None, None)], producer_id=1 << 40)) == 1 << 40
    with pytest.raises(CorruptBatch):
        producer_of(b"short")


# From org.apache.kafka.common.utils.UtilsTest.testMurmur2.
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


@pytest.mark.parametrize(("key", "partitions", "expected"), [(b"foobar", 10, 6), (b"foobar", 50, 16), (b"", 1, 0)])
def test_the_hash_is_taken_without_its_sign(key: bytes, partitions: int, expected: int) -> None:
    assert partition_of_key(key, partitions) == expected


class Fixed:
    """Randomness that is none."""

    def __init__(self, *fractions: float) -> None:
        self._fractions = list(fractions)

    def fraction(self) -> float:
        return self._fractions.pop(0)

    def uuid(self) -> None:  # type: ignore[override]
        raise NotImplementedError


def test_records_without_a_key_stick_until_a_batch_is_closed() -> None:
    sticky = Sticky(Fixed(0.5, 0.99, 0.0))  # type: ignore[arg-type]
    assert [sticky.choose([0, 1, 2]) for _ in range(3)] == [1, 1, 1]
    sticky.closed(2)
    assert sticky.choose([0, 1, 2]) == 1
    sticky.closed(1)
    assert sticky.choose([0, 1, 2]) == 2
    sticky.closed(2)
    assert sticky.choose([2]) == 2
