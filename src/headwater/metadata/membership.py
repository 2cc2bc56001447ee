"""A process's life in the cluster: its epoch, its signs of life, and the fencing of those that show none.

No safety rests on these clocks: a process that is fenced too early is refused by `apply` and takes a new epoch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from headwater import __version__
from headwater.clock import Chance, Clock
from headwater.errors import EpochLost, HeadwaterError, Retriable
from headwater.metadata.cluster import NO_NODE, ClusterState, Member
from headwater.metadata.commands import Fence, Listener, TakeEpoch, Tick
from headwater.metadata.ledger import Ledger
from headwater.metadata.replica import Replica
from headwater.metadata.results import Done
from headwater.types import Domain, Epoch

log = logging.getLogger("headwater.membership")
BEAT_SECONDS = 0.5
SESSION_SECONDS = 3.0
SUSPECT_SECONDS = 0.8
"""Without a beat for this long (two looks) a process is looked for; one that is certainly gone is fenced at once."""
MAX_SUSPECTS = 16
"""So many are looked for at once; silence tells of the others."""
LEAST_REST = 0.2
"""Of the time between two beats, on a ledger so slow that nothing would be left of it."""
TICK_SECONDS = 20.0
CONTACT_SECONDS = 10.0
"""Without contact to domain 0 for this long a process answers retriable errors only."""


class NodeReplaced(HeadwaterError):
    """A younger process has the same node id."""


class Membership:
    """Takes an epoch and keeps it, as long as the others see this process."""

    def __init__(
        self,
        ledger: Ledger,
        cluster: Replica[ClusterState],
        domains: Mapping[Domain, Replica[Any]],
        clock: Clock,
        chance: Chance,
        *,
        node: int = NO_NODE,
        zone: str = "",
        listeners: tuple[Listener, ...] = (),
    ) -> None:
        self._ledger = ledger
        self._cluster = cluster
        self._domains = domains
        self._clock = clock
        self._chance = chance
        self._node = node
        self._zone = zone
        self.listeners = listeners
        self.epoch = Epoch(0)
        self.process = ""
        """This life's name: node, version, the process's own, a number. An epoch that was asked for twice may be given
        twice."""
        self._identity = f"{node}/{__version__}/{chance.uuid()}"
        self._lives = 0
        self._last_epoch = Epoch(0)
        self.on_epoch: Callable[[Epoch], None] | None = None
        """Told of every epoch this process takes."""
        self.gone: Callable[[Member], Awaitable[bool]] | None = None
        """Tells soon whether nobody is left where a member served; without it silence alone counts."""
        self.on_replaced: Callable[[NodeReplaced], None] | None = None
        """Told once if another process has taken this node's place; this one takes no epoch any more."""
        self._beat_seconds = max(BEAT_SECONDS, getattr(ledger, "beat_seconds", BEAT_SECONDS))
        """A ledger whose every request costs money asks for a slower beat."""
        self._session_seconds = SESSION_SECONDS * self._beat_seconds / BEAT_SECONDS
        self._suspect_seconds = SUSPECT_SECONDS * self._beat_seconds / BEAT_SECONDS
        self._task: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        self._seen: dict[str, tuple[int, float]] = {}
        self._last_look = 0.0
        self._looking_since = 0.0
        """Since when this process looks without a break: silence before that may have been its own."""
        self._last_tick = 0.0
        for replica in self._replicas():
            replica.on_lost = self._lost.set

    def __repr__(self) -> str:
        return f"<Membership of node {self._node}, epoch {self.epoch}>"

    def _replicas(self) -> list[Replica[Any]]:
        return [self._cluster, *self._domains.values()]

    @property
    def in_contact(self) -> bool:
        """Whether domain 0 was reached lately and the epoch stands, as far as this process knows."""
        fresh = self._clock.monotonic() - self._cluster.last_contact < CONTACT_SECONDS
        return fresh and bool(self.epoch) and not self._lost.is_set()

    async def join(self) -> None:
        """Take a new epoch everywhere and make sure that this node's older ones are fenced everywhere."""
        while True:
            try:
                await self._join_once()
                return
            except Retriable:
                await asyncio.sleep(self._beat_seconds * self._chance.fraction())

    async def _join_once(self) -> None:
        for replica in self._replicas():
            replica.join(Epoch(0))
            await replica.barrier()
        self._check_not_replaced()
        self._lives += 1
        self.process = f"{self._identity}/{self._lives}"
        self._lost.clear()
        await self._ledger.beat(self.process)
        command = TakeEpoch(self.process, self._node, self._zone, self.listeners)
        [result] = await self._cluster.submit([command])
        if not isinstance(result, Done):
            raise EpochLost(f"no epoch was given out: {result}")
        epoch = self._last_epoch = Epoch(result.value)
        for replica in self._replicas():
            replica.join(epoch)
        await self.spread_fences()
        if self._lost.is_set():
            raise EpochLost("fenced while joining")
        self.epoch = epoch
        if self.on_epoch is not None:
            self.on_epoch(epoch)

    def _check_not_replaced(self) -> None:
        """A process that comes back must not drive out its own successor, or the two would do so for ever."""
        for member in self._cluster.state.members.values():
            ours = member.process.startswith(f"{self._identity}/")
            younger = 0 < self._last_epoch < member.epoch
            if member.node == self._node != NO_NODE and younger and not ours:
                raise NodeReplaced(f"another process runs as node {self._node} now; this one has to go")

    async def spread_fences(self) -> None:
        """What is fenced in domain 0 must be fenced in every domain; whoever fenced it may have died between."""
        fenced = list(self._cluster.state.fenced_epochs())
        for replica in self._domains.values():
            missing = [Fence(epoch) for epoch in fenced if not replica.state.is_fenced(epoch)]
            for i in range(0, len(missing), 1000):
                await replica.submit(missing[i : i + 1000])

    def start(self) -> None:
        self._task = asyncio.create_task(self._live(), name="membership")

    async def _live(self) -> None:
        """Beats wait for nothing else: a process whose look at the ledger hangs is alive."""
        async with asyncio.TaskGroup() as both:
            beating = both.create_task(self._beat(), name="beats")
            await self._stay()
            beating.cancel()

    async def _beat(self) -> None:
        while True:
            began = self._clock.monotonic()
            with contextlib.suppress(Retriable):
                await self._ledger.beat(self.process)
            await asyncio.sleep(self._rest_since(began))

    def _rest_since(self, began: float) -> float:
        """How long until the next beat, or the next look at those of others."""
        left = began + self._beat_seconds - self._clock.monotonic()
        return max(left, self._beat_seconds * LEAST_REST)

    async def _stay(self) -> None:
        """Join again whenever the epoch is lost, and look after the others; until another process is this node."""
        while True:
            if self._lost.is_set():
                self.epoch = Epoch(0)
                try:
                    await self.join()
                except NodeReplaced as replaced:
                    if self.on_replaced is not None:
                        self.on_replaced(replaced)
                    return
            began = self._clock.monotonic()
            with contextlib.suppress(Retriable):
                await self._cluster.barrier()
                await self._tick()
                await self._watch_peers()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._rest_since(began)):
                    await self._lost.wait()

    async def _tick(self) -> None:
        now = self._clock.monotonic()
        if now - self._last_tick < TICK_SECONDS:
            return
        self._last_tick = now
        for replica in self._replicas():
            await replica.submit([Tick()])
        await self.spread_fences()

    async def _watch_peers(self) -> None:
        """Fence members whose beats stand still: those that are gone, and those that were silent while we looked."""
        now = self._clock.monotonic()
        if now - self._last_look > 2 * self._beat_seconds:
            self._looking_since = now
        beats = {beat.process: beat.count for beat in await self._ledger.beats()}
        members = list(self._cluster.state.members.values())
        for process in sorted(beats.keys() - {m.process for m in members} - {self.process}):
            await self._ledger.forget_beat(process)
        seen, silent, suspects = dict[str, tuple[int, float]](), list[Member](), list[Member]()
        for member in members:
            if member.process == self.process:
                continue
            count = beats.get(member.process, 0)
            known, since = self._seen.get(member.process, (-1, now))
            if known != count:
                since = now
            seen[member.process] = (count, since)
            if now - max(since, self._looking_since) >= self._session_seconds:
                silent.append(member)
            elif now - since >= self._suspect_seconds:
                suspects.append(member)
        self._seen = seen
        for member in silent:
            await self._fence(member, "silent")
        for member in await self._those_gone(suspects):
            await self._fence(member, "gone")
        self._last_look = self._clock.monotonic()

    async def _those_gone(self, suspects: list[Member]) -> list[Member]:
        """Those of whom it is certain. All are looked for at once, or this process would be late itself."""
        if self.gone is None:
            return []
        looked_for = suspects[:MAX_SUSPECTS]
        found = await asyncio.gather(*map(self.gone, looked_for))
        return [member for member, is_gone in zip(looked_for, found, strict=True) if is_gone]

    async def _fence(self, member: Member, reason: str) -> None:
        facts = {"node": member.node, "epoch": member.epoch}
        log.warning("a process is fenced", extra={"member": facts, "reason": reason})
        await self.fence(member)

    async def fence(self, member: Member) -> None:
        """Nothing that this member appends counts any more, in any domain."""
        self._seen.pop(member.process, None)
        await self._cluster.submit([Fence(member.epoch)])
        for replica in self._domains.values():
            await replica.submit([Fence(member.epoch)])
        await self._ledger.forget_beat(member.process)

    async def leave(self) -> None:
        """Give the epoch back, so that clients are sent elsewhere at once."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if not self.epoch:
            return
        epoch, self.epoch = self.epoch, Epoch(0)
        with contextlib.suppress(Retriable):
            for replica in (*self._domains.values(), self._cluster):
                replica.on_lost = None
                await replica.submit([Fence(epoch)])
            await self._ledger.forget_beat(self.process)
