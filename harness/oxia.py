"""Real Oxia servers: a standalone one, or a coordinator and three servers that elect leaders."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Self

from harness.patience import Patience
from harness.ports import free_port
from harness.tools import SERVERS, needs
from headwater.errors import HeadwaterError
from headwater.ledger.oxia.transport import GrpcOxia
from headwater.ledger.oxia.url import parse_url

PROGRAM = SERVERS / "oxia"
START_SECONDS = 60.0


class OxiaServer(AbstractContextManager["OxiaServer"]):
    """One server with its data in a directory. Leaving the block ends it; `kill` and `start` simulate an outage."""

    def __init__(self, directory: Path, shards: int = 1) -> None:
        needs("Oxia: run scripts/setup-tools oxia", PROGRAM.exists())
        self.directory = directory
        self.shards = shards
        self.port, self._metrics_port = free_port(), free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, prefix: str = "headwater") -> str:
        """The URL of a ledger. Every prefix is a separate ledger."""
        return f"oxia://{self.address}/default?prefix={prefix}"

    def command(self) -> list[str]:
        return [
            "standalone", f"--public-addr={self.address}", f"--metrics-addr=127.0.0.1:{self._metrics_port}",
            f"--data-dir={self.directory / 'data'}", f"--wal-dir={self.directory / 'wal'}", f"--shards={self.shards}",
        ]  # fmt: skip

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self.process = _run(self.directory / "oxia.log", self.command())
        _until(lambda: _answers(self.url()), self.directory / "oxia.log", self.process)

    def kill(self) -> None:
        """Begin an outage: kill the process."""
        _kill(self.process)

    def pause(self) -> None:
        """Pause the process: connections stay open, and it does not answer."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


class OxiaNode:
    """One server of a cluster."""

    def __init__(self, directory: Path, options: Sequence[str]) -> None:
        self.directory = directory
        self._options = options
        directory.mkdir(parents=True, exist_ok=True)
        self.public, self.internal, self._metrics = (f"127.0.0.1:{free_port()}" for _ in range(3))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = _run(
            self.directory / "oxia.log",
            [
                "server", f"--public-addr={self.public}", f"--internal-addr={self.internal}",
                f"--metrics-addr={self._metrics}", f"--data-dir={self.directory / 'data'}",
                f"--wal-dir={self.directory / 'wal'}", *self._options,
            ],
        )  # fmt: skip

    def listens(self) -> bool:
        for address in (self.public, self.internal):
            host, port = address.split(":")
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
            except OSError:
                return False
        return True

    def kill(self) -> None:
        _kill(self.process)

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


class OxiaCluster(AbstractContextManager["OxiaCluster"]):
    """A coordinator and three servers. Every shard has a leader and two followers. `query` is appended to URLs."""

    def __init__(self, directory: Path, shards: int = 1, *, options: Sequence[str] = (), query: str = "") -> None:
        needs("Oxia: run scripts/setup-tools oxia", PROGRAM.exists())
        self.directory = directory
        self.shards = shards
        self.nodes = [OxiaNode(directory / f"node-{i}", options) for i in range(3)]
        self._query = query
        self._coordinator: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                node.start()
            # Servers start first: a coordinator that does not find a server does not replace it when it dies.
            for node in self.nodes:
                _until(node.listens, node.directory / "oxia.log", node.process)
            self._start_coordinator()
            _until(self._is_ready, self.directory / "coordinator.log", self._coordinator)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        _kill(self._coordinator)
        for node in self.nodes:
            node.kill()

    def url(self, prefix: str = "headwater") -> str:
        return f"oxia://{','.join(node.public for node in self.nodes)}/default?prefix={prefix}{self._query}"

    def leader(self, shard: int = 0) -> OxiaNode:
        """The server that leads a shard. Waits until the coordinator has made one the leader."""
        patience = Patience(START_SECONDS)
        while not patience.ended:
            with suppress(json.JSONDecodeError):  # the file is being written
                status = json.loads((self.directory / "status.json").read_text())
                leader = status["clusterStatus"]["namespaces"]["default"]["shards"][str(shard)]["leader"]
                for node in self.nodes:
                    if leader is not None and node.public == leader["public"]:
                        return node
            time.sleep(0.02)  # polls for a state that the loop checks; nothing counts on its length
        raise TimeoutError(f"shard {shard} of Oxia has no leader")

    def _start_coordinator(self) -> None:
        config = {
            "namespaces": [{"name": "default", "initialShardCount": self.shards, "replicationFactor": 3}],
            "servers": [{"public": node.public, "internal": node.internal} for node in self.nodes],
        }
        (self.directory / "cluster.yaml").write_text(json.dumps(config))
        self._coordinator = _run(
            self.directory / "coordinator.log",
            [
                "coordinator", f"--conf={self.directory / 'cluster.yaml'}", "--metadata=file",
                f"--file-clusters-status-path={self.directory / 'status.json'}",
                f"--internal-addr=127.0.0.1:{free_port()}", f"--metrics-addr=127.0.0.1:{free_port()}",
            ],
        )  # fmt: skip

    def _is_ready(self) -> bool:
        return all(_answers(f"oxia://{node.public}/default?prefix=x{self._query}") for node in self.nodes)


def _run(log: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen([str(PROGRAM), *arguments], stdout=output, stderr=output)


def _kill(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None:
        process.kill()
        process.wait()


def _until(look: Callable[[], bool], log: Path, process: subprocess.Popen[bytes] | None) -> None:
    patience = Patience(START_SECONDS)
    while not look():
        if process is None or process.poll() is not None or patience.ended:
            raise RuntimeError(f"Oxia does not serve: {log.read_text()[-2000:]}")
        time.sleep(0.05)  # polls for a state that the loop checks; nothing counts on its length


def _answers(url: str) -> bool:
    """Whether a leader reads a key, when these servers are asked for the leaders."""

    async def look() -> bool:
        store = GrpcOxia(parse_url(url))
        try:
            async with asyncio.timeout(1):
                await store.get("headwater-000000", "nothing")
        except (TimeoutError, HeadwaterError):
            return False
        finally:
            await store.close()
        return True

    return asyncio.run(look())
