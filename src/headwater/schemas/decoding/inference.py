"""The shape of JSON values, from the values themselves.

A name whose values have several types becomes several fields of that name. Whole numbers and others under one name
become doubles if all of the whole ones can be kept exactly. Elements of a list have one type: mixed ones are JSON text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from headwater.schemas.shapes import BOOLEAN, DOUBLE, JSON, LONG, NULL, STRING, Field, Shape, decimal, list_of, struct

if TYPE_CHECKING:
    import pyarrow as pa

MAX_LEVELS = 40
"""A value that is nested more deeply is JSON text."""
MAX_NAMES = 10_000
"""If an object has more names than these, over all values, then those that were not known before are left out. An
object with none that was known is JSON text."""
_EXACT = 1 << 53
_LONG = 1 << 63
_HUGE = decimal(38, 0)
_KEPT = frozenset({"boolean", "long", "double", "string", "json", "map", _HUGE.kind})


class Seen:
    """What is known about the values of one place."""

    def __init__(self, level: int = 1) -> None:
        self.is_kept = False
        """Whether the place was known before."""
        self._level = level
        self._kinds: dict[str, Shape] = {}
        self._kept: set[str] = set()
        self._inexact = False
        self._fields: dict[str, Seen] | None = None
        self._element: Seen | None = None

    def keep(self, shape: Shape) -> None:
        """Start from a shape that is known. Its fields keep their places and their types.

        Types that JSON does not have, such as dates, stay with the values that other schemas gave them.
        """
        self.is_kept = True
        if shape.kind == "struct":
            self._fields = {} if self._fields is None else self._fields
            for field in shape.fields:
                self._fields.setdefault(field.name, Seen(self._level + 1)).keep(field.shape)
        elif shape.kind == "list":
            self._element = self._element or Seen(self._level + 1)
            self._element.keep(shape.fields[0].shape)
        elif shape.kind in _KEPT:
            self._kinds[shape.kind] = shape
            self._kept.add(shape.kind)

    def add(self, value: Any) -> None:
        """Take a value into account."""
        if isinstance(value, dict) and value:
            if self._level >= MAX_LEVELS:
                self._kinds["json"] = JSON
                return
            self._fields = {} if self._fields is None else self._fields
            for name, part in value.items():
                self._fields.setdefault(name, Seen(self._level + 1)).add(part)
        elif isinstance(value, list) and value:
            if self._level >= MAX_LEVELS:
                self._kinds["json"] = JSON
                return
            self._element = self._element or Seen(self._level + 1)
            for part in value:
                self._element.add(part)
        elif isinstance(value, dict):
            self._fields = {} if self._fields is None else self._fields
        elif isinstance(value, list):
            self._element = self._element or Seen(self._level + 1)
        elif value is not None:
            shape = _scalar(value)
            self._kinds.setdefault(shape.kind, shape)
            self._inexact |= shape is LONG and abs(value) > _EXACT

    def shapes(self) -> list[Shape]:
        """The types of the values; none if all are null."""
        kinds = dict(self._kinds)
        if "double" in kinds and "long" in kinds and "long" not in self._kept and not self._inexact:
            del kinds["long"]
        found = list(kinds.values())
        if self._fields is not None:
            fields = self._fields
            if len(fields) > MAX_NAMES:
                fields = {name: seen for name, seen in fields.items() if seen.is_kept}
            if fields or not self._fields:
                named = [(name, shape) for name, seen in fields.items() for shape in seen.shapes() or [NULL]]
                found.append(struct(*(Field(name, shape) for name, shape in named)))
            elif JSON not in found:
                found.append(JSON)
        if self._element is not None:
            found.append(list_of(self._element.only()))
        return found

    def only(self) -> Shape:
        """One type for all values: JSON text if they have several."""
        found = self.shapes()
        return found[0] if len(found) == 1 else JSON if found else NULL

    def root(self) -> Shape:
        """One type for whole payloads: objects, if there are any, else the only type there is."""
        found = self.shapes()
        return next((shape for shape in found if shape.kind == "struct"), self.only())


def read(payloads: pa.Array, rows: Iterable[int]) -> Iterator[tuple[int, Any]]:
    """The values of some JSON texts, with their rows; those that are none are left out."""
    for row in rows:
        text = payloads[row].as_py()
        if text is None:
            continue
        try:
            value = json.loads(text, parse_int=_whole, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            continue
        yield row, value


class _Number(str):
    """A number of JSON that no column of numbers can hold."""


def _whole(text: str) -> int | _Number:
    return int(text) if len(text) <= 39 else _Number(text)


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _scalar(value: Any) -> Shape:
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, _Number):
        return JSON
    if isinstance(value, int):
        return LONG if -_LONG <= value < _LONG else _HUGE if abs(value) < 10**38 else JSON
    if isinstance(value, float):
        return DOUBLE if math.isfinite(value) else JSON
    return STRING
