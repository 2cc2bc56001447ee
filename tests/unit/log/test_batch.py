"""Every check on a record batch, and every patch."""

import struct

import cramjam
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from headwater.client.records import Batch as DecodedBatch
from headwater.client.records import decode_batches
from headwater.errors import BadInput, CorruptBatch, InvalidRecord, InvalidTimestamp, TooLarge, UnsupportedBatch
from headwater.log.batch import (
    APPEND_TIME_BIT,
    CONTROL_BIT,
    HEADER_BYTES,
    LONG_MAX,
    MAX_RECORD_ERRORS,
    TRANSACTIONAL_BIT,
    Batch,
    BatchRules,
    BrokenBatch,
    NotABatch,
    base_offset_of,
    check_batch,
    empty_batch,
    empty_batches,
    join_patched,
    max_timestamp_of,
    offsets_of,
    read_varint,
    record_timestamps,
    split_batches,
    transactional_producer,
    with_append_time,
)
from tests.support.batches import Rec, batch, record, varint
from tests.support.promise import promise

PROMISES = ("K3", "K5", "L1")

NOW = 1_700_000_000_000
CODECS = range(5)


def rules(**changes: int | bool) -> BatchRules:
    base = {
        "max_bytes": 1 << 20,
        "max_opened_bytes": 1 << 22,
        "timestamp_before_ms": LONG_MAX,
        "timestamp_after_ms": 3_600_000,
        "append_time": False,
        "compacted": False,
    }
    return BatchRules(**(base | changes))  # type: ignore[arg-type]


RULES = rules()


def check(data: bytes, **changes: int | bool) -> Batch:
    return check_batch(data, rules(**changes), NOW)


def crc_is_right(data: bytes) -> bool:
    return struct.unpack_from(">I", data, 17)[0] == crc32c(data[21:])


# --- what passes ---------------------------------------------------------------------------------------


@promise("K3")
@pytest.mark.parametrize("codec", CODECS)
def test_a_sound_batch_is_kept_as_it_came(codec: int) -> None:
    """With any codec; what the index needs is read from it."""
    recs = [Rec(b"x" * 100, b"k", NOW + i, ((b"h", None), (b"h", b"v"))) for i in (5, 0, 9)]
    data = batch(recs, codec=codec, producer=(7, 1, 40))
    assert check(data) == Batch(data, 3, NOW, NOW + 9, 7, 1, 40)


@promise("K3")
def test_null_and_empty_values() -> None:
    data = batch([Rec(None, None), Rec(b"", b""), Rec(None, b"k"), Rec(b"v", None)])
    assert check(data).data is data


@promise("K12")
def test_transactional_bit_is_carried() -> None:
    """It is for the state to judge."""
    data = batch([b"x"], attributes=TRANSACTIONAL_BIT, producer=(7, 0, 0))
    assert check(data).producer_id == 7


# --- what does not -------------------------------------------------------------------------------------


