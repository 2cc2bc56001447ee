"""Brokers for tests of Apache Kafka: started and stopped at the word of the JVM that runs the tests.

A test gets brokers of its own. While it runs, the brokers of the next one start: most tests want the same.
"""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from threading import Thread
from typing import Any, Self

import msgspec

from harness.process import Process, ServerFailed, headwater
from tests.apache.properties import ADMIN_LISTENER, USERS, dynamic_of, secured, settings_of

BASE: Mapping[str, Any] = {"http": "127.0.0.1:0", "log_level": "warning"}
QUICK: Mapping[str, str] = {"group.initial.rebalance.delay.ms": "100"}
"""What tests that do not say it should not wait for."""
MAX_QUESTION = 1 << 20


class Wanted(msgspec.Struct, frozen=True):
    """What a test's ClusterConfig says."""

    brokers: int
    listener: str
    protocol: str
    properties: dict[str, str]
    each: dict[int, dict[str, str]]
    """Further properties of single brokers."""
    features: dict[str, int]


class Brokers:
    """Brokers on one directory, without a supervisor: tests stop and start them one by one."""

    def __init__(self, directory: Path, wanted: Wanted) -> None:
        self.directory = directory
        self.wanted = wanted
        self.ports: list[dict[str, int]] = [{} for _ in range(wanted.brokers)]
        """The ports of each broker, by listener."""
        self.has_users = False
        self.members: list[Process] = []
        directory.mkdir(parents=True)
        for node in range(wanted.brokers):
            file = directory / f"broker-{node}.json"
            self.members.append(Process("broker", file, directory / "log", {}))

    def launch(self) -> None:
        """Start all of them without waiting."""
        for node in range(self.wanted.brokers):
            self._write(node)
        if self.has_users:
            self._add_users()
        for member in self.members:
            member.launch()

    def _add_users(self) -> None:
        for user, password in USERS.items():
            file = self.directory / "password"
            file.write_text(password)
            options = ("--config", str(self.members[0].file), "--new-password-file", str(file))
            done = headwater("user", "add", user, *options)
            if done.returncode:
                raise ServerFailed(done.stderr)

    def wait(self) -> None:
        """Wait until they serve."""
        for node, member in enumerate(self.members):
            member.wait_until_ready()
            told = member.said.read_text().split("kafka=", 1)[1].split()[0].split(",")
            self.ports[node] = {name: int(port) for name, _, port in (one.partition(":") for one in told)}

    def _write(self, node: int) -> None:
        wanted = self.wanted
        tree = settings_of({**QUICK, **wanted.properties, **wanted.each.get(node, {})})
        names = secured(tree, wanted.listener, wanted.protocol, wanted.properties)
        self.has_users = "acls" in tree["security"]
        if (version := wanted.features.get("transaction.version")) is not None:
            tree.setdefault("transactions", {})["version"] = max(1, version)  # 0 is as 1 for clients
        tree |= {
            **BASE,
            "data": str(self.directory / "data"),
            "node": node,
            "kafka": ",".join(f"{name}=127.0.0.1:{self.ports[node].get(name, 0)}" for name in names),
        }
        self.members[node].file.write_text(json.dumps(tree))

    def stop(self, node: int) -> None:
        """Stop a broker as its operator would."""
        self.members[node].stop()

    def start(self, node: int) -> None:
        """Start a broker again, at its port."""
        self._write(node)
        self.members[node].launch()
        self.members[node].wait_until_ready()

    def end(self) -> None:
        for member in self.members:
            member.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


class Starter(AbstractContextManager["Starter"]):
    """Answers the JVM at a port of the loopback address, one question per connection. Errors are answers too."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._count = 0
        self._now: Brokers | None = None
        self._next: Brokers | None = None
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = Thread(target=self._serve, daemon=True)
        self._answers: Mapping[str, Callable[[Mapping[str, Any]], object]] = {
            "start": self._start,
            "stop": self._stop,
            "start-broker": lambda question: self._running().start(question["node"]),
            "stop-broker": lambda question: self._running().stop(question["node"]),
        }

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()
        for brokers in (self._now, self._next):
            if brokers is not None:
                brokers.end()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            with connection, connection.makefile("rb") as asked:
                question = json.loads(asked.read(MAX_QUESTION))
                try:
                    answer = self._answers[question["do"]](question) or {}
                except Exception as error:  # noqa: BLE001  the test shall fail with it, not the thread
                    answer = {"error": f"{type(error).__name__}: {error}"}
                connection.sendall(json.dumps(answer).encode())

    def _running(self) -> Brokers:
        assert self._now is not None, "no brokers run"
        return self._now

    def _start(self, question: Mapping[str, Any]) -> object:
        self._stop()
        wanted = msgspec.convert(question, Wanted, strict=False)
        ready = self._next
        if ready is None or ready.wanted != wanted:
            if ready is not None:
                ready.end()
            ready = self._launched(wanted)
        self._now, self._next = ready, None
        ready.wait()
        self._next = self._launched(wanted)
        ports = [told[wanted.listener] for told in ready.ports]
        admin = [told[ADMIN_LISTENER] for told in ready.ports if ADMIN_LISTENER in told]
        return {"ports": ports, "admin": admin, "configs": dynamic_of(wanted.properties)}

    def _launched(self, wanted: Wanted) -> Brokers:
        self._count += 1
        brokers = Brokers(self._directory / f"cluster-{self._count}", wanted)
        brokers.launch()
        return brokers

    def _stop(self, question: Mapping[str, Any] | None = None) -> None:
        if self._now is not None:
            self._now.end()
            self._now = None
