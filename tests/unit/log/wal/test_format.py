"""The WAL format: there and back, a golden file, and every changed byte found."""

import struct
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import Damaged
from headwater.log.batch import Batch
from headwater.log.wal import format as wal
from headwater.log.wal.cache import ReadWal, WrittenWal
from headwater.types import Domain, WalId
from tests.support.batches import Rec, batch
from tests.support.promise import promise

PROMISES = ("L2",)

GOLDEN = Path(__file__).parent / "golden" / "wal-v2.bin"
CREATED_MS = 1_700_000_000_123
LEDGER_MS = CREATED_MS - 7
HEADER_BYTES = 61


def made(records: int, value: bytes = b"value", first: int = CREATED_MS) -> Batch:
    data = batch([Rec(value + bytes([i % 256]), b"key", first + i) for i in range(records)])
    return Batch(data, records, first, first + records - 1, -1, -1, -1)


def golden_image() -> wal.WalImage:
    chunks = [
        (3, [made(1), made(4, b"x" * 100, 5)]),
        (7, [made(2, b"", 1 << 60)]),
        ((1 << 62) + 1, [made(3, b"last", 0), made(1, b"more", 2), made(2, b"end", 1)]),
    ]
    return wal.build(WalId(12, 345_678), Domain(9), CREATED_MS, LEDGER_MS, chunks)


@promise("L2")
def test_golden() -> None:
    """Objects written by this version have these very bytes, and will be readable for ever."""
    image = golden_image()
    assert b"".join(image.pieces) == GOLDEN.read_bytes()
    found = wal.parse(GOLDEN.read_bytes())
    assert (found.id, found.domain) == (WalId(12, 345_678), 9)
    assert (found.created_ms, found.ledger_ms) == (CREATED_MS, LEDGER_MS)
    assert [(c.stream, c.batches, c.records, c.min_timestamp, c.max_timestamp) for c in found.chunks] == [
        (3, 2, 5, 5, CREATED_MS),
        (7, 1, 2, 1 << 60, (1 << 60) + 1),
        ((1 << 62) + 1, 3, 6, 0, 2),
    ]
    assert [c.position for c in found.chunks] == image.positions


batches = st.builds(made, st.integers(1, 4), st.binary(max_size=30), st.integers(0, 1 << 45))
layouts = st.dictionaries(st.integers(0, (1 << 63) - 1), st.lists(batches, min_size=1, max_size=4), max_size=5)


@promise("L2")
@given(layouts, st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 32) - 1))
def test_there_and_back(layout: dict[int, list[Batch]], epoch: int, sequence: int, domain: int) -> None:
    """Batches come back byte for byte, from the bytes and from the pieces they were written from."""
    chunks = sorted(layout.items())
    image = wal.build(WalId(epoch, sequence), Domain(domain), CREATED_MS, LEDGER_MS, chunks)
    data = b"".join(image.pieces)
    assert len(data) == image.size
    found = wal.parse(data)
    assert (found.id, found.domain, found.created_ms) == (WalId(epoch, sequence), domain, CREATED_MS)
    assert [c.position for c in found.chunks] == image.positions
    for chunk, (stream, wanted) in zip(found.chunks, chunks, strict=True):
        assert (chunk.stream, chunk.batches) == (stream, len(wanted))
        assert chunk.records == sum(b.offsets for b in wanted)
        assert (chunk.min_timestamp, chunk.max_timestamp) == (
            min(b.min_timestamp for b in wanted),
            max(b.max_timestamp for b in wanted),
        )
        end = chunk.position + chunk.length
        for cached in (ReadWal(data), ReadWal(data, checked=True), WrittenWal(image)):
            assert cached.size == len(data)
            assert [bytes(b) for b in cached.batches(chunk.position, end, chunk.records)] == [b.data for b in wanted]
            # A run begins and ends at any batch: what was refused in between is not part of one.
            at, left = chunk.position, chunk.records
            for one in wanted:
                following = at + wal.PREFIX_BYTES + len(one.data)
                assert [bytes(b) for b in cached.batches(at, following, one.offsets)] == [one.data]
                assert next(bytes(b) for b in cached.batches(at, end, left)) == one.data
                at, left = following, left - one.offsets


