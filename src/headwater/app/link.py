"""A link process: a core without a node id, the links whose shares it holds, health pages, signals."""

from __future__ import annotations

import os
import sys

from headwater.api.gate import Gate
from headwater.api.listener import HttpListener
from headwater.app.core import Core
from headwater.app.equipment import Equipment
from headwater.app.exposure import check_exposure
from headwater.app.health import Health, PartHealth, judged, pages
from headwater.app.lifecycle import serve_until_told
from headwater.background import Background
from headwater.broker.rotation.presence import nobody_serves
from headwater.errors import HeadwaterError
from headwater.link.copying.links import Copying
from headwater.link.copying.metrics import collect
from headwater.link.copying.origin import connector
from headwater.link.health import Status
from headwater.memory import keep_freed
from headwater.ops import logs
from headwater.ops.metrics import Metric
from headwater.security.guard import Guard
from headwater.security.logins import Logins
from headwater.settings.settings import Settings

NAME = "link"
SWITCH_SECONDS = 0.0005
"""A thread that returns from a sync waits at most this long until the event loop lets it run."""


class LinkProcess:
    """One process that copies links, with its stores and its pages."""

    def __init__(self, settings: Settings, background: Background, secret: str = "") -> None:
        self.settings = settings
        self.background = background
        own = self._own = Equipment(settings, background)
        self.core = Core(settings, own.ledger, own.store, own.clock, own.chance, background=background, role="link")
        self.core.membership.gone = nobody_serves
        connect = connector(settings.links, os.environ, own.clock, own.chance, own.openers[1])
        self.copying = Copying(self.core.domains, self.core.writers, settings, connect)
        security, access = settings.security, self.core.cluster.state.access
        logins = Logins(security, access, own.clock, own.chance, self.core.cluster.barrier)
        gate = Gate(security, logins, Guard(security, access))
        routes = pages(gate, self._judged, self._metrics, process=NAME)
        self.http = HttpListener(settings, routes, secret, background)

    async def start(self) -> None:
        """Join the cluster, then start to copy."""
        check_exposure(self.settings, kafka=False)
        await self.core.start()
        self.copying.start()
        await self.http.open()

    @property
    def ready(self) -> str:
        """The line for the supervisor."""
        return f"ready http={self.http.port}"

    async def stop(self) -> None:
        """Stop copying, give the shares to other processes, and leave the cluster."""
        await self.copying.close()
        await self.core.stop()
        await self.http.close()
        await self._own.close()

    def _metrics(self) -> list[Metric]:
        return collect(self.copying, self._own.clock.wall_ms()) + self._own.metrics()

    async def _judged(self) -> Health:
        reason = ""
        try:
            await self.core.cluster.barrier()
        except HeadwaterError as error:
            reason = type(error).__name__
        health = health_of(self.background, self.copying, reason, self.core.domains.room.missing())
        return health.with_clocks(self.core.domains.clock_words())


def health_of(background: Background, copying: Copying, reason: str, full: dict[str, str]) -> Health:
    """The health of a process that copies links. It is degraded while a part of a link does not work.

    A source that does not answer makes its own part unhealthy, and not the process: other links go on.
    """
    components = copying.components()
    bad = any(component.status is not Status.HEALTHY for component in components)
    health = judged(background, reason=reason, degraded=bad, full=full)
    health.components = [PartHealth(one.name, str(one.status), one.reason, one.since_ms) for one in components]
    return health


async def serve(settings: Settings, *, supervised: bool) -> None:
    """Run a link process until a signal stops it."""
    logs.setup(settings.log_level, node=NAME)
    sys.setswitchinterval(SWITCH_SECONDS)
    keep_freed()
    await serve_until_told(
        lambda background, secret, _: LinkProcess(settings, background, secret), settings, supervised=supervised
    )
