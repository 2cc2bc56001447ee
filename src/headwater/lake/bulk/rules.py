"""The checks of records that are appended in bulk: the same as for records that producers send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from headwater.configs.topics import TopicConfig
from headwater.lake.bulk.input import Records
from headwater.log.batch import HEADER_BYTES

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    Array: TypeAlias = npt.NDArray[Any]


def check_records(records: Records, config: TopicConfig, now_ms: int) -> Records:
    """The records, each with a timestamp. Raises the error of the first record that the topic does not accept."""
    import numpy as np

    batch = records.batch
    if config.compacted and batch.column("key").null_count:
        row = int(np.argmin(batch.column("key").is_valid().to_numpy(zero_copy_only=False)))
        raise records.flaw(row, "a compacted topic takes no records without a key")
    batch = _timed(batch, config, now_ms)
    if not config.append_time:
        _check_times(records, batch.column("timestamp_ms").to_numpy(), config, now_ms)
    sizes = batch_sizes(batch)
    if len(sizes) and sizes.max() > config.max_message_bytes:
        row = int(np.argmax(sizes > config.max_message_bytes))
        raise records.flaw(row, f"a record of {sizes[row]} bytes; the topic allows {config.max_message_bytes}")
    return Records(records.file, records.first_row, batch)


def _timed(batch: pa.RecordBatch, config: TopicConfig, now_ms: int) -> pa.RecordBatch:
    """The records with the current time where a timestamp is missing; everywhere if the topic has log-append time."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import compute

    at = batch.schema.get_field_index("timestamp_ms")
    if config.append_time:
        times = pa.array(np.full(batch.num_rows, now_ms, dtype=np.int64))
    else:
        times = compute.fill_null(batch.column(at), now_ms)
    return batch.set_column(at, batch.schema.field(at), times)


def _check_times(records: Records, times: Array, config: TopicConfig, now_ms: int) -> None:
    import numpy as np

    odd = (times > now_ms + config.timestamp_after_ms) | ((times >= 0) & (times < now_ms - config.timestamp_before_ms))
    if odd.any():
        row = int(np.argmax(odd))
        raise records.flaw(row, f"timestamp {times[row]} is too far from {now_ms}, by the topic's configs")


def outdated(records: Records, config: TopicConfig, now_ms: int) -> int:
    """How many of the records, each with a timestamp, are older than what the topic keeps."""
    if "delete" not in config.cleanup or config.retention_ms < 0:
        return 0
    times = records.batch.column("timestamp_ms").to_numpy()
    return int(((times >= 0) & (times < now_ms - config.retention_ms)).sum())


def batch_sizes(batch: pa.RecordBatch) -> Array:
    """For each record, the size of a record batch that holds only this record."""
    import numpy as np

    key, value = _lengths(batch.column("key")), _lengths(batch.column("value"))
    headers = batch.column("headers")
    borders = headers.offsets.to_numpy()
    pairs = headers.values
    each = sum(_varint_bytes(n) + np.maximum(n, 0) for n in (_lengths(pairs.field(0)), _lengths(pairs.field(1))))
    totals = np.concatenate(([0], np.cumsum(each)))
    body = 3 + sum(_varint_bytes(n) + np.maximum(n, 0) for n in (key, value))  # attributes and two deltas of 0
    body = body + _varint_bytes(np.diff(borders).astype(np.int64)) + totals[borders[1:]] - totals[borders[:-1]]
    sizes: Array = HEADER_BYTES + _varint_bytes(body) + body
    return sizes


def _lengths(column: pa.Array) -> Array:
    """Lengths of byte strings, -1 for null."""
    import numpy as np
    from pyarrow import compute

    lengths: Array = compute.fill_null(compute.binary_length(column), -1).to_numpy().astype(np.int64)
    return lengths


def _varint_bytes(numbers: Array) -> Array:
    """The size of each number as a signed varint. Numbers are at least -1."""
    import numpy as np

    doubled = np.maximum(numbers, 0) * 2
    count: Array = np.ones_like(doubled)
    for bits in (7, 14, 21, 28):
        count += doubled >= 1 << bits
    return count
