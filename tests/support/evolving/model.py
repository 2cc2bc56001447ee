"""A plain, slow model of a table's typed columns, by the rules of `docs/guides/typed.md`.

It shares nothing with the code that it checks: neither merging nor planning nor decoding.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.evolving.steps import Step
from tests.support.evolving.types import NULL, Part, Type, list_of, struct

LOG: tuple[str, ...] = (
    "partition",
    "offset",
    "timestamp_ms",
    "timestamp",
    "key",
    "value",
    "headers",
    "headers_raw",
    "attributes",
)
LOG += ("producer_id", "producer_epoch", "sequence")
TAKEN: tuple[str, ...] = (*LOG, "decode_error", "key_data", "value_data", "_rest")
TAKEN += ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_metadata", "_change_type")
"""Names that a field cannot have in a flattened table."""
VALUE = "value_data"


@dataclass(slots=True)
class Column:
    """A column, or one inside another."""

    name: str
    source: str
    """The name of the field that it is for."""
    kind: str
    children: list[Column] = field(default_factory=list)

    def __str__(self) -> str:
        inside = ", ".join(map(str, self.children))
        return f"{self.name} {self.kind}" + (f"({inside})" if inside else "")


@dataclass(slots=True)
class Table:
    """What the table of a topic has to be: columns, and the typed values of every row."""

    flatten: bool = False
    columns: list[Column] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    """The values of each record in the columns that there were when it was settled, in the order of their offsets."""

    def settle(self, steps: Sequence[Step]) -> None:
        """The records of some steps are settled together."""
        if not steps[0].text:
            known = self.columns if self.flatten else [one for top in self.columns for one in top.children]
            values = [value for step in steps for value in step.values]
            kinds = [_struct_of(values, known)] * len(values)
        else:
            kinds = [step.format.columns(step.type) for step in steps for _ in step.values]
            values = [value for step in steps for value in step.values]
        for kind in dict.fromkeys(kinds):
            root = kind.parts if self.flatten else (Part(VALUE, kind),)
            grow(self.columns, root, TAKEN if self.flatten else ())
        self.rows += [self._row(kind, value) for kind, value in zip(kinds, values, strict=True)]

    def expected(self, upto: int) -> list[dict[str, Any]]:
        """The typed columns of the first rows, with the columns that the table has now."""
        return [padded(self.columns, row) for row in self.rows[:upto]]

    def _row(self, kind: Type, value: Any) -> dict[str, Any]:
        if self.flatten:
            return cells(self.columns, kind, value)
        return cells(self.columns, struct(Part(VALUE, kind)), {VALUE: value})


# --- columns -------------------------------------------------------------------------------------------------


def grow(columns: list[Column], parts: Sequence[Part], reserved: Sequence[str] = ()) -> None:
    """Columns are only added: for each part whose field has none of its type."""
    for part in parts:
        if is_void(part.type):
            continue
        found = column_of(columns, part)
        if found is None:
            found = Column(_new_name(columns, part, reserved), part.name, part.type.kind)
            columns.append(found)
            if part.type.kind == "list":
                found.children = [Column("element", "element", part.type.inner.kind)]
            if part.type.kind == "map":
                found.children = [Column("key", "key", "string"), Column("value", "value", part.type.inner.kind)]
        _grow_inside(found, part.type)


def _grow_inside(column: Column, kind: Type) -> None:
    if kind.kind == "struct":
        grow(column.children, kind.parts)
    elif kind.kind in ("list", "map") and not is_void(kind.inner):
        inner = column.children[-1]
        if kind.inner.kind == "list" and not inner.children:
            inner.children = [Column("element", "element", kind.inner.inner.kind)]
        if kind.inner.kind == "map" and not inner.children:
            inner.children = [Column("key", "key", "string"), Column("value", "value", kind.inner.inner.kind)]
        _grow_inside(inner, kind.inner)


def column_of(columns: Sequence[Column], part: Part) -> Column | None:
    """The column of a field that has its type."""
    return next((one for one in columns if one.source == part.name and is_of(one, part.type)), None)


def is_of(column: Column, kind: Type) -> bool:
    """Whether a column has the type of a field. Structs take each other's fields, also inside lists and maps."""
    if kind.kind == "null":
        return True
    if kind.kind in ("list", "map"):
        return column.kind == kind.kind and is_of(column.children[-1], kind.inner)
    return column.kind == kind.kind


def is_void(kind: Type) -> bool:
    """Whether all values are null so far, so that there is no column yet."""
    if kind.kind in ("struct", "list", "map"):
        return all(is_void(part.type) for part in kind.parts)
    return kind.kind == "null"


def _new_name(columns: Sequence[Column], part: Part, reserved: Sequence[str]) -> str:
    name = re.sub(r"\W", "_", unicodedata.normalize("NFC", part.name))
    name = f"_{name}" if not name or name[0].isdigit() else name
    if name.casefold() in reserved:
        name = f"value_{name}"
    if any(one.source == part.name for one in columns):
        name = f"{name}__{type_name(part.type)}"
    taken = {one.name.casefold() for one in columns}
    number, wished = 1, name
    while name.casefold() in taken:
        number += 1
        name = f"{wished}__{number}"
    return name


def type_name(kind: Type) -> str:
    """A type as a part of a column's name."""
    if kind.kind in ("list", "map"):
        return f"{kind.kind}_{type_name(kind.inner)}"
    return re.sub(r"\W+", "_", kind.kind).strip("_")