def bad_batches() -> dict[str, tuple[bytes, type[BadInput]]]:
    good = batch([b"one", b"two"])
    body = record(0, Rec(b"one"), NOW) + record(1, Rec(b"two"), NOW)
    two = [b"one", b"two"]
    return {
        "nothing": (b"", NotABatch),
        "cut in the header": (good[: HEADER_BYTES - 1], NotABatch),
        "cut in the body": (good[:-1], NotABatch),
        "two batches": (good + good, NotABatch),
        "one byte more": (good + b"\0", NotABatch),
        "crc": (batch(two, crc=1), BrokenBatch),
        "magic 0": (batch(two, magic=0), UnsupportedBatch),
        "magic 1": (batch(two, magic=1), UnsupportedBatch),
        "magic 3": (batch(two, magic=3), BrokenBatch),
        "no records": (batch([], count=0), InvalidRecord),
        "negative count": (batch(two, count=-1, last_delta=-2), InvalidRecord),
        "count too small": (batch(two, count=1, last_delta=0), InvalidRecord),
        "count too large": (batch(two, count=3, last_delta=2), InvalidRecord),
        "huge count": (batch(two, count=(1 << 31) - 1), InvalidRecord),
        "last delta too small": (batch(two, last_delta=0), InvalidRecord),
        "last delta too large": (batch(two, last_delta=2), InvalidRecord),
        "control": (batch(two, attributes=CONTROL_BIT), InvalidRecord),
        "control and transactional": (batch(two, attributes=CONTROL_BIT | TRANSACTIONAL_BIT), InvalidRecord),
        "log-append time": (batch(two, attributes=APPEND_TIME_BIT), InvalidTimestamp),
        "codec 5": (batch(two, attributes=5), InvalidRecord),
        "codec 7": (batch(two, attributes=7), InvalidRecord),
        "codec that it is not": (batch(two, attributes=1), CorruptBatch),
        "producer without sequence": (batch(two, producer=(7, 0, -1)), InvalidRecord),
        "producer without epoch": (batch(two, producer=(7, -1, 0)), InvalidRecord),
        "deltas from 1": (batch(two, body=record(1, Rec(b"one"), NOW) + record(2, Rec(b"two"), NOW)), InvalidRecord),
        "deltas twice": (batch(two, body=record(0, Rec(b"one"), NOW) * 2), InvalidRecord),
        "deltas back": (batch(two, body=record(1, Rec(b"one"), NOW) + record(0, Rec(b"two"), NOW)), InvalidRecord),
        "bytes left over": (batch(two, body=body + b"\0"), InvalidRecord),
        "body cut short": (batch(two, body=body[:-1]), InvalidRecord),
        "empty body": (batch(two, body=b""), InvalidRecord),
        "negative record length": (batch([b"x"], body=varint(-1) + b"\0" * 10), InvalidRecord),
        "key beyond the record": (batch([b"x"], body=varint(6) + b"\0\0\0" + varint(50) + b"\0\0"), InvalidRecord),
        "key of -2": (batch([b"x"], body=varint(6) + b"\0\0\0" + varint(-2) + b"\1\0"), InvalidRecord),
        "negative header count": (batch([b"x"], body=varint(6) + b"\0\0\0\1\1" + varint(-1)), InvalidRecord),
        "headers that are not there": (batch([b"x"], body=varint(6) + b"\0\0\0\1\1" + varint(3)), InvalidRecord),
        "a varint without end": (batch([b"x"], body=varint(20) + b"\0" + b"\xff" * 19), InvalidRecord),
        "lz4 blocks that are linked": (batch(two, attributes=3, body=bytes(cramjam.lz4.compress(body))), InvalidRecord),
        "compressed rubbish": (batch(two, codec=4, body=b"rubbish"), InvalidRecord),
    }


@promise("K3")
@pytest.mark.parametrize("name", bad_batches())
@pytest.mark.parametrize("append_time", [False, True])
def test_bad_batches(name: str, append_time: bool) -> None:
    """Each with the error that says what is wrong."""
    data, kind = bad_batches()[name]
    with pytest.raises(kind) as caught:
        check(data, append_time=append_time)
    assert type(caught.value) is kind


@promise("K3")
@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
def test_any_changed_byte_is_found(codec: int, data: st.DataObject) -> None:
    """Whatever is changed in what the CRC covers, or in what says where it ends."""
    good = batch([b"one", b"two" * 30], codec=codec)
    at = data.draw(st.integers(8, len(good) - 1).filter(lambda i: not 12 <= i < 16))
    changed = bytearray(good)
    changed[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BadInput):
        check(bytes(changed))


@promise("K3")
@given(st.binary(max_size=300), st.integers(0, 4), st.integers(-2, 5))
def test_rubbish_is_refused_cleanly(body: bytes, codec: int, count: int) -> None:
    """With a right CRC around it; nothing but our own errors ever comes out."""
    data = bytearray(batch([], body=b"", count=count)[:HEADER_BYTES] + body)
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">h", data, 21, codec)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    try:
        checked = check(bytes(data))
    except BadInput:
        return
    assert checked.offsets == count


# --- sizes ---------------------------------------------------------------------------------------------


@promise("K3")
def test_max_bytes() -> None:
    """`max.message.bytes` counts the whole batch as it came."""
    data = batch([b"x" * 1000])
    assert check(data, max_bytes=len(data)).offsets == 1
    with pytest.raises(TooLarge):
        check(data, max_bytes=len(data) - 1)


@promise("K3")
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_decompression_is_bounded(codec: int) -> None:
    """A small batch that opens to a huge one is refused within the limit's memory."""
    limit = 1 << 20
    fits = batch([b"\0" * (limit - 100)], codec=codec)
    assert check(fits, max_opened_bytes=limit).offsets == 1
    bomb = batch([b"\0" * (limit * 30)], codec=codec)
    assert len(bomb) < limit * 2
    with pytest.raises(TooLarge):
        check(bomb, max_opened_bytes=limit, max_bytes=1 << 30)


