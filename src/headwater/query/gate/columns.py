"""The columns of topics: their names, their types in each engine, and which of them are plain bytes."""

from __future__ import annotations

from sqlglot import exp

from headwater.query.asking import Engine

_HEADERS = {
    Engine.DUCKDB: "STRUCT(key VARCHAR, value BLOB)[]",
    Engine.SPARK: "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
_KINDS = {
    Engine.DUCKDB: {"int": "INTEGER", "long": "BIGINT", "time": "TIMESTAMP WITH TIME ZONE", "bytes": "BLOB"},
    Engine.SPARK: {"int": "INT", "long": "BIGINT", "time": "TIMESTAMP", "bytes": "BINARY"},
}
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


def described(engine: Engine) -> exp.Expr:
    """A query that gives names and types of the columns as rows."""
    kinds = {**_KINDS[engine], "headers": _HEADERS[engine]}
    rows = [
        exp.Tuple(expressions=[exp.Literal.string(name), exp.Literal.string(kinds[kind])])
        for name, kind in COLUMNS.items()
    ]
    names = [exp.to_identifier(name, quoted=True) for name in ("column_name", "column_type")]
    alias = exp.TableAlias(this=exp.to_identifier("columns", quoted=True), columns=names)
    return exp.select(exp.Star()).from_(exp.Values(expressions=rows, alias=alias))
