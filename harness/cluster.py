"""A cluster of real processes: metadata servers, an S3 server, brokers in zones, a compactor with a gateway.

Processes that end are not started again, except by `restart`.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Self

import psutil

from harness.pages import get_page
from harness.pausing import stop_outside_the_ledger
from harness.ports import free_port, free_ports
from harness.process import Process, ServerFailed, headwater
from harness.serving import Serving
from harness.stores import Stores


class Cluster(Serving, AbstractContextManager["Cluster"]):
    """Leaving the block ends everything. Processes that still run then must drain and exit with 0."""

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
        self.members: dict[str, Process] = {}
        """Brokers by `broker-NODE`, `compactor` and `gateway`."""
        self.source = source
        """The directory with the code of the brokers; None for the code of this checkout."""
        self._compactor = compactor
        self.gateway = f"127.0.0.1:{free_port()}"
        """The address of the HTTP API and the catalog. A gateway runs if a compactor does."""
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
        """Write the settings file of each process, with the current stores."""
        tree = self._tree(self._settings)
        for node in range(1, self.brokers + 1):
            kafka = f"127.0.0.1:{self.port + node - 1}"
            zone = self.zones[(node - 1) % len(self.zones)]
            member = self._member("broker", f"broker-{node}", {**tree, "node": node, "zone": zone, "kafka": kafka})
            member.kafka, member.zone = kafka, zone
        if self._compactor:
            self._member("gateway", "gateway", {**tree, "zone": self.zones[0]})
            self._member("compactor", "compactor", {**tree, "zone": self.zones[0]})

    def _tree(self, settings: str) -> dict[str, object]:
        """The settings of all processes. An older build knows nothing of gateways."""
        own = {**self.stores.settings(settings), "data": str(self.directory / "data"), "http": "127.0.0.1:0"}
        return own if self.source is not None else {**own, "gateway": {**own.get("gateway", {}), "http": self.gateway}}

    def _member(self, mode: str, name: str, tree: Mapping[str, object]) -> Process:
        file = self.directory / f"{name}.json"
        file.write_text(json.dumps(tree))
        if name not in self.members:
            self.members[name] = Process(mode, file, self.log, self.stores.environment, source=self.source)
        return self.members[name]

    @property
    def config(self) -> Path:
        """The settings file for commands."""
        return self.members["broker-1"].file

    def start(self) -> None:
        """Start all processes that do not run, and wait for them; the others come after the brokers."""
        for mode in ("broker", "gateway", "compactor"):
            starting = [m for m in self.members.values() if m.mode == mode and not m.runs]
            for member in starting:
                member.launch()
            for member in starting:
                member.wait_until_ready()

    def stop(self) -> None:
        """Stop all processes with SIGTERM. Those that were ready must exit with 0."""
        for member in reversed(list(self.members.values())):
            if member.runs:
                ready = member.is_ready
                code = member.stop()
                if code and ready:
                    raise ServerFailed(f"{member} ended with {code}:\n{self.end_of_log()}")

    def kill_all(self) -> None:
        """End all processes of Headwater at once, but not the stores."""
        for member in self.members.values():
            if member.process is not None:
                member.process.send_signal(signal.SIGKILL)
        for member in self.members.values():
            if member.process is not None:
                member.process.wait()

    # --- processes -----------------------------------------------------------------------------------

    def member(self, node: int) -> Process:
        return self.members[f"broker-{node}"]

    def broker(self, node: int) -> psutil.Process:
        return psutil.Process(self.member(node).pid)

    def compactor(self) -> Process:
        return self.members["compactor"]

    def restart(self, node: int, *, wait: bool = True) -> None:
        """Start a broker that has ended."""
        member = self.member(node)
        member.launch()
        if wait:
            member.wait_until_ready()

    def add_compactor(self, settings: str = "") -> Process:
        """Start another compactor with settings of its own, without waiting for it, and a gateway if there is none."""
        tree = self._tree(settings)
        if "gateway" not in self.members:
            self._member("gateway", "gateway", {**tree, "zone": self.zones[0]}).launch()
        member = self._member("compactor", "compactor", {**tree, "zone": self.zones[0]})
        member.launch()
        return member

    def leave(self, name: str) -> None:
        """Stop a process with SIGTERM. It must exit with 0."""
        member = self.members[name]
        if code := member.stop():
            raise ServerFailed(f"{member} ended with {code}:\n{self.end_of_log()}")

    def roll(self, name: str) -> None:
        """Stop a process with SIGTERM and start it again. It must exit with 0."""
        self.leave(name)
        self.members[name].launch()
        self.members[name].wait_until_ready()

    def pause(self, process: psutil.Process) -> None:
        """Pause a process while it holds no lock that other processes need."""
        if self.stores.is_local:
            stop_outside_the_ledger(self.stores.ledger_file, process)
        else:
            process.send_signal(signal.SIGSTOP)

    # --- pages and commands --------------------------------------------------------------------------

    def page(self, path: str, within: float = 30) -> tuple[int, str]:
        """The pages of all processes that serve, joined, and the worst status."""
        serving = [member for member in self.members.values() if member.runs and member.is_ready]
        answers = [get_page(member.http, path, within) for member in serving]
        return max(status for status, _ in answers), "\n".join(text for _, text in answers)

    def doctor(self) -> None:
        """Run `headwater doctor`, which must find no problem."""
        done = headwater("doctor", "--config", str(self.config), more=self.stores.environment)
        if done.returncode:
            raise ServerFailed(done.stdout + done.stderr)

    def settle(self, topic: str, seconds: float = 300.0) -> None:
        """Settle a topic, and wait for the log and the tables."""
        arguments = ("table", "settle", topic, "--config", str(self.config), "--timeout", f"{seconds:g}")
        done = headwater(*arguments, timeout=seconds + 60, more=self.stores.environment)
        if done.returncode:
            raise ServerFailed(f"{done.stderr}\n{self.end_of_log()}")