# --- timestamps ----------------------------------------------------------------------------------------


@promise("K3")
def test_timestamps_near_now() -> None:
    """`message.timestamp.before.max.ms` and `.after.max.ms`, both inclusive; -1 is no timestamp."""
    limits = {"timestamp_before_ms": 1000, "timestamp_after_ms": 500}
    for delta in (-1000, 0, 500):
        assert check(batch([Rec(b"x", None, NOW + delta)]), **limits).max_timestamp == NOW + delta
    for delta in (-1001, 501, 10**9, -(10**12)):
        with pytest.raises(InvalidTimestamp):
            check(batch([Rec(b"x"), Rec(b"x", None, NOW + delta)]), **limits)
    assert check(batch([Rec(b"x", None, -1)]), **limits).max_timestamp == -1
    far = batch([Rec(b"x", None, NOW + 10**9)])
    assert check(far, append_time=True, **limits).offsets == 1, "the producer's clock does not matter there"


@promise("K3")
@pytest.mark.parametrize("append_time", [False, True])
@pytest.mark.parametrize(("base", "delta"), [(LONG_MAX, 1), (LONG_MAX, LONG_MAX), (-LONG_MAX, -5), (-LONG_MAX - 1, 0)])
def test_timestamps_that_are_none(base: int, delta: int, append_time: bool) -> None:
    """Base and delta may each be sound and their sum beyond 64 bits; that must not reach the WAL."""
    body = record(0, Rec(b"x", None, 0), 0) + record(1, Rec(b"x", None, delta), 0)
    data = bytearray(batch([b"x", b"x"], body=body))
    struct.pack_into(">q", data, 27, base)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    with pytest.raises(InvalidTimestamp):
        check(bytes(data), append_time=append_time, timestamp_after_ms=LONG_MAX)


@promise("K5")
@pytest.mark.parametrize("claimed", [-1, 0, NOW - 5, NOW + 10**15])
def test_the_largest_timestamp_is_corrected(claimed: int) -> None:
    """Look-ups by time rest on it, so a client's claim does not count; the CRC is right again."""
    recs = [Rec(b"x", None, NOW + i) for i in (1, 7, 3)]
    checked = check(batch(recs, max_timestamp=claimed, codec=4))
    assert checked.data == batch(recs, codec=4)
    assert checked.max_timestamp == max_timestamp_of(checked.data) == NOW + 7
    assert crc_is_right(checked.data)


@promise("K3", "L7")
def test_null_keys_on_compacted_topics() -> None:
    assert check(batch([Rec(b"x", b"k"), Rec(None, b"")]), compacted=True).offsets == 2
    with pytest.raises(InvalidRecord, match="key"):
        check(batch([Rec(b"x", b"k"), Rec(b"x", None)]), compacted=True)


@promise("K3")
@pytest.mark.parametrize("codec", CODECS)
def test_refused_records_are_told_apart(codec: int) -> None:
    """Each record at fault by its place; a wrong time counts more than a missing key; no more than a limit."""
    recs = [Rec(b"x", None, NOW), Rec(b"x", b"k", NOW), Rec(b"x", b"k", NOW - 50), Rec(b"x", None, NOW - 50)]
    with pytest.raises(InvalidTimestamp, match="far") as untimely:
        check(batch(recs, codec=codec), compacted=True, timestamp_before_ms=10)
    assert [index for index, _ in untimely.value.records] == [0, 2, 3]
    assert ["key" in why for _, why in untimely.value.records] == [True, False, True]
    with pytest.raises(InvalidRecord, match="key") as keyless:
        check(batch(recs, codec=codec), compacted=True, timestamp_before_ms=10, append_time=True)
    assert [index for index, _ in keyless.value.records] == [0, 3]
    with pytest.raises(InvalidRecord) as many:
        check(batch([Rec(b"x", None, NOW)] * (MAX_RECORD_ERRORS + 1), codec=codec), compacted=True)
    assert [index for index, _ in many.value.records] == list(range(MAX_RECORD_ERRORS))