# --- values --------------------------------------------------------------------------------------------------


def cells(columns: Sequence[Column], kind: Type, value: dict[str, Any]) -> dict[str, Any]:
    """The values of all columns of one level."""
    found = dict.fromkeys((column.name for column in columns), None)
    for part in kind.parts:
        column = column_of(columns, part)
        one = (value or {}).get(part.name)
        if column is not None and one is not None and fits(part.type, one) and not _is_taken(found, columns, part):
            found[column.name] = cell(column, part.type, one)
    return found


def padded(columns: Sequence[Column], cells_then: dict[str, Any]) -> dict[str, Any]:
    """Values with nulls for columns that came later."""
    return {column.name: _padded(column, cells_then.get(column.name)) for column in columns}


def _padded(column: Column, value: Any) -> Any:
    if value is None or not column.children:
        return value
    if column.kind == "struct":
        return padded(column.children, value)
    if column.kind == "map":
        return {key: _padded(column.children[1], one) for key, one in value.items()}
    return [_padded(column.children[0], one) for one in value]


def _is_taken(found: dict[str, Any], columns: Sequence[Column], part: Part) -> bool:
    """Whether another column of the field has the value already."""
    return any(found[column.name] is not None for column in columns if column.source == part.name)


def cell(column: Column, kind: Type, value: Any) -> Any:
    """The value of one column."""
    if value is None or (value == [] and kind.kind not in ("list", "json")):
        return None
    if value == {} and kind.kind not in ("struct", "map", "json"):
        return None
    match kind.kind:
        case "struct":
            return cells(column.children, kind, value)
        case "list":
            return [cell(column.children[0], kind.inner, one) for one in value]
        case "map":
            return {key: cell(column.children[1], kind.inner, one) for key, one in value.items()}
        case "double":
            return float(value)
        case "json":
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return value


def fits(kind: Type, value: Any) -> bool:
    """Whether a value of JSON is of a type, where a field has several."""
    if isinstance(value, bool):
        return kind.kind in ("boolean", "json")
    if isinstance(value, int):
        return kind.kind in ("long", "double", "json")
    if isinstance(value, dict):
        return kind.kind in ("struct", "map", "json") or not value
    if isinstance(value, list):
        return kind.kind == "json" or (
            kind.kind == "list" and all(one is None or fits(kind.inner, one) for one in value)
        )
    if isinstance(value, str):
        return kind.kind in ("string", "json")
    return kind.kind not in ("struct", "list", "map", "boolean", "string", "long")


# --- JSON without a schema -----------------------------------------------------------------------------------


def _struct_of(values: Sequence[Any], known: Sequence[Column]) -> Type:
    """The type of JSON objects that are settled together."""
    names = dict.fromkeys(name for value in values for name in value)
    parts = []
    for name in names:
        own = [column for column in known if column.source == name]
        found = _types_of([value[name] for value in values if name in value], own)
        parts += [Part(name, kind) for kind in found or [NULL]]
    return struct(*parts)


def _types_of(values: Sequence[Any], known: Sequence[Column]) -> list[Type]:
    """The types of values of one name. Whole numbers go with the others unless there is a column for them."""
    some = [value for value in values if value is not None]
    kinds = dict.fromkeys(_word(value) for value in some)
    has = {column.kind for column in known}
    if "long" in kinds and "long" not in has and ("double" in kinds or "double" in has):
        del kinds["long"]
        kinds.setdefault("double")
    found = []
    for kind in sorted(kinds, key=_order):
        if kind == "struct":
            inside = [child for column in known if column.kind == "struct" for child in column.children]
            found.append(_struct_of([value for value in some if isinstance(value, dict)], inside))
        elif kind == "list":
            found += _lists_of([value for value in some if isinstance(value, list)], known)
        else:
            found.append(Type(kind))
    return found


def _order(kind: str) -> int:
    """Of several types that come at once scalars are first, then objects, then lists."""
    return {"struct": 1, "list": 2}.get(kind, 0)


def _lists_of(values: Sequence[list[Any]], known: Sequence[Column]) -> list[Type]:
    """The types of lists of one name: those of the columns that take them, and one for all others."""
    columns = [column for column in known if column.kind == "list"]
    taken: dict[int, list[Any]] = {}
    for value in values:
        at = next((at for at, column in enumerate(columns) if takes(column, value)), -1)
        taken.setdefault(at, []).extend(value)
    found = []
    for at, elements in sorted(taken.items(), key=lambda one: one[0] % (len(columns) + 1)):
        inside = [columns[at].children[0]] if at >= 0 else []
        if at >= 0 and inside[0].kind not in ("struct", "list"):
            found.append(list_of(Type(inside[0].kind)))
            continue
        kinds = _types_of(elements, inside)
        found.append(list_of(Type("json") if len(kinds) > 1 else kinds[0] if kinds else NULL))
    return found


def takes(column: Column, value: Any) -> bool:
    """Whether a column takes a value of JSON as it is."""
    if value is None or value in ([], {}) or column.kind == "json":
        return True  # an empty list or object of another type is null
    if column.kind == "list":
        return isinstance(value, list) and all(takes(column.children[0], one) for one in value)
    if column.kind == "double" and type(value) is int:
        return abs(value) <= 2**53
    return column.kind == _word(value)


def _word(value: Any) -> str:
    words = {bool: "boolean", int: "long", float: "double", str: "string", dict: "struct", list: "list"}
    return words[type(value)]
