"""Whatever the bytes are, a run gives sound rows or a `Damaged`, and so does a segment."""

import io
import random
import struct

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import Damaged
from headwater.log.segment.encode import compile_encoder
from headwater.log.segment.read import SegmentReader, footer_bytes, footer_checksum
from headwater.log.segment.write import SegmentWriter, compile_kernels, decode_runs, read_pieces
from tests.support.batches import Rec, batch, varint
from tests.support.promise import promise
from tests.support.soak import examples

PROMISES = ("T1", "L2")

LIMIT = 1 << 20
RECS = [
    Rec(b"value" * 20, b"key", headers=((b"a", b"1"), (b"\xff", None))),
    Rec(None, None, 5),
    Rec(b"", b"", -1, ((b"name", b"x" * 70),)),
]


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    compile_kernels()
    compile_encoder()


def prefixed(one: bytes) -> bytes:
    return struct.pack(">I", len(one)) + one


def with_crc(one: bytearray) -> bytes:
    """The batch with the CRC that its bytes have."""
    if len(one) > 21:
        struct.pack_into(">I", one, 17, crc32c(one[21:]))
    return bytes(one)


def decoded(run: bytes, start: int = 0) -> int | None:
    """The number of rows, or None if the run is refused; nothing else may happen."""
    rows = 0
    try:
        for piece in decode_runs(0, [(run, start, -1)], 0, LIMIT):
            piece.validate(full=True)
            rows += piece.num_rows
    except Damaged:
        return None
    return rows


@promise("L2")
@settings(max_examples=examples(600), deadline=None)
@given(
    codec=st.integers(0, 4),
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4),
    cut=st.integers(0, 5),
    mend=st.booleans(),
)
def test_mutated_batches(codec: int, changes: list[tuple[int, int]], cut: int, mend: bool) -> None:
    """With the CRC mended, so that the checks behind it are met too."""
    one = bytearray(batch(RECS, codec=codec))
    for at, byte in changes:
        one[at % len(one)] = byte
    if cut and mend:
        one = one[:-cut]
        struct.pack_into(">i", one, 8, len(one) - 12)
    changed = with_crc(one) if mend else bytes(one)
    sound = prefixed(batch([Rec(b"x")]))
    found = decoded(sound + prefixed(changed) + sound)
    assert found is None or 2 <= found <= 2 + len(RECS)


@promise("L2")
@settings(max_examples=examples(600), deadline=None)
@given(body=st.binary(max_size=60), count=st.integers(-1, 5), last=st.integers(-1, 5), codec=st.integers(0, 7))
def test_random_records(body: bytes, count: int, last: int, codec: int) -> None:
    one = bytearray(batch([], body=body, count=count, last_delta=last))
    one[22] |= codec
    decoded(prefixed(with_crc(one)))


@promise("L2")
@settings(max_examples=examples(300), deadline=None)
@given(run=st.binary(max_size=200))
def test_random_runs(run: bytes) -> None:
    assert decoded(run) is None or not run


def record(fields: bytes) -> bytes:
    return varint(len(fields)) + fields


@promise("L2")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x80",
        varint(1 << 62) + b"\0\0\0\1\1\0",
        varint(-1),
        record(b"\0"),
        record(b"\0" + b"\xff" * 9 + b"\x02" + b"\0\1\1\0"),
        record(b"\0" + b"\xff" * 12),
        record(b"\0\0\2\1\1\0"),
        record(b"\0\0\0" + varint(-2) + b"\1\0"),
        record(b"\0\0\0" + varint(1 << 40) + b"\1\0"),
        record(b"\0\0\0\1" + varint((1 << 63) - 1) + b"\0"),
        record(b"\0\0\0\1\1" + varint(-1)),
        record(b"\0\0\0\1\1" + varint(1 << 61)),
        record(b"\0\0\0\1\1\2" + varint(-1) + b"\1"),
        record(b"\0\0\0\1\1\2\0" + varint(-2)),
        record(b"\0\0\0\1\1\2\0" + varint(9)),
        record(b"\0\0\0\1\1\0\0"),
        record(b"\0\0\0\1\1\0") + b"\0",
        record(b"\0" + varint((1 << 63) - 1) + b"\0\1\1\0"),
    ],
)
def test_each_flaw_of_a_record(body: bytes) -> None:
    one = bytearray(batch([Rec(b"", timestamp=5)], body=body))
    assert decoded(prefixed(with_crc(one))) is None


