"""Counts of the requests of a ledger in a bucket. Stores charge by the request."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.objects.registers import Held, Registers, Tag
from headwater.ops.metrics import Metric


@dataclass(slots=True)
class Counts:
    """The requests of one handle, and their results."""

    puts: int = 0
    gets: int = 0
    lists: int = 0
    deletes: int = 0
    commits: int = 0
    """Slots written."""
    records: int = 0
    """Records in these slots."""
    lost: int = 0
    """Slots that another writer wrote first."""


class CountedRegisters:
    """See `headwater.objects.registers.Registers`."""

    def __init__(self, inner: Registers, counts: Counts) -> None:
        self._inner = inner
        self._counts = counts

    def __repr__(self) -> str:
        return f"<CountedRegisters {self._inner}>"

    async def read(self, path: str) -> Held | None:
        self._counts.gets += 1
        return await self._inner.read(path)

    async def create(self, path: str, data: bytes) -> Tag | None:
        self._counts.puts += 1
        return await self._inner.create(path, data)

    async def replace(self, path: str, data: bytes, tag: Tag) -> Tag | None:
        self._counts.puts += 1
        return await self._inner.replace(path, data, tag)

    async def put(self, path: str, data: bytes) -> None:
        self._counts.puts += 1
        await self._inner.put(path, data)

    async def delete(self, path: str) -> None:
        self._counts.deletes += 1
        await self._inner.delete(path)

    async def tags(self, prefix: str) -> dict[str, str]:
        self._counts.lists += 1
        return await self._inner.tags(prefix)

    async def close(self) -> None:
        await self._inner.close()


def collect(ledger: object) -> list[Metric]:
    """The metrics of a ledger in a bucket. Empty for other ledgers."""
    counts = getattr(ledger, "counts", None)
    if not isinstance(counts, Counts):
        return []
    asked = {"put": counts.puts, "get": counts.gets, "list": counts.lists, "delete": counts.deletes}
    return [
        Metric("headwater_ledger_requests_total", "counter", "Requests to the bucket that holds the ledger, by kind.",
               [({"kind": kind}, count) for kind, count in asked.items()]),
        Metric("headwater_ledger_slots_total", "counter", "Slots written, each with one or more records.",
               [({}, counts.commits)]),
        Metric("headwater_ledger_slots_lost_total", "counter", "Slots that another writer got first.",
               [({}, counts.lost)]),
    ]  # fmt: skip