@promise("L2")
def test_any_changed_byte_is_found() -> None:
    data = GOLDEN.read_bytes()
    for at in range(len(data)):
        for change in (1, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[at] ^= change
            with pytest.raises(Damaged):
                wal.parse(bytes(damaged))


@promise("L2")
def test_any_cut_is_found() -> None:
    data = GOLDEN.read_bytes()
    for cut in range(len(data)):
        with pytest.raises(Damaged):
            wal.parse(data[:cut])
    with pytest.raises(Damaged):
        wal.parse(data + b"\0")


def signed(body: bytes) -> bytes:
    return body + struct.pack(">I", crc32c(body))


@promise("L2")
@given(st.data())
def test_a_right_crc_around_wrong_bytes(data: st.DataObject) -> None:
    """A writer gone wrong signs what it writes; the reader checks the structure too, and never fails otherwise."""
    body = bytearray(GOLDEN.read_bytes()[:-4])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, HEADER_BYTES + 44 * 3 - 1) | st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, 30))
    try:
        found = wal.parse(signed(bytes(body[: len(body) - cut])))
    except Damaged:
        return
    assert found.chunks[0].position == HEADER_BYTES + 44 * len(found.chunks)


@promise("L2")
def test_wrong_layouts() -> None:
    one = made(1)
    right = b"".join(wal.build(WalId(1, 1), Domain(1), 0, 0, [(1, [one]), (2, [one])]).pieces)[:-4]
    assert len(wal.parse(signed(right)).chunks) == 2

    def patched(at: int, data: bytes) -> bytes:
        return signed(right[:at] + data + right[at + len(data) :])

    second = HEADER_BYTES + 44
    wrong = {
        "magic": patched(0, b"HWTRWO2"),
        "an older version": patched(7, b"\0\1"),
        "a newer version": patched(7, b"\0\3"),
        "mirrors": patched(45, struct.pack(">I", wal.MIRRORS)),
        "a flag of a newer build": patched(45, struct.pack(">I", 1 << 31)),
        "index elsewhere": patched(53, struct.pack(">Q", 50)),
        "too many chunks": patched(49, struct.pack(">I", 1 << 31)),
        "streams in the wrong order": patched(second, struct.pack(">Q", 1)),
        "a hole between chunks": patched(second + 8, struct.pack(">Q", len(right) - 1)),
        "a chunk beyond the end": patched(second + 16, struct.pack(">I", 1 << 20)),
        "a chunk too short": patched(second + 16, struct.pack(">I", len(one.data))),
        "records": patched(second + 20, struct.pack(">I", 2)),
        "batches": patched(second + 24, struct.pack(">I", 2)),
        "left over": signed(right + b"\0"),
    }
    for name, data in wrong.items():
        with pytest.raises(Damaged):
            wal.parse(data)
            pytest.fail(name)


@promise("L2")
def test_runs_outside_the_object() -> None:
    data = GOLDEN.read_bytes()
    for start, end in ((-1, 5), (5, 4), (0, len(data) + 1), (len(data), len(data) + 1)):
        with pytest.raises(Damaged):
            wal.batches_between(data, start, end)
    assert wal.batches_between(data, 10, 10) == []
    with pytest.raises(Damaged):
        wal.batches_between(data, 0, 3)
    with pytest.raises(Damaged):
        wal.batches_between(data, 0, 60)


@promise("L2")
def test_paths() -> None:
    """Where objects lie, and what their names say."""
    path = wal.path_of("eu-1a", 3, CREATED_MS, WalId(12, 345))
    assert path == "wal/v1/zone=eu-1a/domain=3/date=2023/11/14/0000000012-000000000345.wo"
    assert wal.id_of_path(path) == WalId(12, 345)
    assert path.startswith(wal.prefix_of("eu-1a", 3))
    assert wal.path_of("z", 1, 0, WalId(1, 1)).split("date=")[1].startswith("1970/01/01/")
    for other in ("", "x.wo", "1-2", "1-2.wo.tmp", "a-b.wo", "1-.wo", "-1.wo", "1_2.wo", "meta/v1/checkpoint/1.ckpt"):
        assert wal.id_of_path(other) is None