@promise("K12")
def test_batches_of_transactions_are_told_from_others() -> None:
    producer = (7, 3, 0)
    assert transactional_producer(batch([b"x"], attributes=TRANSACTIONAL_BIT, producer=producer)) == (7, 3)
    assert transactional_producer(batch([b"x"], producer=producer)) is None
    assert transactional_producer(batch([b"x"], attributes=TRANSACTIONAL_BIT, magic=1)) is None
    assert transactional_producer(b"short") is None


@promise("K12")
def test_transactional_batches() -> None:
    """They are known as such, if they have a producer."""
    data = batch([b"x"], attributes=TRANSACTIONAL_BIT, producer=(7, 3, 0))
    assert check(data).transactional
    assert not check(batch([b"x"], producer=(7, 3, 0))).transactional
    assert not check(batch([b"x"], attributes=TRANSACTIONAL_BIT)).transactional


# --- patches -------------------------------------------------------------------------------------------


@promise("K3")
@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time(codec: int) -> None:
    """Set in attributes and largest timestamp, the CRC right; every record has that time."""
    data = batch([Rec(b"x", None, NOW + i) for i in range(3)], codec=codec)
    patched = with_append_time(memoryview(data), NOW + 99)
    assert crc_is_right(patched)
    assert max_timestamp_of(patched) == NOW + 99
    assert struct.unpack_from(">h", patched, 21)[0] == codec | APPEND_TIME_BIT
    assert (patched[:17], patched[43:]) == (data[:17], data[43:])
    assert list(record_timestamps(patched, 1 << 20)) == [(i, NOW + 99) for i in range(3)]


@promise("K5")
@pytest.mark.parametrize("codec", CODECS)
def test_record_timestamps(codec: int) -> None:
    stamps = [NOW + 5, NOW - 7, NOW + 10**9, -1]
    data = batch([Rec(b"x" * 50, b"k", t) for t in stamps], codec=codec)
    assert list(record_timestamps(data, 1 << 20)) == list(enumerate(stamps))


@promise("K4")
@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.integers(0, 1 << 50))
def test_join_patched(counts: list[int], offset: int) -> None:
    """Offsets rise from one batch to the next, the leader epoch is 0, every CRC still holds."""
    batches = [batch([b"x"] * n, producer=(9, 0, i)) for i, n in enumerate(counts)]
    joined = join_patched([memoryview(b) if i % 2 else b for i, b in enumerate(batches)], offset)
    found = split_batches(joined)
    assert len(found) == len(batches)
    for one, original, count in zip(found, batches, counts, strict=True):
        assert base_offset_of(one) == offset
        assert struct.unpack_from(">i", one, 12)[0] == 0
        assert bytes(one[16:]) == original[16:]
        assert offsets_of(one) == count
        offset += count
    assert all(struct.unpack_from(">i", b, 12)[0] == -1 for b in batches), "the stored bytes are not touched"


@promise("K4")
def test_split_batches() -> None:
    """A last batch that was cut short is left out; rubbish is not walked for ever."""
    one, two = batch([b"x"]), batch([b"y", b"z"])
    assert [bytes(b) for b in split_batches(one + two)] == [one, two]
    for cut in (1, 5, len(two) - 5, len(two) - 1):
        assert [bytes(b) for b in split_batches(one + two[:-cut])] == [one]
    assert split_batches(b"") == []
    for length in (-1, 0, HEADER_BYTES - 13):
        with pytest.raises(CorruptBatch):
            split_batches(struct.pack(">qi", 0, length) + bytes(100))


@promise("K3")
@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_varints(number: int) -> None:
    data = b"\xff" + varint(number) + b"\xff"
    assert read_varint(data, 1) == (number, len(data) - 1)


@promise("K3")
def test_varints_end() -> None:
    with pytest.raises(CorruptBatch):
        read_varint(b"\xff" * 20, 0)


@promise("K4")
def test_an_empty_batch() -> None:
    """A consumer goes on behind what is gone."""
    (one,) = decode_batches(empty_batch(100, 250))
    assert one == DecodedBatch(100, 250, False, ())
    (large,) = decode_batches(empty_batch(0, 1 << 40))
    assert large.next_offset == 1 << 31
    assert [b.next_offset for b in decode_batches(b"".join(empty_batches(5, (1 << 32) + 7)))] == [
        5 + (1 << 31), 5 + (1 << 32), (1 << 32) + 7,
    ]  # fmt: skip
