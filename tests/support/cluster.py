"""A cluster of real processes: metadata servers, an S3 server, brokers in zones, a compactor.

Nobody starts again what ends: `restart` does.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
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
    environment,
    free_ports,
    get_page,
    headwater,
    metric_of,
)
from tests.support.stores import Stores


class Member:
    """One process of Headwater with a settings file of its own."""

    def __init__(self, mode: str, file: Path, log: Path, env: Mapping[str, str], source: Path | None = None) -> None:
        self.mode = mode
        self.file = file
        self.kafka = ""
        self.zone = ""
        self.source = source
        """Where the code lies that it runs, if not here."""
        self._env = env
        self._log = log
        self._said = file.with_suffix(".stdout")
        self.process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        return f"<Member {self.file.stem}>"

    def launch(self) -> None:
        """Start it and do not wait for it."""
        env = environment(self._env)
        env["PYTHONPATH"] = str(self.source or ROOT / "src")
        # Files and not pipes: a pipe that nobody reads would stop the process.
        with self._said.open("wb") as stdout, self._log.open("ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headwater", self.mode, "--config", str(self.file)],
                stdout=stdout, stderr=stderr, cwd=ROOT, env=env,
            )  # fmt: skip

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def is_ready(self) -> bool:
        """Whether it serves; it must not have ended."""
        if not self.runs:
            code = self.process.returncode if self.process is not None else None
            raise AssertionError(f"{self.file.stem} ended with {code}:\n{self._log.read_text()[-6000:]}")
        return self._said.read_text().startswith("ready")

    @property
    def http(self) -> str:
        """The address of its pages."""
        words = dict(word.split("=", 1) for word in self._said.read_text().split()[1:])
        return f"127.0.0.1:{words['http']}"

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels; 0 while it tells none."""
        return metric_of(get_page(self.http, "/metrics")[1], name)

    def wait_until_ready(self) -> None:
        eventually(lambda: self.is_ready, f"{self.file.stem} says ready", START_SECONDS)

    def stop(self) -> int:
        """Ask it to leave; answers its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=STOP_SECONDS)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Cluster(Serving, AbstractContextManager["Cluster"]):
    """Leaving the block ends everything; who still runs then must drain and exit with 0."""

    def __init__(
        self,
        directory: Path,
        ledger: str = "etcd",
        brokers: int = 3,
        zones: Sequence[str] = ("a", "b"),
        compactor: bool = False,
        settings: str = "",
        first_port: int | None = None,
        source: Path | None = None,
        quick: bool = True,
    ) -> None:
        self.directory = directory
        self.brokers = brokers
        self.zones = tuple(zones)
        self.port = free_ports(brokers) if first_port is None else first_port
        self.log = directory / "stderr"
        directory.mkdir(parents=True, exist_ok=True)
        self.stores = Stores(directory / "stores", ledger, quick=quick)
        self.members: dict[str, Member] = {}
        """Brokers by `broker-NODE`, and `compactor`."""
        self.source = source
        """Where the code of the brokers lies, if not here."""
        self._compactor = compactor
        self._settings = settings
        self._running = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as entered:
            entered.enter_context(self.stores)
            entered.callback(self.kill_all)
            self.write_settings()
            self.start()
            self._running = entered.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._running:
            if kind is None:
                self.stop()

    # --- life ----------------------------------------------------------------------------------------

    def write_settings(self) -> None:
        """A file for each process, on the stores as they are now."""
        tree = {**self.stores.settings(self._settings), "data": str(self.directory / "data"), "http": "127.0.0.1:0"}
        for node in range(1, self.brokers + 1):
            kafka = f"127.0.0.1:{self.port + node - 1}"
            zone = self.zones[(node - 1) % len(self.zones)]
            member = self._member("broker", f"broker-{node}", {**tree, "node": node, "zone": zone, "kafka": kafka})
            member.kafka, member.zone = kafka, zone
        if self._compactor:
            self._member("compactor", "compactor", {**tree, "zone": self.zones[0]})

    def _member(self, mode: str, name: str, tree: Mapping[str, object]) -> Member:
        file = self.directory / f"{name}.json"
        file.write_text(json.dumps(tree))
        if name not in self.members:
            self.members[name] = Member(mode, file, self.log, self.stores.environment, self.source)
        return self.members[name]

    @property
    def config(self) -> Path:
        """A file of settings for commands."""
        return self.members["broker-1"].file

    def start(self) -> None:
        """Start whoever does not run, and wait for all of them; the compactor after the brokers."""
        for mode in ("broker", "compactor"):
            starting = [m for m in self.members.values() if m.mode == mode and not m.runs]
            for member in starting:
                member.launch()
            for member in starting:
                member.wait_until_ready()

    def stop(self) -> None:
        """Ask everybody to leave, who must do so well, unless still starting."""
        for member in reversed(list(self.members.values())):
            if member.runs:
                ready = member.is_ready
                code = member.stop()
                assert code == 0 or not ready, f"{member} ended with {code}:\n{self.end_of_log()}"

    def kill_all(self) -> None:
        """End all processes of Headwater at once, but not the stores."""
        for member in self.members.values():
            if member.process is not None:
                member.process.send_signal(signal.SIGKILL)
        for member in self.members.values():
            if member.process is not None:
                member.process.wait()

    # --- processes -----------------------------------------------------------------------------------

    def member(self, node: int) -> Member:
        return self.members[f"broker-{node}"]

    def broker(self, node: int) -> psutil.Process:
        return psutil.Process(self.member(node).pid)

    def compactor(self) -> Member:
        return self.members["compactor"]

    def restart(self, node: int, *, wait: bool = True) -> None:
        """Start a broker that has ended."""
        member = self.member(node)
        member.launch()
        if wait:
            member.wait_until_ready()

    def add_compactor(self, settings: str = "") -> Member:
        """Start a compactor beside what runs, with settings of its own, and do not wait for it."""
        tree = {**self.stores.settings(settings), "data": str(self.directory / "data"), "http": "127.0.0.1:0"}
        member = self._member("compactor", "compactor", {**tree, "zone": self.zones[0]})
        member.launch()
        return member

    def leave(self, name: str) -> None:
        """Ask a process to leave, which it must do well."""
        member = self.members[name]
        code = member.stop()
        assert code == 0, f"{member} ended with {code}:\n{self.end_of_log()}"

    def roll(self, name: str) -> None:
        """Ask a process to leave, which it must do well, and start it again."""
        self.leave(name)
        self.members[name].launch()
        self.members[name].wait_until_ready()

    def pause(self, process: psutil.Process) -> None:
        """Stop a process where nobody else needs what it holds."""
        if self.stores.ledger == "sqlite":
            stop_outside_the_ledger(self.stores.directory / "ledger.db", process)
        else:
            process.send_signal(signal.SIGSTOP)

    # --- what it says --------------------------------------------------------------------------------

    def page(self, path: str, within: float = 30) -> tuple[int, str]:
        """The pages of all processes that serve, one after the other, and the worst status."""
        serving = [member for member in self.members.values() if member.runs and member.is_ready]
        answers = [get_page(member.http, path, within) for member in serving]
        return max(status for status, _ in answers), "\n".join(text for _, text in answers)

    def doctor(self) -> None:
        """It must say that all is well."""
        done = headwater("doctor", "--config", str(self.config), more=self.stores.environment)
        assert done.returncode == 0, done.stdout + done.stderr

    def settle(self, topic: str, seconds: float = 300.0) -> None:
        """Have a topic settled, and wait for log and tables."""
        arguments = ("table", "settle", topic, "--config", str(self.config), "--timeout", f"{seconds:g}")
        done = headwater(*arguments, timeout=seconds + 60, more=self.stores.environment)
        assert done.returncode == 0, f"{done.stderr}\n{self.end_of_log()}"
