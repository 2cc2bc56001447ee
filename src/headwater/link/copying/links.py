"""All links of one process: which of them run here, and which of their shares."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable

from headwater.background import Duty, OnDeath, Supervised
from headwater.errors import HeadwaterError, Retriable
from headwater.link.ahead import Ahead
from headwater.link.copying.link import SHARES, LinkRunner, Origin, Tools
from headwater.link.copying.shares import GIVEN_UP_MS, PRESENCE, SHARE, held, plan
from headwater.link.copying.tails import Tails
from headwater.link.health import Component
from headwater.log.write.writers import Writers
from headwater.replica.domains import Domains
from headwater.replica.links import Linking
from headwater.replica.topics import Topics
from headwater.settings.settings import Settings
from headwater.state.cluster.links import Link
from headwater.state.commands.base import TakeLease
from headwater.state.commands.links import LinkPhase
from headwater.state.machine import Lease

log = logging.getLogger("headwater.link")
LINKS = Duty("links", OnDeath.RESTART, "takes shares of links, and starts and stops their copies")
LINK = Duty("link", OnDeath.RESTART, "copies the shares of one link that this process holds")
RENEWALS = 3
"""How often a lease is renewed before it would expire."""


class Copying:
    """Copies the shares of all links that this process holds."""

    def __init__(
        self, domains: Domains, writers: Writers, settings: Settings, connect: Callable[[Link], Origin]
    ) -> None:
        self._domains = domains
        self._cluster = domains.cluster
        self._settings = settings.links
        self._connect = connect
        topics = Topics(domains.cluster, domains, domains.chance)
        linking = Linking(domains.cluster, domains, topics, domains.chance)
        self._ahead = Ahead(settings.links)
        self._tools = Tools(settings, domains, writers, topics, linking, Tails(domains.store), self._ahead)
        self._running: dict[str, tuple[LinkRunner, Supervised]] = {}
        self._duty: Supervised | None = None
        self._renewed = float("-inf")
        self._given: dict[str, float] = {}
        """Leases that were given up, and when. The ledger's time moves with records only, so they may look alive."""

    def __repr__(self) -> str:
        return f"<Copying of {sorted(self._running)}>"

    def start(self) -> None:
        self._duty = self._domains.background.run(LINKS, self._run)

    async def close(self) -> None:
        """Stop copying, and let other processes take the shares at once."""
        if self._duty is not None:
            await self._duty.stop()
        for name in list(self._running):
            await self._stop(name)
        epoch = self._cluster.epoch
        own = [name for name, lease in self._cluster.state.leases().items() if _is_own(name, lease, epoch)]
        if epoch and own:
            with contextlib.suppress(HeadwaterError):  # they expire soon
                await self._cluster.submit([TakeLease(name, GIVEN_UP_MS) for name in own])

    def runners(self) -> list[LinkRunner]:
        """The links that run here."""
        return [runner for runner, _ in self._running.values()]

    def components(self) -> list[Component]:
        """How well the parts of all links do that run here."""
        return [component for runner in self.runners() for component in runner.health.components]

    async def _run(self) -> None:
        while True:
            try:
                await self.round()
            except Retriable as error:
                log.warning("shares of links wait", extra={"reason": str(error)})
            await asyncio.sleep(self._settings.check_ms / 1000)

    async def round(self) -> None:
        """Take and give shares, and bring the copies in line."""
        links = {name: link for name, link in self._cluster.state.links.links.items() if self._has_work(link)}
        for name, (runner, _) in list(self._running.items()):
            link = links.get(name)
            if link is None or link.version != runner.link.version:
                await self._stop(name)
        if self._cluster.epoch and (links or self._held_any()):
            await self._lease(list(links))
        for name, link in links.items():
            shares = self._shares(name)
            if name not in self._running and shares:
                runner = LinkRunner(link, self._tools, self._connect)
                self._running[name] = runner, self._domains.background.run(LINK, runner.run, name)
            if name in self._running:
                self._running[name][0].assign(shares)

    def _has_work(self, link: Link) -> bool:
        """Whether a link runs. One that is paused runs while a topic of it is being promoted, and copies no records."""
        of = self._cluster.state.links.of(link.name) if link.spec.paused else ()
        return not link.spec.paused or any(found.phase is LinkPhase.PROMOTING for found in of)

    def _shares(self, link: str) -> frozenset[int]:
        state = self._cluster.state
        leases = {name: lease for name, lease in state.leases().items() if name not in self._given}
        return held(leases, state.clock_ms, self._cluster.epoch, link, SHARES)

    def _held_any(self) -> bool:
        epoch, leases = self._cluster.epoch, self._cluster.state.leases()
        return any(_is_own(name, lease, epoch) for name, lease in leases.items())

    async def _lease(self, links: list[str]) -> None:
        state, epoch, now = self._cluster.state, self._cluster.epoch, self._domains.clock.monotonic()
        wanted = plan(state.leases(), state.clock_ms, epoch, links, SHARES)
        fresh = [name for name in wanted.take if not self._holds(name)]
        due = now - self._renewed >= self._settings.lease_ms / RENEWALS / 1000
        if not due and not fresh and not set(wanted.give) - self._given.keys():
            return
        give = self._to_give(wanted.give, now)
        for name, (runner, _) in self._running.items():
            runner.assign(self._shares(name))
        for name in wanted.take:
            self._given.pop(name, None)
        took = [TakeLease(name, self._settings.lease_ms) for name in wanted.take]
        await self._cluster.submit([*took, *(TakeLease(name, GIVEN_UP_MS) for name in give)])
        self._renewed = now

    def _to_give(self, names: Iterable[str], now: float) -> list[str]:
        """The leases that are given up now, and not a second time before they would have expired in any case."""
        old = now - self._settings.lease_ms / 1000
        self._given = {name: at for name, at in self._given.items() if at > old}
        found = [name for name in names if name not in self._given]
        self._given.update(dict.fromkeys(found, now))
        return found

    def _holds(self, name: str) -> bool:
        lease = self._cluster.state.lease(name)
        return lease is not None and _is_own(name, lease, self._cluster.epoch) and self._is_live(lease)

    def _is_live(self, lease: Lease) -> bool:
        return lease.expires_ms > self._cluster.state.clock_ms

    async def _stop(self, name: str) -> None:
        _, duty = self._running.pop(name)
        await duty.stop()


def _is_own(name: str, lease: Lease, epoch: int) -> bool:
    """Whether a lease is one of links, and this process has it."""
    return lease.holder == epoch and name.startswith((PRESENCE, SHARE))
