"""The bytes of many runs of WAL objects, for readers that take each object once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headwater.background import each
from headwater.errors import Damaged, ObjectMissing
from headwater.objects import ObjectStore
from headwater.types import Buffer

MAX_GAP = 256 << 10
"""Runs of an object with at most this many bytes between them are read at once."""


class Run(Protocol):
    """A run of batches: its object, and its place in it."""

    @property
    def path(self) -> str: ...

    @property
    def position(self) -> int: ...

    @property
    def length(self) -> int: ...


class RunBytes:
    """The bytes of some runs, by object."""

    def __init__(self) -> None:
        self._held: dict[str, list[tuple[int, memoryview]]] = {}
        self._flaws: dict[str, str] = {}
        self.missing: set[str] = set()
        """The paths that no object has."""

    def __repr__(self) -> str:
        return f"<RunBytes of {len(self._held)} objects; {len(self._flaws)} cannot be read>"

    def lack(self, path: str, reason: str) -> None:
        """Note that an object cannot be read."""
        self._flaws[path] = reason

    def add(self, path: str, start: int, data: Buffer) -> None:
        """Keep bytes of an object."""
        self._held.setdefault(path, []).append((start, memoryview(data)))

    def get(self, run: Run) -> memoryview:
        """The bytes of a run. Raises `Damaged` if they could not be read."""
        for start, data in self._held.get(run.path, ()):
            if start <= run.position and run.position + run.length <= start + len(data):
                return data[run.position - start : run.position - start + run.length]
        raise Damaged(self._flaws.get(run.path) or f"the object ends before {run.position + run.length}")


async def load_runs(store: ObjectStore, runs: Sequence[Run]) -> RunBytes:
    """Read runs, those that are close together at once. Objects that cannot be read are noted."""
    found = RunBytes()

    async def load(span: tuple[str, int, int]) -> None:
        path, low, high = span
        try:
            found.add(path, low, await store.get(path, low, high - low))
        except ObjectMissing:
            found.missing.add(path)
            found.lack(path, "the object is missing")
        except Damaged as error:
            found.lack(path, str(error))

    await each(load, _spans(runs))
    return found


def _spans(runs: Sequence[Run]) -> list[tuple[str, int, int]]:
    """Paths and ranges of bytes with all runs, and with few other bytes."""
    found: list[tuple[str, int, int]] = []
    for run in sorted(runs, key=lambda run: (run.path, run.position)):
        end = run.position + run.length
        if found and found[-1][0] == run.path and run.position - found[-1][2] <= MAX_GAP:
            path, low, high = found[-1]
            found[-1] = (path, low, max(high, end))
        else:
            found.append((run.path, run.position, end))
    return found
