"""A broker as a process: real stores, real clock, sockets, health pages, signals."""

from __future__ import annotations

import asyncio
import logging
import sys

from headwater.app.node import Node
from headwater.app.signals import leave_on_signals
from headwater.broker.metrics import collect
from headwater.broker.server import Server
from headwater.clock import SystemChance, SystemClock
from headwater.config import Settings, parse_address, parse_listeners
from headwater.errors import ConfigError, HeadwaterError, StoreUnavailable
from headwater.log import kernels
from headwater.metadata import open_ledger
from headwater.metadata.commands import Listener
from headwater.objects import open_store
from headwater.ops import logs
from headwater.ops.http import HttpServer, Page
from headwater.ops.metrics import CONTENT_TYPE, render
from headwater.types import Domain

log = logging.getLogger("headwater.process")
DRAIN_SECONDS = 10.0
SWITCH_SECONDS = 0.0005
"""A thread that comes back from a sync waits at most this long for the event loop to let it run."""


class BrokerProcess:
    """One broker with everything around it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.ledger = open_ledger(settings.ledger_url)
        self.store = open_store(settings.objects_url)
        self.node = Node(
            settings,
            self.ledger,
            self.store,
            SystemClock(),
            SystemChance(),
            listeners=(),
            checkpoint=self._checkpoint,
        )
        self.server = Server(self.node.broker)
        self.http = HttpServer(
            {
                "/metrics": self._metrics,
                "/healthz": self._alive,
                "/readyz": self._ready,
                "/health": self._ready,
            }
        )
        self.kafka_ports: dict[str, int] = {}
        self.http_port = 0

    async def start(self) -> None:
        """Listen, then join: the cluster is told addresses that answer."""
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
        self.node.membership.listeners = tuple(listeners)
        await self.node.start()
        if self.settings.http:
            host, port = parse_address(self.settings.http)
            try:
                self.http_port = await self.http.listen(host, port)
            except OSError as error:
                raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error

    async def stop(self) -> None:
        await self.server.drain(DRAIN_SECONDS)
        await self.node.stop()
        await self.http.close()
        await self.ledger.close()
        await self.store.close()

    async def _checkpoint(self, domain: Domain) -> None:
        """A child writes it, so that the event loop never waits for a large state to be encoded."""
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "headwater", "checkpoint",
            "--ledger", self.settings.ledger_url, "--objects", self.settings.objects_url, "--domain", str(domain),
            stdin=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        code = await child.wait()
        if code:
            raise StoreUnavailable(f"writing a checkpoint of domain {domain} ended with exit code {code}")

    async def _metrics(self) -> Page:
        text = render(collect(self.node.broker, self.node.cache, self.node.housekeeper), node=str(self.settings.node))
        return Page(text, content_type=CONTENT_TYPE)

    async def _alive(self) -> Page:
        return Page('{"status":"alive"}')

    async def _ready(self) -> Page:
        try:
            self.node.broker.check_contact()
            await self.node.cluster.barrier()
        except HeadwaterError as error:
            return Page(f'{{"status":"unhealthy","reason":"{type(error).__name__}"}}', 503)
        return Page('{"status":"healthy"}')


async def serve(settings: Settings, *, supervised: bool) -> None:
    """Run one broker until it is told to stop."""
    logs.setup(settings.log_level, node=settings.node)
    sys.setswitchinterval(SWITCH_SECONDS)
    stop = asyncio.Event()
    leave_on_signals(stop)
    process = BrokerProcess(settings)
    process.node.cluster.on_halt = process.node.domains[Domain(1)].on_halt = lambda halt: _halt(halt, stop)
    process.node.membership.on_replaced = lambda replaced: _halt(replaced, stop)
    if not await _started(process, stop):
        return
    kernels.compile_when_used()
    if supervised:
        await _watch_parent(stop)
    ports = ",".join(f"{name}:{port}" for name, port in process.kafka_ports.items())
    print(f"ready node={settings.node} kafka={ports} http={process.http_port}", flush=True)  # noqa: T201
    await stop.wait()
    await process.stop()


async def _started(process: BrokerProcess, stop: asyncio.Event) -> bool:
    """Start, unless told to stop first: a store that does not answer must not keep a process from leaving."""
    starting, stopping = asyncio.create_task(process.start()), asyncio.create_task(stop.wait())
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if starting.done():
        starting.result()
        return True
    starting.cancel()
    return False


def _halt(halt: HeadwaterError, stop: asyncio.Event) -> None:
    log.critical("halted", extra={"reason": str(halt)})
    stop.set()


async def _watch_parent(stop: asyncio.Event) -> None:
    """Standard input is a pipe from the supervisor: when it closes, the supervisor is gone."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    async def wait() -> None:
        await reader.read()
        stop.set()

    task = asyncio.create_task(wait(), name="parent")
    task.add_done_callback(lambda _: None)
    _background.add(task)


_background: set[asyncio.Task[None]] = set()
