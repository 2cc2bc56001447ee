"""Typed columns of a topic's table: their description, and the commands about them. From level 6 on.

A typed column is in the table's files behind the columns of the log. Columns are only ever added: none changes, moves
or goes away. So a table at an earlier version of its columns has those with an id up to that version's last one.
"""

from __future__ import annotations

from headwater.state.commands.base import Fields

FIRST_COLUMN = 100
"""Ids of typed columns begin here. Those below are the log's."""


class Column(Fields, frozen=True):
    """One column, or one field inside a column. Its values may be null."""

    id: int
    """The field id in Parquet and Iceberg: unique in the table, never used again."""
    name: str
    kind: str
    """boolean, long, double, decimal(P,S), date, time, timestamp, timestamptz, uuid, string, binary, json, struct,
    list or map; also int and float."""
    doc: str
    """The comment of the column; may be empty."""
    children: tuple[Column, ...]
    """The fields of a struct; `element` of a list; `key` and `value` of a map; else empty."""
