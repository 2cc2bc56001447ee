"""Rows of a segment that do not come from the WAL: columns of keys, values and times, as they are appended in bulk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.log.batch import APPEND_TIME_BIT
from headwater.log.segment.schema import segment_schema
from headwater.types import LAST_MS

if TYPE_CHECKING:
    import pyarrow as pa

NO_PRODUCER = -1


def plain_schema() -> pa.Schema:
    """The columns of a record in the types of a segment: key, value, timestamp_ms, headers."""
    import pyarrow as pa

    return pa.schema([segment_schema().field(name) for name in ("key", "value", "timestamp_ms", "headers")])


def plain_rows(partition: int, first_offset: int, records: pa.RecordBatch, append_time: bool) -> pa.RecordBatch:
    """Records of one partition as rows of a segment, at dense offsets. None of them has a producer."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import compute

    schema, rows = segment_schema(), records.num_rows
    times = records.column("timestamp_ms")
    shown = compute.and_(compute.greater_equal(times, 0), compute.less_equal(times, LAST_MS))
    micros = compute.if_else(shown, compute.multiply(times, 1_000), None)

    def same(name: str, number: int) -> pa.Array:
        kind = schema.field(name).type
        return pa.array(np.full(rows, number, dtype=kind.to_pandas_dtype()))

    columns = {
        "partition": same("partition", partition),
        "offset": pa.array(np.arange(first_offset, first_offset + rows, dtype=np.int64)),
        "timestamp_ms": times,
        "timestamp": micros.cast(schema.field("timestamp").type),
        "key": records.column("key"),
        "value": records.column("value"),
        "headers": records.column("headers"),
        "headers_raw": pa.nulls(rows, schema.field("headers_raw").type),
        "attributes": same("attributes", APPEND_TIME_BIT if append_time else 0),
        "producer_id": same("producer_id", NO_PRODUCER),
        "producer_epoch": same("producer_epoch", NO_PRODUCER),
        "sequence": same("sequence", -1),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
