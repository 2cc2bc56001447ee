"""Lists of JSON under one name whose elements have different types.

A field has one type for all elements of its lists. Where a table has several columns for lists of a name, or a value
fits none of them, payloads are decoded by shapes of their own, so that each list goes into the column that takes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeAlias

import msgspec

from headwater.schemas.shapes import Shape, digits

Choice: TypeAlias = frozenset[tuple[tuple[str | None, ...], int]]
"""Which of the lists of a name a payload has, by the path to the name, where that is not the first one. None in a path
is the element of a list."""

FIRST: Choice = frozenset()
NEW = -1
"""No list that is known takes the value."""
_EXACT = 1 << 53
_LONG = 1 << 63


def choice_of(known: Shape, value: Any) -> Choice:
    """Which of the known lists the lists of a value belong to."""
    found: dict[tuple[str | None, ...], int] = {}
    _choose([known], value, (), found)
    return frozenset((path, at) for path, at in found.items() if at)


def chosen(known: Shape, choice: Choice) -> Shape:
    """The known shape with one list for each name: the chosen one, or none if that is new."""
    return _chosen(known, (), dict(choice))


def widened(choices: Iterable[Choice]) -> Choice:
    """A choice for payloads of all these choices: their lists are new."""
    return frozenset((path, NEW) for choice in choices for path, _ in choice)


def _choose(shapes: list[Shape], value: Any, path: tuple[str | None, ...], found: dict[Any, int]) -> None:
    if isinstance(value, dict):
        own = next((shape for shape in shapes if shape.kind == "struct"), None)
        by_name: dict[str, list[Shape]] = {}
        for field in own.fields if own is not None else ():
            by_name.setdefault(field.name, []).append(field.shape)
        for name, part in value.items():
            if isinstance(part, (dict, list)) and name in by_name:
                _choose(by_name[name], part, (*path, name), found)
    elif isinstance(value, list) and any(one is not None for one in value):
        lists = [shape for shape in shapes if shape.kind == "list"]
        at = next((at for at, shape in enumerate(lists) if _takes(shape, value)), NEW)
        if lists:
            found[path] = at if found.get(path, at) == at else NEW
        if lists and at != NEW:
            for one in value:
                _choose([lists[at].fields[0].shape], one, (*path, None), found)


def _takes(shape: Shape, value: Any) -> bool:
    """Whether a value fits a shape without changing the types in it. Structs take all objects."""
    match shape.kind:
        case "list":
            return value is None or (
                isinstance(value, list) and all(_takes(shape.fields[0].shape, one) for one in value)
            )
        case "struct" | "map":
            return value is None or isinstance(value, dict)
        case "json" | "null":
            return True
        case "boolean":
            return value is None or isinstance(value, bool)
        case "string":
            return value is None or type(value) is str  # a number that is too large has a type of its own
    if value is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        return value is None
    if shape.kind == "double":
        return math.isfinite(value) if isinstance(value, float) else abs(value) <= _EXACT
    if isinstance(value, float):
        return False
    return -_LONG <= value < _LONG if shape.kind == "long" else digits(shape.kind) == (38, 0)


def _chosen(shape: Shape, path: tuple[str | None, ...], choice: dict[tuple[str | None, ...], int]) -> Shape:
    if shape.kind == "list":
        [element] = shape.fields
        inner = _chosen(element.shape, (*path, None), choice)
        return Shape("list", (msgspec.structs.replace(element, shape=inner),))
    if shape.kind != "struct":
        return shape
    fields, lists = [], dict[str, int]()
    for field in shape.fields:
        place = (*path, field.name)
        if field.shape.kind == "list":
            number = lists[field.name] = lists.get(field.name, -1) + 1
            if number != choice.get(place, 0):
                continue
        fields.append(msgspec.structs.replace(field, shape=_chosen(field.shape, place, choice)))
    return Shape("struct", tuple(fields))
