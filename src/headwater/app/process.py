"""A broker as a process: real stores, real clock, sockets, health pages, signals."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from headwater.api.catalog import MOUNT, LedgerTables, RestCatalog, refused
from headwater.api.gate import Gate
from headwater.api.listener import HttpListener
from headwater.app.exposure import check_exposure
from headwater.app.lifecycle import halt, started, until_told, watch_parent
from headwater.app.memory import keep_freed
from headwater.app.node import Node
from headwater.app.peers import Internal, connections
from headwater.broker.metrics import collect, of_peers
from headwater.broker.presence import nobody_serves
from headwater.broker.server import Server
from headwater.clock import SystemChance, SystemClock
from headwater.config import INTERNAL, Settings, parse_listeners
from headwater.errors import ConfigError, HeadwaterError, StoreUnavailable
from headwater.lake.tables.storage import reader_properties
from headwater.log import kernels
from headwater.metadata import bucket_counts as ledger_metrics
from headwater.metadata import open_ledger
from headwater.metadata.commands import Listener
from headwater.objects import ObjectStore, open_store, slowed
from headwater.objects import metrics as object_metrics
from headwater.ops import logs
from headwater.ops.http import Page, Request, Route
from headwater.ops.metrics import CONTENT_TYPE, render
from headwater.threads import Threads
from headwater.types import Domain

DRAIN_SECONDS = 10.0
SWITCH_SECONDS = 0.0005
"""A thread that comes back from a sync waits at most this long for the event loop to let it run."""


class BrokerProcess:
    """One broker with everything around it."""

    def __init__(self, settings: Settings, secret: str = "") -> None:
        self.settings = settings
        self.ledger = open_ledger(settings.ledger_url, settings.object_store)
        self.store: ObjectStore = open_store(settings.objects_url, settings.object_store)
        if slowed.VARIABLE in os.environ:
            self.store = slowed.SlowedStore(self.store, Path(os.environ[slowed.VARIABLE]), settings.node)
        self._threads = Threads(1, "segments")
        chance = SystemChance()
        self._peers = connections(settings, chance)
        self.node = Node(
            settings,
            self.ledger,
            self.store,
            SystemClock(),
            chance,
            listeners=(),
            checkpoint=self._checkpoint,
            offload=self._threads.run,
            peers=self._peers,
        )
        self.node.membership.gone = nobody_serves
        self.internal = Internal(settings, chance, self.node.wal_object)
        self.server = Server(self.node.broker)
        self.http = HttpListener(settings, self._routes(), secret)
        self.kafka_ports: dict[str, int] = {}

    def _routes(self) -> dict[str, Route]:
        broker = self.node.broker
        gate = Gate(self.settings.security, broker.logins, broker.guard)
        return {
            "/metrics": gate.describes_cluster(self._metrics),
            "/healthz": self._alive,
            "/readyz": self._ready,
            "/health": gate.describes_cluster(self._health),
            MOUNT: gate.known(self._catalog().page, refused),
        }

    def _catalog(self) -> RestCatalog:
        own, provider = self.settings, self.settings.object_store.provider
        properties = reader_properties(own.objects_url, os.environ, provider, own.lake.readers)
        tables = LedgerTables(self.node.cluster, self.node.domains)
        return RestCatalog(tables, self.store, self.node.broker.guard, properties)

    async def start(self) -> None:
        """Listen, then join: the cluster is told addresses that answer."""
        check_exposure(self.settings)
        advertised = parse_listeners(self.settings.advertise) if self.settings.advertise else {}
        listeners = []
        for name, (host, port) in parse_listeners(self.settings.kafka).items():
            try:
                bound = await self.server.listen(name, host, port)
            except OSError as error:
                raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
            self.kafka_ports[name] = bound
            shown_host, shown_port = advertised.get(name, (host, bound))
            if shown_host in ("0.0.0.0", "::"):
                raise ConfigError(f"listener {name} needs an address in `advertise` that clients can reach")
            listeners.append(Listener(name, shown_host, shown_port or bound))
        listeners += await self.internal.listen(advertised.get(INTERNAL))
        self.node.membership.listeners = tuple(listeners)
        await self.node.start()
        await self.http.open()

    async def stop(self) -> None:
        await self.server.drain(DRAIN_SECONDS)
        await self.node.stop()
        await self.internal.close()
        if self._peers is not None:
            await self._peers.close()
        await self.http.close()
        await self._threads.close()
        await self.ledger.close()
        await self.store.close()

    async def _checkpoint(self, domain: Domain) -> None:
        """A child writes it, so that the event loop never waits for a large state to be encoded."""
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "headwater", "checkpoint",
            "--ledger", self.settings.ledger_url, "--objects", self.settings.objects_url, "--domain", str(domain),
            stdin=asyncio.subprocess.DEVNULL,
            env={**os.environ, **self.settings.object_store.variables()},
        )  # fmt: skip
        code = await child.wait()
        if code:
            raise StoreUnavailable(f"writing a checkpoint of domain {domain} ended with exit code {code}")

    async def _metrics(self, request: Request) -> Page:
        node = self.node
        metrics = collect(node.broker, node.cache, node.housekeeper) + of_peers(node.zone_cache, self.internal.server)
        metrics += object_metrics.collect(self.store)
        metrics += ledger_metrics.collect(self.ledger)
        return Page(render(metrics, node=str(self.settings.node)), content_type=CONTENT_TYPE)

    async def _alive(self, request: Request) -> Page:
        return Page('{"status":"alive"}')

    async def _ready(self, request: Request) -> Page:
        return Page('{"status":"unhealthy"}', 503) if await self._trouble() else Page('{"status":"healthy"}')

    async def _health(self, request: Request) -> Page:
        reason = await self._trouble()
        return Page(f'{{"status":"unhealthy","reason":"{reason}"}}', 503) if reason else Page('{"status":"healthy"}')

    async def _trouble(self) -> str:
        """What keeps this broker from serving; empty if nothing does."""
        try:
            self.node.broker.check_contact()
            await self.node.cluster.barrier()
        except HeadwaterError as error:
            return type(error).__name__
        return ""


async def serve(settings: Settings, *, supervised: bool) -> None:
    """Run one broker until it is told to stop."""
    logs.setup(settings.log_level, node=settings.node)
    sys.setswitchinterval(SWITCH_SECONDS)
    keep_freed()
    stop = until_told()
    process = BrokerProcess(settings, await watch_parent(stop) if supervised else "")
    process.node.cluster.on_halt = process.node.domains[Domain(1)].on_halt = lambda error: halt(error, stop)
    process.node.membership.on_replaced = lambda replaced: halt(replaced, stop)
    if not await started(process.start(), stop):
        return
    kernels.compile_when_used()
    ports = ",".join(f"{name}:{port}" for name, port in process.kafka_ports.items())
    print(f"ready node={settings.node} kafka={ports} http={process.http.port}", flush=True)  # noqa: T201
    await stop.wait()
    await process.stop()
