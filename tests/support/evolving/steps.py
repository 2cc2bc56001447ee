"""An evolution: a type that changes in thirty steps, the format of each step, and records that were written by it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.support.evolving.formats import FORMATS, Format
from tests.support.evolving.naming import plain_name
from tests.support.evolving.types import EITHER, NULL, SCALARS, Part, Type, list_of, map_of, struct, value_of

STEPS = 30
RECORDS = 4
"""In each step."""
NAMES = (
    *("user", "price", "Total", "total", "offset", "value", "key", "select", "order", "group", "timestamp", "table"),
    *("a.b", "a b", "ünï", "items", "details", "tags", "note", "partition", "ref"),
)
SCHEMAS = ("AVRO", "PROTOBUF", "JSON")
PLAIN = ("",)
"""Formats: those with schemas, and JSON without one."""


@dataclass(frozen=True, slots=True)
class Step:
    """One version of the schema, and what was written by it."""

    number: int
    changes: str
    format: Format
    type: Type
    """With what the format has."""
    text: str
    """The schema; empty for JSON without one."""
    payloads: tuple[bytes, ...]
    """Without a prefix. For Protobuf the indexes of the message come first."""
    values: tuple[Any, ...]
    """What the format's own library reads from the payloads."""


Change = Callable[[random.Random, Type], Type]


def evolution(seed: int, formats: tuple[str, ...] = SCHEMAS, steps: int = STEPS) -> list[Step]:
    """The steps of a seed. The same changes come with every choice of formats."""
    changing, writing = random.Random(seed), random.Random(f"{seed} {formats}")
    kind = struct(Part("id", Type("long"), False), Part("note", Type("string")), Part("details", _new_struct(changing)))
    names = [name for name, often in CHANGES.items() for _ in range(often)]
    changing.shuffle(names)
    chosen = [formats[number % len(formats)] for number in range(steps)]
    writing.shuffle(chosen)
    found = []
    for number in range(steps):
        name = names[number % len(names)] if number else "the beginning"
        if number:
            kind = _changed(changing, kind, _CHANGES[name])
        found.append(_step(writing, number, name, FORMATS[chosen[number]], kind))
    return found


def _step(dice: random.Random, number: int, changes: str, form: Format, kind: Type) -> Step:
    own = form.own(kind)
    schema = form.schema(own, dice)
    payloads = []
    for _ in range(RECORDS):
        payloads.append(schema.write(value_of(dice, own)))
    return Step(number, changes, form, own, schema.text, tuple(payloads), tuple(map(schema.read, payloads)))


# --- changes -------------------------------------------------------------------------------------------------


def _changed(dice: random.Random, kind: Type, change: Change) -> Type:
    """A struct somewhere in a type is changed."""
    inside = [part for part in kind.parts if any(_structs(part.type))]
    if inside and dice.random() < 0.5:
        part = dice.choice(inside)
        return replace(kind, parts=tuple(_into(dice, one, change) if one is part else one for one in kind.parts))
    return change(dice, kind)


def _structs(kind: Type) -> list[Type]:
    found = [kind] if kind.kind == "struct" else []
    return [*found, *(one for part in kind.parts for one in _structs(part.type))]


def _into(dice: random.Random, part: Part, change: Change) -> Part:
    if part.type.kind == "struct":
        return replace(part, type=_changed(dice, part.type, change))
    inner = _into(dice, part.type.parts[0], change)
    return replace(part, type=replace(part.type, parts=(inner, *part.type.parts[1:])))


def _free(dice: random.Random, kind: Type) -> str:
    """A name that no part has, nor one that some format writes the same."""
    taken = {plain_name(part.name) for part in kind.parts}
    free = [name for name in NAMES if plain_name(name) not in taken]
    return dice.choice(free) if free else f"more_{len(kind.parts)}"


def _scalar(dice: random.Random) -> Type:
    return Type(dice.choice(SCALARS))


def _new_struct(dice: random.Random) -> Type:
    return struct(Part("city", Type("string")), Part("at", _scalar(dice), dice.random() < 0.5))


def _added(dice: random.Random, kind: Type, type_: Type) -> Type:
    part = Part(_free(dice, kind), type_, dice.random() < 0.7)
    at = dice.randint(0, len(kind.parts))
    return replace(kind, parts=(*kind.parts[:at], part, *kind.parts[at:]))


def _nested(dice: random.Random, kind: Type) -> Type:
    inner = dice.choice([_new_struct(dice), _new_struct(dice), _scalar(dice)])
    return _added(dice, kind, dice.choice([inner, list_of(inner), map_of(inner), list_of(list_of(inner))]))


def _dropped(dice: random.Random, kind: Type) -> Type:
    if len(kind.parts) < 2:
        return _added(dice, kind, _scalar(dice))
    gone = dice.choice(kind.parts)
    return replace(kind, parts=tuple(part for part in kind.parts if part is not gone))


def _with(dice: random.Random, kind: Type, change: Callable[[Part], Part]) -> Type:
    chosen = dice.choice(kind.parts)
    return replace(kind, parts=tuple(change(part) if part is chosen else part for part in kind.parts))


def _renamed(dice: random.Random, kind: Type) -> Type:
    name = _free(dice, kind)
    return _with(dice, kind, lambda part: replace(part, name=name))


def _conflicting(dice: random.Random, kind: Type) -> Type:
    other = dice.choice(
        [_scalar(dice), _scalar(dice), list_of(_scalar(dice)), map_of(_scalar(dice)), _new_struct(dice)]
    )
    return _with(dice, kind, lambda part: replace(part, type=other))


def _widened(dice: random.Random, kind: Type) -> Type:
    wider = {"int": "long", "float": "double", "enum": "string", "uuid": "string", "time": "string"}
    return _with(dice, kind, lambda part: replace(part, type=Type(wider.get(part.type.kind, "long"))))


def _listed(dice: random.Random, kind: Type) -> Type:
    return _with(dice, kind, lambda part: part if part.type.kind == "null" else replace(part, type=list_of(part.type)))


def _nullable(dice: random.Random, kind: Type) -> Type:
    return _with(dice, kind, lambda part: replace(part, nullable=not part.nullable))


CHANGES = {
    "a new field": 5,
    "a nested field": 6,
    "a dropped field": 3,
    "a renamed field": 3,
    "another type": 6,
    "a wider type": 2,
    "a list of what it was": 1,
    "null or not": 1,
    "always null": 1,
    "one of two types": 2,
}
"""How often each change is made in thirty steps."""
_CHANGES: dict[str, Change] = {
    "a new field": lambda dice, kind: _added(dice, kind, _scalar(dice)),
    "a nested field": _nested,
    "a dropped field": _dropped,
    "a renamed field": _renamed,
    "another type": _conflicting,
    "a wider type": _widened,
    "a list of what it was": _listed,
    "null or not": _nullable,
    "always null": lambda dice, kind: _added(dice, kind, NULL),
    "one of two types": lambda dice, kind: _added(dice, kind, EITHER),
}
