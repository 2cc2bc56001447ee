"""A broker as a process: real stores, real clock, sockets, health pages, signals."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from headwater.api.gate import Gate
from headwater.api.lead import CatalogLead
from headwater.api.listener import HttpListener
from headwater.app.children import CHECKPOINT_SECONDS, run_child
from headwater.app.directories import prepare
from headwater.app.exposure import check_exposure
from headwater.app.health import Health, alive, judged
from headwater.app.lifecycle import halt, started, stopped, supervised_by, until_told, watch_parent
from headwater.app.node import Node
from headwater.app.peers import Internal, connections
from headwater.background import Background
from headwater.broker.metrics import collect, of_peers
from headwater.broker.net.server import Server
from headwater.broker.rotation.presence import nobody_serves
from headwater.clock import SystemChance, SystemClock
from headwater.errors import ConfigError, HeadwaterError
from headwater.gateway.catalog import MOUNT, refused
from headwater.lake.tables.storage import reader_properties
from headwater.ledger import open_ledger
from headwater.ledger.bucket import counts as ledger_metrics
from headwater.log.kernels import switch
from headwater.memory import keep_freed
from headwater.objects import ObjectStore, open_store, slowed
from headwater.objects import metrics as object_metrics
from headwater.ops import logs
from headwater.ops.http import Page, Request, Route
from headwater.ops.metrics import CONTENT_TYPE, render
from headwater.settings.gateway import public_url
from headwater.settings.settings import INTERNAL, Settings, parse_address, parse_listeners
from headwater.state.commands.cluster import Listener
from headwater.threads import Threads
from headwater.types import Domain

DRAIN_SECONDS = 10.0
SWITCH_SECONDS = 0.0005
"""A thread that returns from a sync waits at most this long until the event loop lets it run."""


class BrokerProcess:
    """One broker with its stores, listeners and pages."""

    def __init__(self, settings: Settings, background: Background, secret: str = "") -> None:
        self.settings = settings
        self.background = background
        prepare(settings)
        self.ledger = open_ledger(settings.ledger_url, settings.object_store, background)
        self.store: ObjectStore = open_store(settings.objects_url, settings.object_store)
        if slowed.VARIABLE in os.environ:
            self.store = slowed.SlowedStore(self.store, Path(os.environ[slowed.VARIABLE]), settings.node)
        self._threads = Threads(1, "segments")
        self._openers = (Threads(1, "opening"), Threads(1, "opening-huge"))
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
            openers=(self._openers[0].run, self._openers[1].run),
            peers=self._peers,
            background=background,
        )
        self.node.membership.gone = nobody_serves
        self.internal = Internal(settings, chance, self.node.wal_object, background)
        self.server = Server(self.node.broker)
        self.http = HttpListener(settings, self._routes(), secret, background, self.node.broker.stats.refuse)
        self.kafka_ports: dict[str, int] = {}

    def _routes(self) -> dict[str, Route]:
        broker = self.node.broker
        gate = Gate(self.settings.security, broker.logins, broker.guard)
        return {
            "/metrics": gate.describes_cluster(self._metrics),
            "/healthz": alive,
            "/readyz": self._ready,
            "/health": gate.describes_cluster(self._health),
            MOUNT: gate.known(self._lead().page, refused),
        }

    def _lead(self) -> CatalogLead:
        own, provider = self.settings, self.settings.object_store.provider
        properties = reader_properties(own.objects_url, os.environ, provider, own.lake.readers)
        host, port = parse_address(own.gateway.http)
        url = public_url(own.gateway, host, port, tls=bool(own.security.http.certificate))
        return CatalogLead(lambda: url if own.gateway.enabled else "", properties)

    async def start(self) -> None:
        """Open the listeners, then join the cluster, so that the announced addresses already answer."""
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
        """Leave the cluster. If a duty has failed, nothing is finished first, because the state may be wrong."""
        await self.server.drain(0 if self.background.failure else DRAIN_SECONDS)
        await self.node.stop()
        await self.internal.close()
        if self._peers is not None:
            await self._peers.close()
        await self.http.close()
        for threads in (self._threads, *self._openers):
            await threads.close()
        await self.ledger.close()
        await self.store.close()

    async def _checkpoint(self, domain: Domain) -> None:
        """Let a child write the checkpoint, so that encoding a large state does not block the event loop."""
        own = self.settings
        arguments = ["--ledger", own.ledger_url, "--objects", own.objects_url, "--domain", str(domain)]
        environment = {**os.environ, **own.object_store.variables()}
        await run_child(["checkpoint", *arguments], environment, CHECKPOINT_SECONDS)

    async def _metrics(self, request: Request) -> Page:
        node = self.node
        metrics = collect(node.broker, node.cache, node.housekeeper) + of_peers(node.zone_cache, self.internal.server)
        metrics += object_metrics.collect(self.store)
        metrics += ledger_metrics.collect(self.ledger)
        metrics += node.damage.metrics()
        return Page(render(metrics, node=str(self.settings.node)), content_type=CONTENT_TYPE)

    async def _ready(self, request: Request) -> Page:
        return (await self._judged()).short_page()

    async def _health(self, request: Request) -> Page:
        return (await self._judged()).page()

    async def _judged(self) -> Health:
        return judged(
            self.background,
            reason=await self._trouble(),
            full=self.node.domains.room.missing(),
            damage=self.node.damage.lines(),
        )

    async def _trouble(self) -> str:
        """The reason why this broker cannot serve; empty if it can."""
        try:
            self.node.broker.check_contact()
            await self.node.cluster.barrier()
        except HeadwaterError as error:
            return type(error).__name__
        return ""


async def serve(settings: Settings, *, supervised: bool) -> None:
    """Run one broker until a signal stops it."""
    logs.setup(settings.log_level, node=settings.node)
    sys.setswitchinterval(SWITCH_SECONDS)
    keep_freed()
    stop = until_told()
    background = supervised_by(stop)
    process = BrokerProcess(settings, background, await watch_parent(stop, background) if supervised else "")
    process.node.membership.on_replaced = lambda replaced: halt(replaced, stop)
    if not await started(process.start(), stop, background):
        return
    switch.compile_when_used()
    ports = ",".join(f"{name}:{port}" for name, port in process.kafka_ports.items())
    print(f"ready node={settings.node} kafka={ports} http={process.http.port}", flush=True)  # noqa: T201
    await stop.wait()
    await stopped(process.stop(), background)
