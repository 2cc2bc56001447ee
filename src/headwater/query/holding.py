"""Holds of a process that reads for others: what its queries read stays in the store until they have ended.

A query is held like this:

    await services.catch_up(domain)            # the state reaches the ledger's end
    async with holding.query() as held:
        await held.pin(topic.id, version)      # only for a version that is not the newest one
        snapshot = take(state, topic.id, streams, wanted)
        ...                                    # read; nothing of the snapshot is deleted meanwhile

Between `query()`, or the last `pin`, and `take` the caller awaits nothing: the snapshot is taken in the state in which
the hold is known. A caller that cannot use `async with` calls `begin()`, and `release()` of the result in a `finally`.

The process has one hold per domain and epoch, and keeps it: a query about the present costs no append. The hold's time
moves forward every ten seconds, up to the oldest query that runs or the ledger's time, and only if something that was
removed meanwhile waits for it. What a hold keeps after its process died goes when the process is fenced.

Queries that run while the process loses its epoch fail with `SnapshotGone` if something that they read is deleted;
`Held.lost` tells.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections import Counter
from collections.abc import AsyncIterator

from headwater.background import Duty, OnDeath, Supervised
from headwater.errors import BadInput, NotReady, Retriable
from headwater.replica.domains import Domains
from headwater.replica.replica import Replica
from headwater.state.commands.holds import HoldVersion, MoveHold, ReleaseVersions, TakeHold
from headwater.state.records import Command
from headwater.state.results import Done, Reason, Refused
from headwater.state.streams.state import StreamsState
from headwater.types import Domain, Epoch

log = logging.getLogger("headwater.holds")
RENEW_SECONDS = 10.0
MAX_QUERIES = 10_000
"""Queries that are held at once."""
HOLDING = Duty("holds", OnDeath.RESTART, "lets go what no running query reads any more")


class Held:
    """A query that runs: what it reads is kept until `release`."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding
        self.begun: dict[Domain, tuple[Epoch, int]] = {}
        """By domain, the epoch of the hold and the ledger's time at which the query began."""
        self.versions: list[tuple[Domain, Epoch, uuid.UUID, int]] = []
        """The versions that the query has pinned."""

    def __repr__(self) -> str:
        return f"<Held {self.begun}>"

    @property
    def lost(self) -> bool:
        """Whether nothing keeps what the query reads: the process has lost its epoch."""
        return not self.begun or any(not self._holding.has(domain, epoch) for domain, (epoch, _) in self.begun.items())

    async def pin(self, topic: uuid.UUID, version: int) -> None:
        """Keep the files of an older version of a table. Raises `BadInput` if some of them may be deleted already."""
        await self._holding.pin(self, topic, version)

    def release(self) -> None:
        """Let go what the query has kept. To do so twice does no harm."""
        self._holding.release(self)


