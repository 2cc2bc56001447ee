"""etcd in memory: revisions, transactions, history that can be compacted, watches. No real time, no threads.

`EtcdModel` is the cluster; it is correct and does one thing at a time. `ModelClient` is one process's way to it, over a
network that its maker brings and that may lose, delay or repeat what it carries. The real `EtcdLedger` runs on top.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from headwater.errors import OutcomeUnknown, StoreUnavailable
from headwater.ledger.etcd.client import Changes, Compacted, Compare, Delete, Found, Get, Pair, Put, Transacted
from tests.simulation.stores import World

_T = TypeVar("_T")
Sink = Callable[[Sequence[Pair]], None]


@dataclass(eq=False, slots=True)
class _Watcher:
    key: bytes
    end: bytes
    sink: Sink


@dataclass(slots=True)
class _Versions:
    """What a key was, and from which revision on. `None` where it was deleted."""

    revisions: list[int] = field(default_factory=list)
    pairs: list[Pair | None] = field(default_factory=list)

    def at(self, revision: int) -> Pair | None:
        found = bisect_right(self.revisions, revision)
        return self.pairs[found - 1] if found else None

    def forget(self, revision: int) -> None:
        """What nobody can ask for any more."""
        found = bisect_right(self.revisions, revision)
        drop = max(0, found - 1)
        if found and self.pairs[found - 1] is None:
            drop = found
        del self.revisions[:drop], self.pairs[:drop]


class EtcdModel:
    """One etcd cluster."""

    def __init__(self) -> None:
        self.revision = 1
        self.compacted = 0
        self.full = False
        """Whether the quota is reached."""
        self._versions: dict[bytes, _Versions] = {}
        self._keys: list[bytes] = []
        self._history: list[Pair] = []
        self._watchers: list[_Watcher] = []

    def __repr__(self) -> str:
        return f"<EtcdModel at {self.revision}, compacted {self.compacted}, {len(self._keys)} keys>"

    def get(self, get: Get, newest: int = 0) -> Found:
        revision = get.revision or newest or self.revision
        if revision < self.compacted:
            raise Compacted(f"revision {revision} is compacted through {self.compacted}")
        if revision > max(newest, self.revision):
            raise StoreUnavailable(f"revision {revision} is in the future")
        found: list[Pair] = []
        for key in self._between(get.key, get.end):
            pair = self._versions[key].at(revision)
            if pair is not None:
                found.append(pair)
                if get.limit and len(found) > get.limit:
                    return Found(found[: get.limit], True, self.revision)
        return Found(found, False, self.revision)

    def transact(
        self, compares: Sequence[Compare], success: Sequence[Get | Put | Delete], failure: Sequence[Get] = ()
    ) -> Transacted:
        holds = all(self._holds(compare) for compare in compares)
        steps: Sequence[Get | Put | Delete] = success if holds else failure
        puts = [step.key for step in steps if isinstance(step, Put)]
        if len(puts) != len(set(puts)):
            raise StoreUnavailable("a key is put twice")
        if puts and self.full:
            raise StoreUnavailable("database space exceeded")
        next_revision = self.revision + 1
        found: list[Found] = []
        changed: list[Pair] = []
        wrote = False
        for step in steps:
            if isinstance(step, Get):
                found.append(self.get(step, next_revision))
            elif isinstance(step, Put):
                changed.append(self._put(step, next_revision))
                wrote = True
            else:
                wrote = self._delete(step, next_revision) or wrote
        if wrote:
            self.revision = next_revision
            self._tell(changed)
        return Transacted(holds, self.revision, found)

    def compact(self, revision: int) -> None:
        if revision <= self.compacted:
            raise Compacted(f"{self.compacted} is compacted already")
        if revision > self.revision:
            raise StoreUnavailable(f"revision {revision} is in the future")
        self.compacted = revision
        for key in list(self._keys):
            versions = self._versions[key]
            versions.forget(revision)
            if not versions.revisions:
                del self._versions[key]
                self._keys.remove(key)
        self._history = [pair for pair in self._history if pair.modified >= revision]

    def subscribe(self, key: bytes, end: bytes, start: int, sink: Sink) -> _Watcher:
        """From now on `sink` is told of every put in a range, after those since `start`."""
        if start < self.compacted:
            raise Compacted(f"history before {self.compacted} is gone, asked from {start}")
        watcher = _Watcher(key, end, sink)
        past = [pair for pair in self._history if pair.modified >= start and key <= pair.key < end]
        if past:
            sink(past)
        self._watchers.append(watcher)
        return watcher

    def unsubscribe(self, watcher: _Watcher) -> None:
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    # --- inside ------------------------------------------------------------------------------------

    def _between(self, key: bytes, end: bytes) -> list[bytes]:
        if not end:
            return [key] if key in self._versions else []
        return self._keys[bisect_left(self._keys, key) : bisect_left(self._keys, end)]

    def _now(self, key: bytes) -> Pair | None:
        versions = self._versions.get(key)
        return versions.pairs[-1] if versions else None

    def _holds(self, compare: Compare) -> bool:
        pair = self._now(compare.key)
        value = 0 if pair is None else pair.created if compare.field == "created" else pair.modified
        return value == compare.revision if compare.relation == "=" else value < compare.revision

    def _put(self, put: Put, revision: int) -> Pair:
        before = self._now(put.key)
        pair = Pair(put.key, put.value, before.created if before else revision, revision)
        self._change(put.key, pair, revision)
        self._history.append(pair)
        return pair

    def _delete(self, delete: Delete, revision: int) -> bool:
        gone = [key for key in self._between(delete.key, delete.end) if self._now(key) is not None]
        for key in gone:
            self._change(key, None, revision)
        return bool(gone)

    def _change(self, key: bytes, pair: Pair | None, revision: int) -> None:
        versions = self._versions.get(key)
        if versions is None:
            versions = self._versions[key] = _Versions()
            insort(self._keys, key)
        versions.revisions.append(revision)
        versions.pairs.append(pair)

    def _tell(self, changed: Sequence[Pair]) -> None:
        for watcher in list(self._watchers):
            told = [pair for pair in changed if watcher.key <= pair.key < watcher.end]
            if told:
                watcher.sink(told)


class Network(Protocol):
    """The way between one process and the cluster."""

    async def ask(self, work: Callable[[], _T]) -> _T:
        """Have something read and bring the answer."""

    async def tell(self, work: Callable[[], _T]) -> _T:
        """Have something done and bring the answer; it may be done and the answer lost, or done later."""

    def bring(self, arrive: Callable[[], None], broken: Callable[[], None]) -> None:
        """Let a message arrive, after those before it, or let the stream break."""


class Direct:
    """A network without distance."""

    async def ask(self, work: Callable[[], _T]) -> _T:
        await asyncio.sleep(0)
        return work()

    async def tell(self, work: Callable[[], _T]) -> _T:
        return await self.ask(work)

    def bring(self, arrive: Callable[[], None], broken: Callable[[], None]) -> None:
        arrive()


class ModelClient:
    """See `headwater.ledger.etcd.client.EtcdClient`."""

    def __init__(self, model: EtcdModel, network: Network | None = None) -> None:
        self._model = model
        self._network: Network = network or Direct()
        self._closed = False

    def __repr__(self) -> str:
        return f"<ModelClient of {self._model!r}>"

    async def get(self, get: Get) -> Found:
        return await self._network.ask(lambda: self._model.get(get))

    async def transact(
        self, compares: Sequence[Compare], success: Sequence[Get | Put | Delete], failure: Sequence[Get] = ()
    ) -> Transacted:
        way = self._network.ask if all(isinstance(step, Get) for step in success) else self._network.tell
        return await way(lambda: self._model.transact(compares, success, failure))

    async def put(self, put: Put) -> int:
        return (await self.transact((), [put])).revision

    async def compact(self, revision: int) -> None:
        def work() -> None:
            try:
                self._model.compact(revision)
            except Compacted:
                return

        await self._network.tell(work)

    async def watch(self, key: bytes, end: bytes, start: int) -> AsyncIterator[Changes]:
        inbox: deque[Sequence[Pair]] = deque()
        wake = asyncio.Event()
        over = False

        def arrive(pairs: Sequence[Pair]) -> None:
            if not over:
                inbox.append(pairs)
                wake.set()

        def broken() -> None:
            nonlocal over
            over = True
            wake.set()

        def sink(pairs: Sequence[Pair]) -> None:
            self._network.bring(lambda: arrive(pairs), broken)

        watcher = await self._network.ask(lambda: self._model.subscribe(key, end, start, sink))
        try:
            while True:
                await wake.wait()
                wake.clear()
                if over:
                    raise StoreUnavailable("the watch broke")
                while inbox:
                    yield Changes(inbox.popleft())
        finally:
            self._model.unsubscribe(watcher)

    async def close(self) -> None:
        self._closed = True


class SimNetwork:
    """The bad network of a simulated world."""

    watch_broken = 0.02
    """The chance that a message is the one at which a watch breaks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._arrival = 0.0

    async def _refuse(self, why: str) -> None:
        await asyncio.sleep(self._world.delay())
        raise StoreUnavailable(why)

    async def ask(self, work: Callable[[], _T]) -> _T:
        world = self._world
        if world.outage or world.chance(world.faults.read_refused):
            await self._refuse("etcd does not answer")
        return await world.travel(_coroutine(work))

    async def tell(self, work: Callable[[], _T]) -> _T:
        world, faults = self._world, self._world.faults
        if world.outage or world.chance(faults.append_refused):
            await self._refuse("etcd refuses")
        if world.chance(faults.append_lost):
            await asyncio.sleep(world.delay())
            raise OutcomeUnknown("lost on the way")
        if world.chance(faults.append_late):
            world.loop.outside(world.rng.random() * faults.late_seconds, _quietly, work)
            await asyncio.sleep(world.delay())
            raise OutcomeUnknown("still on the way")
        done = await world.travel(_coroutine(work))
        if world.chance(faults.append_reply_lost):
            raise OutcomeUnknown("the reply was lost")
        return done

    def bring(self, arrive: Callable[[], None], broken: Callable[[], None]) -> None:
        world = self._world
        unsteady = world.outage or (bool(world.faults.read_refused) and world.chance(self.watch_broken))
        self._arrival = max(self._arrival + 1e-6, world.loop.now + world.delay())
        world.loop.outside(self._arrival - world.loop.now, broken if unsteady else arrive)


def _coroutine(work: Callable[[], _T]) -> Callable[[], Awaitable[_T]]:
    async def run() -> _T:
        return work()

    return run


def _quietly(work: Callable[[], Any]) -> None:
    """Do what nobody waits for any more."""
    try:
        work()
    except (StoreUnavailable, Compacted):
        return
