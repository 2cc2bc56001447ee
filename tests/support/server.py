"""A server for tests: the one that HEADWATER_TEST_BOOTSTRAP names, or a Headwater that lives as long as it is used.

With HEADWATER_TEST_CLUSTER that is a cluster with its ledger and its objects in servers of their own.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.support.cluster import Cluster
from tests.support.net import free_port
from tests.support.patience import Patience
from tests.support.stores import Stores, wanted

START_SECONDS = 60
STOP_SECONDS = 30
_LOG_CHARACTERS = 4000


class ServerFailed(Exception):
    """`headwater up` ended when it should not, or did not when it should; its log is in the message."""


@contextmanager
def bootstrap_address(directory: Path, settings: str = "") -> Iterator[str]:
    """The address of the server under test; a Headwater of our own keeps its data below the directory."""
    given = os.environ.get("HEADWATER_TEST_BOOTSTRAP")
    if given:
        yield given
        return
    kind = wanted()
    if kind:
        with Cluster(directory, kind, settings=settings) as cluster:
            yield cluster.bootstrap.split(",")[0]  # any broker tells of the others
        return
    with headwater_up(directory, settings=settings) as address:
        yield address


@contextmanager
def shared_stores(directory: Path) -> Iterator[dict[str, str]]:
    """An environment in which commands and servers use the same stores, as HEADWATER_TEST_CLUSTER wants them."""
    kind = wanted()
    if not kind:
        yield dict(os.environ)
        return
    with Stores(directory / "stores", kind) as stores:
        own = {"HEADWATER_LEDGER": stores.ledger_url, "HEADWATER_OBJECTS": stores.objects_url}
        yield {**os.environ, **stores.environment, **own, "HEADWATER_WAL__COST__MIN_INTERVAL_MS": "5"}


@contextmanager
def headwater_up(
    directory: Path,
    *options: str,
    kafka: str | None = None,
    settings: str = "",
    environment: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Run `headwater up` on free ports until the block ends; it must then drain and exit with 0.

    The settings are the text of a TOML file, the environment one of `shared_stores`.
    """
    address = kafka or f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "headwater", "up", "--no-lake", *options]
    command += ["--data", str(directory / "data"), "--kafka", address, "--http", f"127.0.0.1:{free_port()}"]
    if settings:
        file = directory / "settings.toml"
        file.write_text(settings)
        command += ["--config", str(file)]
    said, log = directory / "stdout", directory / "stderr"
    # Files and not pipes: a pipe that nobody reads would stop the server.
    with (
        contextlib.nullcontext(environment) if environment is not None else shared_stores(directory) as own,
        said.open("wb") as stdout,
        log.open("wb") as stderr,
        subprocess.Popen(command, stdout=stdout, stderr=stderr, env=own) as server,
    ):
        try:
            _wait_until_ready(server, said, log)
            yield address
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                code = server.wait(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                for process in [*psutil.Process(server.pid).children(recursive=True), server]:
                    process.kill()  # its brokers too: they would outlive it
                raise
    if code != 0:
        raise ServerFailed(f"headwater up ended with {code}:\n{_end_of(log)}")


def _wait_until_ready(server: subprocess.Popen[bytes], said: Path, log: Path) -> None:
    patience = Patience(START_SECONDS)
    while not re.search(r"\bready\b", said.read_text()):
        if server.poll() is not None:
            raise ServerFailed(f"headwater up ended with {server.returncode}:\n{_end_of(log)}")
        if patience.ended:
            raise ServerFailed(f"headwater up did not say ready within {START_SECONDS} s:\n{_end_of(log)}")
        time.sleep(0.05)  # polls for a state that the loop checks; nothing counts on its length


def _end_of(log: Path) -> str:
    return log.read_text()[-_LOG_CHARACTERS:]
