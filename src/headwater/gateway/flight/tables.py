"""Answers about the tables: every topic that the caller may READ is one, in one schema of one catalog.

The schemas of the answers are those of the protocol. Keys do not exist; questions about them have empty answers.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from headwater.errors import StatementRefused
from headwater.gateway.flight.encoding import schema_bytes
from headwater.gateway.flight.filters import matcher
from headwater.gateway.flight.sqlinfo import info_schema, info_table, type_schema, type_table
from headwater.gateway.services import Call
from headwater.state.cluster.access import AclResource, Operation
from headwater.types import Domain

if TYPE_CHECKING:
    import pyarrow as pa

CATALOG, SCHEMA, TABLE = "headwater", "topics", "TABLE"
_PREFIX = b"ARROW:FLIGHT:SQL:"


class Columns(Protocol):
    """Says what columns a topic has."""

    async def __call__(self, call: Call, topic: str) -> pa.Schema:
        """The columns of `SELECT *` from a topic that the caller may read."""
        ...


@functools.cache
def _schemas() -> Mapping[str, pa.Schema]:
    """By command, the schema of its answer."""
    import pyarrow as pa

    def text(name: str, *, null: bool = False) -> pa.Field:
        return pa.field(name, pa.string(), nullable=null)

    table = [text("catalog_name", null=True), text("db_schema_name", null=True), text("table_name")]
    foreign = pa.schema(
        [
            text("pk_catalog_name", null=True),
            text("pk_db_schema_name", null=True),
            text("pk_table_name"),
            text("pk_column_name"),
            text("fk_catalog_name", null=True),
            text("fk_db_schema_name", null=True),
            text("fk_table_name"),
            text("fk_column_name"),
            pa.field("key_sequence", pa.int32(), nullable=False),
            text("fk_key_name", null=True),
            text("pk_key_name", null=True),
            pa.field("update_rule", pa.uint8(), nullable=False),
            pa.field("delete_rule", pa.uint8(), nullable=False),
        ]
    )
    primary = [*table, text("column_name"), text("key_name", null=True)]
    return {
        "CommandGetSqlInfo": info_schema(),
        "CommandGetXdbcTypeInfo": type_schema(),
        "CommandGetCatalogs": pa.schema([text("catalog_name")]),
        "CommandGetDbSchemas": pa.schema([text("catalog_name", null=True), text("db_schema_name")]),
        "CommandGetTables": pa.schema([*table, text("table_type")]),
        "CommandGetTableTypes": pa.schema([text("table_type")]),
        "CommandGetPrimaryKeys": pa.schema([*primary, pa.field("key_sequence", pa.int32(), nullable=False)]),
        "CommandGetExportedKeys": foreign,
        "CommandGetImportedKeys": foreign,
        "CommandGetCrossReference": foreign,
    }


def schema_of(name: str, asked: Any) -> pa.Schema | None:
    """The schema of the answer to a command about tables; None for other commands."""
    import pyarrow as pa

    found = _schemas().get(name)
    if found is not None and name == "CommandGetTables" and asked.include_schema:
        found = found.append(pa.field("table_schema", pa.binary(), nullable=False))
    return found


async def answer(name: str, asked: Any, call: Call, columns: Columns) -> pa.Table:
    """The answer to a command that `schema_of` knows. `columns` says what columns a topic has."""
    if name == "CommandGetSqlInfo":
        return info_table(set(asked.info))
    if name == "CommandGetXdbcTypeInfo":
        return type_table(asked.data_type if asked.HasField("data_type") else None)
    rows: list[dict[str, object]] = []
    if name == "CommandGetCatalogs":
        rows = [{"catalog_name": CATALOG}]
    elif name == "CommandGetTableTypes":
        rows = [{"table_type": TABLE}]
    elif name == "CommandGetDbSchemas" and _here(asked):
        rows = [{"catalog_name": CATALOG, "db_schema_name": SCHEMA}]
    elif name == "CommandGetTables" and _here(asked) and TABLE in (asked.table_types or [TABLE]):
        rows = await _tables(asked, call, columns)
    import pyarrow as pa

    return pa.Table.from_pylist(rows, schema=schema_of(name, asked))


async def _tables(asked: Any, call: Call, columns: Columns) -> list[dict[str, object]]:
    fits = matcher(asked.table_name_filter_pattern) if asked.HasField("table_name_filter_pattern") else None
    names = await readable(call)
    if fits is not None:
        names = await call.services.offload(list, filter(fits, names))
    rows: list[dict[str, object]] = [
        {"catalog_name": CATALOG, "db_schema_name": SCHEMA, "table_name": name, "table_type": TABLE} for name in names
    ]
    if not asked.include_schema:
        return rows
    plain: pa.Schema | None = None
    found = []
    for row in rows:
        name = str(row["table_name"])
        try:
            if _is_typed(call, name):
                shown = await columns(call, name)
            else:  # all of these have the same columns
                shown = plain = await columns(call, name) if plain is None else plain
        except StatementRefused:
            continue  # it was deleted a moment ago
        found.append({**row, "table_schema": schema_bytes(_named(shown, name))})
    return found


def _is_typed(call: Call, name: str) -> bool:
    """Whether a topic has columns of its own."""
    topic = call.services.state.names.get(name)
    if topic is None:
        return False
    table = call.services.domains[Domain(topic.domain)].state.typed.get(topic.id)
    return table is not None and bool(table.columns.newest)


async def readable(call: Call) -> list[str]:
    """The topics that the caller may READ, in order. The list is as new as the ledger."""
    own = call.services
    await own.catch_up()
    names = sorted(name for name, topic in own.state.names.items() if topic.ready)
    return [name for name in names if call.may(Operation.READ, AclResource.TOPIC, name)]


def _here(asked: Any) -> bool:
    """Whether the filters for catalog and schema let ours through."""
    if asked.HasField("catalog") and asked.catalog != CATALOG:
        return False
    return not asked.HasField("db_schema_filter_pattern") or matcher(asked.db_schema_filter_pattern)(SCHEMA)


def _named(columns: pa.Schema, table: str) -> pa.Schema:
    """Columns with what drivers want to know of each."""
    import pyarrow as pa

    about = {
        _PREFIX + b"CATALOG_NAME": CATALOG.encode(),
        _PREFIX + b"DB_SCHEMA_NAME": SCHEMA.encode(),
        _PREFIX + b"TABLE_NAME": table.encode(),
        _PREFIX + b"IS_READ_ONLY": b"1",
        _PREFIX + b"IS_AUTO_INCREMENT": b"0",
        _PREFIX + b"IS_SEARCHABLE": b"1",
    }
    return pa.schema([field.with_metadata(about) for field in columns])
