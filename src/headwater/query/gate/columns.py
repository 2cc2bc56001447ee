"""The columns of topics: their names, their types in each engine, and which of them are plain bytes."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from headwater.query.asking import Engine
from headwater.state.commands.columns import Column

_HEADERS = {
    Engine.DUCKDB: "STRUCT(key VARCHAR, value BLOB)[]",
    Engine.SPARK: "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
_KINDS = {
    Engine.DUCKDB: {"int": "INTEGER", "long": "BIGINT", "time": "TIMESTAMP WITH TIME ZONE", "bytes": "BLOB"},
    Engine.SPARK: {"int": "INT", "long": "BIGINT", "time": "TIMESTAMP", "bytes": "BINARY"},
}
_TYPED = {
    Engine.DUCKDB: {
        "long": "BIGINT",
        "string": "VARCHAR",
        "json": "VARCHAR",
        "binary": "BLOB",
        "timestamptz": "TIMESTAMP WITH TIME ZONE",
    },
    Engine.SPARK: {
        "long": "BIGINT",
        "string": "STRING",
        "json": "STRING",
        "timestamp": "TIMESTAMP_NTZ",
        "timestamptz": "TIMESTAMP",
    },
}
"""By kind, the types that have another name in an engine."""
COLUMNS = {
    "partition": "int",
    "offset": "long",
    "timestamp_ms": "long",
    "timestamp": "time",
    "key": "bytes",
    "value": "bytes",
    "headers": "headers",
    "headers_raw": "bytes",
    "attributes": "int",
    "producer_id": "long",
    "producer_epoch": "int",
    "sequence": "int",
}
"""By name, in their order: those of `log/segment/schema.py`. A test compares them."""


def log_types(engine: Engine) -> dict[str, str]:
    """By name, the types of the log's columns."""
    kinds = {**_KINDS[engine], "headers": _HEADERS[engine]}
    return {name: kinds[kind] for name, kind in COLUMNS.items()}


def type_of(column: Column, engine: Engine) -> str:
    """The type of a typed column."""
    spark = engine is Engine.SPARK
    inner = [type_of(child, engine) for child in column.children]
    match column.kind:
        case "struct":
            names = [_quoted(child.name, engine) for child in column.children]
            fields = ", ".join(f"{name}{':' if spark else ''} {kind}" for name, kind in zip(names, inner, strict=True))
            return f"STRUCT<{fields}>" if spark else f"STRUCT({fields})"
        case "list":
            return f"ARRAY<{inner[0]}>" if spark else f"{inner[0]}[]"
        case "map":
            return f"MAP<{', '.join(inner)}>" if spark else f"MAP({', '.join(inner)})"
        case kind:
            return _TYPED[engine].get(kind) or kind.upper()


def _quoted(name: str, engine: Engine) -> str:
    if engine is Engine.SPARK:
        return "`" + name.replace("`", "``") + "`"
    return '"' + name.replace('"', '""') + '"'


def described(engine: Engine, columns: Sequence[Column] = ()) -> exp.Expr:
    """A query that gives names and types of the columns as rows. `columns` are the typed ones."""
    shown = {**log_types(engine), **{column.name: type_of(column, engine) for column in columns}}
    rows = [exp.Tuple(expressions=[exp.Literal.string(name), exp.Literal.string(kind)]) for name, kind in shown.items()]
    names = [exp.to_identifier(name, quoted=True) for name in ("column_name", "column_type")]
    alias = exp.TableAlias(this=exp.to_identifier("columns", quoted=True), columns=names)
    return exp.select(exp.Star()).from_(exp.Values(expressions=rows, alias=alias))
