"""Runs of WAL objects are read together where they are close together."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from headwater.errors import Damaged
from headwater.log.wal.runs import MAX_GAP, load_runs
from headwater.objects.memory import MemoryStore
from tests.support.promise import promise


@dataclass(frozen=True, slots=True)
class At:
    """A run."""

    path: str
    position: int
    length: int


class Counting(MemoryStore):
    """Notes which ranges are read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[str, int, int | None]] = []

    async def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        self.reads.append((path, start, length))
        return await super().get(path, start, length)


@promise("T17")
def test_what_is_far_apart_is_read_apart() -> None:
    """A task that takes one partition of large objects does not read the others; each run has its bytes."""
    far = 100 + MAX_GAP
    data = bytes(i % 251 for i in range(3 * far))

    async def told() -> None:
        store = Counting()
        for path in ("a", "b"):
            await store.put(path, [data])
        runs = [At("a", far + 61, 40), At("b", 7, 9), At("a", 10, 50), At("a", far + 60, 1), At("a", 70, 5)]
        found = await load_runs(store, runs)
        assert sorted(store.reads) == [("a", 10, 65), ("a", far + 60, 41), ("b", 7, 9)]
        for run in runs:
            assert bytes(found.get(run)) == data[run.position : run.position + run.length]
        with pytest.raises(Damaged, match="ends before"):
            found.get(At("a", 500, 10))

    asyncio.run(told())


@promise("T1")
def test_objects_that_cannot_be_read() -> None:
    """The others are read all the same."""

    async def told() -> None:
        store = MemoryStore()
        await store.put("a", [b"abc"])
        found = await load_runs(store, [At("a", 0, 3), At("gone", 0, 3)])
        assert bytes(found.get(At("a", 1, 2))) == b"bc" and found.missing == {"gone"}
        with pytest.raises(Damaged, match="the object is missing"):
            found.get(At("gone", 0, 3))

    asyncio.run(told())
