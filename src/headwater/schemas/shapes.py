"""Shapes: the types of values, whatever format they came in.

A decoder turns bytes into the natural Arrow type of a shape (`arrow_type` of `schemas/conform.py`). Merging turns
shapes into columns of a table (`schemas/columns.py`). Every value of a shape may be null.

| kind | natural value |
|---|---|
| boolean int long float double date | as in Arrow; int has 32 bits, long has 64 |
| decimal(P,S) | P is at most 38; a decimal with more digits is a string |
| time timestamp timestamptz | in microseconds; timestamptz counts from 1970 in UTC, timestamp has no zone |
| uuid | text with hyphens, in lower case |
| string binary | as in Arrow |
| json | JSON text: a value whose parts have no columns |
| struct | `fields` in order; two fields may share a name if their kinds differ, and at most one of them has a value |
| list | one field, `element` |
| map | two fields, `key` and `value`; a key is a string |
| null | always null: the type is not known yet, and no column is made for it |
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

MAX_PRECISION = 38
"""The most digits of a decimal in Iceberg, Delta and Arrow's 128 bits."""

NESTED = frozenset({"struct", "list", "map"})
"""Kinds whose values have values inside."""

SCALARS = frozenset(
    {"boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz"}
    | {"uuid", "string", "binary", "json", "null"}
)
"""Kinds whose values have none. Decimals are scalars too; their kinds have digits in them."""

_DECIMAL = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")


class Shape(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The type of a value."""

    kind: str
    fields: tuple[Field, ...] = ()


class Field(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A part of a value."""

    name: str
    shape: Shape
    doc: str = ""


BOOLEAN = Shape("boolean")
INT = Shape("int")
LONG = Shape("long")
FLOAT = Shape("float")
DOUBLE = Shape("double")
DATE = Shape("date")
TIME = Shape("time")
TIMESTAMP = Shape("timestamp")
TIMESTAMPTZ = Shape("timestamptz")
UUID = Shape("uuid")
STRING = Shape("string")
BINARY = Shape("binary")
JSON = Shape("json")
NULL = Shape("null")


def struct(*fields: Field) -> Shape:
    """A struct. One without fields can be no column: what never has fields is `JSON`."""
    return Shape("struct", fields)


def list_of(element: Shape, doc: str = "") -> Shape:
    """A list."""
    return Shape("list", (Field("element", element, doc),))


def map_of(value: Shape, doc: str = "") -> Shape:
    """A map from strings."""
    return Shape("map", (Field("key", STRING), Field("value", value, doc)))


def decimal(precision: int, scale: int) -> Shape:
    """A decimal, or a string if no table has so many digits."""
    if not 0 <= scale <= precision or not 1 <= precision <= MAX_PRECISION:
        return STRING
    return Shape(f"decimal({precision},{scale})")


def digits(kind: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal's kind; None for other kinds."""
    found = _DECIMAL.fullmatch(kind)
    return (int(found[1]), int(found[2])) if found else None


def flaw_of(shape: Shape) -> str:
    """What is wrong with a shape that came from outside; empty if nothing is."""
    for one, names in _walk(shape, ()):
        place = ".".join(names) or "the root"
        if one.kind not in NESTED:
            digital = digits(one.kind)
            if one.kind not in SCALARS and (digital is None or decimal(*digital).kind != one.kind):
                return f"{place}: {one.kind!r} is no kind"
            if one.fields:
                return f"{place}: a {one.kind} has no fields"
        elif one.kind == "list" and [field.name for field in one.fields] != ["element"]:
            return f"{place}: a list has the field element, and no other"
        elif one.kind == "map" and ([f.name for f in one.fields] != ["key", "value"] or one.fields[0].shape != STRING):
            return f"{place}: a map has the fields key, which is a string, and value"
    return ""


def depth_of(shape: Shape) -> int:
    """How many levels a shape has. A scalar has one."""
    return 1 + max((depth_of(field.shape) for field in shape.fields), default=0)


def is_void(shape: Shape) -> bool:
    """Whether nothing is known about the values: no column can be made of the shape."""
    if shape.kind == "map":
        return is_void(shape.fields[1].shape)
    return shape.kind == "null" or (shape.kind in NESTED and all(is_void(field.shape) for field in shape.fields))


def _walk(shape: Shape, names: tuple[str, ...]) -> Iterator[tuple[Shape, tuple[str, ...]]]:
    todo = [(shape, names)]
    while todo:
        one, path = todo.pop()
        yield one, path
        todo.extend((field.shape, (*path, field.name)) for field in one.fields)
