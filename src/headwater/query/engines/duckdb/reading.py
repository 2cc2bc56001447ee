"""DuckDB's own parser says whether a statement only reads. It is asked before anything runs.

Settings cannot do this alone: a path that may be read may also be written by `COPY`. This check and the gate of
`query/gate` use different parsers, so what one of them misreads is still seen by the other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from headwater.errors import StatementRefused
from headwater.query.asking import Engine
from headwater.query.gate.functions import FUNCTIONS
from headwater.query.gate.tables import TABLE_FUNCTIONS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def check_reading(
    connection: DuckDBPyConnection, sql: str, views: Collection[str], more_functions: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Raise `StatementRefused` unless a text is one SELECT over these views, with functions that are allowed.

    Returns the parts of the statement, as DuckDB's parser has them. It runs nothing of the text. Call it when the
    database is locked: DuckDB opens a file to parse `IMPORT DATABASE`.
    """
    import duckdb

    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise StatementRefused(f"DuckDB cannot read the statement: {error}") from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise StatementRefused("DuckDB runs one SELECT, and nothing else")
    row = connection.execute("SELECT json_serialize_sql($1)", [sql]).fetchone()
    tree = json.loads(row[0]) if row else {"error": True}
    if tree.get("error"):
        raise StatementRefused("DuckDB runs one SELECT, and nothing else")
    nodes = list(_nodes(tree))
    names = {name for node in nodes for name in _names(node)}
    functions = FUNCTIONS[Engine.DUCKDB] | frozenset(more_functions)
    for node in nodes:
        _check(node, {*views, *names}, functions)
    return nodes


def _check(node: dict[str, Any], tables: Collection[str], functions: Collection[str]) -> None:
    if node.get("type") == "SHOW_REF":
        raise StatementRefused("DESCRIBE, SHOW and SUMMARIZE are not allowed within a query")
    if node.get("type") == "BASE_TABLE":
        prefix = node.get("schema_name") or node.get("catalog_name")
        if prefix or node.get("table_name") not in tables:
            raise StatementRefused(f"there is no table {node.get('table_name')!r}")
    name = node.get("function_name")
    if isinstance(name, str):
        plain = name.lower()
        if _WORD.fullmatch(plain) and plain not in functions:
            raise StatementRefused(f"the function {plain} is not allowed")
        if node.get("catalog") or node.get("schema") not in (None, "", "main"):
            raise StatementRefused(f"the function {plain} is not allowed with a schema")
    source = node.get("function")
    if node.get("type") == "TABLE_FUNCTION" and isinstance(source, dict):
        called = str(source.get("function_name", "")).lower()
        if called not in TABLE_FUNCTIONS[Engine.DUCKDB]:
            raise StatementRefused(f"the function {called} is not allowed as a table")


def _names(node: dict[str, Any]) -> Iterator[str]:
    """Names of the queries of a WITH. One that might be a file is none."""
    found = node.get("cte_map")
    for entry in found.get("map", ()) if isinstance(found, dict) else ():
        name = entry.get("key") if isinstance(entry, dict) else None
        if isinstance(name, str) and _WORD.fullmatch(name):
            yield name


def _nodes(tree: object) -> Iterator[dict[str, Any]]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