@promise("L2")
@pytest.mark.parametrize(
    ("at", "value"),
    [
        (8, b"\0\0\0\0"),
        (8, b"\xff\xff\xff\xff"),
        (16, b"\1"),
        (17, b"\0\0\0\0"),
        (23, b"\xff\xff\xff\xff"),
        (57, b"\xff\xff\xff\xff"),
        (57, b"\x7f\xff\xff\xff"),
        (57, b"\0\0\0\4"),
    ],
)
def test_each_flaw_of_a_batch(at: int, value: bytes) -> None:
    one = bytearray(batch(RECS))
    one[at : at + len(value)] = value
    assert decoded(prefixed(bytes(one) if at == 17 else with_crc(one))) is None


@promise("L2")
def test_offsets_never_overflow() -> None:
    """Neither by where a run starts nor by what batches claim."""
    assert decoded(prefixed(batch(RECS)), start=(1 << 63) - 2) is None
    assert decoded(prefixed(batch([], count=0, last_delta=(1 << 31) - 1)) * 3, start=1 << 61) == 0


@promise("T1")
def test_runs_that_overlap_are_refused() -> None:
    """No offset twice."""
    run = prefixed(batch(RECS))
    for size in (1, 1 << 21):
        padding = prefixed(batch([Rec(bytes(size))]))
        with pytest.raises(Damaged):
            list(decode_runs(0, [(run + padding, 0, -1), (run, 2, -1)], 0, LIMIT))


@promise("T1")
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_batch_that_opens_to_too_much(codec: int) -> None:
    run = prefixed(batch([Rec(bytes(LIMIT))], codec=codec))
    with pytest.raises(Damaged):
        list(decode_runs(0, [(run, 0, -1)], 0, LIMIT))
    assert [p.num_rows for p in decode_runs(0, [(run, 0, -1)], 0, LIMIT + 100)] == [1]


def segment() -> bytes:
    out = io.BytesIO()
    writer = SegmentWriter(out)
    for partition in range(3):
        for piece in decode_runs(partition, [(prefixed(batch(RECS * 20)), 10, -1)], 0, LIMIT):
            writer.add(partition, piece)
    writer.close()
    return out.getvalue()


def opened(data: bytes) -> list[bytes]:
    reader = SegmentReader(data[-footer_bytes(data[-8:]) :])
    found = []
    for i, facts in enumerate(reader.groups):
        rows = reader.decode(i, data[facts.position : facts.position + facts.length])
        found.append(bytes(rows.encode(0, 100, 1 << 20, True).records))
    return found


@promise("T3")
def test_mutated_pages_are_noticed() -> None:
    """A changed byte anywhere between the first and the last page is refused, or changes nothing that is read."""
    data = segment()
    sound = opened(data)
    chance = random.Random(4)
    body, checksum = len(data) - footer_bytes(data[-8:]), footer_checksum(data)
    refused = 0
    for _ in range(400):
        changed = bytearray(data)
        at = chance.randrange(4, body)
        changed[at] ^= 1 << chance.randrange(8)
        try:
            assert opened(bytes(changed)) == sound
        except Damaged:
            refused += 1
        try:
            assert [rows for piece in read_pieces(bytes(changed), checksum) for rows in piece.batches()]
        except Damaged:
            refused += 1
    assert refused > 400


@promise("T3")
@settings(max_examples=examples(100), deadline=None)
@given(tail=st.binary(max_size=100))
def test_random_footers(tail: bytes) -> None:
    for end in (tail, tail + struct.pack("<I4s", len(tail), b"PAR1")):
        with pytest.raises(Damaged):
            SegmentReader(end)
        with pytest.raises(Damaged):
            read_pieces(b"PAR1" + end, 0)
    assert pa.default_memory_pool().bytes_allocated() < 64 << 20


@promise("T3")
def test_mutated_footers_are_refused() -> None:
    """pyarrow ends the whole process over some broken footers, so none that was changed ever reaches it."""
    data = segment()
    checksum, length = footer_checksum(data), footer_bytes(data[-8:])
    chance = random.Random(5)
    for _ in range(2_000):
        changed = bytearray(data)
        changed[len(data) - 1 - chance.randrange(length)] ^= 1 << chance.randrange(8)
        with pytest.raises(Damaged):
            read_pieces(bytes(changed), checksum)
