"""The digest of rows of a segment: a number that any change of the log's columns changes.

It is a sum over the rows, modulo 2^64. So a merge has the sum of its files, whatever the order and the cut, and `apply`
compares them. `timestamp` follows from `timestamp_ms`, and typed columns follow from key and value: neither counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

    Blobs: TypeAlias = tuple[int, int, int, int]

MASK = (1 << 64) - 1
_LONGS = ("offset", "timestamp_ms", "producer_id")
_INTS = ("partition", "attributes", "producer_epoch", "sequence")
_BLOBS = ("key", "value", "headers_raw")


def digest(batch: pa.RecordBatch) -> int:
    """The sum of the hashes of the rows."""
    from headwater.log.kernels.digest import sum_rows

    headers = batch.column("headers")
    longs = [_numbers(batch.column(name), 8) for name in _LONGS]
    ints = [_numbers(batch.column(name), 4) for name in _INTS]
    key, value, raw = (_blobs(batch.column(name)) for name in _BLOBS)
    return int(
        sum_rows(
            batch.num_rows,
            (longs[0], longs[1], longs[2]),
            (ints[0], ints[1], ints[2], ints[3]),
            (key, value, raw),
            _blobs(headers),
            _blobs(headers.values.field(0)),
            _blobs(headers.values.field(1)),
        )
    )


def _blobs(array: pa.Array) -> Blobs:
    """The addresses of a column of bytes, as `sum_rows` takes them. A list has no bytes."""
    buffers = array.buffers()
    bits = _address(buffers[0]) if array.null_count else 0
    return _numbers(array, 4), _address(buffers[2]) if len(buffers) == 3 else 0, bits, array.offset


def _numbers(array: pa.Array, width: int) -> int:
    return _address(array.buffers()[1]) + width * int(array.offset)


def _address(data: pa.Buffer | None) -> int:
    return int(data.address) if data is not None else 0
