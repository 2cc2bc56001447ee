"""The columns of a segment, the same for the log, for Iceberg and for Delta.

Field ids 1 to 99 belong to the log. pyarrow is imported at the first call.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

FIELD_ID = b"PARQUET:field_id"


@functools.cache
def segment_schema() -> pa.Schema:
    """Names, types, nulls and Iceberg field ids of a segment's columns."""
    import pyarrow as pa

    def column(number: int, name: str, kind: pa.DataType, required: bool = False) -> pa.Field:
        return pa.field(name, kind, nullable=not required, metadata={FIELD_ID: str(number)})

    header = pa.struct([column(14, "key", pa.string(), required=True), column(15, "value", pa.binary())])
    return pa.schema(
        [
            column(1, "partition", pa.int32(), required=True),
            column(2, "offset", pa.int64(), required=True),
            column(3, "timestamp_ms", pa.int64(), required=True),
            column(4, "timestamp", pa.timestamp("us", tz="UTC")),
            column(5, "key", pa.binary()),
            column(6, "value", pa.binary()),
            column(7, "headers", pa.list_(column(13, "element", header, required=True))),
            column(8, "headers_raw", pa.binary()),
            column(9, "attributes", pa.int32(), required=True),
            column(10, "producer_id", pa.int64(), required=True),
            column(11, "producer_epoch", pa.int32(), required=True),
            column(12, "sequence", pa.int32(), required=True),
        ]
    )
