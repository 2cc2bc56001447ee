"""Typed columns in Iceberg: schemas of a table, one for each version of its columns that a snapshot has shown."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from headwater.lake.tables.follower import Batch
from headwater.lake.tables.iceberg.schema import NAME_MAPPING, SCHEMA
from headwater.state.commands.columns import Column

COLUMNS_VERSION = "headwater.columns.version"
"""The version of the typed columns that the table has; it has none without this property."""
_KINDS: dict[str, IcebergType] = {
    "boolean": BooleanType(),
    "long": LongType(),
    "double": DoubleType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamptz": TimestamptzType(),
    "string": StringType(),
    "binary": BinaryType(),
    "json": StringType(),
}


def schema_of(columns: Sequence[Column], schema_id: int) -> Schema:
    """The columns of the log, then these."""
    return Schema(*SCHEMA.fields, *map(_field, columns), schema_id=schema_id)


def wanted_schema(metadata: TableMetadataV2, batch: Batch) -> tuple[Schema, dict[str, str]] | None:
    """The schema and the properties that a batch needs and the table lacks; None if it lacks nothing."""
    version = batch.columns.at(batch.upto)
    if int(metadata.properties.get(COLUMNS_VERSION) or 0) == version:
        return None
    schema_id = max(schema.schema_id for schema in metadata.schemas) + 1
    schema = schema_of(batch.columns.of(version), schema_id)
    mapping = create_mapping_from_schema(schema).model_dump_json()
    return schema, {COLUMNS_VERSION: str(version), NAME_MAPPING: mapping}


def evolved(metadata: TableMetadataV2, batch: Batch) -> TableMetadataV2:
    """The table with the columns that a batch needs. Earlier schemas stay for the snapshots that have them."""
    wanted = wanted_schema(metadata, batch)
    if wanted is None:
        return metadata
    schema, properties = wanted
    return metadata.model_copy(
        update={
            "schemas": [*metadata.schemas, schema],
            "current_schema_id": schema.schema_id,
            "last_column_id": max(metadata.last_column_id, schema.highest_field_id),
            "properties": {**metadata.properties, **properties},
        }
    )


def without_old_schemas(metadata: TableMetadataV2) -> TableMetadataV2:
    """The table without schemas that no snapshot has any more."""
    needed = {snapshot.schema_id for snapshot in metadata.snapshots} | {metadata.current_schema_id}
    schemas = [schema for schema in metadata.schemas if schema.schema_id in needed]
    return metadata.model_copy(update={"schemas": schemas}) if len(schemas) < len(metadata.schemas) else metadata


def _field(column: Column) -> NestedField:
    return NestedField(column.id, column.name, _type(column), required=False, doc=column.doc or None)


def _type(column: Column) -> IcebergType:
    children = column.children
    if column.kind == "struct":
        return StructType(*map(_field, children))
    if column.kind == "list":
        return ListType(children[0].id, _type(children[0]), element_required=False)
    if column.kind == "map":
        key, value = children
        return MapType(key.id, _type(key), value.id, _type(value), value_required=False)
    if column.kind.startswith("decimal"):
        precision, scale = column.kind.removeprefix("decimal(").removesuffix(")").split(",")
        return DecimalType(int(precision), int(scale))
    return _KINDS[column.kind]
