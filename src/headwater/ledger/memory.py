"""Ledgers in memory: the model that the simulation and the property tests run on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from headwater.errors import Truncated
from headwater.ledger.contract import MAX_RECORD_BYTES, Beat, Entry, Pointer
from headwater.types import Domain, Position


@dataclass(slots=True)
class _Log:
    first: int = 1
    records: list[bytes] = field(default_factory=list)
    pointer: Pointer | None = None
    waiters: list[asyncio.Future[None]] = field(default_factory=list)

    @property
    def last(self) -> int:
        return self.first + len(self.records) - 1


class MemoryLedger:
    """See `headwater.ledger.contract.Ledger`. All handles on one store share one instance."""

    dense = True

    def __init__(self) -> None:
        self._logs: dict[int, _Log] = {}
        self._beats: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<MemoryLedger { ({d: log.last for d, log in self._logs.items()}) }>"

    def _log(self, domain: int) -> _Log:
        log = self._logs.get(domain)
        if log is None:
            log = self._logs[domain] = _Log()
        return log

    def append_now(self, domain: Domain, record: bytes) -> Position:
        """Append without waiting, for a simulated network that decides when a record arrives."""
        if len(record) > MAX_RECORD_BYTES:
            raise ValueError(f"a ledger record has {len(record)} bytes; the limit is {MAX_RECORD_BYTES}")
        log = self._log(domain)
        log.records.append(record)
        waiters, log.waiters = log.waiters, []
        for future in waiters:
            if not future.done():
                future.set_result(None)
        return Position(log.last)

    async def append(self, domain: Domain, record: bytes) -> Position:
        return self.append_now(domain, record)

    async def read(self, domain: Domain, after: Position, limit: int) -> list[Entry]:
        log = self._log(domain)
        if after < log.first - 1:
            raise Truncated(f"domain {domain} is truncated through {log.first - 1}, so it cannot be read after {after}")
        skip = after - log.first + 1
        return [Entry(Position(after + 1 + i), data) for i, data in enumerate(log.records[skip : skip + limit])]

    async def last(self, domain: Domain) -> Position:
        return Position(self._log(domain).last)

    async def watch(self, domain: Domain, after: Position) -> Position:
        log = self._log(domain)
        if log.last > after:
            return Position(log.last)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        log.waiters.append(future)
        await future
        return Position(max(log.last, after + 1))

    async def truncate(self, domain: Domain, through: Position) -> None:
        log = self._log(domain)
        count = max(0, min(through, log.last) - log.first + 1)
        del log.records[:count]
        log.first += count

    async def pointer(self, domain: Domain) -> Pointer | None:
        return self._log(domain).pointer

    async def set_pointer(self, domain: Domain, expected: Position, pointer: Pointer) -> bool:
        log = self._log(domain)
        current = log.pointer.position if log.pointer else 0
        if current != expected or pointer.position <= current:
            return False
        log.pointer = pointer
        return True

    async def beat(self, process: str) -> None:
        self._beats[process] = self._beats.get(process, 0) + 1

    async def beats(self) -> list[Beat]:
        return [Beat(process, count) for process, count in self._beats.items()]

    async def forget_beat(self, process: str) -> None:
        self._beats.pop(process, None)

    async def close(self) -> None:
        return None
