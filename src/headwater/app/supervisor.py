"""`headwater up`: keeps brokers and a compactor alive and serves their health and metrics as one."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from headwater.api.catalog import MOUNT
from headwater.api.listener import HttpListener
from headwater.app.exposure import check_exposure
from headwater.app.peers import make_secret
from headwater.app.signals import leave_on_signals
from headwater.clock import SystemChance
from headwater.config import HttpSecurity, Settings, parse_address, parse_listeners, parse_zones
from headwater.errors import ConfigError, HeadwaterError
from headwater.ops import logs
from headwater.ops.http import Page, Request, ask, problem
from headwater.ops.metrics import CONTENT_TYPE, merge

log = logging.getLogger("headwater.supervisor")
RESTART_SECONDS = 0.2
RESTART_LIMIT_SECONDS = 5.0
STOP_SECONDS = 30.0
ASK_SECONDS = 2.0
NO_ANSWER = "no process answers"


class Child:
    """One process, started again whenever it ends."""

    def __init__(self, mode: str, name: str, settings: Settings, directory: Path) -> None:
        self.mode = mode
        self.name = name
        self.settings = settings
        self._file = directory / f"{name}.json"
        self.process: asyncio.subprocess.Process | None = None
        self.ready = asyncio.Event()
        self.http_port = 0
        self.restarts = 0
        chance = SystemChance()
        self._secret = chance.uuid().hex + chance.uuid().hex
        """What the process knows its supervisor by; it answers nobody else over HTTP."""

    async def run(self, stop: asyncio.Event) -> None:
        pause, served = RESTART_SECONDS, False
        while not stop.is_set():
            await self._start()
            code = await self._watch()
            was_ready = self.ready.is_set()
            served |= was_ready
            self.ready.clear()
            if stop.is_set():
                return
            if code == 1 and not served and self.mode == "broker":
                raise ConfigError(f"{self.name} cannot start; its log says why")
            self.restarts += 1
            log.warning("a process ended", extra={"child": self.name, "exit_code": code})
            pause = RESTART_SECONDS if was_ready else min(pause * 2, RESTART_LIMIT_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await stop.wait()

    async def _start(self) -> None:
        self._write_settings()
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "headwater", self.mode, "--config", str(self._file), "--supervised",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert self.process.stdin is not None
        self.process.stdin.write(self._secret.encode() + b"\n")

    def _write_settings(self) -> None:
        """Once is enough: a process can be started again on a full disk."""
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
        assert self.process is not None and self.process.stdout is not None
        while line := await self.process.stdout.readline():
            words = line.decode(errors="replace").split()
            if words and words[0] == "ready":
                facts = dict(word.split("=", 1) for word in words[1:])
                self.http_port = int(facts["http"])
                self.ready.set()
        return await self.process.wait()

    async def page(self, request: Request) -> Page:
        """The process's own page, for whoever asks; if it does not answer soon, a page that says so."""
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


