"""Random shapes and values, and a plain reference of what a table's row has of a value.

The values of a struct are a tuple with one value a field, because two fields may share a name. The reference shares no
code with planning and conforming: it looks for columns by the name and the type of their field.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import random
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from headwater.schemas.conform import arrow_type
from headwater.schemas.shapes import NESTED, Field, Shape, list_of, map_of, struct
from headwater.state.commands.columns import Column

NAMES = ("a", "A", "b", "a.b", "a_b", "offset", "a__string", "_rest", "", "1", "decode_error")
WIDE = {"int": "long", "float": "double", "uuid": "string", "time": "string"}
DAYS = datetime.date.max.toordinal()
VALUES: dict[str, Callable[[random.Random], Any]] = {
    "boolean": lambda dice: dice.random() < 0.5,
    "int": lambda dice: dice.choice([0, -(2**31), 2**31 - 1, dice.getrandbits(20)]),
    "long": lambda dice: dice.choice([0, -(2**63), 2**63 - 1, dice.getrandbits(50)]),
    "float": lambda dice: dice.choice([0.5, -1.25, float("inf"), float(dice.getrandbits(20))]),
    "double": lambda dice: dice.choice([0.1, -1e308, float("-inf"), dice.random()]),
    "decimal(5,2)": lambda dice: decimal.Decimal(dice.randint(-99999, 99999)).scaleb(-2),
    "date": lambda dice: datetime.date.fromordinal(dice.randint(1, DAYS)),
    "time": lambda dice: moment(dice).time(),
    "timestamp": lambda dice: moment(dice),
    "timestamptz": lambda dice: moment(dice).replace(tzinfo=datetime.UTC),
    "uuid": lambda dice: str(uuid.UUID(int=dice.getrandbits(128))),
    "string": lambda dice: dice.choice(["", "x", "größer", "\0", "𝄞 "]),
    "binary": lambda dice: dice.randbytes(dice.randint(0, 3)),
    "json": lambda dice: dice.choice(["1", '"x"', "{}", '{"a":[1]}', "null"]),
    "null": lambda dice: None,
}


def moment(dice: random.Random) -> datetime.datetime:
    """A moment between the years 1 and 9999."""
    day = datetime.date.fromordinal(dice.randint(1, DAYS))
    return datetime.datetime(day.year, day.month, day.day, dice.randint(0, 23), 59, 1, dice.randint(0, 999_999))


def any_shape(dice: random.Random, depth: int = 3) -> Shape:
    """A shape of at most some depth."""
    kind = dice.choice(["struct", "list", "map", "scalar", "scalar"]) if depth > 1 else "scalar"
    if kind == "struct":
        return any_struct(dice, depth)
    if kind == "scalar":
        return Shape(dice.choice(list(VALUES)))
    return (list_of if kind == "list" else map_of)(any_shape(dice, depth - 1))


def any_struct(dice: random.Random, depth: int = 3) -> Shape:
    """A struct of at most some depth. Fields that share a name differ in their type."""
    fields = [
        Field(dice.choice(NAMES), any_shape(dice, depth - 1), dice.choice(["", "A doc."]))
        for _ in range(dice.choice([0, 1, 1, 2, 3, 4]))
    ]
    return struct(*{(field.name, type_of(field.shape)): field for field in fields}.values())


def any_value(dice: random.Random, shape: Shape) -> Any:
    """A value of a shape, or None. Of fields that share a name at most one has a value."""
    if dice.random() < 0.15:
        return None
    if shape.kind == "struct":
        seen: set[str] = set()
        row = []
        for field in shape.fields:
            value = None if field.name in seen else any_value(dice, field.shape)
            seen |= {field.name} if value is not None else set()
            row.append(value)
        return tuple(row)
    if shape.kind == "list":
        return [any_value(dice, shape.fields[0].shape) for _ in range(dice.randint(0, 3))]
    if shape.kind == "map":
        return {key: any_value(dice, shape.fields[1].shape) for key in dice.sample("xyz", dice.randint(0, 2))}
    return VALUES[shape.kind](dice)


def array_of(rows: Sequence[Any], shape: Shape) -> pa.Array:
    """The natural array of values."""
    kind = arrow_type(shape)
    if shape.kind == "struct":
        parts = [
            array_of([None if row is None else row[at] for row in rows], field.shape)
            for at, field in enumerate(shape.fields)
        ]
        mask = pa.array([row is None for row in rows], pa.bool_())
        if not parts:
            return pa.array([None if row is None else {} for row in rows], kind)
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if shape.kind in NESTED:
        offsets = [0]
        for row in rows:
            offsets.append(offsets[-1] + len(row or ()))
        places, mask = pa.array(offsets, pa.int32()), pa.array([row is None for row in rows], pa.bool_())
        if shape.kind == "list":
            inner = array_of([one for row in rows for one in row or ()], shape.fields[0].shape)
            return pa.ListArray.from_arrays(places, inner, type=kind, mask=mask)
        keys = pa.array([key for row in rows for key in row or ()], pa.string())
        items = array_of([one for row in rows for one in (row or {}).values()], shape.fields[1].shape)
        return pa.MapArray.from_arrays(places, keys, items, type=kind, mask=mask)
    return pa.array(rows, kind)


def type_of(shape: Shape) -> str:
    """The type that a column for a shape has, as text."""
    if shape.kind in ("list", "map"):
        return f"{shape.kind} of {type_of(shape.fields[-1].shape)}"
    return WIDE.get(shape.kind, shape.kind)


def type_of_column(column: Column) -> str:
    """The type of a column, as text."""
    if column.kind in ("list", "map"):
        return f"{column.kind} of {type_of_column(column.children[-1])}"
    return column.kind


def alike(column: str, shape: str) -> bool:
    """Whether two types are the same. What is always null has any type."""
    return column == shape or (shape.endswith("null") and column.startswith(shape.removesuffix("null")))


def row_of(value: Any, shape: Shape, column: Column) -> Any:
    """What a column that takes a shape has of a value. Structs are dicts by the names of columns."""
    if value is None or shape.kind == "null":
        return None
    if shape.kind == "struct":
        return fields_of(value, shape, column.children)
    if shape.kind == "list":
        return [row_of(one, shape.fields[0].shape, column.children[0]) for one in value]
    if shape.kind == "map":
        return [(key, row_of(one, shape.fields[1].shape, column.children[1])) for key, one in value.items()]
    if column.kind == "string" and shape.kind == "time":
        return value.isoformat(timespec="microseconds")
    return value


def fields_of(value: Any, shape: Shape, columns: Sequence[Column]) -> dict[str, Any]:
    """What columns have of the fields of a struct."""
    row: dict[str, Any] = {column.name: None for column in columns}
    exact = {(field.name, type_of(field.shape)) for field in shape.fields}
    for field, one in zip(shape.fields, value, strict=True):
        own = type_of(field.shape)
        for column in columns:
            found = type_of_column(column)
            free = own == found or (field.name, found) not in exact
            if column.source == field.name and alike(found, own) and free:
                if one is not None:
                    row[column.name] = row_of(one, field.shape, column)
                break
    return row


def plain(value: Any, shape: Shape) -> Any:
    """A value as JSON has it: objects for structs and maps, text for what JSON does not have."""
    if value is None:
        return None
    if shape.kind == "struct":
        row: dict[str, Any] = {}
        for field, one in zip(shape.fields, value, strict=True):
            if one is not None or field.name not in row:
                row[field.name] = plain(one, field.shape)
        return row
    if shape.kind == "list":
        return [plain(one, shape.fields[0].shape) for one in value]
    if shape.kind == "map":
        return {key: plain(one, shape.fields[1].shape) for key, one in value.items()}
    if shape.kind == "json":
        return json.loads(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, datetime.datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return text + ("Z" if value.tzinfo else "")
    if isinstance(value, datetime.time):
        return value.isoformat(timespec="microseconds")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return value
