"""What engines give for typed columns, as plain values that compare alike whatever engine gave them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

from tests.support.evolving.model import Column


def plain_rows(columns: Sequence[Column], rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of an engine, with the columns that the model has; all others must be missing."""
    return [{column.name: plain(column, row[column.name]) for column in columns} for row in rows]


def plain(column: Column, value: Any) -> Any:
    """One value. Maps are dicts, moments are in UTC and have no zone, JSON text is what it says."""
    return _each(column, value, _plain_scalar)


def in_milliseconds(columns: Sequence[Column], rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Plain rows, with moments in UTC rounded to milliseconds. Trino's connector for Delta has no finer ones."""
    return [{column.name: _each(column, row[column.name], _rounded) for column in columns} for row in rows]


def _each(column: Column, value: Any, scalar: Callable[[str, Any], Any]) -> Any:
    """The value with `scalar` of the kind and of each value that is no struct, list or map."""
    if value is None:
        return None
    match column.kind:
        case "struct":
            given = dict(value)
            assert set(given) == {child.name for child in column.children}, (column.name, sorted(given))
            return {child.name: _each(child, given[child.name], scalar) for child in column.children}
        case "list":
            return [_each(column.children[0], one, scalar) for one in value]
        case "map":
            return {key: _each(column.children[1], one, scalar) for key, one in _pairs(value)}
    return scalar(column.kind, value)


def _plain_scalar(kind: str, value: Any) -> Any:
    match kind:
        case "json":
            return json.loads(value)
        case "binary":
            return bytes(value)
        case "timestamp" | "timestamptz":
            return _moment(value)
        case _ if kind.startswith("decimal"):
            return Decimal(value)
    return value


def _rounded(kind: str, value: Any) -> Any:
    if kind != "timestamptz":
        return value
    up = value + datetime.timedelta(microseconds=500)
    return up.replace(microsecond=up.microsecond // 1_000 * 1_000)


def _pairs(value: Any) -> Iterable[tuple[Any, Any]]:
    """The entries of a map, which are a dict, pairs, or structs of key and value."""
    if isinstance(value, dict):
        return value.items()
    return [(one["key"], one["value"]) if isinstance(one, dict) else tuple(one) for one in value]


def _moment(value: datetime.datetime) -> datetime.datetime:
    return value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo else value


def drawn(columns: Sequence[Column], within: str = "") -> list[str]:
    """Columns as lines with their paths and kinds, in order of the paths."""
    found = []
    for column in columns:
        path = f"{within}{column.name}"
        found += [f"{path} {column.kind}", *drawn(column.children, f"{path}.")]
    return sorted(found)


def without_empty(value: Any) -> Any:
    """The same with null for lists and maps that are empty."""
    if isinstance(value, dict):
        return {name: without_empty(one) for name, one in value.items()} or None
    if isinstance(value, list):
        return [without_empty(one) for one in value] or None
    return value
