"""What Trino gives for typed columns, as values of Python.

Trino answers in JSON: a row inside of another is a list without names. So the schema that the table's own library reads
tells names and types. The columns are asked for by their names, and `*` must have the same ones.
"""

from __future__ import annotations

import datetime
from base64 import b64decode
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.io.pyarrow import schema_to_pyarrow

from harness.storage import Place
from harness.trino import Trino, delta, iceberg, quoted
from headwater.gateway.catalog import NAMESPACE
from tests.engines.evolving import Read, Rows, load

ICEBERG, DELTA = "lake", "deltas"


def readers(trino: Trino, place: Place, directory: Path) -> dict[str, Read]:
    """Readers of all columns of topics' tables, at a snapshot of Iceberg and at a version of Delta."""
    trino.attach(ICEBERG, iceberg(place))
    directory.mkdir()
    trino.attach(DELTA, delta(directory, place.access))
    trino.rows(f"CREATE SCHEMA {DELTA}.{NAMESPACE} WITH (location = {quoted((directory / NAMESPACE).as_uri())})")
    return {"Trino, Iceberg": _by_iceberg(trino), "Trino, Delta": _by_delta(trino)}


def _by_iceberg(trino: Trino) -> Read:
    def read(place: Place, version: int) -> Rows:
        table = load(place, place.topic)
        schema = table.schemas()[table.snapshot_by_id(version).schema_id]
        return _read(trino, f"{ICEBERG}.{NAMESPACE}.{named(place.topic)}", version, schema_to_pyarrow(schema))

    return read


def _by_delta(trino: Trino) -> Read:
    registered: set[str] = set()

    def read(place: Place, version: int) -> Rows:
        if place.topic not in registered:
            given = f"table_name => {quoted(place.topic)}, table_location => {quoted(Path(place.root).as_uri())}"
            trino.rows(f"CALL {DELTA}.system.register_table(schema_name => {quoted(NAMESPACE)}, {given})")
            registered.add(place.topic)
        schema = pa.schema(DeltaTable(place.root, version=version).schema().to_arrow())
        return _read(trino, f"{DELTA}.{NAMESPACE}.{named(place.topic)}", version, schema)

    return read


def _read(trino: Trino, table: str, version: int, schema: pa.Schema) -> Rows:
    source = f"{table} FOR VERSION AS OF {version}"
    shown = trino.answer(f"SELECT * FROM {source} LIMIT 0").columns
    assert sorted(shown) == sorted(name.lower() for name in schema.names), set(shown) ^ set(schema.names)
    told = trino.rows(f"SELECT {', '.join(map(named, schema.names))} FROM {source}")
    return [{field.name: value_of(field.type, one) for field, one in zip(schema, row, strict=True)} for row in told]


def named(name: str) -> str:
    """A name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def value_of(kind: pa.DataType, value: Any) -> Any:
    """A value of an answer, by its type in Arrow."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: value_of(field.type, one) for field, one in zip(kind, value, strict=True)}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [value_of(kind.value_type, one) for one in value]
    if pa.types.is_map(kind):
        assert pa.types.is_string(kind.key_type) or pa.types.is_large_string(kind.key_type), kind
        return {key: value_of(kind.item_type, one) for key, one in value.items()}
    return next((read(value) for holds, read in SCALARS if holds(kind)), value)


def _moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text.removesuffix(" UTC"))


SCALARS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]], ...] = (
    (pa.types.is_decimal, Decimal),
    (pa.types.is_floating, float),
    (pa.types.is_binary, b64decode),
    (pa.types.is_large_binary, b64decode),
    (pa.types.is_date, datetime.date.fromisoformat),
    (pa.types.is_timestamp, _moment),
)
"""Types whose values are texts in an answer, or may be."""
