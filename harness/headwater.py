"""A real `headwater up`: the one way to start a whole Headwater, with its processes, logs, pages and exit code."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Self

import psutil

from harness.pages import get_page
from harness.patience import eventually
from harness.pausing import stop_outside_the_ledger
from harness.ports import free_port, free_ports
from harness.process import STOP_SECONDS, Process, ServerFailed, alive, environment, headwater
from harness.serving import Serving
from harness.storage import Access, Place, stored
from harness.stores import Stores

COMMAND_SECONDS = 900.0
QUICK_LAKE = """
[housekeeping]
interval_ms = 500
dead_object_grace_ms = 1000

[lake]
interval_ms = 200
"""
"""Settings with which the compactor settles soon, and WAL objects are deleted soon after."""


class Headwater(Serving, AbstractContextManager["Headwater"]):
    """`headwater up` on free ports. Leaving the block ends it; if it still runs then, it must drain and exit with 0."""

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 1,
        lake: bool = False,
        gateway: bool | None = None,
        settings: str = "",
        ledger: str = "",
        objects: str = "",
        kafka: str = "",
        first_port: int | None = None,
        data: Path | None = None,
        variables: Mapping[str, str] | None = None,
        detached: bool = False,
    ) -> None:
        """Ledger and objects are in the data directory by default.

        With a kind of `ledger`, the ledger and the objects (in S3) have servers of their own. With `objects`, the
        objects are at that URL, and `variables` say how to reach it. `settings` is the text of a TOML file. `kafka` has
        the addresses of listeners other than the default one on `first_port`. With `gateway`, the HTTP API and
        the catalog are at `gateway_url`; it runs by default if there are tables.
        """
        self.directory = directory
        self.data = data or directory / "data"
        self.port = free_ports(brokers) if first_port is None else first_port
        self.brokers = brokers
        self.http = f"127.0.0.1:{free_port()}"
        gateway = lake if gateway is None else gateway
        self.gateway = f"127.0.0.1:{free_port()}" if gateway else ""
        """The address of the HTTP API; empty without a gateway."""
        self.log = directory / "stderr"
        self.stores = Stores(directory / "stores", ledger) if ledger else None
        """The servers of the ledger and the objects; `None` without a kind of ledger."""
        self._stores_run = False
        self.config = directory / ("settings.json" if self.stores else "settings.toml")
        """The settings file of brokers and commands."""
        local = (self.data.absolute() / "objects").as_uri()
        self.objects = self.stores.objects_url if self.stores else objects or local
        self._named_objects = objects
        self._settings = settings
        self._variables = variables or {}
        self._family: dict[int, psutil.Process] = {}
        self.options = ["--lake" if lake else "--no-lake", "--brokers", str(brokers), "--http", self.http]
        self.options += ["--kafka", kafka or f"127.0.0.1:{self.port}"]
        self.options += ["--gateway", "--gateway-http", self.gateway] if gateway else ["--no-gateway"]
        """The flags of `headwater up` beside the settings file."""
        said = directory / "stdout"
        self._up = Process(
            "up", self.config, self.log, self.variables, options=self.options, said=said, detached=detached
        )

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if self._up.runs and kind is None and (code := self.stop()):
                raise ServerFailed(f"headwater up ended with {code}:\n{self.end_of_log()}")
        finally:
            self._end()

    def _end(self) -> None:
        self.kill_all()
        self.end_stores()

    # --- life ----------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Start the stores and write the settings, so that commands work before the brokers run."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if self.stores is None:
            objects = f'objects = "{self._named_objects}"\n' if self._named_objects else ""
            self.config.write_text(f'data = "{self.data}"\n{objects}{self._settings}')
            return
        if not self._stores_run:
            self.stores.__enter__()
            self._stores_run = True
        self.config.write_text(json.dumps({**self.stores.settings(self._settings), "data": str(self.data)}))

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the process without waiting for it."""
        self.prepare()
        return self._up.launch()

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The supervisor."""
        return self._up.process

    @property
    def launched(self) -> float:
        """When the supervisor was started, by the monotonic clock."""
        return self._up.launched

    @property
    def said(self) -> Path:
        """The file with its standard output."""
        return self._up.said

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment that a process needs to reach the stores, and the variables of the caller."""
        stores = self.stores.environment if self.stores is not None else {}
        return {"HEADWATER_SQL__WARM": "0", **stores, **self._variables}  # most tests ask no SQL

    def end_stores(self) -> None:
        if self.stores is not None and self._stores_run:
            self._stores_run = False
            self.stores.__exit__(None, None, None)

    def start(self, every: float = 0.02) -> None:
        self.launch()
        self._up.wait_until_ready(every)
        self.processes()

    def stop(self) -> int:
        """Stop the process with SIGTERM; returns its exit code."""
        self.processes()
        return self._up.stop()

    def kill_all(self) -> None:
        """End all processes of Headwater at once, but not the stores."""
        everybody = self.processes()
        self._up.kill()  # the supervisor first: it would start the others again
        for child in everybody:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(everybody, timeout=STOP_SECONDS)
        self._family.clear()

    # --- processes -----------------------------------------------------------------------------------

    def processes(self) -> list[psutil.Process]:
        """All descendants that were ever seen and still run."""
        if self._up.runs:
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(self._up.pid).children(recursive=True):
                    self._family[child.pid] = child
        self._family = {pid: p for pid, p in self._family.items() if alive(p)}
        return list(self._family.values())

    def broker(self, node: int) -> psutil.Process:
        return eventually(lambda: self._find(f"broker-{node}.json"), f"broker {node} runs")

    def _find(self, settings: str) -> psutil.Process | None:
        """The process with a settings file of this name."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                if any(word.endswith(f"/{settings}") for word in process.cmdline()):
                    return process
        return None

    def gateway_process(self) -> psutil.Process:
        """The process of the gateway."""
        return eventually(lambda: self._find("gateway.json"), "the gateway runs")

    def compactor_process(self) -> psutil.Process:
        """The process of the compactor."""
        return eventually(lambda: self._find("compactor.json"), "the compactor runs")

    def link_process(self) -> psutil.Process:
        """The process that copies links."""
        return eventually(lambda: self._find("link.json"), "a link process runs")

    def pause(self, *family: psutil.Process) -> None:
        """Pause processes while they hold no lock that other processes need."""
        if self.stores is None:
            stop_outside_the_ledger(self.data / "ledger.db", *family)
        elif self.stores.is_local:
            stop_outside_the_ledger(self.stores.ledger_file, *family)
        else:
            for process in family:
                process.suspend()

    # --- pages and commands --------------------------------------------------------------------------

    @property
    def gateway_url(self) -> str:
        """The URL of the HTTP API, without TLS."""
        return f"http://{self.gateway}"

    def page(self, path: str, within: float = 30) -> tuple[int, str]:
        """The status and body of a page of the supervisor."""
        return get_page(self.http, path, within)

    def cli(self, *arguments: str, timeout: float = COMMAND_SECONDS) -> Any:
        """Run a command, which must exit with 0; returns its JSON if the arguments ask for JSON."""
        done = headwater(*arguments, timeout=timeout, more=self.variables)
        if done.returncode:
            raise ServerFailed(f"headwater {' '.join(arguments)}: {done.stdout}{done.stderr}\n{self.end_of_log()}")
        return json.loads(done.stdout) if "json" in arguments else None

    def doctor(self) -> None:
        """Run `headwater doctor`, which must find no problem."""
        self.prepare()
        self.cli("doctor", "--config", str(self.config))

    def table(self, command: str, topic: str, *more: str) -> Any:
        """The answer of a command about a topic's table."""
        return self.cli("table", command, topic, "--config", str(self.config), *more)

    def place(self, topic: str, root: str = "") -> Place:
        """Where a topic can be read. Without `root` the directory of its table is looked up."""
        location = f"{self.objects}/{root}" if root else self.table("describe", topic, "--output", "json")["location"]
        access = Access.of(environment(self.variables)) if self.objects.startswith("s3:") else None
        return Place(topic, self.bootstrap, f"{self.gateway_url}/iceberg", location.removeprefix("file://"), access)

    def wal_objects(self) -> int:
        """How many WAL objects are left."""
        return sum(path.endswith(".wo") for path in stored(self.objects, "wal", environment(self.variables)))

    def wait_for_collection(self, seconds: float = 120.0) -> None:
        """Wait until all WAL objects are deleted, so that every read comes from segments."""
        eventually(lambda: not self.wal_objects(), "all WAL objects are collected", seconds, every=0.1)
