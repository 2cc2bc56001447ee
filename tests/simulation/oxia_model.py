"""Oxia in memory: shards of three servers, sequence keys, versions, notices, and leaders that were deposed unaware.

The servers are correct: what a quorum accepted stays. What a client hears of it may be late, lost or old.
"""

from __future__ import annotations

import asyncio
import bisect
import contextvars
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from headwater.errors import OutcomeUnknown, StoreUnavailable
from headwater.ledger.oxia.shards import hash_of
from headwater.ledger.oxia.store import ABSENT, Item, Put, Write, Written

NODES = 3
GIVE_UP_SECONDS = 5.0
"""A write that no quorum accepts is waited for so long."""
_LAST_NUMBER = "18446744073709551615"

_T = TypeVar("_T")


@dataclass(slots=True)
class OxiaFaults:
    """How bad the network is. All are chances per call."""

    refused: float = 0.0
    lost: float = 0.0
    """The write never arrives, and the writer does not know."""
    reply_lost: float = 0.0
    late: float = 0.0
    """The write arrives after its writer gave up."""
    late_seconds: float = 8.0
    read_refused: float = 0.0
    notice_lost: float = 0.0
    delay: float = 0.0
    down: bool = False
    """Nothing gets through."""


def _order(key: str) -> tuple[tuple[int, str], ...]:
    """Oxia's order of keys: by parts between slashes, and a last part comes before one that goes on."""
    *parts, last = key.split("/")
    return (*((1, part) for part in parts), (0, last))


class _Node:
    """One server's copy of one shard."""

    def __init__(self) -> None:
        self.applied = 0
        self.serving = False
        """Whether it takes itself for the leader."""
        self.waiting: dict[str, dict[asyncio.Future[None], None]] = {}
        self._items: dict[str, Item] = {}
        self._keys: list[tuple[tuple[tuple[int, str], ...], str]] = []
        self._version = -1

    def apply(self, write: Write) -> list[str | None]:
        self.applied += 1
        keys = [self._put(put) for put in write.puts]
        for key in write.deletes:
            self._delete(key)
        for start, end in write.delete_ranges:
            for key in self._range(start, end):
                self._delete(key)
        return keys

    def _put(self, put: Put) -> str | None:
        key = f"{put.key}-{self._next(put.key):020d}" if put.sequence else put.key
        old = self._items.get(key)
        if put.expected_version is not None and put.expected_version != (old.version if old else ABSENT):
            return None
        self._version += 1
        if old is None:
            bisect.insort(self._keys, (_order(key), key))
        self._items[key] = Item(key, put.value, self._version, old.modifications + 1 if old else 0)
        return key

    def _next(self, prefix: str) -> int:
        found = self.lower(f"{prefix}-{_LAST_NUMBER}")
        return int(found.key[-20:]) + 1 if found is not None and found.key.startswith(prefix) else 1

    def _delete(self, key: str) -> None:
        if self._items.pop(key, None) is not None:
            del self._keys[bisect.bisect_left(self._keys, (_order(key), key))]

    def _range(self, start: str, end: str) -> list[str]:
        first = bisect.bisect_left(self._keys, (_order(start), start))
        last = bisect.bisect_left(self._keys, (_order(end), end))
        return [key for _, key in self._keys[first:last]]

    def get(self, key: str) -> Item | None:
        return self._items.get(key)

    def lower(self, key: str) -> Item | None:
        at = bisect.bisect_left(self._keys, (_order(key), key))
        return self._items[self._keys[at - 1][1]] if at else None

    def scan(self, start: str, end: str, limit: int, limit_bytes: int) -> list[Item]:
        found: list[Item] = []
        size = 0
        for key in self._range(start, end)[:limit]:
            size += len(self._items[key].value)
            if found and size > limit_bytes:
                break
            found.append(self._items[key])
        return found

    def wake(self, prefix: str) -> None:
        for future in self.waiting.pop(prefix, ()):
            if not future.done():
                future.set_result(None)

    def stop_serving(self) -> None:
        self.serving = False
        for prefix in list(self.waiting):
            self.wake(prefix)


@dataclass(slots=True)
class _Shard:
    log: list[Write] = field(default_factory=list)
    """What a quorum accepted."""
    nodes: list[_Node] = field(default_factory=lambda: [_Node() for _ in range(NODES)])
    leader: int = 0


class NoQuorum(Exception):
    """The server takes itself for the leader, but nobody follows it any more."""


