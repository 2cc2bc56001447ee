"""Types of schemas that contain themselves, or more parts than a table has columns, become shapes of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headwater.schemas.shapes import Shape

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_LEVELS = 40
"""What is nested more deeply is JSON."""

MAX_REPEATS = 3
"""How often a type may be on the way from the root to itself."""

MAX_PARTS = 4_000
"""How many parts a shape may have before it is cut at fewer levels."""


class _TooLargeError(Exception):
    """A shape has too many parts."""


class Unfolding:
    """One attempt to unfold a schema: counts the parts, and knows the way from the root."""

    def __init__(self, repeats: int, levels: int, parts: int) -> None:
        self._repeats = repeats
        self._levels = levels
        self._parts = parts
        self._way: list[Hashable] = []

    @contextmanager
    def into(self, name: Hashable = None) -> Iterator[bool]:
        """Step into a nested type. Gives whether it may be unfolded; if not, it is JSON.

        `name` is the same for every use of a type that has one.
        """
        self.count()
        may = len(self._way) + 1 < self._levels and (name is None or self._way.count(name) < self._repeats)
        self._way.append(name)
        try:
            yield may
        finally:
            self._way.pop()

    def count(self) -> None:
        """Count one part."""
        self._parts -= 1
        if self._parts < 0:
            raise _TooLargeError


def unfolded(make: Callable[[Unfolding], Shape]) -> Shape:
    """The largest shape within the limits: types repeat less often, then fewer levels are unfolded.

    So the fields at the top have columns before those far below them.
    """
    attempts = [(repeats, MAX_LEVELS) for repeats in range(MAX_REPEATS, 0, -1)]
    attempts += [(1, levels) for levels in range(MAX_LEVELS - 1, 1, -1)]
    for repeats, levels in attempts:
        try:
            return make(Unfolding(repeats, levels, MAX_PARTS))
        except _TooLargeError:
            continue
    # One level of fields: as many as the text of the schema has.
    return make(Unfolding(1, 2, 1 << 40))
