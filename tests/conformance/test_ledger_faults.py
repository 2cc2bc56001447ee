"""Ledgers behind a bad network and through outages: nothing that stands is lost, missed or seen twice.

A test is a story of one ledger. It is told to all of them side by side, because most of its time is waiting.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from harness.ledgers import SERVERS, LedgerServer
from harness.patience import eventually
from harness.process import environment
from harness.tools import ROOT, needs
from headwater.clock import SystemChance, SystemClock
from headwater.errors import HeadwaterError, OutcomeUnknown, Retriable
from headwater.ledger import Ledger, open_ledger
from headwater.ledger.contract import Entry
from headwater.objects.memory import MemoryStore
from headwater.replica.checkpoint import write_checkpoint
from headwater.replica.membership import SESSION_SECONDS, Membership
from headwater.replica.replica import Replica
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.base import Tick
from headwater.state.commands.cluster import Listener
from headwater.state.streams.state import StreamsState
from headwater.types import Domain, Epoch, Position
from tests.support.ledger_writer import payload, told
from tests.support.promise import promise

PROMISES = ("M1", "M6")

pytestmark = pytest.mark.long
ONE = Domain(1)
START = Position(0)
SECONDS = 60.0


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, LedgerServer]]:
    """One server of each kind for the tests of this file."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        found = {}
        for name, (program, make) in SERVERS.items():
            needs(f"{name}: run `make tools`", program.exists())
            found[name] = stack.enter_context(make(tmp_path_factory.mktemp(name)))
            for variable, value in found[name].environment.items():
                patch.setenv(variable, value)
        yield found


@pytest.fixture
def servers(running: Mapping[str, LedgerServer]) -> Iterator[Mapping[str, LedgerServer]]:
    """Servers whose networks are good when the test begins."""
    for server in running.values():
        server.proxy.resume()
    yield running
    for server in running.values():
        server.proxy.resume()


def told_to_all(story: Callable[[LedgerServer], None]) -> Callable[[Mapping[str, LedgerServer]], None]:
    """A test that tells a story to all servers at once. Every failure names its ledger."""

    def test(servers: Mapping[str, LedgerServer]) -> None:
        with ThreadPoolExecutor(len(servers)) as pool:
            told = {name: pool.submit(story, server) for name, server in servers.items()}
        failures = []
        for name, future in told.items():
            if error := future.exception():
                error.add_note(f"the ledger is {name}")
                failures.append(error)
        if failures:
            raise BaseExceptionGroup("ledgers failed", failures)

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def told() -> None:
        async with asyncio.timeout(SECONDS):
            await story()

    asyncio.run(told())


