"""Typed columns in Delta: the schema of a table, and what its readers have to know for it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headwater.lake.tables.delta.log import COLUMNS, PROTOCOL, MetaData, TableProtocol
from headwater.state.commands.columns import Column, walk

NTZ = "timestampNtz"
"""The feature for timestamps without a zone."""
_KINDS = {
    "boolean": "boolean",
    "long": "long",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "string": "string",
    "binary": "binary",
    "json": "string",
}


def schema_string(columns: Sequence[Column]) -> str:
    """The columns of the log, then these."""
    return msgspec.json.encode({"type": "struct", "fields": [*COLUMNS, *map(_field, columns)]}).decode()


def with_columns(meta: MetaData, columns: Sequence[Column]) -> MetaData:
    """A table's metadata with other columns. What others have set stays."""
    return msgspec.structs.replace(meta, schema_string=schema_string(columns))


def protocol_for(columns: Sequence[Column], present: TableProtocol | None = None) -> TableProtocol:
    """The protocol that a table with these columns needs: the present one, unless it lacks a feature."""
    known = present or PROTOCOL
    if not any(column.kind == "timestamp" for column in walk(columns)) or NTZ in (known.reader_features or ()):
        return known
    writer = known.writer_features if known.writer_features is not None else ["appendOnly", "invariants"]
    return TableProtocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=sorted({*(known.reader_features or ()), NTZ}),
        writer_features=sorted({*writer, NTZ}),
    )


def _field(column: Column) -> dict[str, object]:
    metadata = {"comment": column.doc} if column.doc else {}
    return {"name": column.name, "type": _type(column), "nullable": True, "metadata": metadata}


def _type(column: Column) -> object:
    if column.kind == "struct":
        return {"type": "struct", "fields": [_field(child) for child in column.children]}
    if column.kind == "list":
        return {"type": "array", "elementType": _type(column.children[0]), "containsNull": True}
    if column.kind == "map":
        key, value = map(_type, column.children)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    return _KINDS.get(column.kind, column.kind)  # a decimal has the same name in both
