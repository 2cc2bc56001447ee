"""From rows to Kafka: a row group in memory, and the record batches that a consumer gets from it.

Batches are uncompressed and carry no producer. Each covers the offsets up to the next row, so that a consumer does not
wait at a gap in the offsets.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from crc32c import crc32c

from headwater.errors import Damaged
from headwater.log.batch import MAX_EMPTY
from headwater.log.segment.schema import segment_schema
from headwater.types import Buffer

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    Array: TypeAlias = npt.NDArray[Any]

BATCH_BYTES = 256 << 10
"""The largest size of a batch, header included. Only a single larger record exceeds it."""
READ_COLUMNS = ["offset", "timestamp_ms", "key", "value", "headers", "headers_raw", "attributes"]
"""The columns that are read to serve a row group. They are next to each other in the file."""

_MAX_BATCHES = 1_024
_CRC = struct.Struct(">I")
_CRC_AT, _CRC_FROM = 17, 21


@dataclass(frozen=True, slots=True)
class Encoded:
    """Record batches, and the offset after the last one that they cover."""

    records: Buffer
    next_offset: int


class RowGroup:
    """The rows of one row group, ready to be served."""

    def __init__(self, rows: pa.Table | pa.RecordBatch) -> None:
        import numpy as np

        from headwater.log.kernels.encode import Columns

        arrays = [_whole(rows.column(name)) for name in READ_COLUMNS]
        odd = [n for n, a in zip(READ_COLUMNS, arrays, strict=True) if a.type != segment_schema().field(n).type]
        if odd:
            raise Damaged(f"a row group whose columns {', '.join(odd)} are not of a segment's types")
        offset, time, key, value, headers, raw, attributes = arrays
        self.size_bytes = sum(array.nbytes for array in arrays)
        pairs = headers.values
        names, contents = pairs.field(0), pairs.field(1)
        if pairs.offset or names.offset or contents.offset:
            raise Damaged("a row group's headers do not begin at their first row")
        self._columns = Columns(
            _numbers(offset, np.int64),
            _numbers(time, np.int64),
            _numbers(attributes, np.int32),
            *_bytes(key),
            *_bytes(value),
            *_bytes(raw),
            _borders(headers),
            *_bytes(names)[:2],
            *_bytes(contents),
        )

    def __len__(self) -> int:
        return len(self._columns.offsets)

    def __repr__(self) -> str:
        offsets = self._columns.offsets
        return f"<RowGroup of {len(self)} rows, offsets {offsets[:1]} to {offsets[-1:]}, {self.size_bytes} bytes>"

    def encode(
        self, offset: int, end_offset: int, max_bytes: int, first_whole: bool, batch_bytes: int = BATCH_BYTES
    ) -> Encoded:
        """Batches of the rows from `offset` on, of at most `max_bytes`.

        If all rows fit, the last batch covers the offsets up to `end_offset`, where the range of this row group ends.
        With `first_whole` the first row is returned even if it alone is larger. If there are no rows from `offset` on,
        the result is empty and its next offset is `end_offset`.
        """
        import numpy as np

        from headwater.log.kernels import encode as kernels

        columns = self._columns
        first, end = (int(row) for row in np.searchsorted(columns.offsets, (offset, end_offset)))
        if first >= end:
            return Encoded(b"", max(offset, end_offset))
        plan = np.empty((_MAX_BATCHES, kernels.PLAN_NUMBERS), dtype=np.int64)
        sizes = np.empty(end, dtype=np.int32)
        count, total = kernels.plan_batches(columns, first, end, batch_bytes, max_bytes, plan, sizes)
        if total > max_bytes and not first_whole:
            return Encoded(b"", offset)
        plan = plan[:count]
        out = np.empty(total, dtype=np.uint8)
        last_row = int(plan[-1, kernels.END_ROW])
        following = end_offset if last_row == end else int(columns.offsets[last_row])
        following = min(following, int(columns.offsets[plan[-1, kernels.FIRST_ROW]]) + MAX_EMPTY)
        kernels.write_batches(columns, plan, sizes, following, out)
        return Encoded(_with_crcs(out, plan[:, kernels.SIZE]), following)

    def first_at_time(self, timestamp: int, from_offset: int = 0) -> tuple[int, int] | None:
        """(offset, timestamp) of the first row from an offset on whose timestamp is at least the given one."""
        import numpy as np

        first = int(np.searchsorted(self._columns.offsets, from_offset))
        later = self._columns.times[first:] >= timestamp
        row = first + int(np.argmax(later)) if later.any() else None
        return None if row is None else self._row(row)

    def largest_time(self, from_offset: int = 0) -> tuple[int, int] | None:
        """(offset, timestamp) of the first row from an offset on that has the largest timestamp."""
        import numpy as np

        first = int(np.searchsorted(self._columns.offsets, from_offset))
        return None if first == len(self) else self._row(first + int(np.argmax(self._columns.times[first:])))

    def last_with_key(self, key: bytes, below: int) -> int | None:
        """The offset of the last row before an offset that has a key; None if no row has it."""
        import numpy as np

        from headwater.log.kernels.keys import last_equal

        columns, wanted = self._columns, np.frombuffer(key, dtype=np.uint8)
        end = int(np.searchsorted(columns.offsets, below))
        row = last_equal(columns.key_borders, columns.key, columns.key_valid, wanted, end)
        return int(columns.offsets[row]) if row >= 0 else None

    def hashed_keys(self) -> tuple[Array, Array]:
        """The offsets of all rows that have a key, and the hashes of their keys."""
        columns = self._columns
        return _hashed(columns.offsets, columns.key_borders, columns.key, columns.key_valid)

    def _row(self, row: int) -> tuple[int, int]:
        return int(self._columns.offsets[row]), int(self._columns.times[row])


def hashed_keys(rows: pa.Table) -> tuple[Array, Array]:
    """The offsets of all rows of a table that have a key, and the hashes of their keys."""
    import numpy as np

    return _hashed(_numbers(_whole(rows.column("offset")), np.int64), *_bytes(_whole(rows.column("key"))))


def _hashed(offsets: Array, borders: Array, data: Array, valid: Array) -> tuple[Array, Array]:
    import numpy as np

    from headwater.log.kernels.keys import hash_keys

    rows, hashes = np.empty(len(offsets), dtype=np.int64), np.empty(len(offsets), dtype=np.uint64)
    count = hash_keys(borders, data, valid, rows, hashes)
    return offsets[rows[:count]], hashes[:count]


def compile_encoder() -> None:
    """Compile the loops, or load them if they are in numba's cache. Takes seconds the first time."""
    import pyarrow as pa

    row: dict[str, Any] = {name: None for name in segment_schema().names} | {
        "offset": 0,
        "timestamp_ms": 0,
        "attributes": 0,
    }
    row |= {"partition": 0, "headers": [], "producer_id": -1, "producer_epoch": -1, "sequence": -1}
    RowGroup(pa.RecordBatch.from_pylist([row], schema=segment_schema())).encode(0, 1, 1 << 10, True)