def writer(server: LedgerServer, url: str, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.ledger_writer", url, name, str(count)]
    own = {**environment(server.environment), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=own)


async def wait_for(look: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(eventually, look, what)


async def read_all(ledger: Ledger) -> list[Entry]:
    found: list[Entry] = []
    while page := await ledger.read(ONE, found[-1].position if found else START, 100):
        found += page
    return found


async def follow(ledger: Ledger, seen: list[Entry], count: int) -> None:
    """Watch and read until so many records were seen, as a replica does."""
    while len(seen) < count:
        after = seen[-1].position if seen else START
        try:
            reach = await ledger.watch(ONE, after)
            assert reach > after
            seen += await ledger.read(ONE, after, 50)
        except Retriable:
            await asyncio.sleep(0.02)


# --- appends -----------------------------------------------------------------------------------------


@promise("M1")
@told_to_all
def test_writers_in_several_processes(server: LedgerServer) -> None:
    """Everybody sees one sequence, with each record at the position its writer was told."""
    url, count, names = server.url(), 100, ("a", "b", "c")
    seen: list[Entry] = []

    async def story() -> None:
        ledger = open_ledger(url)
        await follow(ledger, seen, count * len(names))
        await ledger.close()

    with ExitStack() as stack:
        writers = [stack.enter_context(writer(server, url, name, count)) for name in names]
        for process in writers:
            stack.callback(process.kill)
        run(story)
        outputs = [process.communicate(timeout=SECONDS)[0] for process in writers]
    positions = [entry.position for entry in seen]
    assert positions == sorted(set(positions))
    found = {entry.position: entry.data for entry in seen}
    for name, output in zip(names, outputs, strict=True):
        stood = told(output)
        assert list(stood.values()) == list(range(count))
        assert {position: payload(name, number) for position, number in stood.items()}.items() <= found.items()
    assert len(found) == count * len(names)


@promise("M1")
@told_to_all
def test_a_reply_that_is_lost(server: LedgerServer) -> None:
    """Its writer is told that the outcome is unknown; the record stands once or not at all, and can be repeated."""

    async def story() -> None:
        url = server.url()
        ledger, other = open_ledger(url), open_ledger(server.direct(url))
        first = await ledger.append(ONE, b"first")
        server.proxy.drop_replies()
        with pytest.raises(OutcomeUnknown):
            await ledger.append(ONE, b"lost")
        before = await read_all(other)
        assert before[0] == Entry(first, b"first")
        assert [entry.data for entry in before[1:]] in ([], [b"lost"])
        server.proxy.resume()
        position = await repeated(ledger, b"lost")
        after = await read_all(other)
        assert after[: len(before)] == before
        assert after[-1] == Entry(position, b"lost")
        assert len(after) <= 3
        await ledger.close()
        await other.close()

    run(story)


async def repeated(ledger: Ledger, record: bytes) -> Position:
    while True:
        try:
            return await ledger.append(ONE, record)
        except Retriable:
            await asyncio.sleep(0.02)


@promise("M1")
@told_to_all
def test_an_append_that_lands_late(server: LedgerServer) -> None:
    """What arrives after its writer gave up stands behind everything that was read before, or not at all."""

    async def story() -> None:
        url = server.url()
        ledger, other = open_ledger(url), open_ledger(server.direct(url))
        await ledger.append(ONE, b"first")
        server.proxy.hold()
        late = asyncio.create_task(ledger.append(ONE, b"late".ljust(20_000, b".")))
        await wait_for(lambda: server.proxy.held_bytes >= 20_000, "the record is on its way")
        server.proxy.strand()
        with pytest.raises(OutcomeUnknown):
            await late
        await other.append(ONE, b"between")
        before = await read_all(other)
        assert [entry.data for entry in before] == [b"first", b"between"]
        lost = server.proxy.lost_bytes
        server.proxy.resume()
        seen = list(before)
        if server.lands_late:
            await follow(other, seen, 3)
            assert seen[2].data.startswith(b"late")
            assert seen[2].position > before[-1].position
        else:
            await wait_for(lambda: server.proxy.lost_bytes > lost, "the store has answered what came late")
        assert await other.last(ONE) == seen[-1].position
        await repeated(ledger, b"after")
        wanted = [b"firs", b"betw", b"late", b"afte"] if server.lands_late else [b"firs", b"betw", b"afte"]
        assert [entry.data[:4] for entry in await read_all(other)] == wanted
        await ledger.close()
        await other.close()

    run(story)


# --- watching ----------------------------------------------------------------------------------------


@promise("M1")
@told_to_all
def test_a_watch_goes_on_after_a_reconnect(server: LedgerServer) -> None:
    """However often its connection ends, a follower sees every record once, in order."""

    async def story() -> None:
        url = server.url()
        follower, other = open_ledger(url), open_ledger(server.direct(url))
        seen: list[Entry] = []
        written: list[Entry] = []
        following = asyncio.create_task(follow(follower, seen, 200))
        for number in range(200):
            data = payload("x", number)
            written.append(Entry(await other.append(ONE, data), data))
            if number % 40 == 20:
                server.proxy.cut()
        await following
        assert seen == written
        await follower.close()
        await other.close()

    run(story)


@promise("M1")
@told_to_all
def test_a_watch_goes_on_where_history_is_gone(server: LedgerServer) -> None:
    """What the store no longer tells by itself, a follower reads; nothing is missed."""

    async def story() -> None:
        url = server.url()
        follower, other = open_ledger(url), open_ledger(server.direct(url))
        seen: list[Entry] = []
        first = await other.append(ONE, b"first")
        await follow(follower, seen, 1)
        following = asyncio.create_task(follow(follower, seen, 122))
        server.proxy.refuse()
        written = [Entry(first, b"first")]
        for number in range(120):
            data = payload("unseen", number)
            written.append(Entry(await other.append(ONE, data), data))
        await asyncio.to_thread(server.forget_history)
        server.proxy.resume()
        written.append(Entry(await other.append(ONE, b"last"), b"last"))
        await following
        assert seen == written
        await follower.close()
        await other.close()

    run(story)


# --- replicas ----------------------------------------------------------------------------------------


def replica(ledger: Ledger, store: MemoryStore) -> Replica[StreamsState]:
    return Replica(ledger, store, StreamsState(ONE), SystemClock(), SystemChance())


@promise("M1")
@told_to_all
def test_truncation_under_a_slow_reader(server: LedgerServer) -> None:
    """A replica that was cut off while the ledger was truncated comes back by a checkpoint, to the same state."""

    async def story() -> None:
        url, store = server.url(), MemoryStore()
        way, direct = open_ledger(url), open_ledger(server.direct(url))
        slow, quick = replica(way, store), replica(direct, store)
        await quick.start()
        quick.join(Epoch(1))
        await quick.submit([Tick()])
        await slow.start()
        behind = slow.state.position
        server.proxy.refuse()
        for _ in range(2):
            for _ in range(30):
                await quick.submit([Tick()])
            assert await write_checkpoint(direct, store, StreamsState(ONE))
        with pytest.raises(HeadwaterError, match="truncated"):
            await direct.read(ONE, behind, 10)
        server.proxy.resume()
        while slow.state.position < quick.state.position:
            try:
                await slow.barrier()
            except Retriable:
                await asyncio.sleep(0.02)
        assert slow.state.image() == quick.state.image()
        await quick.submit([Tick()])
        await slow.barrier()
        assert slow.state.image() == quick.state.image()
        for closing in (slow, quick, way, direct):
            await closing.close()

    run(story)


class Counting:
    """A ledger that counts beats, and how often one or an append failed."""

    def __init__(self, inner: Ledger) -> None:
        self._inner = inner
        self.dense = inner.dense
        self.failed = 0
        self.beaten = 0
        self.read, self.last, self.watch = inner.read, inner.last, inner.watch
        self.truncate, self.pointer, self.set_pointer = inner.truncate, inner.pointer, inner.set_pointer
        self.beats, self.forget_beat, self.close = inner.beats, inner.forget_beat, inner.close

    async def append(self, domain: Domain, record: bytes) -> Position:
        try:
            return await self._inner.append(domain, record)
        except Retriable:
            self.failed += 1
            raise

    async def beat(self, process: str) -> None:
        try:
            await self._inner.beat(process)
        except Retriable:
            self.failed += 1
            raise
        self.beaten += 1


class Process:
    """One process with its replicas, on a real store and in real time."""

    def __init__(self, url: str, store: MemoryStore, node: int) -> None:
        self.way = Counting(open_ledger(url))
        clock, chance = SystemClock(), SystemChance()
        self.cluster = Replica(self.way, store, ClusterState(), clock, chance)
        self.domain = Replica(self.way, store, StreamsState(ONE), clock, chance)
        listeners = (Listener("PLAINTEXT", "localhost", 9092),)
        self.membership = Membership(
            self.way, self.cluster, {ONE: self.domain}, clock, chance, node=node, listeners=listeners
        )
        self.epochs: list[int] = []
        self.membership.on_epoch = self.epochs.append

    async def start(self) -> None:
        await self.cluster.start()
        await self.domain.start()
        await self.membership.join()
        self.membership.start()

    async def stop(self) -> None:
        await self.membership.leave()
        await self.cluster.close()
        await self.domain.close()
        await self.way.close()


@promise("M6")
@told_to_all
def test_an_outage_and_the_return(server: LedgerServer) -> None:
    """While the store is away nobody is fenced, whatever that takes; afterwards everybody goes on where it was."""

    async def story() -> None:
        url, store = server.url(), MemoryStore()
        processes = [Process(url, store, node) for node in (1, 2)]
        for process in processes:
            await process.start()
            await process.domain.submit([Tick()])
        before = [list(process.epochs) for process in processes]
        await asyncio.to_thread(server.stop)
        long_enough = time.monotonic() + 1.5 * SESSION_SECONDS
        await wait_for(
            lambda: time.monotonic() > long_enough and all(p.way.failed for p in processes),
            "calls fail, and a session has passed",
        )
        beaten = [process.way.beaten for process in processes]
        await asyncio.to_thread(server.start)
        await wait_for(
            lambda: all(p.way.beaten >= b + 8 for p, b in zip(processes, beaten, strict=True)), "beats go on"
        )
        assert [list(process.epochs) for process in processes] == before
        for process in processes:
            await process.domain.submit([Tick()])
            await process.cluster.barrier()
            assert len(process.cluster.state.processes) == 2
            assert process.membership.in_contact
        await processes[0].domain.barrier()
        assert processes[0].domain.state.image() == processes[1].domain.state.image()
        for process in processes:
            await process.stop()

    run(story)
