"""A gateway as a process: a core without a node id, the HTTP API, Flight SQL, health pages, signals."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING

import msgspec

from headwater.api.gate import Gate
from headwater.api.lead import CatalogLead
from headwater.api.listener import HttpListener
from headwater.app.core import Core
from headwater.app.directories import prepare
from headwater.app.exposure import check_exposure
from headwater.app.health import Health, alive, judged
from headwater.app.lifecycle import started, stopped, supervised_by, until_told, watch_parent
from headwater.app.peers import connections
from headwater.background import Background
from headwater.broker.rotation.presence import nobody_serves
from headwater.clock import SystemChance, SystemClock
from headwater.gateway.application import build
from headwater.gateway.catalog import MOUNT, refused
from headwater.gateway.metrics import collect
from headwater.gateway.server import HttpServer
from headwater.gateway.services import Services
from headwater.lake.tables.storage import reader_properties
from headwater.ledger import open_ledger
from headwater.ledger.bucket import counts as ledger_metrics
from headwater.log.kernels import switch
from headwater.memory import keep_freed
from headwater.objects import ObjectStore, open_store
from headwater.objects import metrics as object_metrics
from headwater.ops import logs
from headwater.ops.http import Page, Request
from headwater.ops.metrics import CONTENT_TYPE, render
from headwater.query.asking import Engine
from headwater.query.engines.contract import EngineRunner
from headwater.query.engines.duckdb.pool import DuckDB
from headwater.query.engines.spark.runner import Spark
from headwater.query.queries import Queries
from headwater.settings.settings import HttpSecurity, Settings
from headwater.threads import Threads

if TYPE_CHECKING:
    from headwater.gateway.flight.server import FlightServer

SWITCH_SECONDS = 0.0005
"""How long a thread that decodes records may keep the event loop waiting."""
NAME = "gateway"


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
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")  # processes are started while gRPC has threads
    from headwater.gateway.flight.server import FlightServer

    return FlightServer(services)


class GatewayProcess:
    """One gateway with its stores, its API and its pages."""

    def __init__(self, settings: Settings, background: Background, secret: str = "") -> None:
        self.settings = settings
        self.background = background
        prepare(settings)
        self.ledger = open_ledger(settings.ledger_url, settings.object_store, background)
        self.store: ObjectStore = open_store(settings.objects_url, settings.object_store)
        self._threads = Threads(1, "segments")
        self._openers = (Threads(1, "opening"), Threads(1, "opening-huge"))
        chance = SystemChance()
        self._peers = connections(settings, chance)
        self.core = Core(
            settings,
            self.ledger,
            self.store,
            SystemClock(),
            chance,
            offload=self._threads.run,
            openers=(self._openers[0].run, self._openers[1].run),
            peers=self._peers,
            background=background,
        )
        self.core.membership.gone = nobody_serves
        properties = catalog_properties(settings)
        self.services = Services(
            settings,
            self.core.domains,
            self.core.writers,
            self.core.reader,
            properties,
            self._openers[0].run,
        )
        self.duckdb = DuckDB(settings, chance, self._openers[0].run)
        engines: dict[Engine, EngineRunner] = {Engine.DUCKDB: self.duckdb}
        self.spark = Spark(settings, chance, self._openers[0].run)
        if Spark.can_read(settings):
            engines[Engine.SPARK] = self.spark
        self.queries = Queries(self.core.domains, self.services.holding, settings.sql, engines, self._openers[0].run)
        if settings.sql.enabled:
            self.services.asking = self.queries
        self.server = HttpServer(settings, build(self.services), self.services.stats, background)
        self.flight = flight_server(self.services)
        gate = Gate(settings.security, self.services.logins, self.services.guard)
        self.http = HttpListener(
            inside(settings) if secret else settings,
            {
                "/metrics": gate.describes_cluster(self._metrics),
                "/healthz": alive,
                "/readyz": self._ready,
                "/health": gate.describes_cluster(self._health),
                MOUNT: gate.known(CatalogLead(lambda: self.server.url, properties).page, refused),
            },
            secret,
            background,
            self.services.stats.refuse,
        )

    async def start(self) -> None:
        """Join the cluster, then open the listeners."""
        check_exposure(self.settings, kafka=False, gateway=True)
        if self.settings.sql.enabled or self.flight is not None:
            importlib.import_module("pyarrow")  # later it would hold up the beats of a member on a busy machine
        await self.core.start()
        self.services.holding.start()
        self.services.load.start(self.background)
        if self.settings.sql.enabled:
            await self.duckdb.open()
        await self.server.open()
        if self.flight is not None:
            await self.flight.open()
        await self.http.open()

    async def stop(self) -> None:
        """Finish the requests under way and leave the cluster. If a duty has failed, nothing is finished first."""
        self.services.stopping.set()
        seconds = 0 if self.background.failure else self.settings.gateway.drain_ms / 1000
        if self.flight is not None:
            await self.flight.close(seconds)
        await self.server.close(seconds)
        await self.queries.close()
        await self.duckdb.close()
        await self.spark.close()
        await self.services.holding.close()
        await self.services.load.close()
        await self.core.stop()
        if self._peers is not None:
            await self._peers.close()
        await self.http.close()
        for threads in (self._threads, *self._openers):
            await threads.close()
        await self.ledger.close()
        await self.store.close()

    async def _metrics(self, request: Request) -> Page:
        metrics = collect(self.services.stats, self.services.streams.count, self.services.load.seconds)
        if self.settings.sql.enabled:
            engines = {Engine.DUCKDB: self.duckdb.workers, Engine.SPARK: self.spark.workers}
            metrics += self.queries.metrics(engines)
        if self.flight is not None:
            metrics += self.flight.metrics()
        metrics += object_metrics.collect(self.store)
        metrics += ledger_metrics.collect(self.ledger)
        metrics += self.core.damage.metrics()
        return Page(render(metrics, process=NAME), content_type=CONTENT_TYPE)

    async def _ready(self, request: Request) -> Page:
        return (await self._judged()).short_page()

    async def _health(self, request: Request) -> Page:
        return (await self._judged()).page()

    async def _judged(self) -> Health:
        return judged(
            self.background,
            reason=await self.services.trouble(),
            full=self.core.domains.room.missing(),
            damage=self.core.damage.lines(),
        )


async def serve(settings: Settings, *, supervised: bool) -> None:
    """Run a gateway until a signal stops it."""
    logs.setup(settings.log_level, node=NAME)
    sys.setswitchinterval(SWITCH_SECONDS)
    keep_freed()
    stop = until_told()
    background = supervised_by(stop)
    process = GatewayProcess(settings, background, await watch_parent(stop, background) if supervised else "")
    if not await started(process.start(), stop, background):
        return
    switch.compile_when_used()
    flight = process.flight.port if process.flight is not None else 0
    print(f"ready http={process.http.port} gateway={process.server.port} flight={flight}", flush=True)  # noqa: T201
    await stop.wait()
    await stopped(process.stop(), background)
