"""Ledgers in Oxia: a record is a key of a sequence, and a domain is in one shard.

A shard gives each new key of a sequence the highest number plus one. The highest key is never deleted, so positions are
consecutive and none is used twice. A truncation through p deletes the keys before p and leaves an empty **mark** at p.
A scan shows the keys at one moment. So if the record after `after` is missing while a later key exists, or is a mark,
the record was truncated; and the records of a scan have no holes.

A leader answers reads without its quorum, so a deposed leader may answer with old data. `last`, and all other reads
that must be current, first write a mark at position 0, where no record ever is. The quorum that accepts the mark had
not followed another leader before, so this leader has all that was acknowledged earlier. The read then goes to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar
from urllib.parse import quote, unquote

import msgspec

from headwater.background import Background, Duty, OnDeath, Supervised, spawn
from headwater.errors import Damaged, OutcomeUnknown, Retriable, StoreUnavailable, Truncated
from headwater.ledger.contract import MAX_RECORD_BYTES, Beat, Entry, Pointer
from headwater.ledger.oxia.store import ABSENT, Item, OxiaStore, Put, Write
from headwater.ledger.oxia.url import parse_url
from headwater.types import Domain, Position

READ_BYTES = 16 << 20
"""The limit of bytes of one read."""
IDLE_SECONDS = 2.0
"""A watch without a notice for this long calls `last`, because the server that sends notices may be deposed."""
PAUSE_SECONDS = 0.05
PAUSE_LIMIT_SECONDS = 1.0
ATTEMPTS = 2
NOTICES = Duty("oxia-notices", OnDeath.RESTART, "receives notices of a domain's records from Oxia")

_RECORD, _MARK = b"r", b"m"
_NUMBER_DIGITS = 20
_BEATS_ROUTE = "headwater-beats"
_BEATS_LIMIT = 100_000
_ALL_DOMAINS = 1_000_000

_T = TypeVar("_T")


class OxiaLedger:
    """See `headwater.ledger.contract.Ledger`."""

    dense = True

    def __init__(self, store: OxiaStore, prefix: str = "headwater", background: Background | None = None) -> None:
        self._background = background or Background()
        self._store = store
        self._prefix = prefix
        self._domains: dict[Domain, _Domain] = {}
        self._closed = False

    @classmethod
    def from_url(cls, url: str, background: Background | None = None) -> OxiaLedger:
        """See `headwater.ledger.oxia.url`."""
        from headwater.ledger.oxia.transport import GrpcOxia

        servers = parse_url(url)
        return cls(GrpcOxia(servers), servers.prefix, background)

    def __repr__(self) -> str:
        return f"<OxiaLedger {self._prefix} on {self._store}>"

    # --- records -------------------------------------------------------------------------------------

    async def append(self, domain: Domain, record: bytes) -> Position:
        if len(record) > MAX_RECORD_BYTES:
            raise ValueError(f"a ledger record has {len(record)} bytes; the limit is {MAX_RECORD_BYTES}")
        place = self._place(domain)
        put = Put(place.sequence, _RECORD + record, sequence=True)
        [key] = (await self._store.write(place.route, Write([put]))).keys
        position = place.position(key)
        place.heard(position)
        return position

    async def read(self, domain: Domain, after: Position, limit: int) -> list[Entry]:
        place = self._place(domain)
        entries = await self._scan(place, after, limit)
        if not entries and place.known > after:
            entries = await self._fresh(place.route, place.key(0), lambda at: self._scan(place, after, limit, at))
            if not entries:
                raise StoreUnavailable(f"domain {domain} reaches {place.known}, but Oxia shows nothing after {after}")
        return entries

    async def _scan(self, place: _Domain, after: int, limit: int, leader: str | None = None) -> list[Entry]:
        """The next records. Raises `Truncated`. If the first scan finds none, a second looks for any later key."""
        if limit < 1:
            return []
        for end, count in ((place.key(after + 1 + limit), limit), (place.end, 1)):
            found = await self._store.scan(
                place.route, place.key(after + 1), end, limit=count, limit_bytes=READ_BYTES, leader=leader
            )
            if found:
                return [place.entry(item, after + 1 + i) for i, item in enumerate(found)]
        return []

    async def last(self, domain: Domain) -> Position:
        place = self._place(domain)
        if place.looks is None:
            place.looks = _Shared(lambda: self._fresh(place.route, place.key(0), lambda at: self._highest(place, at)))
        position = await place.looks.join()
        place.heard(position)
        return position

    async def _highest(self, place: _Domain, leader: str) -> Position:
        found = await self._store.get(place.route, place.end, lower=True, leader=leader)
        return place.position(found.key if found else None)

    async def truncate(self, domain: Domain, through: Position) -> None:
        place = self._place(domain)
        through = min(through, await self.last(domain))
        if through < 1:
            return
        lowest = await self._store.scan(place.route, place.key(1), place.end, limit=1, limit_bytes=0)
        if lowest and lowest[0].value[:1] == _MARK and place.position(lowest[0].key) >= through:
            return
        mark = Put(place.key(through), _MARK)
        await self._store.write(place.route, Write([mark], delete_ranges=[(place.key(0), place.key(through))]))

    # --- watching --------------------------------------------------------------------------------------

    async def watch(self, domain: Domain, after: Position) -> Position:
        place = self._place(domain)
        if place.follower is None:
            place.follower = self._background.run(NOTICES, functools.partial(self._follow, place), domain)
        while place.known <= after:
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    await place.wait()
            except TimeoutError:
                with contextlib.suppress(Retriable):
                    await self.last(domain)
            self._place(domain)
        return place.known

    async def _follow(self, place: _Domain) -> None:
        pause = PAUSE_SECONDS
        while True:
            with contextlib.suppress(Retriable):
                async for key in self._store.sequence(place.route, place.sequence):
                    place.heard(place.position(key))
                    pause = PAUSE_SECONDS
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_LIMIT_SECONDS)

    # --- the pointer -----------------------------------------------------------------------------------

    async def pointer(self, domain: Domain) -> Pointer | None:
        item = await self._pointer(self._place(domain))
        return msgspec.msgpack.decode(item.value, type=Pointer) if item else None

    async def _pointer(self, place: _Domain) -> Item | None:
        return await self._fresh(
            place.route, place.key(0), lambda at: self._store.get(place.route, place.pointer, leader=at)
        )

    async def set_pointer(self, domain: Domain, expected: Position, pointer: Pointer) -> bool:
        place = self._place(domain)
        item = await self._pointer(place)
        current = msgspec.msgpack.decode(item.value, type=Pointer).position if item else 0
        if current != expected or pointer.position <= current:
            return False
        version = item.version if item else ABSENT
        put = Put(place.pointer, msgspec.msgpack.encode(pointer), expected_version=version)
        return (await self._store.write(place.route, Write([put]))).keys != [None]

    # --- beats -----------------------------------------------------------------------------------------

    async def beat(self, process: str) -> None:
        """Put the key of the process. Oxia counts the changes of a key."""
        self._check_open()
        await self._store.write(_BEATS_ROUTE, Write([Put(self._beat_key(process))]))

    async def beats(self) -> list[Beat]:
        self._check_open()
        start, end = f"{self._prefix}/beats/", f"{self._prefix}/beats/\x7f"
        items = await self._fresh(
            _BEATS_ROUTE,
            f"{self._prefix}/marks/beats",
            lambda at: self._store.scan(
                _BEATS_ROUTE, start, end, limit=_BEATS_LIMIT, limit_bytes=READ_BYTES, leader=at
            ),
        )
        return [Beat(unquote(item.key[len(start) :]), item.modifications + 1) for item in items]

    async def forget_beat(self, process: str) -> None:
        self._check_open()
        await self._store.write(_BEATS_ROUTE, Write(deletes=[self._beat_key(process)]))

    def _beat_key(self, process: str) -> str:
        return f"{self._prefix}/beats/{quote(process, safe='')}"

    # --- tools -----------------------------------------------------------------------------------------

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for place in self._domains.values():
            await place.close()
        await self._store.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"{self} is closed")

    def _place(self, domain: Domain) -> _Domain:
        self._check_open()
        place = self._domains.get(domain)
        if place is None:
            place = self._domains[domain] = _Domain(self._prefix, domain)
        return place

    async def _fresh(self, route: str, mark: str, read: Callable[[str], Awaitable[_T]]) -> _T:
        """Read from a leader that a quorum has followed since this call began."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return await read((await self._store.write(route, Write([Put(mark, _MARK)]))).leader)
            except OutcomeUnknown as error:  # only the mark was written, so repeating it is harmless
                if attempt == ATTEMPTS:
                    raise StoreUnavailable(str(error)) from error
            except StoreUnavailable:
                if attempt == ATTEMPTS:
                    raise


