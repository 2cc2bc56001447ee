"""Processes that share a bucket let one of them append for all, and each goes on alone where that fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headwater.clock import SystemChance, SystemClock
from headwater.errors import ConfigError, OutcomeUnknown
from headwater.ledger import Ledger
from headwater.ledger.bucket.ledger import BucketLedger
from headwater.ledger.bucket.peers import MAGIC, TcpPeers, preferred
from headwater.ledger.conformance import checks
from headwater.ledger.contract import Entry
from headwater.objects.registers import MemoryRegisters
from headwater.types import Domain, Position
from headwater.wire.peer_handshake import MAGIC_BYTES, NONCE_BYTES, PROOF_BYTES
from tests.support.promise import promise

PROMISES = ("M1",)

ONE = Domain(1)
START = Position(0)
ABOUT_BEATS = ("an_empty_ledger_has_nothing", "beats_count_up")
"""Checks that count beats; peers here beat before."""


def run(work: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await work

    asyncio.run(limited())


def peers() -> TcpPeers:
    return TcpPeers("127.0.0.1:0", SystemClock(), SystemChance())


@asynccontextmanager
async def acquainted(registers: MemoryRegisters, count: int) -> AsyncIterator[list[BucketLedger]]:
    """Handles that know each other; the preferred appender of domain 1 is the first."""
    ledgers = [BucketLedger(registers, places=4096, peers=peers(), poll_seconds=0.01) for _ in range(count)]
    try:
        await meet(ledgers)
        addresses = frozenset(ledger._address for ledger in ledgers)
        ledgers.sort(key=lambda ledger: ledger._address != preferred(ONE, addresses))
        for ledger in ledgers:
            await ledger.last(ONE)
        yield ledgers
    finally:
        for ledger in ledgers:
            await ledger.close()


async def meet(ledgers: list[BucketLedger]) -> None:
    for ledger in ledgers:
        await ledger.beat(ledger._writer.hex())
    for ledger in ledgers:
        await ledger.beats()


@promise("M1")
@pytest.mark.parametrize("name", [name for name in checks() if name not in ABOUT_BEATS])
def test_conformance(name: str) -> None:
    """The whole contract, with every append of all but one handle going through that one."""
    registers = MemoryRegisters()
    opened: list[BucketLedger] = []

    async def open_one() -> Ledger:
        opened.append(BucketLedger(registers, peers=peers(), poll_seconds=0.01))
        await meet([ledger for ledger in opened if not ledger._closed])
        return opened[-1]

    async def awaited() -> None:
        await checks()[name](open_one)

    run(awaited())


@promise("M1")
def test_one_appends_for_all_and_tells_them() -> None:
    """Many writers share slots; nobody but one writes, and nobody has to ask the bucket what stands."""

    async def go() -> None:
        async with acquainted(MemoryRegisters(), 4) as ledgers:
            before = [(ledger.counts.puts, ledger.counts.gets) for ledger in ledgers]

            async def write(ledger: BucketLedger, name: int) -> list[Entry]:
                return [Entry(await ledger.append(ONE, d), d) for d in (f"{name} {i}".encode() for i in range(50))]

            written = [e for es in await asyncio.gather(*map(write, ledgers, range(4))) for e in es]
            for ledger, (puts, gets) in zip(ledgers, before, strict=True):
                assert await ledger.read(ONE, START, 1000) == sorted(written, key=lambda e: e.position)
                assert ledger.counts.gets - gets <= 30, "the slots were told, not asked for"
                assert (ledger.counts.puts > puts) == (ledger is ledgers[0])
            assert ledgers[0].counts.records == 200
            assert ledgers[0].counts.commits < 200

    run(go())


@promise("M1")
def test_a_watcher_hears_at_once() -> None:
    """A slot that is pushed wakes those who wait, without a look at the bucket."""

    async def go() -> None:
        async with acquainted(MemoryRegisters(), 2) as [leader, other]:
            first = await other.append(ONE, b"connects")
            watching = asyncio.create_task(other.watch(ONE, first))
            position = await leader.append(ONE, b"news")
            assert await watching >= position

    run(go())


@promise("M1")
def test_without_the_preferred_one_everybody_appends_alone() -> None:
    """The preferred appender leaves in the middle; nothing that was acknowledged is lost."""

    async def go() -> None:
        registers = MemoryRegisters()
        async with acquainted(registers, 3) as [leader, *others]:
            told: dict[int, bytes] = {}

            async def write(ledger: BucketLedger, name: int) -> None:
                for i in range(60):
                    data = f"{name} {i}".encode()
                    while True:
                        try:
                            told[await ledger.append(ONE, data)] = data
                            break
                        except OutcomeUnknown:
                            continue
                    if i == 20 and name == 0:
                        await leader.close()

            await asyncio.gather(*map(write, others, range(2)))
            await others[0].last(ONE)
            found = {entry.position: entry.data for entry in await others[0].read(ONE, START, 1000)}
            assert told.items() <= found.items()
            assert sorted(found) == sorted(set(found))
            assert len(found) <= len(told) + 2, "at most what was under way stands twice"
            assert any(other.counts.commits for other in others)

    run(go())


async def _silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Takes connections and says nothing sensible."""
    writer.write(b"\0" * 16)
    await reader.read()
    writer.close()


@promise("M1")
def test_a_peer_that_does_not_know_the_secret_is_nobody() -> None:
    """Neither is it asked to append, nor is it served."""

    async def go() -> None:
        server = await asyncio.start_server(_silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with acquainted(MemoryRegisters(), 1) as [ledger]:
            assert ledger._peers is not None
            for _ in range(3):  # whomever the hash prefers, the record stands
                ledger._peers.know(frozenset({ledger._address, f"127.0.0.1:{port}"}))
                position = await ledger.append(ONE, b"mine")
                assert (await ledger.read(ONE, Position(position - 1), 1))[0].data == b"mine"
            ledger._peers.know(frozenset({f"127.0.0.1:{port}"}))
            ledger._peers._avoid.clear()  # type: ignore[attr-defined]
            await ledger.append(ONE, b"alone")
            host, _, own = ledger._address.rpartition(":")
            for rubbish in (b"", b"x" * (NONCE_BYTES + PROOF_BYTES), b"\xff" * 4096):
                reader, writer = await asyncio.open_connection(host, int(own))
                assert (await reader.readexactly(MAGIC_BYTES + NONCE_BYTES)).startswith(MAGIC)
                writer.write(rubbish)
                writer.write_eof()
                assert await reader.read() == b"", "it was served"
                writer.close()
            assert await ledger.append(ONE, b"still") > position
        server.close()

    run(go())


@promise("M1")
def test_addresses() -> None:
    """Where a process listens is HOST:PORT; everybody who knows the same ones prefers the same one."""
    for wrong in ("localhost", ":80", "host:port", "0.0.0.0:0", ""):
        with pytest.raises(ConfigError):
            TcpPeers(wrong, SystemClock(), SystemChance())
    known = frozenset({"a:1", "b:2", "c:3"})
    assert {preferred(Domain(d), known) for d in range(64)} == known
    assert preferred(ONE, frozenset()) is None