class OxiaModel:
    """The servers. `open` gives a client's view of them."""

    def __init__(self, shards: int = 1) -> None:
        self._shards = [_Shard() for _ in range(shards)]
        for shard in self._shards:
            shard.nodes[0].serving = True

    def open(self, rng: random.Random | None = None, faults: Callable[[], OxiaFaults] = OxiaFaults) -> ModelOxia:
        return ModelOxia(self, rng or random.Random(0), faults)

    def shard_of(self, route: str) -> int:
        return hash_of(route) * len(self._shards) >> 32

    def leader(self, shard: int) -> int:
        return self._shards[shard].leader

    def depose(self, shard: int = 0) -> None:
        """Another server leads. The old one keeps its place in its own eyes, and answers reads as of now."""
        it = self._shards[shard]
        it.leader = (it.leader + 1) % NODES
        node = it.nodes[it.leader]
        for write in it.log[node.applied :]:
            node.apply(write)
        node.serving = True

    def enlighten(self, shard: int = 0) -> None:
        """Those who were deposed hear of it."""
        it = self._shards[shard]
        for number, node in enumerate(it.nodes):
            if number != it.leader:
                node.stop_serving()

    def node(self, shard: int, number: int) -> _Node:
        node = self._shards[shard].nodes[number]
        if not node.serving:
            raise StoreUnavailable(f"server {number} is not the leader of shard {shard}")
        return node

    def commit(self, shard: int, number: int, write: Write) -> Sequence[str | None]:
        """Have a quorum accept a write that was sent to a server."""
        node = self.node(shard, number)
        it = self._shards[shard]
        if number != it.leader:
            raise NoQuorum
        it.log.append(write)
        keys = node.apply(write)
        for put in write.puts:
            if put.sequence:
                node.wake(put.key)
        return keys


class ModelOxia:
    """See `headwater.ledger.oxia.store.OxiaStore`."""

    def __init__(self, model: OxiaModel, rng: random.Random, faults: Callable[[], OxiaFaults]) -> None:
        self._model = model
        self._rng = rng
        self._faults = faults
        self._believed: dict[int, int] = {}
        self._closed = False

    async def write(self, route: str, write: Write) -> Written:
        self._check_open()
        faults, shard = self._faults(), self._model.shard_of(route)
        number = self._leader(shard)
        if faults.down or self._chance(faults.refused):
            await asyncio.sleep(self._delay())
            raise StoreUnavailable("no connection")
        if self._chance(faults.lost):
            await asyncio.sleep(self._delay())
            raise OutcomeUnknown("lost on the way")
        if self._chance(faults.late):
            _outside(self._rng.random() * faults.late_seconds, lambda: self._late(shard, number, write))
            await asyncio.sleep(self._delay())
            raise OutcomeUnknown("still on the way")
        try:
            keys = await self._travel(lambda: self._model.commit(shard, number, write))
        except NoQuorum:
            await asyncio.sleep(GIVE_UP_SECONDS)
            self._believed.pop(shard, None)
            raise OutcomeUnknown(f"server {number} does not answer") from None
        except StoreUnavailable:
            self._believed.pop(shard, None)
            raise
        if self._chance(faults.reply_lost):
            raise OutcomeUnknown("the reply was lost")
        return Written(keys, f"{shard}/{number}")

    def _late(self, shard: int, number: int, write: Write) -> None:
        try:
            self._model.commit(shard, number, write)
        except (NoQuorum, StoreUnavailable):
            return

    async def get(self, route: str, key: str, *, lower: bool = False, leader: str | None = None) -> Item | None:
        return await self._ask(route, leader, lambda node: node.lower(key) if lower else node.get(key))

    async def scan(
        self, route: str, start: str, end: str, *, limit: int, limit_bytes: int, leader: str | None = None
    ) -> list[Item]:
        return await self._ask(route, leader, lambda node: node.scan(start, end, limit, limit_bytes))

    async def sequence(self, route: str, prefix: str) -> AsyncIterator[str]:
        self._check_open()
        shard = self._model.shard_of(route)
        number = self._leader(shard)
        while True:
            node = self._model.node(shard, number)
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            node.waiting.setdefault(prefix, {})[future] = None
            newest = node.lower(f"{prefix}-{_LAST_NUMBER}")
            if newest is not None and newest.key.startswith(prefix) and not self._chance(self._faults().notice_lost):
                yield newest.key
            await future

    async def close(self) -> None:
        self._closed = True

    async def _ask(self, route: str, leader: str | None, read: Callable[[_Node], _T]) -> _T:
        self._check_open()
        shard = self._model.shard_of(route)
        number = int(leader.partition("/")[2]) if leader is not None else self._leader(shard)
        faults = self._faults()
        if faults.down or self._chance(faults.read_refused):
            await asyncio.sleep(self._delay())
            raise StoreUnavailable("no connection")
        try:
            return await self._travel(lambda: read(self._model.node(shard, number)))
        except StoreUnavailable:
            self._believed.pop(shard, None)
            raise

    async def _travel(self, work: Callable[[], _T]) -> _T:
        """Send a request, have it done whether or not the sender still lives, and bring the reply."""
        reply: asyncio.Future[_T] = asyncio.get_running_loop().create_future()

        def arrive() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - it is the sender's to see
                failure = error
                _outside(self._delay(), lambda: None if reply.done() else reply.set_exception(failure))
            else:
                _outside(self._delay(), lambda: None if reply.done() else reply.set_result(result))

        _outside(self._delay(), arrive)
        return await reply

    def _leader(self, shard: int) -> int:
        return self._believed.setdefault(shard, self._model.leader(shard))

    def _chance(self, probability: float) -> bool:
        return probability > 0 and self._rng.random() < probability

    def _delay(self) -> float:
        mean = self._faults().delay
        return self._rng.expovariate(1 / mean) if mean else 0.0

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("closed")


def _outside(delay: float, callback: Callable[[], None]) -> None:
    """Call something that belongs to no node of a simulation: the network, the servers."""
    asyncio.get_running_loop().call_later(delay, callback, context=contextvars.Context())
