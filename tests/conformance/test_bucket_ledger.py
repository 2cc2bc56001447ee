"""The ledger's conformance suite over a bucket: in memory, and on a real S3 server with large and tiny rings."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import count

import pytest

from harness.s3 import PROGRAM, S3Server
from harness.tools import needs
from headwater.ledger import Ledger, open_ledger
from headwater.ledger.bucket.ledger import BucketLedger
from headwater.ledger.conformance import checks
from headwater.ledger.contract import Entry
from headwater.objects.registers import MemoryRegisters
from headwater.types import Domain, Position
from tests.support.promise import promise

PROMISES = ("M1",)

Opener = Callable[[], Awaitable[Ledger]]
_prefixes = count()
ONE = Domain(1)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One server for the whole file. Every test takes a prefix of its own."""
    needs("versitygw: scripts/setup-tools", PROGRAM.exists())
    with S3Server(tmp_path_factory.mktemp("s3")) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server


def run(work: Awaitable[None]) -> None:
    async def awaited() -> None:
        await work

    asyncio.run(awaited())


def in_memory(places: int) -> Opener:
    registers = MemoryRegisters()

    async def open_one() -> Ledger:
        return BucketLedger(registers, places=places, poll_seconds=0.01)

    return open_one


def on_s3(server: S3Server, options: str = "") -> Opener:
    prefix = next(_prefixes)

    async def open_one() -> Ledger:
        return open_ledger(f"{server.url}/conformance/{prefix}{options}")

    return open_one


@promise("M1")
@pytest.mark.parametrize("name", checks())
def test_in_memory(name: str) -> None:
    run(checks()[name](in_memory(1 << 16)))


@promise("M1")
@pytest.mark.parametrize("name", checks())
def test_on_s3(name: str, bucket: S3Server) -> None:
    run(checks()[name](on_s3(bucket)))


@promise("M1")
def test_a_tiny_ring_on_s3(bucket: S3Server) -> None:
    """Lap after lap over the same objects, by two handles in turns and one that comes anew each time."""

    async def go() -> None:
        open_one = on_s3(bucket, "?slots=4")
        one, other = await open_one(), await open_one()
        last = Position(0)
        for number in range(20):
            writer, reader = (one, other) if number % 3 else (other, one)
            data = str(number).encode()
            position = await writer.append(ONE, data)
            fresh = await open_one()
            for ledger in (reader, fresh):
                assert await ledger.last(ONE) == position
                assert await ledger.read(ONE, last, 10) == [Entry(position, data)]
            await fresh.close()
            await reader.truncate(ONE, position)
            last = position
        await one.close()
        await other.close()

    run(go())