def _with_crcs(out: Array, sizes: Array) -> memoryview:
    view = out.data
    at = 0
    for size in sizes.tolist():
        _CRC.pack_into(view, at + _CRC_AT, crc32c(view[at + _CRC_FROM : at + size]))
        at += size
    return view


def _whole(column: Any) -> pa.Array:
    """A column as one array that begins at its first row."""
    import pyarrow as pa

    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if len(chunks) == 1 and chunks[0].offset == 0:
        return chunks[0]
    return pa.concat_arrays(chunks) if chunks else pa.array([], type=column.type)


def _readonly(data: pa.Buffer | None, kind: Any, count: int) -> Array:
    """The first numbers of a buffer as a read-only array: the compiled loops accept only this one type."""
    import numpy as np

    array = np.frombuffer(data, dtype=kind, count=count) if data is not None and count else np.empty(0, dtype=kind)
    array.flags.writeable = False
    return array


def _numbers(array: pa.Array, kind: Any) -> Array:
    return _readonly(array.buffers()[1], kind, len(array))


def _borders(array: pa.Array) -> Array:
    import numpy as np

    borders = array.buffers()[1]
    if borders is None or not len(array):
        return _readonly(np.zeros(1, dtype=np.int32), np.int32, 1)
    return _readonly(borders, np.int32, len(array) + 1)


def _bytes(array: pa.Array) -> tuple[Array, Array, Array]:
    """Borders, bytes and bitmap of a column; the bitmap is empty if nothing is null."""
    import numpy as np

    valid, _, data = array.buffers()
    borders = _borders(array)
    bitmap = _readonly(valid, np.uint8, len(array) + 7 >> 3 if array.null_count else 0)
    return borders, _readonly(data, np.uint8, int(borders[-1])), bitmap