class Supervisor:
    """All children of one `headwater up`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        check_exposure(settings)
        directory = Path(settings.data).absolute() / "run"
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot use the data directory: {error}") from error
        own = sharing(settings, directory)
        self.brokers = [Child("broker", f"broker-{s.node}", s, directory) for s in broker_settings(own)]
        self.compactors: list[Child] = []
        if settings.lake.enabled:
            own = _inside(settings)
            self.compactors.append(Child("compactor", "compactor", own, directory))
        self.children = [*self.brokers, *self.compactors]
        self._http = HttpListener(
            settings,
            {
                "/metrics": self._metrics,
                "/healthz": self._alive,
                "/readyz": self._ready,
                "/health": self._health,
                MOUNT: self._forward,
            },
        )

    async def run(self) -> None:
        """Until told to stop."""
        stop = asyncio.Event()
        leave_on_signals(stop, on_second=self._kill_all)
        await self._http.open()
        running = [asyncio.create_task(child.run(stop)) for child in self.brokers]
        try:
            everybody = asyncio.create_task(self._all_ready())
            done, _ = await asyncio.wait(
                [*running, everybody, asyncio.create_task(stop.wait())], return_when=asyncio.FIRST_COMPLETED
            )
            if everybody in done:
                kafka = ",".join(child.settings.kafka for child in self.brokers)
                print(f"headwater ready: kafka {kafka}, http {self._http.host}:{self._http.port}", flush=True)  # noqa: T201
                running += [asyncio.create_task(child.run(stop)) for child in self.compactors]
                await asyncio.wait([*running, asyncio.create_task(stop.wait())], return_when=asyncio.FIRST_COMPLETED)
            for task in running:
                if task.done():
                    task.result()
        finally:
            stop.set()
            await self._stop(running)
            await self._http.close()

    async def _all_ready(self) -> None:
        for child in self.brokers:
            await child.ready.wait()

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

    async def _alive(self, request: Request) -> Page:
        return Page('{"status":"alive"}')

    async def _ready(self, request: Request) -> Page:
        """Whether there is a broker that serves, and no more than that."""
        overall, _ = self._judged(await self._pages(request))
        return Page(f'{{"status":"{overall}"}}', 503 if overall == "unhealthy" else 200)

    async def _health(self, request: Request) -> Page:
        """How everybody is. If nobody is there to judge who may know that, nobody may."""
        pages = await self._pages(request)
        refusal = _refusal(pages)
        if refusal is not None:
            return refusal
        overall, states = self._judged(pages)
        known = {"components": states} if any(page.status == 200 for page in pages) else {}
        return Page(json.dumps({"status": overall, **known}), 503 if overall == "unhealthy" else 200)

    def _judged(self, pages: Sequence[Page]) -> tuple[str, dict[str, str]]:
        """Healthy if everybody is, degraded as long as a broker is."""
        states = {
            child.name: json.loads(page.body)["status"] if page.status == 200 else "unhealthy"
            for child, page in zip(self.children, pages, strict=True)
        }
        serving = any(states[child.name] == "healthy" for child in self.brokers)
        well = all(state == "healthy" for state in states.values())
        return "healthy" if well else "degraded" if serving else "unhealthy", states

    async def _pages(self, request: Request) -> list[Page]:
        """What everybody answers; they judge who asks."""
        whole = dataclasses.replace(request, method="GET")
        return await asyncio.gather(*(child.page(whole) for child in self.children))

    async def _forward(self, request: Request) -> Page:
        """The catalog is served by the brokers; any one that answers will do."""
        for child in self.brokers:
            page = await child.page(request)
            if page.status != 503:
                return page
        return Page('{"error":{"message":"no broker answers","type":"ServiceUnavailableException","code":503}}', 503)


def _refusal(pages: Sequence[Page]) -> Page | None:
    """The answer of the first who did not let in whoever asked."""
    return next((page for page in pages if page.status in (401, 403, 429)), None)


def _inside(settings: Settings) -> Settings:
    """Settings of a child: its pages are on loopback, and TLS ends at the supervisor."""
    http = HttpSecurity(authentication=settings.security.http.authentication)
    return msgspec.structs.replace(
        settings,
        http="127.0.0.1:0",
        data=str(Path(settings.data).absolute()),
        security=msgspec.structs.replace(settings.security, http=http),
    )


def sharing(settings: Settings, directory: Path) -> Settings:
    """Several brokers share what they read, if nothing else is set: on loopback, with a secret of their own."""
    if settings.internal or settings.brokers == 1:
        return settings
    secret = settings.internal_secret_file or make_secret(directory, SystemChance())
    return msgspec.structs.replace(settings, internal="127.0.0.1:0", internal_secret_file=secret)


def broker_settings(settings: Settings) -> list[Settings]:
    """Each broker's own settings: node ids and ports count up from the first, zones go round."""
    found = []
    zones = parse_zones(settings.zones) or [settings.zone]
    for i in range(settings.brokers):
        listeners = ",".join(
            f"{name}={_counted(f'{_shown(host)}:{port}', i)}"
            for name, (host, port) in parse_listeners(settings.kafka).items()
        )
        advertised = settings.advertise and ",".join(
            f"{name}={_shown(host)}:{port + i}" for name, (host, port) in parse_listeners(settings.advertise).items()
        )
        found.append(
            msgspec.structs.replace(
                _inside(settings),
                node=settings.node + i,
                zone=zones[i % len(zones)],
                zones="",
                internal=_counted(settings.internal, i) if settings.internal else "",
                kafka=listeners,
                advertise=advertised,
            )
        )
    return found


def _counted(address: str, i: int) -> str:
    """The address of the i-th broker; a port that the system chooses is chosen for each."""
    host, port = parse_address(address)
    return f"{_shown(host)}:{port + i if port else 0}"


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


async def up(settings: Settings) -> None:
    """Run a whole cluster on this machine until told to stop."""
    logs.setup(settings.log_level, node="supervisor")
    try:
        await Supervisor(settings).run()
    except HeadwaterError:
        log.error("giving up")
        raise
