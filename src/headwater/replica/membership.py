"""The membership of a process in the cluster: its epoch, its beats, and the fencing of processes without beats.

Safety does not depend on clocks: if a process is fenced too early, `apply` refuses its records and it takes a new
epoch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from headwater.background import Background, Duty, OnDeath, Supervised
from headwater.clock import Chance, Clock
from headwater.errors import EpochLost, HeadwaterError, Retriable
from headwater.ledger.contract import Ledger
from headwater.replica.clocks import DateWatch
from headwater.replica.replica import Replica
from headwater.state.cluster.domain import NO_NODE, Process
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.base import Fence, Tick
from headwater.state.commands.cluster import Listener, TakeEpoch
from headwater.state.machine import LEVEL
from headwater.state.results import Done
from headwater.types import Domain, Epoch
from headwater.version import __version__

log = logging.getLogger("headwater.membership")
BEAT_SECONDS = 0.5
"""The longest interval between two beats, unless the ledger asks for a longer one."""
SESSION_SECONDS = 3.0
"""The session of a process without settings of its own."""
SESSION_BEATS = 6
"""A session has time for so many beats."""
SUSPECT_SECONDS = 0.8
SUSPECT_BEATS = SUSPECT_SECONDS / BEAT_SECONDS
"""After so many intervals without a beat (two looks) a process is checked by `gone`; if it is gone, it is fenced at
once."""
MAX_SUSPECTS = 16
"""The number of processes that are checked at once. The others are fenced when their session is over."""
LEAST_REST = 0.2
"""The shortest pause between two beats, as a part of the interval, if the ledger is slow."""
TICK_SECONDS = 20.0
CONTACT_SECONDS = 10.0
"""After this time without contact to domain 0, a process answers with retriable errors only."""

COMMAND = "command"
"""The role of a process that is there for a while and serves nobody."""

MEMBERSHIP = Duty("membership", OnDeath.END, "keeps the process's epoch and fences processes that show no beats")
BEATS = Duty("beats", OnDeath.END, "shows the other processes that this one is alive")


class NodeReplaced(HeadwaterError):
    """A newer process has the same node id."""


class Membership:
    """Takes an epoch, keeps it by beats, and takes a new one when it is lost."""

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
        session_seconds: float = SESSION_SECONDS,
        background: Background | None = None,
        role: str = COMMAND,
    ) -> None:
        """`role` says what a process without a node is, for those who list processes."""
        self._background = background or Background(clock)
        self._duties: list[Supervised] = []
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
        """The name for the current epoch: node or role, version, a random id, a number. A repeated `TakeEpoch` with the
        same name returns the same epoch."""
        self._identity = f"{role if node == NO_NODE else node}/{__version__}/{chance.uuid()}"
        self._lives = 0
        self._last_epoch = Epoch(0)
        self.on_epoch: Callable[[Epoch], None] | None = None
        """Called with every epoch that this process takes."""
        self.gone: Callable[[Process], Awaitable[bool]] | None = None
        """Checks whether the process of a member is gone. Without it only missing beats count."""
        self.on_replaced: Callable[[NodeReplaced], None] | None = None
        """Called once if another process has taken over this node id. This process then takes no epoch any more."""
        self._beat_seconds = max(min(BEAT_SECONDS, session_seconds / SESSION_BEATS), getattr(ledger, "beat_seconds", 0))
        """A ledger whose requests cost money sets a longer interval."""
        self._session_seconds = max(session_seconds, self._beat_seconds * SESSION_BEATS)
        self._suspect_seconds = self._beat_seconds * SUSPECT_BEATS
        self._lost = asyncio.Event()
        self._seen: dict[str, tuple[int, float]] = {}
        self._last_look = 0.0
        self._last_beat = 0.0
        self._looking_since = 0.0
        """The time since which this process looks at beats and beats itself, both without a break. Silence before that
        may be the fault of this process, or of a ledger that took no beats of anybody."""
        self._last_tick = 0.0
        self._date = DateWatch()
        for replica in self._replicas():
            replica.on_lost = self._lost.set

    def __repr__(self) -> str:
        return f"<Membership of node {self._node}, epoch {self.epoch}>"

    def _replicas(self) -> list[Replica[Any]]:
        return [self._cluster, *self._domains.values()]

    @property
    def in_contact(self) -> bool:
        """Whether domain 0 was reached recently and the epoch is valid, as far as this process knows."""
        fresh = self._clock.monotonic() - self._cluster.last_contact < CONTACT_SECONDS
        return fresh and bool(self.epoch) and not self._lost.is_set()

    async def join(self) -> None:
        """Take a new epoch in all domains, and ensure that older epochs of this node are fenced in all domains."""
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
        await self._beat()
        command = TakeEpoch(self.process, self._node, self._zone, self.listeners, LEVEL, __version__)
        [result] = await self._cluster.submit([command])
        if not isinstance(result, Done):
            raise EpochLost(f"no epoch was assigned: {result}")
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
        """Raise if a newer process has this node id. Otherwise the two would fence each other for ever."""
        for member in self._cluster.state.processes.values():
            ours = member.name.startswith(f"{self._identity}/")
            younger = 0 < self._last_epoch < member.epoch
            if member.node == self._node != NO_NODE and younger and not ours:
                raise NodeReplaced(f"another process runs as node {self._node} now; this one ends")

    async def spread_fences(self) -> None:
        """Fence in every domain what is fenced in domain 0. The process that fenced may have died half way."""
        fenced = list(self._cluster.state.fenced_epochs())
        for replica in self._domains.values():
            missing = [Fence(epoch) for epoch in fenced if not replica.state.is_fenced(epoch)]
            for i in range(0, len(missing), 1000):
                await replica.submit(missing[i : i + 1000])

    def start(self) -> None:
        """Start the duties. Beats are a duty of their own, so they continue while another call to the ledger hangs."""
        run = self._background.run
        self._duties = [run(BEATS, self._keep_beating), run(MEMBERSHIP, self._stay)]

    async def _beat(self) -> None:
        await self._ledger.beat(self.process)
        self._last_beat = self._clock.monotonic()

    async def _keep_beating(self) -> None:
        while True:
            began = self._clock.monotonic()
            with contextlib.suppress(Retriable):
                await self._beat()
            await asyncio.sleep(self._rest_since(began))

    def _rest_since(self, began: float) -> float:
        """The time until the next beat, or until the next look at the beats of others."""
        left = began + self._beat_seconds - self._clock.monotonic()
        return max(left, self._beat_seconds * LEAST_REST)

    async def _stay(self) -> None:
        """Join again whenever the epoch is lost, and watch the other processes. Ends if this node is replaced."""
        while True:
            if self._lost.is_set():
                self.epoch = Epoch(0)
                try:
                    await self.join()
                except NodeReplaced as replaced:
                    await self._duties[0].stop()
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
        self._date.look(self._cluster.state)
        await self.spread_fences()

    async def _watch_peers(self) -> None:
        """Fence members without new beats: those that are gone, and those that are silent for a whole session."""
        beats = {beat.process: beat.count for beat in await self._ledger.beats()}
        now = self._clock.monotonic()
        if now - self._last_look > 2 * self._beat_seconds or now - self._last_beat > self._session_seconds / 2:
            self._looking_since = now
        members = list(self._cluster.state.processes.values())
        for process in sorted(beats.keys() - {m.name for m in members} - {self.process}):
            await self._ledger.forget_beat(process)
        seen, silent, suspects = dict[str, tuple[int, float]](), list[Process](), list[Process]()
        for member in members:
            if member.name == self.process:
                continue
            count = beats.get(member.name, 0)
            known, since = self._seen.get(member.name, (-1, now))
            if known != count:
                since = now
            seen[member.name] = (count, since)
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

    async def _those_gone(self, suspects: list[Process]) -> list[Process]:
        """The members that are certainly gone. All are checked at once, so that this process is not late itself."""
        if self.gone is None:
            return []
        looked_for = suspects[:MAX_SUSPECTS]
        found = await asyncio.gather(*map(self.gone, looked_for))
        return [member for member, is_gone in zip(looked_for, found, strict=True) if is_gone]

    async def _fence(self, member: Process, reason: str) -> None:
        facts = {"node": member.node, "epoch": member.epoch}
        log.warning("a process is fenced", extra={"member": facts, "reason": reason})
        await self.fence(member)

    async def fence(self, member: Process) -> None:
        """Fence a member in all domains: its records are refused from now on."""
        self._seen.pop(member.name, None)
        await self._cluster.submit([Fence(member.epoch)])
        for replica in self._domains.values():
            await replica.submit([Fence(member.epoch)])
        await self._ledger.forget_beat(member.name)

    async def leave(self) -> None:
        """Fence the process's own epoch, so that clients are sent to other brokers at once."""
        for duty in self._duties:
            await duty.stop()
        if not self.epoch:
            return
        epoch, self.epoch = self.epoch, Epoch(0)
        with contextlib.suppress(Retriable):
            for replica in (*self._domains.values(), self._cluster):
                replica.on_lost = None
                await replica.submit([Fence(epoch)])
            await self._ledger.forget_beat(self.process)
