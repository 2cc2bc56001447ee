"""A full disk: clients are told to try again, nothing acknowledged is lost, and all goes on once there is room."""

from __future__ import annotations

import os
import random
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from harness.patience import eventually
from harness.process import headwater
from harness.serving import run
from harness.tools import needs
from headwater.client.client import Client
from headwater.client.errors import AnswerLost, KafkaError, Unreachable
from headwater.errors import HeadwaterError
from tests.faults.raw import fresh
from tests.support.running import Running

PROMISES = ("L1",)

TOPIC = "t"
DISK = "24m"
BALLAST_BYTES = 10 << 20
RETRIABLE = {ErrorCode.kafka_storage_error, ErrorCode.request_timed_out, ErrorCode.not_leader_or_follower}
SIZES = (200_000, 20_000, 2_000, 200)
"""Ever smaller, until there is no room for the smallest: then the ledger has none either."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    needs("root, to mount a small file system", os.geteuid() == 0)
    where = tmp_path / "disk"
    where.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "headwater-test", str(where)], capture_output=True, check=False
    )
    needs(f"to mount a file system: {mounted.stderr.decode().strip()}", mounted.returncode == 0)
    try:
        yield where
    finally:
        subprocess.run(["umount", str(where)], check=True)


class Writing:
    """Writes values that compress badly, and keeps what was acknowledged and what was not."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._count = 0
        self.acknowledged: dict[int, bytes] = {}
        self.refused: list[tuple[bytes, HeadwaterError]] = []

    async def once(self, client: Client, size: int) -> bool:
        """Write one record; answers whether it was acknowledged."""
        value = b"%d:" % self._count + self._random.randbytes(size)
        self._count += 1
        try:
            offset = (await client.produce_once(TOPIC, 0, fresh([value]), within=15)).base_offset
        except (KafkaError, AnswerLost, Unreachable) as error:
            self.refused.append((value, error))
            return False
        assert offset not in self.acknowledged
        self.acknowledged[offset] = value
        return True


async def fill(client: Client, writing: Writing) -> None:
    for size in SIZES:
        failures = 0
        while failures < 3:
            failures += not await writing.once(client, size)


def test_a_full_disk_is_survived(tmp_path: Path, disk: Path) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(os.urandom(BALLAST_BYTES))
    writing = Writing(1)
    with Running(tmp_path, data=disk / "data") as server:
        server.create(TOPIC)
        broker = server.broker(1)

        async def until_full() -> None:
            async with server.client() as client:
                await fill(client, writing)

        run(until_full())
        before = len(writing.acknowledged)
        assert before > 10 and sum(map(len, writing.acknowledged.values())) > 4 << 20
        codes = [error.code for _, error in writing.refused if isinstance(error, KafkaError)]
        assert ErrorCode.kafka_storage_error in codes
        assert set(codes) <= RETRIABLE
        # It is said in the log and on the health page; the broker stays ready for readers.
        assert "there is no room: nothing can be written" in server.end_of_log()
        status, page = server.page("/health")
        assert status == 200 and '"status":"degraded"' in page and '"full":{' in page, page
        assert "headwater_store_full" in server.page("/metrics")[1]
        # What is there can still be read, though nothing can be written.
        assert dict(server.read(TOPIC)[0]).items() >= writing.acknowledged.items()
        ballast.unlink()

        async def resumes() -> bool:
            async with server.client() as client:
                return await writing.once(client, 200_000)

        eventually(lambda: run(resumes()), "it writes again by itself", 30)
        assert server.broker(1).pid == broker.pid
        assert server.page("/readyz")[0] == 200

        async def shows_room() -> bool:
            async with server.client() as client:
                await writing.once(client, 2_000)
            return '"full":{' not in server.page("/health")[1]

        eventually(lambda: run(shows_room()), "the health page is clean again", 30)
        log = server.read(TOPIC)[0]
        assert [offset for offset, _ in log] == list(range(len(log)))
        assert dict(log).items() >= writing.acknowledged.items()
        values = [value for _, value in log]
        assert len(values) == len(set(values))
        assert server.stop() == 0
        healthy = headwater("doctor", "--data", str(disk / "data"))
        assert healthy.returncode == 0, healthy.stdout


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def fill_up(disk: Path) -> Path:
    """Leave no room at all; answers the file that takes it."""
    ballast = disk / "ballast"
    with pytest.raises(OSError, match="No space left"), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return ballast


def test_a_first_start_on_a_full_disk_says_what_is_wrong(tmp_path: Path, disk: Path) -> None:
    fill_up(disk)
    server = Running(tmp_path, data=disk / "data")
    process = server.launch()
    try:
        assert process.wait(30) == 1
    finally:
        server.kill_all()
    assert "cannot write the settings of broker-1: " in server.end_of_log()
    assert "Traceback" not in server.end_of_log()


@pytest.mark.parametrize("index", ["kept", "gone"])
def test_a_server_that_starts_on_a_full_disk_serves_when_there_is_room(tmp_path: Path, disk: Path, index: str) -> None:
    writing = Writing(2)
    server = Running(tmp_path, data=disk / "data")
    with server:
        server.create(TOPIC)

        async def some() -> None:
            async with server.client() as client:
                for _ in range(10):
                    assert await writing.once(client, 20_000)

        run(some())
        server.kill_all()
        if index == "gone":
            # SQLite makes the index of its WAL anew, as after a restart of the machine; without it there is no ledger.
            for file in (disk / "data").glob("*-shm"):
                file.unlink()
        ballast = fill_up(disk)
        process = server.launch()

        def keeps_trying() -> bool:
            return server.end_of_log().count("cannot open the ledger") > 1

        # It listens before it joins the cluster, which needs room in the ledger. To open the ledger may need room too:
        # then its broker is started again and again.
        eventually(lambda: listens(server.port) or keeps_trying(), "it tries to start", 30)
        assert index == "kept" or keeps_trying()
        assert process.poll() is None
        said = server.said.read_text() + server.end_of_log()
        assert "headwater ready" not in said and "Traceback" not in said
        ballast.unlink()
        eventually(lambda: "headwater ready" in server.said.read_text(), "it is ready", 40)
        assert dict(server.read(TOPIC)[0]) == writing.acknowledged
