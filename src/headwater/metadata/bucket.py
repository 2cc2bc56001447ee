"""Ledgers in a bucket and nothing else: object storage with conditional PUT.

    ledger/v1/ring                              the number of places in a ring, fixed for ever
    ledger/v1/domain=D/slot/PLACE               the ring: `bucket_ring` says why it is safe
    ledger/v1/domain=D/truncated, …/pointer     registers that change by compare-and-set
    ledger/v1/beat/PROCESS                      signs of life, overwritten

An uncontended commit is one PUT. Followers ask for the next slot, ten times a second while there is something to see
and once a second while there is not; what this handle appends wakes its own readers at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar
from urllib.parse import parse_qs, quote, unquote, urlsplit

from headwater.clock import Chance, Clock, SystemChance, SystemClock
from headwater.errors import ConfigError, Retriable, StoreUnavailable
from headwater.metadata.bucket_append import Appender
from headwater.metadata.bucket_cells import PointerValue, open_ring
from headwater.metadata.bucket_counts import CountedRegisters, Counts
from headwater.metadata.bucket_ring import DomainRing
from headwater.metadata.ledger import MAX_RECORD_BYTES, Beat, Entry, Pointer
from headwater.objects.registers import Registers
from headwater.types import Domain, Position

PLACES = 1 << 16
MIN_PLACES = 4
POLL_SECONDS = 0.1
IDLE_POLL_SECONDS = 1.0
APPEND_SECONDS = 10.0
BEATS = "ledger/v1/beat/"

_T = TypeVar("_T")


class BucketLedger:
    """See `headwater.metadata.ledger.Ledger`."""

    dense = False
    beat_seconds = 1.0
    """How often a process shows that it lives, where each sign is paid for."""

    def __init__(
        self,
        registers: Registers,
        *,
        places: int = PLACES,
        clock: Clock | None = None,
        chance: Chance | None = None,
        poll_seconds: float = POLL_SECONDS,
        idle_poll_seconds: float = IDLE_POLL_SECONDS,
        append_seconds: float = APPEND_SECONDS,
    ) -> None:
        if places < MIN_PLACES:
            raise ConfigError(f"a ledger of {places} slots; it needs at least {MIN_PLACES}")
        self.counts = Counts()
        self._registers = CountedRegisters(registers, self.counts)
        self._places = places
        self._clock = clock or SystemClock()
        self._chance = chance or SystemChance()
        self._poll_seconds = poll_seconds
        self._idle_poll_seconds = idle_poll_seconds
        self._append_seconds = append_seconds
        self._writer = self._chance.uuid().bytes[:8]
        self._changes = 0
        self._rings: dict[Domain, DomainRing] = {}
        self._appenders: dict[Domain, Appender] = {}
        self._pollers: dict[Domain, asyncio.Task[None]] = {}
        self._opening = asyncio.Lock()
        self._opened = False
        self._beats: dict[str, tuple[str, int]] = {}
        self._closed = False

    @classmethod
    def from_url(cls, url: str) -> BucketLedger:
        """`s3://bucket/prefix`, `gs://…`, `az://…`; `?slots=N` sets the size of a ring that does not exist yet."""
        from headwater.objects.registers_remote import RemoteRegisters

        parts = urlsplit(url)
        options = parse_qs(parts.query, keep_blank_values=True)
        slots = options.pop("slots", [str(PLACES)])
        if not parts.netloc or options or not slots[-1].isdecimal():
            raise ConfigError(f"{url!r} is not of the form {parts.scheme}://bucket/prefix or …?slots=65536")
        return cls(RemoteRegisters.from_url(parts._replace(query="").geturl()), places=int(slots[-1]))

    def __repr__(self) -> str:
        return f"<BucketLedger {list(self._rings.values())}>"

    async def _ring(self, domain: Domain) -> DomainRing:
        if self._closed:
            raise StoreUnavailable("the ledger is closed")
        if not self._opened:
            async with self._opening:
                if not self._opened:
                    self._places = (await open_ring(self._registers, self._places, self._name())).slots
                    self._opened = True
        if domain not in self._rings:
            self._rings[domain] = DomainRing(self._registers, domain, self._places, self._writer.hex(), self._clock)
        return self._rings[domain]

    @property
    def checkpoint_records(self) -> int:
        """After how many records a checkpoint is due: two must be written before the ring is full."""
        return self._places // 4

    def _name(self) -> str:
        """A name that no other change by anybody carries."""
        self._changes += 1
        return f"{self._writer.hex()}-{self._changes}"

    # --- records ---------------------------------------------------------------------------------------

    async def append(self, domain: Domain, record: bytes) -> Position:
        if len(record) > MAX_RECORD_BYTES:
            raise ValueError(f"a ledger record of {len(record)} bytes; the limit is {MAX_RECORD_BYTES}")
        ring = await self._ring(domain)
        if domain not in self._appenders:
            self._appenders[domain] = Appender(
                ring, self._writer, self.counts, self._clock, self._chance, self._append_seconds
            )
        return await self._appenders[domain].append(record)

    async def read(self, domain: Domain, after: Position, limit: int) -> list[Entry]:
        return await (await self._ring(domain)).read(after, limit)

    async def last(self, domain: Domain) -> Position:
        ring = await self._ring(domain)
        await ring.look()
        return ring.last

    async def watch(self, domain: Domain, after: Position) -> Position:
        ring = await self._ring(domain)
        await ring.open()
        future = ring.wait(after)
        try:
            if not future.done() and (domain not in self._pollers or self._pollers[domain].done()):
                self._pollers[domain] = asyncio.create_task(self._poll(ring), name=f"ledger-poll-{domain}")
            await future
        finally:
            future.cancel()
        return Position(max(ring.last, after + 1))

    async def _poll(self, ring: DomainRing) -> None:
        """Look at the end now and then, as long as somebody waits for it to move."""
        pause = self._poll_seconds
        while ring.watched:
            end = ring.end
            try:
                await ring.look()
            except Retriable:
                pause = self._idle_poll_seconds
            else:
                pause = self._poll_seconds if ring.end > end else min(pause * 1.5, self._idle_poll_seconds)
            await asyncio.sleep(pause * (0.75 + 0.5 * self._chance.fraction()))

    async def truncate(self, domain: Domain, through: Position) -> None:
        await (await self._ring(domain)).truncate(through)

    # --- the pointer -----------------------------------------------------------------------------------

    async def pointer(self, domain: Domain) -> Pointer | None:
        value, _ = await (await self._ring(domain)).pointer.read()
        return value.pointer if value else None

    async def set_pointer(self, domain: Domain, expected: Position, pointer: Pointer) -> bool:
        cell = (await self._ring(domain)).pointer
        value, held = await cell.read()
        current = value.pointer.position if value else Position(0)
        if current != expected or pointer.position <= current:
            return False
        return await cell.swap(held, PointerValue(pointer, self._name()))

    # --- beats -----------------------------------------------------------------------------------------

    async def beat(self, process: str) -> None:
        await self._alive(self._registers.put(_beat_path(process), self._name().encode()))

    async def beats(self) -> list[Beat]:
        """One listing. A beat's count is this handle's own: it rises whenever the object has changed."""
        tags = await self._alive(self._registers.tags(BEATS))
        seen: dict[str, tuple[str, int]] = {}
        for path, tag in tags.items():
            process = unquote(path.removeprefix(BEATS))
            known, count = self._beats.get(process, ("", 0))
            seen[process] = (tag, count if tag == known else count + 1)
        self._beats = seen
        return [Beat(process, count) for process, (_, count) in seen.items()]

    async def forget_beat(self, process: str) -> None:
        await self._alive(self._registers.delete(_beat_path(process)))

    async def _alive(self, call: Awaitable[_T]) -> _T:
        if self._closed:
            raise StoreUnavailable("the ledger is closed")
        return await call

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for task in self._pollers.values():
            task.cancel()
        await asyncio.gather(*self._pollers.values(), return_exceptions=True)
        for appender in self._appenders.values():
            await appender.close()
        for ring in self._rings.values():
            await ring.close()
        await self._registers.close()


def _beat_path(process: str) -> str:
    return BEATS + quote(process, safe="")
