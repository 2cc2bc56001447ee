"""Ledgers in a bucket: object storage with conditional PUT is all that they need.

    ledger/v1/ring                              the number of places in a ring, which never changes
    ledger/v1/domain=D/slot/PLACE               the ring; `ledger/bucket/ring.py` explains why it is safe
    ledger/v1/domain=D/truncated, …/pointer     registers that change by compare-and-set
    ledger/v1/domain=D/wish                     the writer to let go first; see `ledger/bucket/turns.py`
    ledger/v1/beat/PROCESS                      heartbeats, overwritten

An uncontended commit is one PUT. Followers ask for the next slot: ten times a second while there are new records, once
a second while there are none. An append of this handle wakes its own readers at once.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import msgspec

from headwater.background import Background, Duty, OnDeath, Supervised
from headwater.clock import Chance, Clock, SystemChance, SystemClock
from headwater.errors import ConfigError, Retriable, StoreUnavailable
from headwater.ledger.bucket.appender import Appender
from headwater.ledger.bucket.cells import PointerValue, open_ring
from headwater.ledger.bucket.counts import CountedRegisters, Counts
from headwater.ledger.bucket.peers import Peers, TcpPeers
from headwater.ledger.bucket.ring import DomainRing
from headwater.ledger.bucket.slots import Slot, decode_slot, encode_slot
from headwater.ledger.contract import MAX_RECORD_BYTES, Beat, Entry, Pointer
from headwater.objects.registers import Registers
from headwater.settings.objects import StoreOptions
from headwater.types import CLUSTER, Domain, Position

PLACES = 1 << 16
MIN_PLACES = 4
POLL_SECONDS = 0.1
IDLE_POLL_SECONDS = 1.0
APPEND_SECONDS = 5.0
POLL = Duty("ledger-poll", OnDeath.RESTART, "looks for a domain's new records in the bucket")
BEATS = "ledger/v1/beat/"
PEER_SECONDS = 5.0
"""A process without a beat for this long is not chosen as preferred appender."""

_T = TypeVar("_T")


class _Sign(msgspec.Struct, frozen=True):
    """A beat: a name that is new each time, and the address of the process."""

    name: str
    address: str = ""


@dataclass(slots=True)
class _Seen:
    tag: str = ""
    count: int = 0
    changed: float = 0.0
    address: str | None = None


class BucketLedger:
    """See `headwater.ledger.contract.Ledger`."""

    dense = False
    beat_seconds = 1.0
    """The interval of beats. It is long because each beat is a request that costs money."""

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
        peers: Peers | None = None,
        background: Background | None = None,
    ) -> None:
        if places < MIN_PLACES:
            raise ConfigError(f"the ledger has {places} slots; it needs at least {MIN_PLACES}")
        self.counts = Counts()
        self._registers = CountedRegisters(registers, self.counts)
        self._places = places
        self._clock = clock or SystemClock()
        self._chance = chance or SystemChance()
        self._poll_seconds = poll_seconds
        self._idle_poll_seconds = idle_poll_seconds
        self._append_seconds = append_seconds
        self._peers = peers
        self._background = background or Background(self._clock)
        self._address = ""
        self._secret = b""
        self._writer = self._chance.uuid().bytes[:8]
        self._changes = 0
        self._rings: dict[Domain, DomainRing] = {}
        self._appenders: dict[Domain, Appender] = {}
        self._pollers: dict[Domain, Supervised] = {}
        self._opening = asyncio.Lock()
        self._opened = False
        self._beats: dict[str, _Seen] = {}
        self._closed = False

    @classmethod
    def from_url(
        cls, url: str, options: StoreOptions | None = None, background: Background | None = None
    ) -> BucketLedger:
        """`s3://bucket/prefix`, `gs://…`, `az://…`.

        `?slots=N` sets the size of a ring that does not exist yet. `peers=HOST:PORT` (port 0: any) is the address at
        which other processes reach this one. `endpoint=http://HOST:PORT` names a server, if the options and the
        environment do not.
        """
        from headwater.objects.registers_remote import RemoteRegisters

        parts = urlsplit(url)
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        slots, peers, endpoint = (given.pop(name, "") for name in ("slots", "peers", "endpoint"))
        slots, options = slots or str(PLACES), options or StoreOptions()
        if endpoint:
            options = msgspec.structs.replace(options, provider={**options.provider, "endpoint": endpoint})
        if not parts.netloc or given or not slots.isdecimal():
            raise ConfigError(f"{url!r} is not of the form {parts.scheme}://bucket/prefix?slots=65536&peers=HOST:PORT")
        registers = RemoteRegisters.from_url(parts._replace(query="").geturl(), options)
        clock, chance = SystemClock(), SystemChance()
        network = TcpPeers(peers, clock, chance) if peers else None
        return cls(registers, places=int(slots), clock=clock, chance=chance, peers=network, background=background)

    def __repr__(self) -> str:
        return f"<BucketLedger {list(self._rings.values())}>"

    async def _ring(self, domain: Domain) -> DomainRing:
        if self._closed:
            raise StoreUnavailable("the ledger is closed")
        if not self._opened:
            async with self._opening:
                if not self._opened:
                    secret = f"{self._chance.uuid().hex}{self._chance.uuid().hex}"
                    ring = await open_ring(self._registers, self._places, self._name(), secret)
                    self._places, self._secret = ring.slots, ring.secret.encode()
                    self._opened = True
        if domain not in self._rings:
            self._rings[domain] = DomainRing(self._registers, domain, self._places, self._writer.hex(), self._clock)
        return self._rings[domain]

    @property
    def checkpoint_records(self) -> int:
        """The number of records after which a checkpoint is due. Two must be written before the ring is full."""
        return self._places // 4

    def _name(self) -> str:
        """A name that no other change of any process has."""
        self._changes += 1
        return f"{self._writer.hex()}-{self._changes}"

    # --- records ---------------------------------------------------------------------------------------

    async def append(self, domain: Domain, record: bytes) -> Position:
        if len(record) > MAX_RECORD_BYTES:
            raise ValueError(f"a ledger record has {len(record)} bytes; the limit is {MAX_RECORD_BYTES}")
        ring = await self._ring(domain)
        if self._peers is not None:
            await ring.open()
            position = await self._peers.append(domain, record)
            if position is not None:
                return position
        return await self._append_here(domain, record)

    async def _append_here(self, domain: Domain, record: bytes) -> Position:
        """Append without a peer. Also serves the appends that peers ask for."""
        ring = await self._ring(domain)
        if domain not in self._appenders:
            self._appenders[domain] = Appender(
                ring, self._writer, self.counts, self._clock, self._chance, self._append_seconds, self._tell
            )
        return await self._appenders[domain].append(record)

    def _tell(self, slot: Slot) -> None:
        if self._peers is not None:
            self._peers.publish(slot.domain, encode_slot(slot))

    def _hear(self, domain: Domain, data: bytes) -> None:
        """A peer has announced a written slot. If slots before it are not known, look for them."""
        ring = self._rings.get(domain)
        if ring is not None and not self._closed:
            slot = decode_slot(data, f"a slot of domain {domain} from a peer")
            ring.adopt(slot)
            if slot.sequence > ring.end:
                ring.look_soon()

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
            if not future.done() and (domain not in self._pollers or not self._pollers[domain].active):
                self._pollers[domain] = self._background.run(POLL, functools.partial(self._poll, ring), domain)
            await future
        finally:
            future.cancel()
        return Position(max(ring.last, after + 1))

    async def _poll(self, ring: DomainRing) -> None:
        """Look for the end from time to time, while a caller waits for new records."""
        pause = self._poll_seconds
        while ring.watched:
            end = ring.end
            try:
                await ring.look()
            except Retriable:
                pause = self._idle_poll_seconds
            else:
                pause = self._poll_seconds if ring.end > end else min(pause * 1.5, self._idle_poll_seconds)
            if self._peers is not None and self._peers.follows(ring.domain):
                pause = self._idle_poll_seconds
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
        if self._peers is not None and not self._address:
            await self._ring(CLUSTER)
            self._address = await self._peers.start(self._secret, self._append_here, self._hear)
        sign = msgspec.json.encode(_Sign(self._name(), self._address))
        await self._alive(self._registers.put(_beat_path(process), sign))

    async def beats(self) -> list[Beat]:
        """Read all beats by one listing. The count of a beat is local: it rises when the object has changed."""
        tags = await self._alive(self._registers.tags(BEATS))
        now, seen = self._clock.monotonic(), dict[str, _Seen]()
        for path, tag in tags.items():
            process = unquote(path.removeprefix(BEATS))
            known = self._beats.get(process) or _Seen()
            if known.tag != tag:
                known = _Seen(tag, known.count + 1, now, known.address)
            seen[process] = known
        self._beats = seen
        await self._meet_peers(now)
        return [Beat(process, known.count) for process, known in seen.items()]

    async def _meet_peers(self, now: float) -> None:
        """Learn the addresses of live processes. The beat of each is read once."""
        if self._peers is None or not self._address:
            return
        alive = {self._address}
        for process, known in self._beats.items():
            if known.address is None and (held := await self._registers.read(_beat_path(process))) is not None:
                known.address = msgspec.json.decode(held.data, type=_Sign).address
            if known.address and now - known.changed < PEER_SECONDS:
                alive.add(known.address)
        self._peers.know(frozenset(alive))

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
        for poller in self._pollers.values():
            await poller.stop()
        if self._peers is not None:
            await self._peers.close()
        for appender in self._appenders.values():
            await appender.close()
        for ring in self._rings.values():
            await ring.close()
        await self._registers.close()


def _beat_path(process: str) -> str:
    return BEATS + quote(process, safe="")
