"""The server under test, and the fixtures that the contracts ask for.

A test module gives `client`. A client that only reads or only writes overrides `writer` or `reader`.
"""

import functools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.net import free_port

pytest.register_assert_rewrite("tests.compat.common", "tests.compat.contract", "tests.compat.wire")

from tests.compat.common import Deadline, Reader, Writer  # noqa: E402
from tests.compat.contract import WrittenOnce, write_sample  # noqa: E402
from tests.compat.librdkafka import Librdkafka  # noqa: E402


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the server: HEADWATER_TEST_BOOTSTRAP if set, otherwise a Headwater of our own."""
    given = os.environ.get("HEADWATER_TEST_BOOTSTRAP")
    if given:
        yield given
        return
    address = f"127.0.0.1:{free_port()}"
    directory = tmp_path_factory.mktemp("headwater")
    command = [sys.executable, "-m", "headwater", "up"]
    command += ["--data", str(directory / "data"), "--kafka", address, "--http", f"127.0.0.1:{free_port()}"]
    said, log = directory / "stdout", directory / "stderr"
    # Files and not pipes: a pipe that nobody reads would stop the server.
    with (
        said.open("wb") as stdout,
        log.open("wb") as stderr,
        subprocess.Popen(command, stdout=stdout, stderr=stderr) as server,
    ):
        try:
            _wait_until_ready(server, said, log)
            yield address
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                code = server.wait(timeout=30)
            except subprocess.TimeoutExpired:
                server.kill()
                raise
    assert code == 0, f"headwater up ended with {code}:\n{log.read_text()[-4000:]}"


def _wait_until_ready(server: subprocess.Popen[bytes], said: Path, log: Path) -> None:
    deadline = Deadline("headwater up did not say ready", 60)
    while not re.search(r"\bready\b", said.read_text()):
        if server.poll() is not None:
            pytest.fail(
                f"headwater up ended with {server.returncode}:\n{log.read_text()[-4000:]}", pytrace=False
            )
        deadline.check()
        time.sleep(0.05)


@pytest.fixture(scope="session")
def reference(bootstrap: str) -> Librdkafka:
    """The client that checks what the others wrote, and writes what the others read."""
    return Librdkafka(bootstrap)


@pytest.fixture(scope="module")
def writer(client: Writer) -> Writer:
    return client


@pytest.fixture(scope="module")
def reader(client: Reader) -> Reader:
    return client


@pytest.fixture(scope="module")
def written(writer: Writer) -> WrittenOnce:
    return functools.cache(functools.partial(write_sample, writer))


@pytest.fixture(scope="session")
def written_by_reference(reference: Librdkafka) -> WrittenOnce:
    return functools.cache(functools.partial(write_sample, reference))
