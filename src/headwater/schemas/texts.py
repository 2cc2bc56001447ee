"""Texts of schemas: limits that hold for every kind, JSON that is read with care, and how a flaw's place is written."""

from __future__ import annotations

import json
import math
from typing import NoReturn

from headwater.errors import BadSchema

MAX_TEXT = 1_000_000
"""The longest text of one schema, in characters."""

MAX_TEXTS = 8_000_000
"""The longest text of a schema with all its references, in characters."""

MAX_REFERENCES = 1_000
"""The most references of a schema, with the references of its references."""

MAX_DEPTH = 400
"""The deepest nesting of a schema's text, in the sense of JSON. A record in a record of Avro is four levels."""

MAX_LEVELS = 150
"""The deepest nesting of types in a schema with its references."""

MAX_PLACE = 10_000
"""The longest way to a place in a schema, in characters: the names of all that it is in."""

MAX_NODES = 200_000
"""The most values, in the sense of JSON, in the text of one schema."""

MAX_MESSAGE = 500
"""The longest part of a message, in characters."""

MAX_INTEGER = 1 << 512
"""The magnitude that integers in a schema stay below."""


def refuse(where: str, place: str, flaw: str) -> NoReturn:
    """Raise a `BadSchema`: `where` is the schema or the reference, `place` the place in its text."""
    raise BadSchema(f"{_cut(where)}, at {_cut(place) or 'the top'}: {_cut(flaw)}")


def _cut(text: str) -> str:
    """A text that fits into a message."""
    return text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}..."


def step(place: str, name: str | int) -> str:
    """The place one step further, as a JSON pointer."""
    return f"{place}/{str(name).replace('~', '~0').replace('/', '~1')}"


def check_sizes(text: str, references: tuple[tuple[str, str], ...]) -> None:
    """Refuse a schema whose texts are too long or too many."""
    if len(references) > MAX_REFERENCES:
        raise BadSchema(f"The schema has {len(references)} references, more than {MAX_REFERENCES}")
    for where, one in (("The schema", text), *((f"Reference {name!r}", one) for name, one in references)):
        if len(one) > MAX_TEXT:
            raise BadSchema(f"{where} has {len(one)} characters, more than {MAX_TEXT}")
    total = len(text) + sum(len(one) for _, one in references)
    if total > MAX_TEXTS:
        raise BadSchema(f"The schema and its references have {total} characters, more than {MAX_TEXTS}")


def read_json(where: str, text: str) -> object:
    """The JSON value of a text, within the limits: no `NaN`, no half characters, bounded depth and numbers."""
    try:
        value: object = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        refuse(where, "", f"it is nested deeper than {MAX_DEPTH} levels")
    except json.JSONDecodeError as error:
        refuse(where, f"line {error.lineno}, column {error.colno}", f"this is not JSON: {error.msg}")
    except ValueError as error:  # a number with thousands of digits, or a constant that JSON does not have
        refuse(where, "", f"this is not JSON: {error}")
    _check(where, value)
    return value


def write_json(value: object) -> str:
    """A JSON value as text, without spaces, in the order of its members."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def sorted_json(value: object) -> object:
    """The same JSON value, with the members of all objects in the order of their names."""
    if isinstance(value, dict):
        members = {}
        for name in sorted(value):
            members[name] = sorted_json(value[name])
        return members
    return list(map(sorted_json, value)) if isinstance(value, list) else value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


_Way = tuple["_Way | None", str | int]
"""A place as a list of steps, the last one first: no text is made of it unless there is a flaw."""


def _check(where: str, value: object) -> None:
    """Walk through a value without recursion, and refuse what is beyond the limits."""
    nodes = 0
    todo: list[tuple[object, _Way | None, int, int]] = [(value, None, 0, 0)]
    while todo:
        node, way, depth, length = todo.pop()
        nodes += 1
        if depth > MAX_DEPTH:
            refuse(where, _place(way), f"it is nested deeper than {MAX_DEPTH} levels")
        if length > MAX_PLACE:
            refuse(where, _place(way), f"the names on the way to this place have more than {MAX_PLACE} characters")
        if nodes > MAX_NODES:
            refuse(where, "", f"it has more than {MAX_NODES} values")
        if isinstance(node, str):
            _check_characters(where, way, node)
        elif isinstance(node, float):
            if not math.isfinite(node):
                refuse(where, _place(way), "the number is too large")
        elif isinstance(node, int):
            if abs(node) >= MAX_INTEGER:
                refuse(where, _place(way), "the number is too large")
        elif isinstance(node, dict):
            for name, child in node.items():
                _check_characters(where, way, name)
                todo.append((child, (way, name), depth + 1, length + len(name) + 1))
        elif isinstance(node, list):
            todo.extend((child, (way, at), depth + 1, length + 1) for at, child in enumerate(node))


def _place(way: _Way | None) -> str:
    names: list[str | int] = []
    while way is not None:
        way, name = way
        names.append(name)
    place = ""
    for name in reversed(names):
        place = step(place, name)
    return place


def _check_characters(where: str, way: _Way | None, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        refuse(where, _place(way), "a string has half of a surrogate pair")
