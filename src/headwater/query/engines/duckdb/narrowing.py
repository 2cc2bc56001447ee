"""Which fields of typed columns a statement uses, so that DuckDB reads no others.

DuckDB reads single fields of a column where a query is right above the files. Above a UNION ALL of files and rows of
the WAL it reads all of them. So each part of a view gives only the fields that the statement names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import msgspec

from headwater.state.commands.columns import Column

_EVERYTHING = ("STAR", "PIVOT", "POSITIONAL_REFERENCE")
"""Parts of a statement that use columns without naming them."""
Path = tuple[str, ...]


def narrowed(columns: Sequence[Column], nodes: Collection[dict[str, Any]]) -> tuple[Column, ...]:
    """Columns with only those fields that a statement uses. `nodes` are the parts of the statement, as DuckDB has them.

    A column of which nothing is used stays whole: DuckDB does not read it.
    """
    if any(map(_uses_everything, nodes)):
        return tuple(columns)
    names = [list(map(str.lower, node["column_names"])) for node in nodes if node.get("class") == "COLUMN_REF"]
    sources = [node for node in nodes if "class" not in node]  # expressions have a class
    tables = {str(node[key]).lower() for node in sources for key in ("alias", "table_name") if node.get(key)}
    if any(len(path) == 1 and path[0] in tables for path in names):  # a table's name stands for its rows
        return tuple(columns)
    joined = {str(name).lower() for node in nodes for name in node.get("using_columns") or ()}
    return tuple(
        column if column.name.lower() in joined else _narrowed(column, set(_paths(column, names))) for column in columns
    )


def _uses_everything(node: dict[str, Any]) -> bool:
    named = node.get("type") == "BASE_TABLE" and bool(node.get("column_name_alias"))
    return node.get("type") in _EVERYTHING or node.get("ref_type") == "NATURAL" or named


def _paths(column: Column, names: Sequence[list[str]]) -> Iterator[Path]:
    """The fields of a column that a statement names, each as a path. The empty one stands for the whole column."""
    own = column.name.lower()
    for path in names:
        for i, name in enumerate(path):  # before the column there may be a table
            if name == own:
                yield tuple(path[i + 1 :])


def _narrowed(column: Column, paths: set[Path]) -> Column:
    """A column with the fields at these paths, and all that is in them."""
    if column.kind != "struct" or not paths or () in paths:
        return column
    if not {path[0] for path in paths} <= {child.name.lower() for child in column.children}:
        return column
    inner = [(child, {path[1:] for path in paths if path[0] == child.name.lower()}) for child in column.children]
    return msgspec.structs.replace(column, children=tuple(_narrowed(child, own) for child, own in inner if own))


def anchored(column: Column, part: Column | None) -> Column:
    """A part of a column with the first field of every struct: the one that files of all versions have.

    DuckDB cannot read a struct of which a file has no field. None: only the first fields are needed.
    """
    if column.kind != "struct" or part == column:
        return column
    chosen = {child.name: child for child in part.children} if part is not None else {}
    needed = [child for i, child in enumerate(column.children) if not i or child.name in chosen]
    children = tuple(anchored(child, chosen.get(child.name)) for child in needed)
    return msgspec.structs.replace(column, children=children)
