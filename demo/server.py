"""A Headwater of its own, for as long as it is needed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from demo.readers import NOTHING_MORE, Place
from demo.storage import Access, stored

START_SECONDS = 60.0
STOP_SECONDS = 60.0
SETTINGS = """
[housekeeping]
interval_ms = 500
dead_object_grace_ms = 1000

[lake]
interval_ms = 200
"""


class ServerFailed(Exception):
    """The server or a command of ours failed; the message says how."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class Server:
    """One `headwater up`, brokers and compactor."""

    def __init__(
        self,
        directory: Path,
        settings: str = SETTINGS,
        brokers: int = 1,
        *,
        lake: bool = True,
        objects: str = "",
        environment: Mapping[str, str] = NOTHING_MORE,
    ) -> None:
        """Objects lie in a directory, or where a URL says; the environment says how to get there."""
        self.directory = directory
        self.objects = objects or (directory / "data" / "objects").as_uri()
        self._environment = {**os.environ, **environment}
        self.data = directory / "data"
        self.config = directory / "headwater.toml"
        self.bootstrap = f"127.0.0.1:{free_port()}"
        self.http = f"127.0.0.1:{free_port()}"
        directory.mkdir(parents=True, exist_ok=True)
        self.config.write_text(f'data = "{self.data}"\nobjects = "{self.objects}"\n{settings}')
        command = ["up", "--config", str(self.config), "--brokers", str(brokers)]
        command += ["--kafka", self.bootstrap, "--http", self.http, "--lake" if lake else "--no-lake"]
        self.log = directory / "server.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headwater", *command],
                stdout=subprocess.PIPE, stderr=log, env=self._environment,
            )  # fmt: skip
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if b"ready" not in line:
            self.process.kill()
            raise ServerFailed(f"headwater did not start; see {self.log}")

    def cli(self, *arguments: str) -> Any:
        """A command's JSON, or nothing."""
        command = [sys.executable, "-m", "headwater", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=self._environment)
        if done.returncode:
            raise ServerFailed(f"headwater {' '.join(arguments)}: {done.stderr.strip()}")
        return json.loads(done.stdout) if "json" in arguments else None

    def table(self, command: str, topic: str, *more: str) -> Any:
        return self.cli("table", command, topic, "--config", str(self.config), *more)

    def place(self, topic: str) -> Place:
        location = self.table("describe", topic, "--output", "json")["location"]
        access = Access.of(self._environment) if self.objects.startswith("s3:") else None
        return Place(topic, self.bootstrap, f"http://{self.http}/iceberg", location.removeprefix("file://"), access)

    def wal_objects(self) -> int:
        """How many WAL objects are left."""
        return sum(path.endswith(".wo") for path in stored(self.objects, "wal", self._environment))

    def wait_for_collection(self, seconds: float = 120.0) -> None:
        """Until all WAL is gone, so that every read comes from segments."""
        deadline = time.monotonic() + seconds
        while left := self.wal_objects():
            if time.monotonic() > deadline:
                raise ServerFailed(f"{left} WAL objects are left after {seconds:g} s")
            time.sleep(0.1)  # polls for a state that the loop checks; nothing counts on its length

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_SECONDS)
            assert self.process.stdout is not None
            self.process.stdout.close()
            return code
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise ServerFailed(f"headwater did not stop within {STOP_SECONDS:g} s; see {self.log}") from None


@contextmanager
def running(
    directory: Path,
    settings: str = SETTINGS,
    brokers: int = 1,
    *,
    lake: bool = True,
    objects: str = "",
    environment: Mapping[str, str] = NOTHING_MORE,
) -> Iterator[Server]:
    server = Server(directory, settings, brokers, lake=lake, objects=objects, environment=environment)
    try:
        yield server
    finally:
        server.stop()
