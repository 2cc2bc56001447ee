"""`headwater up`: keeps brokers, a compactor, a gateway and links running, and shows their health on one port."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import html
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from headwater import descriptors
from headwater.api.listener import HttpListener
from headwater.app import compiling
from headwater.app.claims import claimed, this_process
from headwater.app.directories import begin, prepare
from headwater.app.exposure import check_exposure
from headwater.app.health import Health, PartHealth, alive, front_page, page_of
from headwater.app.lifecycle import INPUT_CODE, LEDGER_CODE, LINKS_WORD
from headwater.app.signals import leave_on_signals
from headwater.app.up.portions import (
    broker_settings,
    gateway_settings,
    inside,
    lacks_java,
    link_settings,
    sharing,
    shown,
    wanted_extras,
)
from headwater.app.up.welcome import Serving, lacking
from headwater.app.up.welcome import text as welcome_text
from headwater.background import Background, DutyReport, launch
from headwater.clock import SystemChance, SystemClock
from headwater.errors import ConfigError, Halted, HeadwaterError
from headwater.gateway.catalog import MOUNT
from headwater.log.damage import DamageLine
from headwater.ops import logs
from headwater.ops.http import Page, Request, ask, problem
from headwater.ops.metrics import CONTENT_TYPE, merge
from headwater.settings.settings import Settings, parse_address, parse_listeners

log = logging.getLogger("headwater.supervisor")
RESTART_SECONDS = 0.2
RESTART_LIMIT_SECONDS = 5.0
STOP_SECONDS = 30.0
ASK_SECONDS = 2.0
LAST_WORDS_SECONDS = 0.1
"""How long the output of a process is read after its end, if another program holds it open."""
NO_ANSWER = "no process answers"


class Child:
    """One process. It is started again whenever it ends."""

    def __init__(self, mode: str, name: str, settings: Settings, directory: Path) -> None:
        self.mode = mode
        self.name = name
        self.settings = settings
        self._file = directory / f"{name}.json"
        self.process: asyncio.subprocess.Process | None = None
        self.ready = asyncio.Event()
        self.links = asyncio.Event()
        """A broker has said that there are links to copy."""
        self.http_port = 0
        self.kafka_ports: dict[str, int] = {}
        """The ports of a broker's listeners, by their names."""
        self.gateway_port = 0
        self.flight_port = 0
        self.restarts = 0
        self._error = ""
        """How the last run of the process ended."""
        self._at_ms = 0
        chance = SystemChance()
        self._secret = chance.uuid().hex + chance.uuid().hex
        """The secret that identifies the supervisor. The process answers only requests with it over HTTP."""

    async def run(self, stop: asyncio.Event) -> None:
        pause, served = RESTART_SECONDS, False
        while not stop.is_set():
            code = await self._live()
            was_ready = self.ready.is_set()
            served |= was_ready
            self.ready.clear()
            if stop.is_set():
                return
            if code == LEDGER_CODE:
                raise Halted(f"{self.name} cannot go on with the ledger as it is; its log says why")
            if code == INPUT_CODE and not served and self.mode in ("broker", "gateway"):
                raise ConfigError(f"{self.name} cannot start; its log says why")
            self.restarts += 1
            self._at_ms = SystemClock().wall_ms()
            log.warning("a process ended", extra={"child": self.name, "exit_code": code})
            pause = RESTART_SECONDS if was_ready else min(pause * 2, RESTART_LIMIT_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await stop.wait()

    async def _live(self) -> int | None:
        """Run the process once; returns its exit code, or None if it could not be started."""
        try:
            await self._start()
            code = await self._watch()
        except OSError as error:
            self._error = f"the process cannot be started: {error}"
            log.error("a process cannot be started", extra={"child": self.name, "reason": str(error)})
            return None
        self._error = f"the process ended with exit code {code}"
        return code

    @property
    def kafka(self) -> str:
        """The addresses of a broker's listeners, with the ports that it has."""
        listeners = parse_listeners(self.settings.kafka).items()
        return ",".join(f"{name}={shown(host)}:{self.kafka_ports.get(name, port)}" for name, (host, port) in listeners)

    def report(self) -> DutyReport:
        """The state of the process, as a duty of the supervisor."""
        runs = self.process is not None and self.process.returncode is None
        error = self._error if self.restarts else ""
        return DutyReport(self.name, "running" if runs else "restarting", self.restarts, error, self._at_ms)

    async def _start(self) -> None:
        self._write_settings()
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "headwater", *self.mode.split(), "--config", str(self._file), "--supervised",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, RuntimeError):  # uvloop closes the pipe of a process that has died already
            self.process.stdin.write(self._secret.encode() + b"\n")

    def _write_settings(self) -> None:
        """Write the settings file once, so that the process can be started again even if the disk is full."""
        data = msgspec.json.encode(self.settings)
        try:
            if self._file.exists() and self._file.read_bytes() == data:
                return
            handle = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
        except OSError as error:
            raise ConfigError(f"cannot write the settings of {self.name}: {error}") from error

    async def _watch(self) -> int:
        """Wait until the process ends, and note what it says until then.

        Its output may end much later: programs that it has started hold it open, such as Spark's JVM.
        """
        assert self.process is not None and self.process.stdout is not None
        listening = launch(self._listen(self.process.stdout))
        try:
            code = await self.process.wait()
            await asyncio.wait([listening], timeout=LAST_WORDS_SECONDS)
        finally:
            listening.cancel()
        if listening.done():
            listening.result()
        return code

    async def _listen(self, output: asyncio.StreamReader) -> None:
        while line := await output.readline():
            words = line.decode(errors="replace").split()
            if words and words[0] == "ready":
                facts = dict(word.split("=", 1) for word in words[1:])
                self.http_port = int(facts["http"])
                self.kafka_ports = _ports(facts.get("kafka", ""))
                self.gateway_port = int(facts.get("gateway", 0))
                self.flight_port = int(facts.get("flight", 0))
                self.ready.set()
            elif words == [LINKS_WORD]:
                self.links.set()

    async def page(self, request: Request) -> Page:
        """The answer of the process to a request. If the process does not answer soon, a page that says so."""
        if not self.ready.is_set():
            return problem(503, NO_ANSWER)
        try:
            async with asyncio.timeout(ASK_SECONDS):
                return await ask(self.http_port, request, self._secret)
        except (OSError, TimeoutError, EOFError, ValueError):
            return problem(503, NO_ANSWER)

    def terminate(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.terminate()

    def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()


class ClusterHealth(msgspec.Struct, omit_defaults=True):
    """The content of `/health` for all processes."""

    status: str
    components: dict[str, str] = msgspec.field(default_factory=dict)
    full: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    """Stores without room, as each process sees it."""
    duties: dict[str, list[DutyReport]] = msgspec.field(default_factory=dict)
    damage: dict[str, list[DamageLine]] = msgspec.field(default_factory=dict)
    """By process, ranges of offsets that it found to be unreadable."""
    checkpoints: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """By process, checkpoints that it could not read when it was started."""
    parts: dict[str, list[PartHealth]] = msgspec.field(default_factory=dict)
    """By process, parts that work or fail on their own, such as the source of each link."""


class Supervisor:
    """All children of one `headwater up`."""

    def __init__(self, settings: Settings, tell: Callable[[Serving], None] = lambda _: None) -> None:
        """`tell` gets what the cluster serves, once it does."""
        self._settings = settings
        self._tell = tell
        self._background = Background()
        check_exposure(settings, gateway=settings.gateway.enabled)
        directory = prepare(settings, run=True)
        own = sharing(settings, directory)
        self.brokers = [Child("broker", f"broker-{s.node}", s, directory) for s in broker_settings(own)]
        self.compactors: list[Child] = []
        self._lacks = lacking(wanted_extras(settings))
        if settings.lake.enabled and "lake" not in self._lacks:
            own = inside(settings)
            self.compactors.append(Child("compactor", "compactor", own, directory))
        self.gateways: list[Child] = []
        if settings.gateway.enabled:
            self.gateways.append(Child("gateway", "gateway", gateway_settings(sharing(settings, directory)), directory))
        self.children = [*self.brokers, *self.compactors, *self.gateways]
        self._link = Child("link run", "link", link_settings(settings), directory)
        self._http = HttpListener(
            settings,
            {
                "/": front_page(self._other_port()),
                "/metrics": self._metrics,
                "/healthz": alive,
                "/readyz": self._ready,
                "/health": self._health,
            },
            background=self._background,
        )

    async def run(self) -> None:
        """Run all children until a signal stops the supervisor."""
        stop = asyncio.Event()
        leave_on_signals(stop, on_second=self._kill_all)
        await self._http.open()
        running = [launch(child.run(stop)) for child in (*self.brokers, *self.gateways)]
        try:
            everybody = launch(self._all_ready())
            told = launch(stop.wait())
            done, _ = await asyncio.wait([*running, everybody, told], return_when=asyncio.FIRST_COMPLETED)
            if everybody in done:
                kafka = ",".join(child.kafka for child in self.brokers)
                http = f"{self._http.host}:{self._http.port}{self._gateway_address()}"
                if await asyncio.to_thread(lacks_java, self._settings):
                    self._lacks.append("java")
                serving = self._serving()
                self._tell(serving)
                welcome = welcome_text(serving)
                print(f"headwater ready: kafka {kafka}, http {http}\n{welcome}", flush=True)  # noqa: T201
                if not compiling.is_made():
                    running.append(launch(self._compile(stop)))
                running += [launch(child.run(stop)) for child in self.compactors]
                running.append(launch(self._copy_links(stop)))
                await asyncio.wait([*running, told], return_when=asyncio.FIRST_COMPLETED)
            for task in running:
                if task.done():
                    task.result()
        finally:
            stop.set()
            await self._stop(running)
            await self._http.close()

    async def _copy_links(self, stop: asyncio.Event) -> None:
        """Start the process that copies links, as soon as there are any."""
        waiting = [launch(event.wait()) for event in (stop, *(child.links for child in self.brokers))]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
        if not stop.is_set():
            self.children.append(self._link)
            await self._link.run(stop)

    async def _all_ready(self) -> None:
        for child in (*self.brokers, *self.gateways):
            await child.ready.wait()

    def _gateway_address(self) -> str:
        """The addresses of the gateway in the line that says that all are ready."""
        own, text = self._settings.gateway, ""
        for child in self.gateways:
            text += f", gateway {shown(parse_address(own.http)[0])}:{child.gateway_port}"
            if own.flight:
                text += f", flight {shown(parse_address(own.flight)[0])}:{child.flight_port}"
        return text

    def _other_port(self) -> str:
        """Where to go on from the port of health pages."""
        if not self._settings.gateway.enabled:
            return ""
        return f"<p>SQL and the HTTP API are at {html.escape(self._settings.gateway.http)}, described below /docs.</p>"

    def _serving(self) -> Serving:
        own = self._settings.gateway
        tls = bool(self._settings.security.http.certificate)
        gateway = flight = ""
        for child in self.gateways:
            host = parse_address(own.http)[0]
            gateway = f"{'https' if tls else 'http'}://{shown(host)}:{child.gateway_port}"
            flight = f"{shown(parse_address(own.flight)[0])}:{child.flight_port}" if own.flight else ""
        return Serving(
            kafka=self.brokers[0].kafka.partition(",")[0].rpartition("=")[2],
            pages=f"{'https' if tls else 'http'}://{self._http.host}:{self._http.port}/health",
            gateway=gateway,
            catalog=f"{gateway}{MOUNT.rstrip('/')}" if gateway else "",
            flight=flight,
            data=str(Path(self._settings.data).absolute()),
            lacks=self._lacks,
            secured=bool(self._settings.security.listeners),
        )

    async def _compile(self, stop: asyncio.Event) -> None:
        """Compile kernels in a process of the lowest priority, then wait for the end of the supervisor."""
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *compiling.ARGUMENTS, "--supervised",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            log.warning("kernels cannot be compiled in a process of their own", extra={"reason": str(error)})
            await stop.wait()
            return
        told = launch(stop.wait())
        ended = launch(process.wait())
        await asyncio.wait([told, ended], return_when=asyncio.FIRST_COMPLETED)
        assert process.stdin is not None
        process.stdin.close()
        await asyncio.gather(told, ended)

    async def _stop(self, running: list[asyncio.Task[None]]) -> None:
        for child in self.children:
            child.terminate()
        _, late = await asyncio.wait(running, timeout=STOP_SECONDS)
        if late:
            self._kill_all()
            await asyncio.wait(late)

    def _kill_all(self) -> None:
        for child in self.children:
            child.kill()

    # --- pages -----------------------------------------------------------------------------------------

    async def _metrics(self, request: Request) -> Page:
        pages = await self._pages(request)
        refusal = _refusal(pages)
        if refusal is not None:
            return refusal
        texts = [page.body for page in pages if page.status == 200]
        return Page(merge(texts), content_type=CONTENT_TYPE) if texts else problem(503, NO_ANSWER)

    async def _ready(self, request: Request) -> Page:
        """The page `/readyz`: whether a broker serves, and nothing else."""
        status = self._judged(await self._pages(request)).status
        return Health(status).page()

    async def _health(self, request: Request) -> Page:
        """The page `/health`.

        The children check the rights of the caller. If one refuses, so does the supervisor. If none answers, the page
        has no details.
        """
        pages = await self._pages(request)
        refusal = _refusal(pages)
        if refusal is not None:
            return refusal
        found = self._judged(pages)
        return page_of(found.status, found)

    def _judged(self, pages: Sequence[Page]) -> ClusterHealth:
        """Healthy if all processes are, degraded as long as a broker serves."""
        told = {child.name: _told(page) for child, page in zip(self.children, pages, strict=True)}
        states = {name: health.status if health is not None else "unhealthy" for name, health in told.items()}
        serving = any(states[child.name] != "unhealthy" for child in self.brokers)
        well = all(state == "healthy" for state in states.values()) and self._background.status == "healthy"
        found = ClusterHealth("healthy" if well else "degraded" if serving else "unhealthy")
        if any(health is not None for health in told.values()):
            own = [*(child.report() for child in self.children), *self._background.reports()]
            found.components = states
            found.full = {name: health.full for name, health in told.items() if health and health.full}
            found.duties = {"supervisor": own, **{name: health.duties for name, health in told.items() if health}}
            found.damage = {name: health.damage for name, health in told.items() if health and health.damage}
            found.checkpoints = {name: h.checkpoints for name, h in told.items() if h and h.checkpoints}
            found.parts = {name: health.components for name, health in told.items() if health and health.components}
        return found

    async def _pages(self, request: Request) -> list[Page]:
        """The answers of all processes. Each of them checks the rights of the caller."""
        whole = dataclasses.replace(request, method="GET")
        return await asyncio.gather(*(child.page(whole) for child in self.children))


def _told(page: Page) -> Health | None:
    """The health in the answer of a process; None if it did not answer."""
    try:
        return msgspec.json.decode(page.body, type=Health)
    except msgspec.MsgspecError:
        return None


def _refusal(pages: Sequence[Page]) -> Page | None:
    """The first answer that refuses the caller."""
    return next((page for page in pages if page.status in (401, 403, 429)), None)


def _ports(text: str) -> dict[str, int]:
    """The ports of listeners by their names, as a broker tells them."""
    pairs = (word.rpartition(":") for word in text.split(",") if word)
    return {name: int(port) for name, _, port in pairs}


async def up(settings: Settings, command: str = "up", before: Callable[[], Awaitable[None]] | None = None) -> None:
    """Run a whole cluster on this machine until a signal stops it.

    `before` is done once the data directory is this process's own, and before anything runs.
    """
    logs.setup(settings.log_level, node="supervisor")
    descriptors.claim(settings.limits.reserved_descriptors)
    begin(settings, writing=False, create=True)
    gateway = settings.gateway.http if settings.gateway.enabled else ""
    owner = this_process(command, settings.kafka, settings.http, gateway)
    nodes = range(settings.node, settings.node + settings.brokers)
    with claimed(settings.data, owner, nodes, whole=True) as claims:

        def tell(serving: Serving) -> None:
            claims.say(this_process(command, serving.kafka, serving.pages, serving.gateway))

        try:
            if before is not None:
                await before()
            await Supervisor(settings, tell).run()
        except HeadwaterError:
            log.error("giving up")
            raise