class _Domain:
    """The keys of a domain, and its largest position that this process knows."""

    def __init__(self, prefix: str, domain: int) -> None:
        self.route = f"headwater-{domain % _ALL_DOMAINS:06d}"
        self.sequence = f"{prefix}/records/{domain:06d}"
        self.end = f"{self.sequence}-{'9' * _NUMBER_DIGITS}"
        self.pointer = f"{prefix}/pointers/{domain:06d}"
        self.known = Position(0)
        self.looks: _Shared[Position] | None = None
        self.follower: Supervised | None = None
        self._change: asyncio.Event | None = None

    def key(self, position: int) -> str:
        return f"{self.sequence}-{position:0{_NUMBER_DIGITS}d}"

    def position(self, key: str | None) -> Position:
        if key is None or key[: -_NUMBER_DIGITS - 1] != self.sequence:
            raise Damaged(f"Oxia answers with the key {key!r} in the sequence {self.sequence!r}")
        return Position(int(key[-_NUMBER_DIGITS:]))

    def entry(self, item: Item, expected: int) -> Entry:
        position = self.position(item.key)
        if position != expected or item.value[:1] != _RECORD:
            raise Truncated(f"{self.sequence} is truncated up to {position}, so {expected} cannot be read")
        return Entry(position, item.value[1:])

    def heard(self, position: Position) -> None:
        """Take note of a position, and wake the waiting callers if it is new."""
        if position > self.known:
            self.known = position
            if self._change is not None:
                self._change.set()
                self._change = None

    async def wait(self) -> None:
        """Wait until a larger position is known."""
        if self._change is None:
            self._change = asyncio.Event()
        await self._change.wait()

    async def close(self) -> None:
        if self.follower is not None:
            await self.follower.stop()
        for task in self.looks.tasks() if self.looks else ():
            task.cancel()
            await asyncio.wait([task])
        if self._change is not None:
            self._change.set()


class _Shared(Generic[_T]):
    """One call for many callers. Callers that arrive during a call share the next one, which starts after they came."""

    def __init__(self, call: Callable[[], Awaitable[_T]]) -> None:
        self._call = call
        self._running: asyncio.Task[_T] | None = None
        self._next: asyncio.Task[_T] | None = None

    async def join(self) -> _T:
        if self._next is None:
            self._next = spawn(self._run(self._running), "oxia-look")
        return await asyncio.shield(self._next)

    async def _run(self, before: asyncio.Task[_T] | None) -> _T:
        if before is not None and not before.done():
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        return await self._call()

    def tasks(self) -> list[asyncio.Task[_T]]:
        return [task for task in (self._running, self._next) if task is not None]
