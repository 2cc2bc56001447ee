"""A ledger in a bucket, with real processes: writers that sleep through laps, a server that goes and comes back."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.ledgers import BucketServer
from harness.patience import eventually
from harness.process import environment
from harness.s3 import PROGRAM
from harness.tools import ROOT, needs
from headwater.errors import Retriable
from headwater.ledger import Ledger, open_ledger
from headwater.ledger.contract import Entry
from headwater.types import Domain, Position
from tests.support.ledger_writer import payload, told
from tests.support.promise import promise

PROMISES = ("M1",)

ONE = Domain(1)
START = Position(0)
SECONDS = 100.0


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BucketServer]:
    needs("versitygw: scripts/setup-tools", PROGRAM.exists())
    with BucketServer(tmp_path) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(SECONDS):
            await story()

    asyncio.run(limited())


def writer(server: BucketServer, url: str, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.ledger_writer", url, name, str(count)]
    own = {**environment(server.environment), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=own)


async def patient(call: Callable[[], Awaitable[list[Entry]]]) -> list[Entry]:
    while True:
        try:
            return await call()
        except Retriable:
            await asyncio.sleep(0.02)


async def take(ledger: Ledger, seen: list[Entry]) -> None:
    """Read what is new, and truncate it, as a checkpoint would."""
    seen += await patient(lambda: ledger.read(ONE, seen[-1].position if seen else START, 100))
    if seen:
        await ledger.truncate(ONE, seen[-1].position)


def check(seen: list[Entry], outputs: dict[str, str], counts: dict[str, int]) -> None:
    """One order; every writer's records where it was told, each at least once."""
    positions = [entry.position for entry in seen]
    assert positions == sorted(set(positions))
    found = {entry.position: entry.data for entry in seen}
    for name, output in outputs.items():
        stood = told(output)
        assert list(stood.values()) == list(range(counts[name]))
        assert {position: payload(name, number) for position, number in stood.items()}.items() <= found.items()


@promise("M1")
@pytest.mark.timeout(150)
def test_a_writer_sleeps_while_the_ring_is_lapped(server: BucketServer) -> None:
    """Stopped at any moment and woken laps later, it overwrites nothing and loses nothing it was told."""
    url = f"{server.direct(server.url())}&slots=8"
    seen: list[Entry] = []
    outputs: dict[str, str] = {}

    async def story() -> None:
        ledger = open_ledger(url)
        await ledger.last(ONE)
        with writer(server, url, "sleeper", 60) as sleeper:
            try:
                for nap in range(5):
                    wanted = len(seen) + 5
                    while len(seen) < wanted:
                        await take(ledger, seen)
                    sleeper.send_signal(signal.SIGSTOP)
                    for lap in range(20):
                        await ledger.append(ONE, f"awake {nap} {lap}".encode())
                        await take(ledger, seen)
                    sleeper.send_signal(signal.SIGCONT)
                while sleeper.poll() is None:
                    await take(ledger, seen)
                outputs["sleeper"] = sleeper.communicate(timeout=SECONDS)[0]
            finally:
                sleeper.kill()
        await ledger.last(ONE)
        await take(ledger, seen)
        await ledger.close()

    run(story)
    check(seen, outputs, {"sleeper": 60})
    awake = [entry.data for entry in seen if entry.data.startswith(b"awake")]
    assert awake == [f"awake {nap} {lap}".encode() for nap in range(5) for lap in range(20)]


@promise("M1")
@pytest.mark.timeout(150)
def test_the_server_is_killed_under_writers(server: BucketServer) -> None:
    """Whatever they were told before, between and after two outages stands, in one order."""
    url, names, count = server.direct(server.url()), ("a", "b", "c"), 80
    seen: list[Entry] = []

    async def story() -> None:
        ledger = open_ledger(url)
        for wanted in (60, 140, len(names) * count):
            while len(seen) < wanted:
                seen.extend(await patient(lambda: ledger.read(ONE, seen[-1].position if seen else START, 100)))
            if wanted < len(names) * count:
                await asyncio.to_thread(server.stop)
                with pytest.raises(Retriable):
                    await ledger.append(ONE, b"into the void")
                await asyncio.to_thread(server.start)
        await ledger.close()

    with ExitStack() as stack:
        writers = {name: stack.enter_context(writer(server, url, name, count)) for name in names}
        for process in writers.values():
            stack.callback(process.kill)
        run(story)
        outputs = {name: process.communicate(timeout=SECONDS)[0] for name, process in writers.items()}

    async def rest() -> None:
        ledger = open_ledger(url)
        seen.extend(await ledger.read(ONE, seen[-1].position, 1000))
        await ledger.close()

    run(rest)
    check(seen, outputs, dict.fromkeys(names, count))


@promise("M1")
def test_a_put_that_lands_late_in_a_free_slot(server: BucketServer) -> None:
    """It stands where it was aimed, once, and the next record comes after it."""

    async def story() -> None:
        url = server.url()
        ledger, other = open_ledger(url), open_ledger(server.direct(url))
        first = await ledger.append(ONE, b"first")
        assert await other.last(ONE) == first
        server.proxy.hold()
        late = asyncio.create_task(ledger.append(ONE, b"late".ljust(20_000, b".")))
        await asyncio.to_thread(eventually, lambda: server.proxy.held_bytes >= 20_000, "the record is on its way")
        server.proxy.strand()
        late.cancel()
        await asyncio.wait([late])
        assert await other.last(ONE) == first
        lost = server.proxy.lost_bytes
        server.proxy.resume()
        await asyncio.to_thread(eventually, lambda: server.proxy.lost_bytes > lost, "the store has answered")
        after = await other.append(ONE, b"after")
        entries = await other.read(ONE, first, 10)
        assert [entry.data[:5] for entry in entries] == [b"late.", b"after"]
        assert entries[-1].position == after
        await ledger.close()
        await other.close()

    run(story)
