"""A gateway as a process: a core without a node id, the HTTP API, Flight SQL, health pages, signals."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from typing import TYPE_CHECKING

import msgspec

from headwater.api.gate import Gate
from headwater.api.listener import HttpListener
from headwater.app import compiling
from headwater.app.core import Core
from headwater.app.equipment import Equipment
from headwater.app.exposure import check_exposure
from headwater.app.health import Health, judged, pages
from headwater.app.lifecycle import serve_until_told
from headwater.background import Background
from headwater.broker.rotation.presence import nobody_serves
from headwater.extras import has, need, sentence
from headwater.gateway.application import build
from headwater.gateway.metrics import collect, of_keys
from headwater.gateway.server import HttpServer
from headwater.gateway.services import Services
from headwater.lake.tables.storage import reader_properties
from headwater.log.kernels import switch
from headwater.memory import keep_freed
from headwater.ops import logs
from headwater.ops.metrics import Metric
from headwater.settings.settings import HttpSecurity, Settings
from headwater.threads import Threads, Turns

if TYPE_CHECKING:
    from headwater.app.querying import Querying
    from headwater.gateway.flight.server import FlightServer

log = logging.getLogger("headwater.gateway")
SWITCH_SECONDS = 0.0005
"""How long a thread that decodes records may keep the event loop waiting."""
NAME = "gateway"
WORKING = 2
"""Threads that parse, judge, encode and decode for callers."""


def inside(settings: Settings) -> Settings:
    """Settings whose HTTP pages have no TLS of their own, because it ends at the supervisor."""
    http = HttpSecurity(authentication=settings.security.http.authentication)
    return msgspec.structs.replace(settings, security=msgspec.structs.replace(settings.security, http=http))


def catalog_properties(settings: Settings) -> dict[str, str]:
    """The properties that the REST catalog gives to readers of tables."""
    provider = settings.object_store.provider
    return reader_properties(settings.objects_url, os.environ, provider, settings.lake.readers)


def flight_server(services: Services) -> FlightServer | None:
    """The server of Flight SQL, if the settings have an address for it. gRPC is loaded only then."""
    if not services.own.flight:
        return None
    need("flight")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")  # processes are started while gRPC has threads
    from headwater.gateway.flight.server import FlightServer

    return FlightServer(services)


class GatewayProcess:
    """One gateway with its stores, its API and its pages."""

    def __init__(self, settings: Settings, background: Background, secret: str = "") -> None:
        self.settings = settings
        self.background = background
        own = self._own = Equipment(settings, background)
        self.core = Core(
            settings,
            own.ledger,
            own.store,
            own.clock,
            own.chance,
            offload=own.offload,
            openers=own.openers,
            peers=own.peers,
            background=background,
            role="gateway",
        )
        self.core.membership.gone = nobody_serves
        self._working = Threads(WORKING, "callers", Turns())
        properties = catalog_properties(settings)
        self._asking = Threads(4, "registry")
        self.services = Services(
            settings,
            self.core.domains,
            self.core.writers,
            self.core.reader,
            properties,
            self._working.run,
            self._asking.run,
        )
        self.querying: Querying | None = None
        if settings.sql.enabled and has("sql"):
            from headwater.app.querying import Querying

            self.querying = Querying(settings, own, self.core.domains, self.services)
            self.services.asking = self.querying.queries
        elif settings.sql.enabled:
            log.warning("this gateway answers no SQL", extra={"reason": sentence("sql")})
        self.server = HttpServer(settings, build(self.services), self.services.stats, background)
        self.flight = flight_server(self.services)
        gate = Gate(settings.security, self.services.logins, self.services.guard)
        self.http = HttpListener(
            inside(settings) if secret else settings,
            pages(gate, self._judged, self._metrics, process=NAME),
            secret,
            background,
            self.services.stats.refuse,
        )

    async def start(self) -> None:
        """Join the cluster, then open the listeners."""
        check_exposure(self.settings, kafka=False, gateway=True)
        if self.querying is not None or self.flight is not None:
            importlib.import_module("pyarrow")  # later it would hold up the beats of a member on a busy machine
        await self.core.start()
        self.services.holding.start()
        self.services.load.start(self.background)
        if self.querying is not None:
            await self.querying.open()
        await self.server.open()
        if self.flight is not None:
            await self.flight.open()
        await self.http.open()
        switch.compile_when_used(compiling.wait_until_made)

    @property
    def ready(self) -> str:
        """The line for the supervisor."""
        flight = self.flight.port if self.flight is not None else 0
        return f"ready http={self.http.port} gateway={self.server.port} flight={flight}"

    async def stop(self) -> None:
        """Finish the requests under way and leave the cluster. If a duty has failed, nothing is finished first."""
        self.services.stopping.set()
        seconds = 0 if self.background.failure else self.settings.gateway.drain_ms / 1000
        if self.flight is not None:
            await self.flight.close(seconds)
        await self.server.close(seconds)
        if self.querying is not None:
            await self.querying.close()
        await self.services.holding.close()
        await self.services.load.close()
        await self.core.stop()
        await self.http.close()
        await self._asking.close()
        await self._working.close()
        await self._own.close()

    def _metrics(self) -> list[Metric]:
        own = self.services
        places = [
            one.metrics() for one in (own.requests, own.strangers, own.bodies, own.streams, own.scans, own.undecoded)
        ]
        metrics = collect(own.stats, own.streams.count, own.load.seconds, places)
        metrics += of_keys(replica.state for replica in self.core.domains.values())
        if self.querying is not None:
            metrics += self.querying.metrics()
        if self.flight is not None:
            metrics += self.flight.metrics()
        return metrics + self._own.metrics() + self.core.damage.metrics()

    async def _judged(self) -> Health:
        return judged(
            self.background,
            reason=await self.services.trouble(),
            full=self.core.domains.room.missing(),
            damage=self.core.damage.lines(),
        ).with_clocks(self.core.domains.clock_words())


async def serve(settings: Settings, *, supervised: bool) -> None:
    """Run a gateway until a signal stops it."""
    logs.setup(settings.log_level, node=NAME)
    sys.setswitchinterval(SWITCH_SECONDS)
    keep_freed()
    await serve_until_told(
        lambda background, secret, _: GatewayProcess(settings, background, secret), settings, supervised=supervised
    )
