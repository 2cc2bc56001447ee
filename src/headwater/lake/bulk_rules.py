"""What a topic demands of records that are appended in bulk: the same as of those that producers send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from headwater.lake.bulk_input import Records
from headwater.log.batch import HEADER_BYTES
from headwater.metadata.topic_configs import TopicConfig

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    Array: TypeAlias = npt.NDArray[Any]


def check_records(records: Records, config: TopicConfig, now_ms: int) -> Records:
    """Records that a topic takes, each with its time; raises what is wrong with the first one that it does not take."""
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
    """With the present time where a record has none, and everywhere if the topic keeps the time of the append."""
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
        raise records.flaw(row, f"timestamp {times[row]} lies too far from {now_ms}, by the topic's configs")


def batch_sizes(batch: pa.RecordBatch) -> Array:
    """The bytes of a record batch with each of these records alone."""
    import numpy as np

    key, value = _lengths(batch.column("key")), _lengths(batch.column("value"))
    headers = batch.column("headers")
    borders = headers.offsets.to_numpy()
    pairs = headers.values
    each = sum(_varint_bytes(n) + np.maximum(n, 0) for n in (_lengths(pairs.field(0)), _lengths(pairs.field(1))))
    totals = np.concatenate(([0], np.cumsum(each)))
    body = 3 + sum(_varint_bytes(n) + np.maximum(n, 0) for n in (key, value))  # attributes and two deltas of nothing
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
    """How many bytes signed varints of numbers from -1 on take."""
    import numpy as np

    doubled = np.maximum(numbers, 0) * 2
    count: Array = np.ones_like(doubled)
    for bits in (7, 14, 21, 28):
        count += doubled >= 1 << bits
    return count
