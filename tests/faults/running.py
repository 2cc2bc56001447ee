"""A real `headwater up` that tests may hurt: its processes by name, its logs, its pages, its exit code."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import psutil
import pytest

from headwater.client.client import Client
from headwater.client.model import EARLIEST, LATEST, NewTopic
from headwater.client.reader import Reader

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0
STOP_SECONDS = 40.0
PORTS = range(20_000, 32_000)
"""Below the ports that the kernel gives to clients, so that no client can take one while its broker is down."""
_LOG_CHARACTERS = 6_000

T = TypeVar("T")


def eventually(look: Callable[[], T], what: str, seconds: float = 30.0) -> T:
    """What `look` gives, as soon as that is something."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"gave up after {seconds:g} s: {what}")
        time.sleep(0.02)  # polls for a state that the loop checks; nothing counts on its length


def free_ports(count: int) -> int:
    """The first of some consecutive TCP ports that nobody listens on right now."""
    for _ in range(1_000):
        first = random.SystemRandom().randrange(PORTS.start, PORTS.stop - count)
        if all(_is_free(first + i) for i in range(count)):
            return first
    raise OSError(f"no {count} consecutive free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def headwater(*arguments: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "headwater", *arguments],
        capture_output=True, text=True, timeout=timeout, check=False, cwd=ROOT, env=environment(),
    )  # fmt: skip


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without settings that a developer may have set."""
    own = {k: v for k, v in os.environ.items() if not k.startswith("HEADWATER_")}
    return {**own, **(more or {})}


def needs(what: str, there: bool) -> None:
    """Skip the test, or fail it under CI, where a missing thing would hide a missing test."""
    if not there and os.environ.get("CI") == "true":
        pytest.fail(f"needs {what}", pytrace=False)
    if not there:
        pytest.skip(f"needs {what}")


class Running(AbstractContextManager["Running"]):
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
    ) -> None:
        self.directory = directory
        self.data = data or directory / "data"
        self.port = free_ports(brokers) if first_port is None else first_port
        self.brokers = brokers
        self.http = f"127.0.0.1:{free_ports(1)}"
        self.said, self.log = directory / "stdout", directory / "stderr"
        self._settings = settings
        self._variables = variables
        self.process: subprocess.Popen[bytes] | None = None
        self._family: dict[int, psutil.Process] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.process is not None and self.process.poll() is None and kind is None:
            code = self.stop()
            assert code == 0, f"headwater up ended with {code}:\n{self.end_of_log()}"
        self.kill_all()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.port + i}" for i in range(self.brokers))

    # --- life ----------------------------------------------------------------------------------------

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the process and do not wait for it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "headwater", "up", "--no-lake", "--data", str(self.data), "--http", self.http]
        command += ["--kafka", f"127.0.0.1:{self.port}", "--brokers", str(self.brokers)]
        if self._settings:
            file = self.directory / "settings.toml"
            file.write_text(self._settings)
            command += ["--config", str(file)]
        # Files and not pipes: a pipe that nobody reads would stop the server.
        with self.said.open("wb") as stdout, self.log.open("ab") as stderr:
            self.process = subprocess.Popen(
                command, stdout=stdout, stderr=stderr, cwd=ROOT, env=environment(self._variables)
            )
        return self.process

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
        """End whatever this object started, at once."""
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
        """The process of a broker."""
        return eventually(lambda: self._find_broker(node), f"broker {node} runs", 10)

    def _find_broker(self, node: int) -> psutil.Process | None:
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                if any(word.endswith(f"broker-{node}.json") for word in process.cmdline()):
                    return process
        return None

    # --- what it says --------------------------------------------------------------------------------

    def end_of_log(self) -> str:
        return self.log.read_text()[-_LOG_CHARACTERS:]

    def log_lines(self) -> Iterator[dict[str, Any]]:
        """The log so far, line by line."""
        for line in self.log.read_text().splitlines():
            with suppress(json.JSONDecodeError):
                yield json.loads(line)

    def page(self, path: str, within: float = 30) -> tuple[int, str]:
        """Status and body of a page of the supervisor."""
        try:
            with urllib.request.urlopen(f"http://{self.http}{path}", timeout=within) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def client(self, *nodes: int) -> Client:
        """A client that starts at some of the brokers, or at any."""
        return Client(",".join(f"127.0.0.1:{self.port + node - 1}" for node in nodes) or self.bootstrap)

    def epochs(self) -> dict[int, int]:
        """Each broker's epoch, as its metrics tell."""
        found = re.findall(r'^headwater_epoch\{node="(\d+)"\} (\d+)$', self.page("/metrics")[1], re.MULTILINE)
        return {int(node): int(epoch) for node, epoch in found}

    def nodes(self, *ask: int) -> list[int]:
        """The brokers that the metadata names, as some of them tell."""

        async def look() -> list[int]:
            async with self.client(*ask) as client:
                return sorted(b.node for b in (await client.cluster()).brokers)

        return run(look())

    def ask(self, question: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """What a client gets to know."""

        async def ask() -> T:
            async with self.client() as client:
                return await question(client)

        return run(ask())

    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        self.ask(lambda client: client.create_topics([NewTopic(topic, partitions, configs=configs)]))

    def leaders(self, topic: str) -> list[int]:
        """The node that leads each partition."""

        return [partition.leader for partition in self.ask(lambda client: client.topic(topic)).partitions]

    def read(self, topic: str, partitions: Sequence[int] = (0,)) -> dict[int, list[tuple[int, bytes]]]:
        """Offsets and values of all records."""

        async def read() -> dict[int, list[tuple[int, bytes]]]:
            async with self.client() as client:
                ends = {
                    p: f.offset
                    for p, f in (await client.list_offsets(topic, dict.fromkeys(partitions, LATEST))).items()
                }
                starts = await client.list_offsets(topic, dict.fromkeys(partitions, EARLIEST))
                reader = Reader(client, topic, {p: f.offset for p, f in starts.items()}, ends)
                found: dict[int, list[tuple[int, bytes]]] = {p: [] for p in partitions}
                async for chunk in reader.chunks():
                    found[chunk.partition] += [(r.offset, r.value or b"") for r in chunk.records]
                return found

        return run(read())


def run(main: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(main)


def alive(process: psutil.Process) -> bool:
    """Whether a process runs; one that ended and was not collected does not."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
