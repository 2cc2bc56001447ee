"""`headwater up`: keeps brokers and a compactor alive and serves their health and metrics as one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from pathlib import Path

import msgspec

from headwater.api.catalog import MOUNT
from headwater.app.exposure import check_exposure
from headwater.app.peers import make_secret
from headwater.app.signals import leave_on_signals
from headwater.clock import SystemChance
from headwater.config import Settings, parse_address, parse_listeners, parse_zones
from headwater.errors import ConfigError, HeadwaterError
from headwater.ops import logs
from headwater.ops.http import HttpServer, Page, Request, get
from headwater.ops.metrics import CONTENT_TYPE, merge

log = logging.getLogger("headwater.supervisor")
RESTART_SECONDS = 0.2
RESTART_LIMIT_SECONDS = 5.0
STOP_SECONDS = 30.0
ASK_SECONDS = 2.0


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

    async def run(self, stop: asyncio.Event) -> None:
        pause = RESTART_SECONDS
        while not stop.is_set():
            await self._start()
            code = await self._watch()
            was_ready = self.ready.is_set()
            self.ready.clear()
            if stop.is_set():
                return
            if code == 1 and not was_ready and self.mode == "broker":
                raise ConfigError(f"{self.name} cannot start; its log says why")
            self.restarts += 1
            log.warning("a process ended", extra={"child": self.name, "exit_code": code})
            pause = RESTART_SECONDS if was_ready else min(pause * 2, RESTART_LIMIT_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await stop.wait()

    async def _start(self) -> None:
        data = msgspec.json.encode(self.settings)
        handle = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "headwater", self.mode, "--config", str(self._file), "--supervised",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    async def _watch(self) -> int:
        assert self.process is not None and self.process.stdout is not None
        while line := await self.process.stdout.readline():
            words = line.decode(errors="replace").split()
            if words and words[0] == "ready":
                facts = dict(word.split("=", 1) for word in words[1:])
                self.http_port = int(facts["http"])
                self.ready.set()
        return await self.process.wait()

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
            own = msgspec.structs.replace(settings, http="127.0.0.1:0", data=str(Path(settings.data).absolute()))
            self.compactors.append(Child("compactor", "compactor", own, directory))
        self.children = [*self.brokers, *self.compactors]
        self._http = HttpServer(
            {
                "/metrics": self._metrics,
                "/healthz": self._alive,
                "/readyz": self._health,
                "/health": self._health,
                MOUNT: self._forward,
            }
        )

    async def run(self) -> None:
        """Until told to stop."""
        stop = asyncio.Event()
        leave_on_signals(stop, on_second=self._kill_all)
        host, port = parse_address(self._settings.http)
        try:
            http_port = await self._http.listen(host, port)
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
        running = [asyncio.create_task(child.run(stop)) for child in self.brokers]
        try:
            everybody = asyncio.create_task(self._all_ready())
            done, _ = await asyncio.wait(
                [*running, everybody, asyncio.create_task(stop.wait())], return_when=asyncio.FIRST_COMPLETED
            )
            if everybody in done:
                kafka = ",".join(child.settings.kafka for child in self.brokers)
                print(f"headwater ready: kafka {kafka}, http {host}:{http_port}", flush=True)  # noqa: T201
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
        answers = await asyncio.gather(*(_ask(child, "/metrics") for child in self.children))
        return Page(merge(text for status, text in answers if status == 200), content_type=CONTENT_TYPE)

    async def _alive(self, request: Request) -> Page:
        return Page('{"status":"alive"}')

    async def _health(self, request: Request) -> Page:
        """Healthy if everybody is, degraded as long as a broker is."""
        answers = await asyncio.gather(*(_ask(child, "/readyz") for child in self.children))
        states = {
            child.name: json.loads(text)["status"] if status == 200 else "unhealthy"
            for child, (status, text) in zip(self.children, answers, strict=True)
        }
        serving = any(states[child.name] == "healthy" for child in self.brokers)
        well = all(state == "healthy" for state in states.values())
        overall = "healthy" if well else "degraded" if serving else "unhealthy"
        return Page(json.dumps({"status": overall, "components": states}), 200 if serving else 503)

    async def _forward(self, request: Request) -> Page:
        """The catalog is served by the brokers; any one that answers will do."""
        target = f"{request.path}?{request.query}" if request.query else request.path
        for child in self.brokers:
            status, text = await _ask(child, target, request.method)
            if status != 503:
                return Page(text, status)
        return Page('{"error":{"message":"no broker answers","type":"ServiceUnavailableException","code":503}}', 503)


async def _ask(child: Child, path: str, method: str = "GET") -> tuple[int, str]:
    """A child's page; one that does not answer soon counts as unhealthy."""
    if not child.ready.is_set():
        return 503, ""
    try:
        async with asyncio.timeout(ASK_SECONDS):
            return await get("127.0.0.1", child.http_port, path, method)
    except (OSError, TimeoutError, EOFError, ValueError):
        return 503, ""


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
                settings,
                node=settings.node + i,
                zone=zones[i % len(zones)],
                zones="",
                internal=_counted(settings.internal, i) if settings.internal else "",
                kafka=listeners,
                advertise=advertised,
                http="127.0.0.1:0",
                data=str(Path(settings.data).absolute()),
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
