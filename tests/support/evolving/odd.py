"""Records with odd names, many fields and many levels, and the columns that they become."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.support.evolving.formats import FORMATS
from tests.support.evolving.model import VALUE, Column, Table
from tests.support.evolving.steps import Step
from tests.support.evolving.types import struct

NAMES = (
    *("a.b", "a b", "a_b", "A_B", "a-b", "user.address.city", "it's", 'quo"te', "`tick`", "semi;colon", "com,ma"),
    *("back\\slash", "new\nline", "tab\t", "{curly}", "(round)", "[square]", "equal=", "50%", "#hash", "@at", "$"),
    *("", " ", ".", "_", "1st", "007", "ünï", "ÜNÏ", "straße", "STRASSE", "日本", "emoji😀", "éa", "e\u0301a"),
    *("select", "SELECT", "from", "where", "order", "group", "table", "null", "true", "user", "values", "limit"),
    *("offset", "Offset", "partition", "key", "value", "headers", "timestamp", "sequence", "attributes"),
    *("decode_error", "key_data", "value_data", "_rest", "_file", "_pos", "_row_id", "_metadata", "_change_type"),
    *("element", "list", "map", "struct", "x" * 255, "__proto__", "constructor", "key_value", "item", "array"),
)
WIDE = 2_500
COLUMNS = 2_000
"""The most columns of a table, with `decode_error`, `value_data` and `_rest`."""
DEEP = 60
LEVELS = 40
REPEATS = 12
LONG = "n" * 300
"""A name that no column may have."""


@dataclass(frozen=True, slots=True)
class Odd:
    """A topic with odd records."""

    topic: str
    payloads: tuple[bytes, ...]
    columns: tuple[Column, ...]
    rows: tuple[dict[str, Any], ...]
    """The typed columns of the records, without `decode_error`."""
    flatten: bool = False


def odd_topics() -> list[Odd]:
    """All of them, JSON without a schema."""
    names = [_names("odd.names", False), _names("odd_flat", True)]
    return [*names, _wide(), _wide_flat(), _deep(), _lists(), _long(), _long_flat()]


def _names(topic: str, flatten: bool) -> Odd:
    inside = {name: f"in {at}" for at, name in enumerate(NAMES)}
    values = [{name: at for at, name in enumerate(NAMES)} | {"deep": [inside]}, {"a.b": 7, "deep": []}, {}]
    table = Table(flatten)
    texts = tuple(json.dumps(value).encode() for value in values)
    table.settle([Step(0, "", FORMATS[""], struct(), "", texts, tuple(values))])
    return Odd(topic, texts, tuple(table.columns), tuple(table.expected(len(values))), flatten)


def _wide() -> Odd:
    value = {f"c{number:04}": number for number in range(WIDE)}
    room = COLUMNS - 3
    kept = {name: number for name, number in value.items() if number < room}
    left = {VALUE: {name: number for name, number in value.items() if number >= room}}
    columns = (Column(VALUE, VALUE, "struct", [Column(name, name, "long") for name in kept]), _rest())
    rows = ({VALUE: kept, "_rest": json.dumps(left)}, {VALUE: dict.fromkeys(kept) | {"c0001": 5}, "_rest": None})
    return Odd("wide", (json.dumps(value).encode(), b'{"c0001": 5}'), columns, rows)


def _wide_flat() -> Odd:
    """As many columns at the top level of a flattened table as there may be."""
    wide, room = _wide(), COLUMNS - 2
    [first, second] = map(json.loads, wide.payloads)
    kept = {name: number for name, number in first.items() if number < room}
    left = {VALUE: {name: number for name, number in first.items() if number >= room}}
    columns = (*(Column(name, name, "long") for name in kept), _rest())
    rows = (kept | {"_rest": json.dumps(left)}, dict.fromkeys(kept) | second | {"_rest": None})
    return Odd("wide_flat", wide.payloads, columns, rows, flatten=True)


def _deep() -> Odd:
    """Objects in objects. `value_data` is the first level, and the last level that there may be is text."""
    value: Any = "the end"
    for _ in range(DEEP):
        value = {"d": value}
    told = json.dumps(value).encode()
    rest = value
    for _ in range(LEVELS - 1):
        rest = rest["d"]
    column, row = Column("d", "d", "json"), json.dumps(rest)
    cell: Any = row
    for _ in range(LEVELS - 2):
        column, cell = Column("d", "d", "struct", [column]), {"d": cell}
    return Odd("deep", (told,), (Column(VALUE, VALUE, "struct", [column]),), ({VALUE: {"d": cell}},))


def _lists() -> Odd:
    """Lists in lists."""
    value: Any = 1
    for _ in range(REPEATS + 3):
        value = [value]
    column = Column("element", "element", "json")
    cell: Any = json.dumps([[[1]]])
    for at in range(REPEATS):
        name = "l" if at == REPEATS - 1 else "element"
        column, cell = Column(name, name, "list", [column]), [cell]
    told = json.dumps({"l": value}).encode()
    return Odd("lists", (told,), (Column(VALUE, VALUE, "struct", [column]),), ({VALUE: {"l": cell}},))


def _long() -> Odd:
    """A name that is too long for a column."""
    left = json.dumps({VALUE: {LONG: 1}})
    columns = (Column(VALUE, VALUE, "struct", [Column("a", "a", "long")]), _rest())
    row = {VALUE: {"a": 2}, "_rest": left}
    return Odd("long", (json.dumps({LONG: 1, "a": 2}).encode(),), columns, (row,))


def _long_flat() -> Odd:
    """The same in a flattened table."""
    [left] = _long().rows
    columns = (Column("a", "a", "long"), _rest())
    return Odd("long_flat", _long().payloads, columns, ({"a": 2, "_rest": left["_rest"]},), flatten=True)


def _rest() -> Column:
    return Column("_rest", "_rest", "json")
