"""What a scan reads outlives it, while its files are merged and expire; after `kill -9` of its gateway they go."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import urllib.parse
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import psutil
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from harness.patience import Patience, eventually
from headwater.lake.compactor import Compactor
from headwater.lake.following import Following
from headwater.lake.spark.executor import perform
from headwater.lake.tables import make_followers
from headwater.lake.tasks import Task, TaskFacts
from headwater.log.wal.format import path_of
from headwater.replica.domains import Domains
from headwater.settings.settings import Lake, load
from headwater.state.commands.tables import WantExpired
from headwater.state.streams.tables import TopicTable
from headwater.types import Domain
from tests.support.promise import promise
from tests.support.running import Running

PROMISES = ("Q2",)

ONE = Domain(1)
TOPIC = "orders"
SETTINGS = """
[housekeeping]
interval_ms = 200
dead_object_grace_ms = 1

[gateway]
stalled_ms = 300000
"""
LAKE = Lake(
    freshness_ms=1,
    merge_files=2,
    small_file_bytes=1 << 30,
    keep_versions=1,
    followers=("delta",),
    orphan_interval_ms=1 << 30,
)
ROUND_RECORDS = 3_000
VALUE_BYTES = 1_000


class Settling:
    """A compactor and its followers in the process of the test, without Spark: the test decides when they act."""

    def __init__(self, domains: Domains) -> None:
        self.domains = domains
        self.state = domains[ONE].state
        self._compactor = Compactor(domains, self._run_job, LAKE, slots=1)
        self._followers = make_followers(domains.store, LAKE)
        self._following = Following(domains, self._followers, self._compactor.lease, LAKE)

    async def _run_job(self, tag: str, tasks: Sequence[Task]) -> list[TaskFacts]:
        return [await perform(self.domains.store, task) for task in tasks]

    async def until(self, reached: Callable[[], bool], what: str) -> None:
        """Settle, merge, follow, expire and delete, until something is so."""
        patience = Patience(60)
        while not reached():
            assert not patience.ended, f"{what}: {self.table.files}, {self.state.held}"
            await self._compactor.round()
            for follower in self._followers:
                await self._following.round(follower)
            await asyncio.sleep(0.2)

    @property
    def table(self) -> TopicTable:
        [table] = self.state.tables.values()
        return table

    def settled(self, records: int) -> bool:
        return bool(self.state.tables) and sum(s.settled for s in self.state.streams.values()) == records

    async def merge(self, records: int) -> None:
        """Settle and merge everything, and let all older versions expire: no follower shows a former file."""
        await self.until(lambda: self.settled(records) and len(self.live()) == 1, "the table is merged")
        await self.domains[ONE].submit([WantExpired(self.table.topic, 1, 0)])
        await self.until(lambda: self.table.expiry is None, "older versions have expired")
        gone = [file.number for file in self.table.files.values() if file.removed]
        assert [file.number for file in self.table.ripe()] == gone

    def live(self) -> set[str]:
        """The segments that the newest version shows."""
        return {f"{self.table.root}/{file.name}" for file in self.table.live()}

    def wal(self) -> set[str]:
        """The WAL objects with records that are not settled."""
        return {
            path_of(known.zone, ONE, known.created_ms, known.id) for known in self.state.objects if known.references
        }


@contextlib.asynccontextmanager
async def settling(server: Running) -> AsyncIterator[Settling]:
    domains = Domains.open(load(str(server.config), environment={}))
    await domains.follow()
    await domains.join()
    try:
        yield Settling(domains)
    finally:
        await domains.close()


class SlowScan:
    """A client that asks for all rows of the topic and reads the answer when it likes."""

    def __init__(self, url: str) -> None:
        address = urllib.parse.urlsplit(url)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self._socket.settimeout(120)
        self._socket.connect((address.hostname, address.port))
        path = f"/v1/topics/{TOPIC}/rows?columns=partition,offset,value"
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n\r\n".encode())
        self.data = self._socket.recv(1_000)
        if not self.data.startswith(b"HTTP/1.1 200"):
            self._socket.close()
            raise AssertionError(self.data)

    def rest(self) -> pa.Table:
        """Read on to the end."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        data = bytearray(self.data)
        while piece := self._socket.recv(1 << 20):
            data += piece
        self._socket.close()
        body, at = bytearray(), data.index(b"\r\n\r\n") + 4
        while at < len(data):  # chunk by chunk
            end = data.index(b"\r\n", at)
            size = int(data[at:end], 16)
            body += data[end + 2 : end + 2 + size]
            at = end + 2 + size + 2
        return pa.ipc.open_stream(body).read_all()

    def close(self) -> None:
        self._socket.close()


class Log:
    """Produces records that do not compress."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = ck.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self.count = 0
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=1)])[TOPIC].result(60)

    def fill(self) -> None:
        for _ in range(ROUND_RECORDS):
            self._producer.produce(TOPIC, os.urandom(VALUE_BYTES), partition=0)
            self._producer.poll(0)
        assert self._producer.flush(60) == 0
        self.count += ROUND_RECORDS


def stored(server: Running) -> set[str]:
    """The segments and WAL objects in the store."""
    root = server.data / "objects"
    found = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)) for path in found if "_data" in path.parts or path.suffix == ".wo"}


@promise("Q2")
@pytest.mark.timeout(300)
def test_what_a_scan_reads_outlives_it(tmp_path: Path) -> None:
    """Segments and WAL objects; the answer is whole. The next scan dies with its gateway, and they go."""
    with Running(tmp_path, gateway=True, settings=SETTINGS) as server:
        asyncio.run(_story(server, Log(server.bootstrap)))


async def _story(server: Running, log: Log) -> None:
    async with settling(server) as lake:
        for _ in range(2):
            await asyncio.to_thread(log.fill)
            await lake.until(lambda: lake.settled(log.count), "all is settled")
        await asyncio.to_thread(log.fill)  # this stays in the WAL
        await lake.domains[ONE].barrier()
        read = lake.live() | lake.wal()
        assert lake.live() and lake.wal()
        scan = await asyncio.to_thread(SlowScan, server.gateway_url)
        await lake.domains[ONE].barrier()
        [(epoch, _)] = lake.state.held
        await lake.merge(log.count)
        kept = {file.number for file in lake.table.ripe()} - {file.number for file in lake.state.ripe(lake.table)}
        assert kept, "nothing but the hold keeps them"
        assert read <= stored(server) and [name for name, _ in lake.state.held] == [epoch]
        await _check_rows(scan, log)
        scan = await asyncio.to_thread(SlowScan, server.gateway_url)
        await asyncio.to_thread(log.fill)
        await lake.merge(log.count)
        newest = lake.live()
        assert newest < stored(server)
        _kill(server.gateway_process())
        await lake.until(lambda: stored(server) == newest, "what the scan read is gone")
        assert lake.state.held.get(epoch) is None
        scan.close()


async def _check_rows(scan: SlowScan, log: Log) -> None:
    rows: Any = await asyncio.to_thread(scan.rest)
    assert sorted(rows["offset"].to_pylist()) == list(range(log.count))
    assert all(len(value) == VALUE_BYTES for value in rows["value"].to_pylist())


def _kill(process: psutil.Process) -> None:
    process.kill()
    eventually(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, "the gateway is dead")
