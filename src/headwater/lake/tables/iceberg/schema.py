"""A topic's table in Iceberg: schema, sort order, properties, and a segment as a data file.

Field ids 1 to 99 are the columns of the log. The segments contain these ids, and they never change.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from headwater.lake.tables.follower import TableRef
from headwater.state.commands.tables import Bounds
from headwater.state.streams import tables
from headwater.types import LAST_MS

PARTITION, OFFSET, TIMESTAMP_MS, TIMESTAMP = 1, 2, 3, 4
SORT_ORDER = 1
NAME_MAPPING = "schema.name-mapping.default"
JOURNAL_SEQUENCE = "headwater.journal.sequence"
JOURNAL_FIRST = "headwater.journal.first"
JOURNAL_LAST = "headwater.journal.last"
SETTLED_ENDS = "headwater.settled.ends"

_FIRST_MS = -62_135_596_800_000
"""The years 1 to 9999. Some readers cannot show a bound outside of them."""

_HEADER = StructType(
    NestedField(14, "key", StringType(), required=True),
    NestedField(15, "value", BinaryType(), required=False),
)

SCHEMA = Schema(
    NestedField(PARTITION, "partition", IntegerType(), required=True),
    NestedField(OFFSET, "offset", LongType(), required=True),
    NestedField(TIMESTAMP_MS, "timestamp_ms", LongType(), required=True),
    NestedField(TIMESTAMP, "timestamp", TimestamptzType(), required=False),
    NestedField(5, "key", BinaryType(), required=False),
    NestedField(6, "value", BinaryType(), required=False),
    NestedField(7, "headers", ListType(13, _HEADER, element_required=True), required=False),
    NestedField(8, "headers_raw", BinaryType(), required=False),
    NestedField(9, "attributes", IntegerType(), required=True),
    NestedField(10, "producer_id", LongType(), required=True),
    NestedField(11, "producer_epoch", IntegerType(), required=True),
    NestedField(12, "sequence", IntegerType(), required=True),
)
SPEC = PartitionSpec()
ORDER = SortOrder(
    SortField(PARTITION, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST),
    SortField(OFFSET, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST),
    order_id=SORT_ORDER,
)


def properties(table: TableRef, metadata_url: str) -> dict[str, str]:
    """The properties of a new table. They keep engines from deleting its files; only Headwater may."""
    return {
        "gc.enabled": "false",
        "write.metadata.path": metadata_url,
        "write.parquet.compression-codec": "zstd",
        NAME_MAPPING: create_mapping_from_schema(SCHEMA).model_dump_json(),
        "headwater.topic": table.name,
        "headwater.topic.id": str(table.topic),
        JOURNAL_SEQUENCE: "0",
    }


def data_file(file: tables.DataFile, root_url: str, bounds: Sequence[Bounds] = ()) -> DataFile:
    """A segment as manifests describe it."""
    own = {
        PARTITION: ("<i", file.first_partition, file.last_partition),
        OFFSET: ("<q", file.first_offset, file.last_offset),
        TIMESTAMP_MS: ("<q", file.min_timestamp, file.max_timestamp),
    }
    if not file.timestamp_nulls and _FIRST_MS <= file.min_timestamp <= file.max_timestamp <= LAST_MS:
        own[TIMESTAMP] = ("<q", file.min_timestamp * 1000, file.max_timestamp * 1000)
    nulls = {PARTITION: 0, OFFSET: 0, TIMESTAMP_MS: 0, TIMESTAMP: file.timestamp_nulls}
    nulls.update((one.column, one.nulls) for one in bounds)
    lower = {column: struct.pack(kind, low) for column, (kind, low, _) in own.items()}
    upper = {column: struct.pack(kind, high) for column, (kind, _, high) in own.items()}
    lower.update((one.column, one.lower) for one in bounds if one.lower is not None)
    upper.update((one.column, one.upper) for one in bounds if one.upper is not None)
    found = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{root_url}/{file.name}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=file.rows,
        file_size_in_bytes=file.size,
        value_counts=dict.fromkeys(nulls, file.rows),
        null_value_counts=nulls,
        lower_bounds=lower,
        upper_bounds=upper,
        sort_order_id=SORT_ORDER,
    )
    found.spec_id = SPEC.spec_id
    return found
