"""The objects of an index of keys: runs of rows sorted by hash, in blocks, and a manifest that names them.

A row is the hash of a key (XXH64), a partition and an offset. An offset names its record for ever, so a merge of
segments changes no row. Rows whose segments are gone stay until runs are merged: readers compare the key of the record.

    block     at most 4,096 rows: all hashes u64, all partitions u32, all offsets i64, then a CRC32C u32; little endian
    part      blocks of one run, an object of its own. All but the last one have 4,096 rows.
    manifest  magic "HWKEYS1", CRC32C u32 of the rest, msgpack of `Manifest`
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from crc32c import crc32c

from headwater.errors import Damaged
from headwater.types import Buffer

if TYPE_CHECKING:
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]
    Rows: TypeAlias = tuple[Array, Array, Array]
    """Hashes, partitions, offsets."""

MAGIC = b"HWKEYS1"
VERSION = 1
BLOCK_ROWS = 4_096
ROW_BYTES = 20
_CRC = struct.Struct("<I")
BLOCK_BYTES = BLOCK_ROWS * ROW_BYTES + _CRC.size


class Part(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An object with blocks of a run."""

    name: str
    """Its path below the table's root."""
    rows: int
    firsts: bytes
    """The first hash of each block, u64 little endian."""
    last: int
    """The last hash."""

    def place(self, first: int, last: int) -> tuple[int, int]:
        """Where blocks are, from one to another: start and length."""
        start, end = first * BLOCK_BYTES, min((last + 1) * BLOCK_ROWS, self.rows)
        return start, (last - first + 1) * _CRC.size + (end - first * BLOCK_ROWS) * ROW_BYTES

    def blocks_between(self, low: int, high: int) -> tuple[int, int] | None:
        """The first and the last block that may have hashes from `low` to `high`; None if there are none."""
        import numpy as np

        firsts = np.frombuffer(self.firsts, dtype="<u8")
        if not len(firsts) or high < int(firsts[0]) or low > self.last:
            return None
        first = int(np.searchsorted(firsts, np.uint64(low), "left"))
        return max(first - 1, 0), int(np.searchsorted(firsts, np.uint64(high), "right")) - 1


class Run(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Rows sorted by hash, partition and offset, in parts that follow each other."""

    parts: list[Part]

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)


class Manifest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A version of the index: all rows of the table's segments at a sequence of its journal."""

    version: int
    cursor: int
    runs: list[Run]
    """The oldest and largest first."""


_manifest = msgspec.msgpack.Decoder(Manifest)


def pack_manifest(manifest: Manifest) -> bytes:
    """A manifest as bytes."""
    body = msgspec.msgpack.encode(manifest)
    return MAGIC + _CRC.pack(crc32c(body)) + body


def unpack_manifest(path: str, data: Buffer) -> Manifest:
    """The inverse of `pack_manifest`. Raises `Damaged`."""
    view = memoryview(data)
    if bytes(view[: len(MAGIC)]) != MAGIC or len(view) < len(MAGIC) + _CRC.size:
        raise Damaged(f"{path} is not a manifest of keys")
    body = view[len(MAGIC) + _CRC.size :]
    if crc32c(body) != _CRC.unpack_from(view, len(MAGIC))[0]:
        raise Damaged(f"{path}: the CRC of the manifest does not match its bytes")
    try:
        found = _manifest.decode(body)
    except msgspec.MsgspecError as error:
        raise Damaged(f"{path} is not a manifest of keys: {error}") from error
    if found.version != VERSION:
        raise Damaged(f"{path} has version {found.version}; this build reads version {VERSION}")
    return found


def ordered(rows: Rows) -> Rows:
    """Rows in the order of a run."""
    import numpy as np

    order = np.lexsort((rows[2], rows[1], rows[0]))
    return rows[0][order], rows[1][order], rows[2][order]


def joined(pieces: Sequence[Rows]) -> Rows:
    """Rows of several pieces, one after the other."""
    import numpy as np

    if not pieces:
        return np.empty(0, np.uint64), np.empty(0, np.uint32), np.empty(0, np.int64)
    return (
        np.concatenate([piece[0] for piece in pieces]),
        np.concatenate([piece[1] for piece in pieces]),
        np.concatenate([piece[2] for piece in pieces]),
    )


def pack_blocks(rows: Rows) -> tuple[list[bytes], bytes]:
    """Ordered rows as blocks, and the first hash of each block."""
    blocks = []
    for start in range(0, len(rows[0]), BLOCK_ROWS):
        end = start + BLOCK_ROWS
        data = b"".join(
            column[start:end].astype(kind).tobytes() for column, kind in zip(rows, ("<u8", "<u4", "<i8"), strict=True)
        )
        blocks.append(data + _CRC.pack(crc32c(data)))
    return blocks, rows[0][::BLOCK_ROWS].astype("<u8").tobytes()


def unpack_blocks(path: str, data: Buffer) -> Iterator[Rows]:
    """The rows of blocks that follow each other. Raises `Damaged`."""
    import numpy as np

    view = memoryview(data)
    for start in range(0, len(view), BLOCK_BYTES):
        block = view[start : start + BLOCK_BYTES]
        body, count = block[: -_CRC.size], (len(block) - _CRC.size) // ROW_BYTES
        if count < 1 or len(body) != count * ROW_BYTES or crc32c(body) != _CRC.unpack_from(block, len(body))[0]:
            raise Damaged(f"{path}: a block of keys is not as it was written")
        yield (
            np.frombuffer(body, "<u8", count),
            np.frombuffer(body, "<u4", count, 8 * count),
            np.frombuffer(body, "<i8", count, 12 * count),
        )


def between(rows: Rows, low: int, high: int) -> Rows:
    """The rows of ordered rows whose hashes are from `low` to `high`."""
    import numpy as np

    first = int(np.searchsorted(rows[0], np.uint64(low), "left"))
    end = int(np.searchsorted(rows[0], np.uint64(high), "right"))
    return rows[0][first:end], rows[1][first:end], rows[2][first:end]


def of_partition(partition: int, hashes: Array, offsets: Array) -> Rows:
    """Rows of one partition."""
    import numpy as np

    return hashes, np.full(len(hashes), partition, dtype=np.uint32), offsets


def sliced(rows: Rows, first: int, end: int) -> Rows:
    """Some of the rows."""
    return rows[0][first:end], rows[1][first:end], rows[2][first:end]


def from_offset(rows: Rows, floor: int) -> Rows:
    """The rows from an offset on, in all partitions."""
    kept = rows[2] >= floor
    return rows if kept.all() else (rows[0][kept], rows[1][kept], rows[2][kept])
