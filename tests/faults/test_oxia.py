"""A cluster of three Oxia servers that loses its leader, or one of the others, under appends."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness import oxia
from harness.oxia import OxiaCluster, OxiaNode, OxiaServer
from harness.patience import eventually
from harness.tools import needs
from headwater.errors import OutcomeUnknown, Retriable, StoreUnavailable
from headwater.ledger import Ledger, open_ledger
from headwater.ledger.contract import Entry
from headwater.ledger.oxia.messages import write_message
from headwater.ledger.oxia.shards import Shard
from headwater.ledger.oxia.store import Put, Write
from headwater.ledger.oxia.transport import GrpcOxia
from headwater.ledger.oxia.url import Servers
from headwater.ledger.oxia.write_stream import MAX_WAITING
from headwater.types import Domain, Position
from tests.faults.checking import acknowledged, acknowledged_count, read_log
from tests.faults.producing import Producing
from tests.support.certificates import issue
from tests.support.promise import promise
from tests.support.running import Running

PROMISES = ("M6",)

ONE = Domain(1)
START = Position(0)
ROUTE = "headwater-000001"
WRITERS = 3
TOPIC, PARTITIONS, EACH = "survivors", 3, 200_000
MORE = 30
"""Appends that must be acknowledged before a fault, and again after it."""


@dataclass
class Told:
    """What writers were told, and what a follower read meanwhile."""

    stands: dict[int, bytes] = field(default_factory=dict)
    unknown: set[bytes] = field(default_factory=set)
    refused: set[bytes] = field(default_factory=set)
    followed: list[Entry] = field(default_factory=list)

    async def more(self, count: int) -> None:
        """Until so many more were acknowledged."""
        goal = len(self.stands) + count
        while len(self.stands) < goal:
            await asyncio.sleep(0.01)  # polls for a state that the loop checks


async def _write(ledger: Ledger, name: str, told: Told) -> None:
    i = 0
    while True:
        record, i = f"{name} {i}".encode(), i + 1
        try:
            position = await ledger.append(ONE, record)
        except OutcomeUnknown:
            told.unknown.add(record)
        except StoreUnavailable:
            told.refused.add(record)
        else:
            assert position not in told.stands, f"{position} was given out twice"
            told.stands[position] = record


async def _follow(ledger: Ledger, told: Told) -> None:
    after = START
    while True:
        try:
            await ledger.watch(ONE, after)
            for entry in await ledger.read(ONE, after, 100):
                assert entry.position == after + 1
                told.followed.append(entry)
                after = entry.position
        except Retriable:
            await asyncio.sleep(0.05)


async def _story(cluster: OxiaCluster, faults: list[Callable[[], None]]) -> Told:
    """Writers and a follower go on while faults happen; in the end everything fits."""
    told = Told()
    follower, *writers = ledgers = [open_ledger(cluster.url()) for _ in range(WRITERS + 1)]
    tasks = [asyncio.create_task(_write(ledger, f"writer {i}", told)) for i, ledger in enumerate(writers)]
    tasks.append(asyncio.create_task(_follow(follower, told)))
    try:
        async with asyncio.timeout(120):
            for fault in faults:
                await _or_fail(told.more(MORE), tasks)
                await asyncio.to_thread(fault)
            await _or_fail(told.more(MORE), tasks)
            for task in tasks[:-1]:
                task.cancel()
            await asyncio.wait(tasks[:-1])
            fresh = open_ledger(cluster.url())
            ledgers.append(fresh)
            last = await fresh.last(ONE)
            found: list[Entry] = []
            while page := await fresh.read(ONE, Position(len(found)), 1000):
                found += page
            assert len(found) == last >= max(told.stands)
            while len(told.followed) < last:
                await _or_fail(asyncio.sleep(0.01), tasks[-1:])  # polls for a state that the loop checks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for ledger in ledgers:
            await ledger.close()
    _check(told, found)
    return told


async def _or_fail(work: object, tasks: list[asyncio.Task[None]]) -> None:
    """Wait for something, or for the first task that ends although none should."""
    waiting = asyncio.ensure_future(work)  # type: ignore[call-overload]
    done, _ = await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    waiting.cancel()


def _check(told: Told, found: list[Entry]) -> None:
    assert [entry.position for entry in found] == list(range(1, len(found) + 1))
    assert told.followed == found
    data = [entry.data for entry in found]
    assert len(set(data)) == len(data)
    assert not told.refused & set(data)
    for position, record in told.stands.items():
        assert data[position - 1] == record


@pytest.fixture
def cluster(tmp_path: Path) -> OxiaCluster:
    needs("Oxia: run `make tools`", oxia.PROGRAM.exists())
    return OxiaCluster(tmp_path)


@promise("M6")
def test_the_leader_is_killed_twice(cluster: OxiaCluster) -> None:
    """Kill the leader's process during appends, let it come back, and kill the next one."""
    killed: list[OxiaNode] = []

    def kill() -> None:
        killed.append(cluster.leader())
        killed[-1].kill()

    with cluster:
        told = asyncio.run(_story(cluster, [kill, lambda: killed[0].start(), kill]))
        assert cluster.leader() is not killed[-1]
    assert killed[0] is not killed[1]
    assert len(told.stands) >= 4 * MORE


