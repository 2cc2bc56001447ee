"""A broker as a process: real stores, real clock, sockets, health pages, signals."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path

from headwater.api.gate import Gate
from headwater.api.listener import HttpListener
from headwater.app import compiling
from headwater.app.children import CHECKPOINT_SECONDS, run_child
from headwater.app.claims import claimed, this_process
from headwater.app.directories import begin, is_used
from headwater.app.equipment import Equipment
from headwater.app.exposure import check_exposure
from headwater.app.health import Health, judged, pages
from headwater.app.lifecycle import LINKS_WORD, halt, serve_until_told, tell_supervisor
from headwater.app.node import Node
from headwater.app.peers import Internal
from headwater.background import Background, Duty, OnDeath
from headwater.broker.metrics import collect, of_peers
from headwater.broker.net.server import Server
from headwater.broker.rotation.presence import nobody_serves
from headwater.errors import ConfigError, HeadwaterError
from headwater.log.kernels import switch
from headwater.memory import keep_freed
from headwater.objects import slowed
from headwater.ops import logs
from headwater.ops.http import Route
from headwater.ops.metrics import Metric
from headwater.replica.checkpoint import is_small
from headwater.settings.settings import INTERNAL, Settings, parse_listeners
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.cluster import Listener
from headwater.types import Domain

DRAIN_SECONDS = 10.0
LOOK_SECONDS = 1.0
"""How often a broker looks for the first link."""
LINKS = Duty("first-link", OnDeath.RESTART, "tells the supervisor when there are links to copy")
SWITCH_SECONDS = 0.0005
"""A thread that returns from a sync waits at most this long until the event loop lets it run."""


class BrokerProcess:
    """One broker with its stores, listeners and pages."""

    def __init__(self, settings: Settings, background: Background, secret: str = "") -> None:
        self.settings = settings
        self.background = background
        self._supervised = bool(secret)
        own = self._own = Equipment(settings, background)
        if slowed.VARIABLE in os.environ:
            own.store = slowed.SlowedStore(own.store, Path(os.environ[slowed.VARIABLE]), settings.node)
        self.node = Node(
            settings,
            own.ledger,
            own.store,
            own.clock,
            own.chance,
            listeners=(),
            checkpoint=self._checkpoint,
            offload=own.offload,
            openers=own.openers,
            peers=own.peers,
            background=background,
        )
        self.node.membership.gone = nobody_serves
        self.internal = Internal(settings, own.chance, self.node.wal_object, background)
        self.server = Server(self.node.broker)
        self.http = HttpListener(settings, self._routes(), secret, background, self.node.broker.stats.refuse)
        self.kafka_ports: dict[str, int] = {}

    def _routes(self) -> dict[str, Route]:
        broker = self.node.broker
        gate = Gate(self.settings.security, broker.logins, broker.guard)
        return pages(gate, self._judged, self._metrics, node=str(self.settings.node))

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
        switch.compile_when_used(compiling.wait_until_made)
        if self._supervised:
            self.background.run(LINKS, lambda: tell_of_links(self.node.cluster.state))

    @property
    def ready(self) -> str:
        """The line for the supervisor."""
        ports = ",".join(f"{name}:{port}" for name, port in self.kafka_ports.items())
        return f"ready node={self.settings.node} kafka={ports} http={self.http.port}"

    async def stop(self) -> None:
        """Leave the cluster. If a duty has failed, nothing is finished first, because the state may be wrong."""
        await self.server.drain(0 if self.background.failure else DRAIN_SECONDS)
        await self.node.stop()
        await self.internal.close()
        await self.http.close()
        await self._own.close()

    async def _checkpoint(self, domain: Domain) -> None:
        """Let a child write the checkpoint, so that encoding a large state does not block the event loop.

        A child costs as much processor time as a thousand small checkpoints, so those are written here.
        """
        if await is_small(self._own.ledger, self._own.store, domain):
            await self.node.checkpoint_here(domain)
            return
        own = self.settings
        arguments = ["--ledger", own.ledger_url, "--objects", own.objects_url, "--domain", str(domain)]
        environment = {**os.environ, **own.object_store.variables()}
        await run_child(["checkpoint", *arguments], environment, CHECKPOINT_SECONDS)

    def _metrics(self) -> list[Metric]:
        node = self.node
        metrics = collect(node.broker, node.cache, node.housekeeper) + of_peers(node.zone_cache, self.internal.server)
        return metrics + self._own.metrics() + node.damage.metrics()

    async def _judged(self) -> Health:
        return judged(
            self.background,
            reason=await self._trouble(),
            full=self.node.domains.room.missing(),
            damage=self.node.damage.lines(),
            checkpoints=await self.node.domains.bad_checkpoints(),
        ).with_clocks(self.node.domains.clock_words())

    async def _trouble(self) -> str:
        """The reason why this broker cannot serve; empty if it can."""
        try:
            self.node.broker.check_contact()
            await self.node.cluster.barrier()
        except HeadwaterError as error:
            return type(error).__name__
        return ""


async def tell_of_links(state: ClusterState) -> None:
    """Tell the supervisor when there are links, so that it starts a process that copies them."""
    while not state.links.links:
        await asyncio.sleep(LOOK_SECONDS)
    tell_supervisor(LINKS_WORD)


async def serve(settings: Settings, *, supervised: bool) -> None:
    """Run one broker until a signal stops it."""
    logs.setup(settings.log_level, node=settings.node)
    sys.setswitchinterval(SWITCH_SECONDS)
    keep_freed()

    def made(background: Background, secret: str, stop: asyncio.Event) -> BrokerProcess:
        process = BrokerProcess(settings, background, secret)
        process.node.membership.on_replaced = lambda replaced: halt(replaced, stop)
        return process

    with contextlib.ExitStack() as stack:
        if not supervised and is_used(settings):  # a supervisor has claimed the nodes of its brokers itself
            begin(settings, writing=False, create=True)
            owner = this_process("broker", settings.kafka, settings.http)
            stack.enter_context(claimed(settings.data, owner, [settings.node], whole=False))
        await serve_until_told(made, settings, supervised=supervised)
