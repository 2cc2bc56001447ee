"""A real etcd cluster: processes on free ports that can be killed, paused and started again."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

from harness.patience import Patience
from harness.ports import free_ports
from harness.tools import SERVERS, needs

PROGRAM = SERVERS / "etcd"
START_SECONDS = 60.0


class EtcdCluster(AbstractContextManager["EtcdCluster"]):
    """Members on loopback, healthy when the block begins. Leaving the block ends them; data stays in `directory`."""

    def __init__(self, directory: Path, nodes: int = 3, options: Sequence[str] = ()) -> None:
        needs("etcd: run scripts/setup-tools etcd", PROGRAM.exists())
        self.directory = directory
        self.options = tuple(options)
        self.names = [f"member{i + 1}" for i in range(nodes)]
        first = free_ports(2 * nodes)
        self.client_ports = list(range(first, first + nodes))
        self.peer_ports = list(range(first + nodes, first + 2 * nodes))
        self.more_client_urls: tuple[str, ...] = ()
        """Further addresses on which the members listen, with `nodes=1`."""
        self.processes: list[subprocess.Popen[bytes] | None] = [None] * nodes

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            for node in range(len(self.names)):
                self.spawn(node)
            self.wait_healthy()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        for node in range(len(self.names)):
            self.kill(node)

    @property
    def endpoints(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self.client_ports]

    def url(self, prefix: str) -> str:
        """The URL of a ledger under a prefix of its own."""
        return f"etcd://{','.join(self.endpoints)}/{prefix}"

    # --- faults ----------------------------------------------------------------------------------------

    def kill(self, node: int) -> None:
        """Kill a member."""
        process = self.processes[node]
        if process is not None:
            process.kill()
            process.wait()
            self.processes[node] = None

    def start(self, node: int) -> None:
        """Start a member again, on its data, and wait until the cluster answers through it."""
        if self.processes[node] is None:
            self.spawn(node)
        self.wait_healthy([node])

    def pause(self, node: int) -> None:
        """Pause a member: its connections stay open, and it does not answer."""
        self._running(node).send_signal(signal.SIGSTOP)

    def resume(self, node: int) -> None:
        self._running(node).send_signal(signal.SIGCONT)

    def leader(self) -> int:
        """The index of the leader. Waits until a member says that it leads."""
        patience = Patience(START_SECONDS)
        while not patience.ended:
            for node in range(len(self.names)):
                status = self._status(node)
                if status and status.get("leader") == status["header"]["member_id"]:
                    return node
            time.sleep(0.02)  # polls for a state that the loop checks; nothing counts on its length
        raise RuntimeError(f"no member leads: {self.log_end(0)}")

    def wait_healthy(self, nodes: Sequence[int] | None = None) -> None:
        """Wait until these members answer reads that need a majority."""
        patience = Patience(START_SECONDS)
        for node in nodes if nodes is not None else range(len(self.names)):
            while not self._ask(node, "kv/range", {"key": "AA=="}):
                process = self.processes[node]
                if process is None or process.poll() is not None or patience.ended:
                    raise RuntimeError(f"{self.names[node]} does not serve: {self.log_end(node)}")
                time.sleep(0.02)  # polls for a state that the loop checks; nothing counts on its length

    def ask(self, node: int, path: str, body: object) -> dict[str, Any]:
        """Send one request to a member's JSON gateway, for example `kv/compaction`."""
        answer = self._ask(node, path, body)
        if answer is None:
            raise RuntimeError(f"{self.names[node]} does not answer {path}")
        return answer

    def log_end(self, node: int) -> str:
        return (self.directory / f"{self.names[node]}.log").read_text()[-2000:]

    # --- processes -------------------------------------------------------------------------------------

    def _running(self, node: int) -> subprocess.Popen[bytes]:
        process = self.processes[node]
        assert process is not None, f"{self.names[node]} does not run"
        return process

    def spawn(self, node: int) -> None:
        """Start a member without waiting for it."""
        name = self.names[node]
        peers = [f"http://127.0.0.1:{port}" for port in self.peer_ports]
        client = f"http://127.0.0.1:{self.client_ports[node]}"
        command = [
            str(PROGRAM), "--name", name, "--data-dir", str(self.directory / name), "--log-level", "warn",
            "--listen-client-urls", ",".join((client, *self.more_client_urls)), "--advertise-client-urls", client,
            "--listen-peer-urls", peers[node], "--initial-advertise-peer-urls", peers[node],
            "--initial-cluster", ",".join(f"{n}={p}" for n, p in zip(self.names, peers, strict=True)),
            "--initial-cluster-state", "new", *self.options,
        ]  # fmt: skip
        with (self.directory / f"{name}.log").open("ab") as log:
            self.processes[node] = subprocess.Popen(command, stdout=log, stderr=log)

    def _status(self, node: int) -> dict[str, Any] | None:
        return self._ask(node, "maintenance/status", {}) if self.processes[node] is not None else None

    def _ask(self, node: int, path: str, body: object) -> dict[str, Any] | None:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.client_ports[node]}/v3/{path}", json.dumps(body).encode(), method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=2) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (urllib.error.URLError, OSError):
            return None
