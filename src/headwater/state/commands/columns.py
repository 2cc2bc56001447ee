"""Typed columns of a topic's table: their description, and the commands about them.

A typed column is in the table's files behind the columns of the log. Columns are only ever added: none changes, moves
or goes away. So a table at an earlier version of its columns has those with an id up to that version's last one.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import msgspec

from headwater.state.commands.base import Command, Fields

FIRST_COLUMN = 100
"""Ids of typed columns begin here. Those below are the log's."""


class Column(Fields, frozen=True):
    """One column, or one field inside a column. Its values may be null."""

    id: int
    """The field id in Parquet and Iceberg: unique in the table, never used again."""
    name: str
    source: str
    """The name of the field that it was made for. The column has another name if engines cannot read this one."""
    kind: str
    """boolean, long, double, decimal(P,S), date, timestamp, timestamptz, string, binary, json, struct, list or map."""
    doc: str
    """The comment of the column; may be empty."""
    children: tuple[Column, ...]
    """The fields of a struct; `element` of a list; `key` and `value` of a map; else empty."""


class Addition(Fields, frozen=True):
    """A new column with all that is in it, as the last one of its parent."""

    parent: int
    """The id of a struct; 0 for a column of the table."""
    column: Column


class AddColumns(Command, frozen=True, tag="columns+"):
    """Add typed columns to a table. Refused unless the version of its columns is `expected`. Returns the new one."""

    lease: int
    topic: uuid.UUID
    expected: int
    added: list[Addition]


class WantDecoded(Command, frozen=True, tag="decode?"):
    """A caller asks to decode a topic's settled records again. Returns the number of files to be rewritten."""

    topic: uuid.UUID
    everything: bool
    """All files, or those with rows that could not be decoded. Files that are not decoded at all are always meant."""


ColumnsCommand: TypeAlias = AddColumns | WantDecoded


def walk(columns: Sequence[Column]) -> Iterator[Column]:
    """All columns and what is in them, each before its children."""
    waiting = list(reversed(columns))
    while waiting:
        column = waiting.pop()
        yield column
        waiting.extend(reversed(column.children))


def column_at(columns: Sequence[Column], path: str) -> Column | None:
    """The column with this name, with dots between the levels; None if there is none."""
    found: Column | None = None
    for name in path.split("."):
        found = next((column for column in columns if column.name == name), None)
        if found is None:
            return None
        columns = found.children
    return found


def additions(before: Sequence[Column], after: Sequence[Column]) -> list[Addition]:
    """What `AddColumns` has to add. `after` has all that `before` has, in its order, and new columns behind it."""
    found: list[Addition] = []
    waiting = [(0, before, after)]
    while waiting:
        parent, old, new = waiting.pop()
        waiting.extend((was.id, was.children, now.children) for was, now in zip(old, new[: len(old)], strict=True))
        found.extend(Addition(parent, column) for column in new[len(old) :])
    return sorted(found, key=lambda addition: addition.column.id)


def grown(columns: tuple[Column, ...], added: Sequence[Addition]) -> tuple[Column, ...]:
    """The columns with additions."""
    by_parent: dict[int, list[Column]] = {}
    for addition in added:
        by_parent.setdefault(addition.parent, []).append(addition.column)

    def grow(column: Column) -> Column:
        children = (*map(grow, column.children), *by_parent.get(column.id, ()))
        return msgspec.structs.replace(column, children=children) if children != column.children else column

    return (*map(grow, columns), *by_parent.get(0, ()))


def up_to(columns: tuple[Column, ...], last_id: int) -> tuple[Column, ...]:
    """The columns as they were when `last_id` was the last id."""
    return tuple(
        msgspec.structs.replace(column, children=up_to(column.children, last_id))
        for column in columns
        if column.id <= last_id
    )
