"""A budget of steps for walks through schemas and values of others, which are refused when none is left."""

from __future__ import annotations


class Steps:
    """The steps that one piece of work may take."""

    def __init__(self, most: int, over: Exception) -> None:
        """`over` is raised by the step that is one too many."""
        self.left = most
        self._over = over

    def __repr__(self) -> str:
        return f"<Steps: {self.left} left>"

    def take(self, count: int = 1) -> None:
        """Take steps. Raises if there are not so many left."""
        self.left -= count
        if self.left < 0:
            raise self._over
