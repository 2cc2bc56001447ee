"""Types of values as people think of them, before any format. Each format writes those that it has (`formats`)."""

from __future__ import annotations

import datetime
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

SCALARS = (
    *("boolean", "int", "long", "unsigned", "float", "double", "string", "enum", "binary", "decimal", "uuid"),
    *("date", "time", "timestamp", "timestamptz"),
)
SYMBOLS = ("RED", "GREEN", "BLUE")
KEYS = ("x", "y")
NULLS = 0.3
"""The share of values that are null where they may be."""


@dataclass(frozen=True, slots=True)
class Part:
    """A field of a struct, the element of a list, the value of a map, or one of the types that a value may have."""

    name: str
    type: Type
    nullable: bool = True
    choice: str = ""
    """Of the parts of a struct with the same choice at most one has a value."""


@dataclass(frozen=True, slots=True)
class Type:
    """A type: a scalar, `null`, `struct`, `list`, `map`, or `either` (one of several types)."""

    kind: str
    parts: tuple[Part, ...] = ()

    @property
    def inner(self) -> Type:
        """The type of a list's elements, or of a map's values."""
        return self.parts[0].type


def struct(*parts: Part) -> Type:
    return Type("struct", parts)


def list_of(element: Type, nullable: bool = True) -> Type:
    return Type("list", (Part("element", element, nullable),))


def map_of(value: Type, nullable: bool = True) -> Type:
    return Type("map", (Part("value", value, nullable),))


EITHER = Type("either", (Part("long", Type("long"), False), Part("string", Type("string"), False)))
NULL = Type("null")


def walk(kind: Type) -> Iterator[Type]:
    """A type and all that are in it."""
    yield kind
    for part in kind.parts:
        yield from walk(part.type)


def value_of(dice: random.Random, kind: Type) -> Any:
    """A value. That of a struct is a dict without those fields that have no value."""
    match kind.kind:
        case "struct":
            return _struct(dice, kind)
        case "list":
            part = kind.parts[0]
            return [_maybe(dice, part) for _ in range(dice.choice([0, 1, 2, 3]))]
        case "map":
            part = kind.parts[0]
            return {key: _maybe(dice, part) for key in dice.sample(KEYS, dice.randint(0, 2))}
        case "either":
            return value_of(dice, dice.choice(kind.parts).type)
        case "null":
            return None
    return _scalar(dice, kind.kind)


def _struct(dice: random.Random, kind: Type) -> dict[str, Any]:
    chosen = {choice: dice.choice([part for part in kind.parts if part.choice == choice]) for choice in _choices(kind)}
    found = {}
    for part in kind.parts:
        value = _maybe(dice, part) if not part.choice or chosen[part.choice] is part else None
        if value is not None or (not part.choice and dice.random() < 0.5):
            found[part.name] = value
    return found


def _choices(kind: Type) -> list[str]:
    return [*dict.fromkeys(part.choice for part in kind.parts if part.choice)]


def _maybe(dice: random.Random, part: Part) -> Any:
    return None if part.nullable and dice.random() < NULLS else value_of(dice, part.type)


def _scalar(dice: random.Random, kind: str) -> Any:
    day = datetime.datetime(2024, 2, 29, 23, 59, 1) + datetime.timedelta(microseconds=dice.randrange(10**15))
    match kind:
        case "boolean":
            return dice.random() < 0.5
        case "int":
            return dice.choice([0, -(2**31), 2**31 - 1, dice.getrandbits(20)])
        case "long":
            return dice.choice([0, -(2**63), 2**63 - 1, dice.getrandbits(50)])
        case "unsigned":
            return dice.choice([0, 2**64 - 1, dice.getrandbits(40)])
        case "float":
            return dice.choice([0.5, -1.25, dice.getrandbits(20) + 0.5])
        case "double":
            return dice.choice([0.1, -1.5e300, dice.random() + 0.0001])
        case "enum":
            return dice.choice(SYMBOLS)
        case "binary":
            return dice.randbytes(dice.randint(0, 4))
        case "decimal":
            return Decimal(dice.randint(-(10**10) + 1, 10**10 - 1)).scaleb(-2)
        case "uuid":
            return str(uuid.UUID(int=dice.getrandbits(128)))
        case "date":
            return day.date()
        case "time":
            return day.time()
        case "timestamp" | "timestamptz":
            return day
    return dice.choice(["", "x", "größer", 'quo"te', "𝄞 \n", f"s{dice.getrandbits(10)}"])
