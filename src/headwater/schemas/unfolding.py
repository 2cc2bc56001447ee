"""Types of schemas that contain themselves, or more parts than a table has columns, become shapes of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headwater.schemas.shapes import JSON, Shape

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_LEVELS = 40
"""What is nested more deeply is JSON."""

MAX_REPEATS = 3
"""How often a type may be on the way from the root to itself."""

MAX_PARTS = 4_000
"""How many parts a shape may have before it is cut at fewer levels."""

MAX_FLAT_PARTS = 50_000
"""How many parts a shape with one level of fields may have. A schema with more is JSON as a whole."""


class _TooLargeError(Exception):
    """A shape has too many parts."""


class Unfolding:
    """One attempt to unfold a schema: counts the parts, and knows the way from the root."""

    def __init__(self, repeats: int, levels: int, parts: int) -> None:
        self._repeats = repeats
        self._levels = levels
        self._parts = parts
        self._way: list[Hashable] = []
        self._level = 1

    @contextmanager
    def into(self, name: Hashable = None, deeper: bool = True) -> Iterator[bool]:
        """Step into a nested type. Gives whether it may be unfolded; if not, it is JSON.

        `name` is the same for every use of a type that has one. A name of a type is not deeper than the type.
        """
        self.count()
        may = self._level < self._levels and len(self._way) < 2 * self._levels
        may = may and (name is None or self._way.count(name) < self._repeats)
        self._way.append(name)
        self._level += deeper
        try:
            yield may
        finally:
            self._way.pop()
            self._level -= deeper

    def count(self) -> None:
        """Count one part."""
        self._parts -= 1
        if self._parts < 0:
            raise _TooLargeError


def unfolded(make: Callable[[Unfolding], Shape]) -> Shape:
    """The largest shape within the limits: types repeat less often, then fewer levels are unfolded.

    So the fields at the top have columns before those far below them. One level of fields may have more parts.
    """
    for repeats in range(MAX_REPEATS, 0, -1):
        found = _attempt(make, repeats, MAX_LEVELS)
        if found is not None:
            return found
    best = _attempt(make, 1, 2, MAX_FLAT_PARTS) or JSON
    low, high = 2, MAX_LEVELS - 1
    while low <= high:
        levels = (low + high) // 2
        found = _attempt(make, 1, levels)
        if found is None:
            high = levels - 1
        else:
            best, low = found, levels + 1
    return best


def _attempt(make: Callable[[Unfolding], Shape], repeats: int, levels: int, parts: int = MAX_PARTS) -> Shape | None:
    try:
        return make(Unfolding(repeats, levels, parts))
    except _TooLargeError:
        return None