@promise("M6")
def test_one_that_does_not_lead_is_killed(cluster: OxiaCluster) -> None:
    """One of three nodes is lost, and nobody is told of anything but success."""

    def kill() -> None:
        leader = cluster.leader()
        next(node for node in cluster.nodes if node is not leader).kill()

    with cluster:
        told = asyncio.run(_story(cluster, [kill]))
    assert not told.unknown
    assert not told.refused


@promise("M6")
def test_the_leader_is_paused(cluster: OxiaCluster) -> None:
    """A leader that stands still is replaced; when it wakes up it is asked for nothing that must be new."""
    paused: list[OxiaNode] = []

    def pause() -> None:
        paused.append(cluster.leader())
        paused[-1].pause()

    with cluster:
        asyncio.run(_story(cluster, [pause, lambda: paused[0].resume()]))
        assert cluster.leader() is not paused[0]


@promise("M1")
def test_who_does_not_lead_refuses_for_certain(cluster: OxiaCluster) -> None:
    """A write that reached a server that does not lead was never written, and its writer is told so.

    gRPC may lose the server's reason when the stream ends under a write. Then nobody knows, and no more is said.
    """

    async def run() -> None:
        leader = cluster.leader().public
        other = next(node.public for node in cluster.nodes if node.public != leader)
        store = GrpcOxia(Servers((leader,)))
        await store.write(ROUTE, Write([Put("key", b"old")]))
        wrong = Shard(0, other, 0, (1 << 32) - 1)
        told: list[Retriable] = []
        while not any(isinstance(error, StoreUnavailable) for error in told):
            assert len(told) < 20, told
            stream = await store._stream(wrong)
            with pytest.raises((StoreUnavailable, OutcomeUnknown), match=r"not leader|Internal error") as caught:
                await stream.send(write_message(ROUTE, Write([Put("key", b"new")])))
            told.append(caught.value)
        assert "not leader" in str(told[-1])
        with pytest.raises(StoreUnavailable, match="not leader"):
            await store.get(ROUTE, "key", leader=other)
        item = await store.get(ROUTE, "key")
        assert item is not None
        assert item.value == b"old"
        await store.close()

    with cluster:
        asyncio.run(run())


@promise("M1")
def test_writes_that_wait_are_counted(tmp_path: Path) -> None:
    """While a server stands still a thousand writes wait; one more is refused, and those that wait stand later."""
    needs("Oxia: run `make tools`", oxia.PROGRAM.exists())

    async def run(server: OxiaServer) -> None:
        ledger = open_ledger(server.url())
        await ledger.append(ONE, b"first")
        server.pause()
        waiting = [asyncio.create_task(ledger.append(ONE, b"%d" % i)) for i in range(MAX_WAITING)]
        await asyncio.sleep(0)
        with pytest.raises(StoreUnavailable, match="full"):
            await ledger.append(ONE, b"too many")
        server.resume()
        assert await asyncio.gather(*waiting) == list(range(2, MAX_WAITING + 2))
        assert await ledger.last(ONE) == MAX_WAITING + 1
        await ledger.close()

    with OxiaServer(tmp_path) as server:
        asyncio.run(run(server))


@promise("M1")
def test_tls(tmp_path: Path) -> None:
    """Servers that speak TLS and want a certificate of ours; nobody gets in without one."""
    needs("Oxia: run `make tools`", oxia.PROGRAM.exists())
    authority = issue(tmp_path, "authority")
    server, client = issue(tmp_path, "server", authority), issue(tmp_path, "client", authority)
    options = (
        f"--tls-cert-file={server.certificate}", f"--tls-key-file={server.key}",
        f"--tls-trusted-ca-file={authority.certificate}", "--tls-client-auth",
    )  # fmt: skip
    query = f"&tls=true&ca={authority.certificate}&cert={client.certificate}&key={client.key}"

    async def run(cluster: OxiaCluster) -> None:
        ledger = open_ledger(cluster.url())
        position = await ledger.append(ONE, b"sealed")
        assert await ledger.read(ONE, START, 10) == [Entry(position, b"sealed")]
        for without in (query, query[query.index("&cert") :]):
            other = open_ledger(cluster.url().replace(without, ""))
            with pytest.raises(StoreUnavailable):
                await other.append(ONE, b"open")
            await other.close()
        assert await ledger.last(ONE) == position
        await ledger.close()

    with OxiaCluster(tmp_path / "cluster", options=options, query=query) as cluster:
        asyncio.run(run(cluster))


@promise("M6")
@pytest.mark.timeout(180)
def test_brokers_go_on_when_the_leader_is_killed(cluster: OxiaCluster, tmp_path: Path) -> None:
    """Two brokers on three Oxia servers lose the ledger's leader under a producer, which loses nothing."""
    told = tmp_path / "told"
    command = [sys.executable, "-m", "tests.faults.producing"]
    with cluster, Running(tmp_path / "up", brokers=2, settings=f'ledger = "{cluster.url()}"\n') as server:
        server.create(TOPIC, PARTITIONS)
        with Producing(command, server.bootstrap, TOPIC, PARTITIONS, "client", EACH, told) as client:
            client.connected()
            client.begin()
            eventually(lambda: acknowledged_count(told) >= EACH // 10, "a tenth is acknowledged", 60)
            victim = cluster.leader()
            victim.kill()
            assert acknowledged_count(told) < EACH, "the producer must be at work when the leader dies"
            client.finish(within=100)
        assert cluster.leader() is not victim
        log = read_log(server.bootstrap, TOPIC, PARTITIONS)
        log.check(client=acknowledged(told))
        assert log.count == EACH
