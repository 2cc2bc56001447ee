"""The registers' conformance suite, in memory and on a real S3 server; what a ledger needs of its store."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path

import obstore.store
import pytest

from harness.s3 import PROGRAM, S3Server
from harness.tools import needs
from headwater.errors import Retriable, StoreUnavailable
from headwater.objects.registers import Held, MemoryRegisters, Registers, Tag
from headwater.objects.registers_conformance import checks
from headwater.objects.registers_remote import RemoteRegisters
from tests.support.promise import promise

PROMISES = ("M1",)

Opener = Callable[[], Awaitable[Registers]]
_prefixes = count()


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    needs("versitygw: scripts/setup-tools", PROGRAM.exists())
    with S3Server(tmp_path_factory.mktemp("s3")) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server


def run(work: Awaitable[None]) -> None:
    async def awaited() -> None:
        await work

    asyncio.run(awaited())


def shared(registers: Registers) -> Opener:
    async def open_one() -> Registers:
        return registers

    return open_one


@promise("M1")
@pytest.mark.parametrize("name", checks())
def test_memory(name: str) -> None:
    run(checks()[name](shared(MemoryRegisters())))


@promise("M1")
@pytest.mark.parametrize("name", checks())
def test_obstore_in_memory(name: str) -> None:
    """The library's own store in memory, whose tags are versions of another kind."""
    run(checks()[name](shared(RemoteRegisters(obstore.store.MemoryStore(), "memory://"))))


@promise("M1")
@pytest.mark.parametrize("name", checks())
def test_s3(name: str, bucket: S3Server) -> None:
    prefix = next(_prefixes)

    async def open_one() -> Registers:
        return RemoteRegisters.from_url(f"{bucket.url}/registers/{prefix}")

    run(checks()[name](open_one))


@promise("M1")
def test_the_suite_finds_a_store_that_ignores_conditions() -> None:
    """A server that takes a conditional PUT for a plain one does not pass."""

    class Careless(MemoryRegisters):
        async def create(self, path: str, data: bytes) -> Tag | None:
            return self._write(path, data)

        async def replace(self, path: str, data: bytes, tag: Tag) -> Tag | None:
            return self._write(path, data)

    for name in (
        "a_register_is_created_once",
        "a_register_is_replaced_by_who_has_seen_it",
        "a_repeated_write_is_refused",
    ):
        with pytest.raises(AssertionError):
            run(checks()[name](shared(Careless())))


@promise("M1")
def test_a_server_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads and writes say so, and what stood stands when it is back; a bucket that is not there is an error."""
    needs("versitygw: scripts/setup-tools", PROGRAM.exists())
    with S3Server(tmp_path) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)

        async def go() -> None:
            registers = RemoteRegisters.from_url(server.url)
            tag = await registers.create("a", b"1")
            assert tag is not None
            server.kill()
            with pytest.raises(StoreUnavailable):
                await registers.read("a")
            for write in (registers.create("b", b"1"), registers.replace("a", b"2", tag), registers.put("c", b"3")):
                with pytest.raises(Retriable):
                    await write
            server.start()
            assert await registers.read("a") == Held(b"1", tag)
            with pytest.raises(StoreUnavailable):
                await RemoteRegisters.from_url("s3://no-such-bucket").create("a", b"1")

        asyncio.run(go())
