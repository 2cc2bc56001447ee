"""A real `headwater up` that tests may hurt: its processes by name, its logs, its pages, its exit code.

With HEADWATER_TEST_CLUSTER its ledger and its objects lie in servers of their own, see `tests.support.stores`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Self

import psutil

from tests.support.patience import eventually
from tests.support.pausing import stop_outside_the_ledger
from tests.support.serving import (
    ROOT,
    START_SECONDS,
    STOP_SECONDS,
    Serving,
    alive,
    environment,
    free_ports,
    get_page,
    headwater,
    needs,
    run,
)
from tests.support.stores import Stores, wanted

__all__ = [
    "ROOT",
    "Running",
    "alive",
    "environment",
    "eventually",
    "free_ports",
    "headwater",
    "needs",
    "run",
]


class Running(Serving, AbstractContextManager["Running"]):
    """`headwater up` on free ports. Leaving the block ends it; if it still runs then, it must drain and exit with 0."""

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 1,
        settings: str = "",
        first_port: int | None = None,
        data: Path | None = None,
        variables: Mapping[str, str] | None = None,
        ledger: str = "",
    ) -> None:
        """With a kind of ledger, that and objects in S3 have servers of their own, whatever the environment says."""
        self.directory = directory
        self.data = data or directory / "data"
        self.port = free_ports(brokers) if first_port is None else first_port
        self.brokers = brokers
        self.http = f"127.0.0.1:{free_ports(1)}"
        self.said, self.log = directory / "stdout", directory / "stderr"
        self._settings = settings
        self._variables = variables or {}
        self.process: subprocess.Popen[bytes] | None = None
        self._family: dict[int, psutil.Process] = {}
        kind = ledger or wanted()
        self.stores = Stores(directory / "stores", kind) if kind else None
        """Servers of ledger and objects; `None` where both lie in the data directory."""
        self._stores_run = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if self.process is not None and self.process.poll() is None and kind is None:
                code = self.stop()
                assert code == 0, f"headwater up ended with {code}:\n{self.end_of_log()}"
        finally:
            self.kill_all()
            self.end_stores()

    # --- life ----------------------------------------------------------------------------------------

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the process and do not wait for it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "headwater", "up", "--no-lake", "--data", str(self.data), "--http", self.http]
        command += ["--kafka", f"127.0.0.1:{self.port}", "--brokers", str(self.brokers)]
        command += self.write_settings()
        # Files and not pipes: a pipe that nobody reads would stop the server.
        with self.said.open("wb") as stdout, self.log.open("ab") as stderr:
            self.process = subprocess.Popen(
                command, stdout=stdout, stderr=stderr, cwd=ROOT, env=environment(self.more_environment)
            )
        return self.process

    def write_settings(self) -> list[str]:
        """The options that name a file with the settings, which is written here; its stores run from now on."""
        if self.stores is not None:
            if not self._stores_run:
                self.stores.__enter__()
                self._stores_run = True
            file = self.directory / "settings.json"
            file.write_text(json.dumps(self.stores.settings(self._settings)))
            return ["--config", str(file)]
        if not self._settings:
            return []
        file = self.directory / "settings.toml"
        file.write_text(self._settings)
        return ["--config", str(file)]

    @property
    def more_environment(self) -> Mapping[str, str]:
        """What a process needs in order to reach the stores, and what the test wants it to have."""
        return {**(self.stores.environment if self.stores is not None else {}), **self._variables}

    def end_stores(self) -> None:
        if self.stores is not None and self._stores_run:
            self._stores_run = False
            self.stores.__exit__(None, None, None)

    def start(self) -> None:
        self.launch()
        eventually(self._is_ready, "headwater up says ready", START_SECONDS)

    def _is_ready(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"headwater up ended with {self.process.returncode}:\n{self.end_of_log()}")
        self.processes()
        return "headwater ready" in self.said.read_text()

    def stop(self) -> int:
        """Ask it to leave; answers its exit code."""
        assert self.process is not None
        self.processes()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=STOP_SECONDS)

    def kill_all(self) -> None:
        """End all processes of Headwater at once, but not the stores."""
        everybody = self.processes()
        if self.process is not None and self.process.poll() is None:
            # The supervisor first: it would start the others again.
            self.process.kill()
            self.process.wait()
        for child in everybody:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(everybody, timeout=STOP_SECONDS)
        self._family.clear()

    # --- processes -----------------------------------------------------------------------------------

    def processes(self) -> list[psutil.Process]:
        """Every descendant that was ever seen and still runs."""
        if self.process is not None and self.process.poll() is None:
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(self.process.pid).children(recursive=True):
                    self._family[child.pid] = child
        self._family = {pid: p for pid, p in self._family.items() if alive(p)}
        return list(self._family.values())

    def broker(self, node: int) -> psutil.Process:
        return eventually(lambda: self._find_broker(node), f"broker {node} runs")

    def _find_broker(self, node: int) -> psutil.Process | None:
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                if any(word.endswith(f"broker-{node}.json") for word in process.cmdline()):
                    return process
        return None

    def pause(self, *family: psutil.Process) -> None:
        """Stop processes where nobody else needs what they hold."""
        if self.stores is None:
            stop_outside_the_ledger(self.data / "ledger.db", *family)
        elif self.stores.ledger == "sqlite":
            stop_outside_the_ledger(self.stores.directory / "ledger.db", *family)
        else:
            for process in family:
                process.suspend()

    # --- what it says --------------------------------------------------------------------------------

    def page(self, path: str, within: float = 30) -> tuple[int, str]:
        """Status and body of a page of the supervisor."""
        return get_page(self.http, path, within)

    def doctor(self) -> None:
        """It must say that all is well."""
        done = headwater("doctor", "--data", str(self.data), *self.write_settings(), more=self.more_environment)
        assert done.returncode == 0, done.stdout + done.stderr
