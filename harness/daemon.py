"""A third-party server on an empty data directory. A line of its output shows that it is ready."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import ClassVar, Self

import psutil

from harness.patience import eventually
from harness.ports import free_port
from harness.process import ServerFailed
from harness.tools import ROOT

START_SECONDS = 60.0
STOP_SECONDS = 60.0


class Daemon(AbstractContextManager["Daemon"], ABC):
    """A process tree on loopback. Leaving the block ends it and removes its data; its output stays."""

    name: ClassVar[str]
    title: ClassVar[str]
    ready_text: ClassVar[str]
    start_seconds: ClassVar[float] = START_SECONDS

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.output = directory.parent / f"{self.name}.out"
        self.log = directory.parent / f"{self.name}.log"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.launched = 0.0
        """When the process was started, by the monotonic clock."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.bootstrap} {f'pid {self._process.pid}' if self._process else 'stopped'}>"

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        return self._process

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @abstractmethod
    def prepare(self) -> None:
        """Prepare what the server needs before its start."""

    @abstractmethod
    def command(self) -> list[str]:
        """The command line of the server."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def launch(self, *, again: bool = False) -> None:
        """Start the server on an empty data directory, or `again` on the one that it has, without waiting for it."""
        if not again:
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory.mkdir(parents=True)
            self.prepare()
        with self.output.open("wb") as output, self.log.open("wb") as log:
            self.launched = time.monotonic()
            try:
                self._process = subprocess.Popen(
                    self.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=log, cwd=ROOT,
                    start_new_session=True,  # Ctrl-C reaches only this process, which stops the server
                )  # fmt: skip
            except OSError as error:
                raise ServerFailed(f"{self.title} cannot be started: {error}") from error

    def start(self, every: float = 0.02, *, again: bool = False) -> None:
        """Start the server and wait until its output shows that it is ready."""
        self.launch(again=again)
        try:
            eventually(self._is_ready, f"{self.title} is ready", self.start_seconds, every)
        except TimeoutError as error:
            raise ServerFailed(f"{error}, {self.where()}") from None

    def _is_ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise ServerFailed(f"{self.title} ended with {self._process.returncode}, {self.where()}")
        return re.search(rf"\b{self.ready_text}\b", self.output.read_text(errors="replace")) is not None

    def stop(self, *, keep: bool = False) -> None:
        """Send SIGTERM, then kill what is left of the process tree, and remove the data directory unless it is kept."""
        if self._process is None:
            return
        tree: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            tree = psutil.Process(self._process.pid).children(recursive=True)
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for left in tree:
            # psutil compares creation times, so another process with a reused id is not touched.
            if left.is_running():
                left.kill()
        self._process = None
        if not keep:
            shutil.rmtree(self.directory, ignore_errors=True)

    def kill(self) -> None:
        """End the process at once. `stop` clears up behind it."""
        if self._process is not None:
            self._process.kill()

    def where(self) -> str:
        """The files to look at after a failure."""
        return f"see {self.output} and {self.log}"
