"""Processes of Headwater: servers (`up`, `broker`, `compactor`), and commands."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from harness.pages import get_page, metric_of
from harness.patience import eventually
from harness.tools import ROOT

START_SECONDS = 60.0
STOP_SECONDS = 40.0
LOG_CHARACTERS = 6_000
PROGRAM = (sys.executable, "-m", "headwater")


class ServerFailed(Exception):
    """A server ended, did not start or did not stop. The message says which, and contains or names its log."""


NICENESS = "HEADWATER_TEST_NICENESS"
"""The variable with the niceness of settling in servers that are started here, unless they have one of their own."""


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of this process, without settings of Headwater that a developer may have set."""
    own = {k: v for k, v in os.environ.items() if not k.startswith("HEADWATER_")}
    if NICENESS in os.environ:
        own["HEADWATER_LAKE__NICENESS"] = os.environ[NICENESS]
    return {**own, **(more or {})}


def headwater(
    *arguments: str, timeout: float = 60.0, more: Mapping[str, str] | None = None, given: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command and wait for its end, with these variables in its environment and this text as its input."""
    return subprocess.run(
        [*PROGRAM, *arguments],
        capture_output=True, text=True, timeout=timeout, check=False, cwd=ROOT, env=environment(more), input=given,
    )  # fmt: skip


def alive(process: psutil.Process) -> bool:
    """Whether a process runs. A process that ended but was not waited for does not."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


class Process:
    """One server process of Headwater with a settings file of its own."""

    def __init__(
        self,
        mode: str,
        file: Path,
        log: Path,
        variables: Mapping[str, str],
        *,
        options: Sequence[str] = (),
        said: Path | None = None,
        source: Path | None = None,
        detached: bool = False,
    ) -> None:
        self.mode = mode
        self.file = file
        self.kafka = ""
        self.zone = ""
        self.source = source
        """The directory of the code to run; None for the code beside this package."""
        self.variables = variables
        self.options = options
        self.log = log
        self.said = said or file.with_suffix(".stdout")
        self._detached = detached
        """Whether the process has its own session, so that Ctrl-C does not reach it."""
        self.process: subprocess.Popen[bytes] | None = None
        self.launched = 0.0
        """When the process was started, by the monotonic clock."""

    def __repr__(self) -> str:
        return f"<Process {self.file.stem}>"

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the process without waiting for it."""
        code = [str(self.source or ROOT / "src"), self.variables.get("PYTHONPATH", "")]
        env = {**environment(self.variables), "PYTHONPATH": os.pathsep.join(filter(None, code))}
        # Files and not pipes: a pipe that is not read would block the process.
        with self.said.open("wb") as stdout, self.log.open("ab") as stderr:
            self.launched = time.monotonic()
            self.process = subprocess.Popen(
                [*PROGRAM, self.mode, "--config", str(self.file), *self.options],
                stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, cwd=ROOT, env=env,
                start_new_session=self._detached,
            )  # fmt: skip
        return self.process

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def is_ready(self) -> bool:
        """Whether the process serves. Raises `ServerFailed` if it has ended."""
        if not self.runs:
            code = self.process.returncode if self.process is not None else None
            raise ServerFailed(f"headwater {self.mode} ended with {code}:\n{self.end_of_log()}")
        return re.search(r"\bready\b", self.said.read_text()) is not None

    @property
    def http(self) -> str:
        """The address of the pages, which a broker or a compactor prints."""
        words = dict(word.split("=", 1) for word in self.said.read_text().split()[1:])
        return f"127.0.0.1:{words['http']}"

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels; 0 while the process does not report it."""
        return metric_of(get_page(self.http, "/metrics")[1], name)

    def wait_until_ready(self, every: float = 0.02) -> None:
        try:
            eventually(lambda: self.is_ready, f"headwater {self.mode} says ready", START_SECONDS, every)
        except TimeoutError as error:
            raise ServerFailed(f"{error}:\n{self.end_of_log()}") from None

    def stop(self) -> int:
        """Stop the process with SIGTERM; returns its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=STOP_SECONDS)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def end_of_log(self) -> str:
        return self.log.read_text()[-LOG_CHARACTERS:]