class Holding:
    """The holds of a process in all domains of streams, and the queries that need them."""

    def __init__(self, domains: Domains) -> None:
        self._domains = domains
        self._running: dict[Held, None] = {}
        self._pins: Counter[tuple[Domain, Epoch, uuid.UUID, int]] = Counter()
        """How many queries have pinned a version."""
        self._changing = {domain: asyncio.Lock() for domain in domains}
        """Taken while the hold of a domain is taken, or its versions change."""
        self._duty: Supervised | None = None
        self.renewals = 0

    def __repr__(self) -> str:
        return f"<Holding {len(self._running)} queries>"

    def __len__(self) -> int:
        return len(self._running)

    def start(self) -> None:
        """Renew the holds from now on."""
        self._duty = self._domains.background.run(HOLDING, self._run)

    async def close(self) -> None:
        if self._duty is not None:
            await self._duty.stop()

    # --- queries -------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def query(self) -> AsyncIterator[Held]:
        """Hold what a query reads that begins now."""
        held = await self.begin()
        try:
            yield held
        finally:
            held.release()

    async def begin(self) -> Held:
        """Begin a query. The caller calls `release` of the result. Raises `Retriable` if the process has no epoch."""
        if len(self._running) >= MAX_QUERIES:
            raise NotReady(f"{MAX_QUERIES} queries run here already")
        held = Held(self)
        while True:
            bare = [replica for replica in self._domains.values() if self._is_bare(replica)]
            if not bare:
                break
            for replica in bare:
                await self._take(replica)
        for replica in self._domains.values():  # in one step, so that all of it is in the state at hand
            held.begun[replica.domain] = (replica.epoch, replica.state.clock_ms)
        self._running[held] = None
        return held

    def has(self, domain: Domain, epoch: Epoch) -> bool:
        """Whether the process has a hold under an epoch, as far as it has read the ledger."""
        return self._domains[domain].state.held.get(epoch) is not None

    def _is_bare(self, replica: Replica[StreamsState]) -> bool:
        return not replica.epoch or replica.state.held.get(replica.epoch) is None

    async def _take(self, replica: Replica[StreamsState]) -> None:
        async with self._changing[replica.domain]:
            if self._is_bare(replica):
                [result] = await replica.submit([TakeHold()])
                if not isinstance(result, Done):
                    raise NotReady(f"nothing can be held in domain {replica.domain}: {result}")

    async def pin(self, held: Held, topic: uuid.UUID, version: int) -> None:
        """See `Held.pin`."""
        known = self._domains.cluster.state.topics.get(topic)
        if known is None:
            raise BadInput(f"there is no topic {topic}")
        domain = Domain(known.domain)
        if held not in self._running or domain not in held.begun:
            return
        epoch, replica = held.begun[domain][0], self._domains[domain]
        table = replica.state.tables.get(topic)
        if table is None or version == table.last_sequence:
            return  # there is nothing to keep, or it is removed after the query began, if at all
        name = (domain, epoch, topic, version)
        async with self._changing[domain]:
            hold = replica.state.held.get(epoch)
            if hold is None or replica.epoch != epoch:
                raise NotReady("the process has lost its hold: ask again")
            if (topic, version) not in hold.versions:
                [result] = await replica.submit([HoldVersion(topic, version)])
                if isinstance(result, Refused):
                    raise _error(result)
            if held in self._running:  # else it was released meanwhile, and the next renewal releases the version
                self._pins[name] += 1
                held.versions.append(name)

    def release(self, held: Held) -> None:
        """See `Held.release`."""
        if held in self._running:
            del self._running[held]
            self._pins.subtract(held.versions)

    # --- renewing ------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS * (0.5 + self._domains.chance.fraction() / 2))
            await self.renew()

    async def renew(self) -> None:
        """Move the holds up to the oldest queries that run, and release versions that none of them needs."""
        for replica in self._domains.values():
            try:
                await self._renew(replica)
            except Retriable as error:
                log.info("a hold stays as it is", extra={"domain": replica.domain, "reason": str(error)})

    async def _renew(self, replica: Replica[StreamsState]) -> None:
        async with self._changing[replica.domain]:
            epoch, state = replica.epoch, replica.state
            hold = state.held.get(epoch)
            if not epoch or hold is None:
                return
            commands: list[Command] = []
            until = self._needed_since(replica.domain, epoch, state.clock_ms)
            if state.removed_between(hold.since_ms, until):
                commands.append(MoveHold(until))
            spare = [name for name in hold.versions if self._pins[(replica.domain, epoch, *name)] <= 0]
            if spare:
                commands.append(ReleaseVersions(spare))
            if commands:
                await replica.submit(commands)
                self.renewals += 1
            self._pins = +self._pins

    def _needed_since(self, domain: Domain, epoch: Epoch, now_ms: int) -> int:
        """When the oldest query began that runs under the hold; now if there is none."""
        begun = [held.begun[domain] for held in self._running if domain in held.begun]
        return min((ms for under, ms in begun if under == epoch), default=now_ms)


def _error(refused: Refused) -> Exception:
    if refused.reason is Reason.FULL:
        return NotReady(refused.detail)
    return BadInput(refused.detail)
