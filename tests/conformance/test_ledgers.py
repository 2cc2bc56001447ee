"""The ledger's conformance suite over every backend; SQLite and the journal also with processes, killed ones too."""

import asyncio
import itertools
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from harness.etcd import EtcdCluster
from harness.oxia import OxiaServer
from harness.virtual import SeededChance, run
from headwater.errors import ConfigError, StoreUnavailable
from headwater.ledger import Ledger, open_ledger
from headwater.ledger.conformance import checks
from headwater.ledger.etcd.layout import Sizes
from headwater.ledger.etcd.ledger import EtcdLedger
from headwater.ledger.journal.ledger import JournalLedger
from headwater.ledger.journal.reader import FILE_BYTES
from headwater.ledger.memory import MemoryLedger
from headwater.ledger.sqlite.ledger import SqliteLedger
from headwater.types import Domain, Position
from tests.simulation.backends import SMALL
from tests.simulation.etcd_model import EtcdModel, ModelClient
from tests.support.promise import promise

PROMISES = ("M1",)

ONE = Domain(1)
START = Position(0)
ALL = Position(1 << 40)
SMALL_FILES = 4 << 20
"""Files of a journal that are full after a few of the longest frames."""

Opener = Callable[[], Awaitable[Ledger]]


def sqlite_opener(directory: Path) -> Opener:
    async def open_one() -> Ledger:
        return SqliteLedger(directory / "ledger.db")

    return open_one


def local_url(kind: str, directory: Path) -> str:
    """The URL of a ledger that processes of this machine share."""
    return f"{kind}://{directory.absolute()}/{'ledger.db' if kind == 'sqlite' else 'journal'}"


def memory_opener() -> Opener:
    ledger = MemoryLedger()

    async def open_one() -> Ledger:
        return ledger

    return open_one


def oxia_opener(server: OxiaServer) -> Opener:
    url = server.url(f"test/{uuid.uuid4()}")

    async def open_one() -> Ledger:
        return open_ledger(url)

    return open_one


@promise("M1")
@pytest.mark.parametrize("name", checks())
def test_oxia(name: str, oxia_server: OxiaServer) -> None:
    asyncio.run(_awaited(checks()[name](oxia_opener(oxia_server))))


@promise("M1")
@pytest.mark.parametrize("name", checks(volatile=True))
def test_memory(name: str) -> None:
    asyncio.run(_awaited(checks(volatile=True)[name](memory_opener())))


@promise("M1")
@pytest.mark.parametrize("name", checks())
def test_sqlite(name: str, tmp_path: Path) -> None:
    asyncio.run(_awaited(checks()[name](sqlite_opener(tmp_path))))


@promise("M1")
@pytest.mark.parametrize("name", checks())
@pytest.mark.usefixtures("natively")
def test_sqlite_natively(name: str, tmp_path: Path) -> None:
    """Records are appended by a native thread."""
    asyncio.run(_awaited(checks()[name](sqlite_opener(tmp_path))))


@promise("M1")
@pytest.mark.parametrize("name", checks(carries=True))
@pytest.mark.parametrize("file_bytes", [FILE_BYTES, SMALL_FILES], ids=["usual", "small"])
def test_journal(name: str, file_bytes: int, tmp_path: Path) -> None:
    """With files of the usual size, and with files that are full after a few frames."""

    async def open_one() -> Ledger:
        return JournalLedger(tmp_path / "journal", file_bytes=file_bytes)

    asyncio.run(_awaited(checks(carries=True)[name](open_one)))


@promise("M1")
@pytest.mark.parametrize("kind", ["sqlite", "journal"])
@pytest.mark.parametrize("name", checks())
def test_without_datagrams(name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking alone is enough where no notice ever arrives."""
    monkeypatch.setattr("headwater.ledger.notices.Notices._address", lambda self, name: "/nonexistent/socket")

    async def open_one() -> Ledger:
        return open_ledger(local_url(kind, tmp_path))

    asyncio.run(_awaited(checks()[name](open_one)))


@promise("M1")
@pytest.mark.parametrize("name", checks())
def test_etcd(name: str, etcd_cluster: EtcdCluster) -> None:
    url = etcd_cluster.url(f"conformance/{uuid.uuid4()}")

    async def open_one() -> Ledger:
        return open_ledger(url)

    asyncio.run(_awaited(checks()[name](open_one)))


@promise("M1")
@pytest.mark.parametrize("sizes", [Sizes(), SMALL], ids=["usual", "small"])
@pytest.mark.parametrize("name", checks())
def test_etcd_model(name: str, sizes: Sizes) -> None:
    """The same ledger over the simulation's etcd, with pages and buffers of the usual size and very small ones."""
    model, handles = EtcdModel(), itertools.count()

    async def open_one() -> Ledger:
        return EtcdLedger(ModelClient(model), "test", SeededChance(next(handles)), sizes=sizes)

    run(_awaited(checks()[name](open_one)))


async def _awaited(check: Awaitable[None]) -> None:
    await check


@promise("M1")
def test_the_suite_finds_what_is_broken() -> None:
    """A ledger that forgets its place after a truncation, or answers `last` from memory, does not pass."""

    class Reusing(MemoryLedger):
        async def truncate(self, domain: Domain, through: Position) -> None:
            await super().truncate(domain, through)
            log = self._log(domain)
            if not log.records:
                log.first = 1

    class Stale(MemoryLedger):
        async def last(self, domain: Domain) -> Position:
            return Position(max(0, await super().last(domain) - 1))

    for broken, name in (
        (Reusing(), "truncated_positions_are_never_used_again"),
        (Stale(), "an_append_is_visible_to_every_later_last"),
    ):

        async def open_one(ledger: Ledger = broken) -> Ledger:
            return ledger

        with pytest.raises(AssertionError):
            asyncio.run(_awaited(checks()[name](open_one)))


# --- between processes --------------------------------------------------------------------------

WRITER = """
import asyncio, sys
from pathlib import Path
from headwater.ledger import open_ledger
from headwater.types import Domain

async def main(url, name, count, size):
    ledger = open_ledger(url)
    for i in range(int(count)):
        data = f"{name} {i} ".encode().ljust(int(size), b".")
        position = await ledger.append(Domain(1), data)
        print(position, i, flush=True)
    await ledger.close()

asyncio.run(main(*sys.argv[1:]))
"""


def writer(url: str, name: str, count: int, size: int = 40) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", WRITER, url, name, str(count), str(size)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def payload(name: str, i: int, size: int = 40) -> bytes:
    return f"{name} {i} ".encode().ljust(size, b".")


def acknowledged(output: str) -> dict[int, int]:
    """Position to number, of every whole line."""
    lines = [line for line in output.splitlines(keepends=True) if line.endswith("\n")]
    return {int(position): int(i) for position, i in (line.split() for line in lines)}


@promise("M1")
@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_between_processes(kind: str, tmp_path: Path) -> None:
    """Three processes append at once and this one follows by watching; everybody has the same sequence."""
    url, count = local_url(kind, tmp_path), 100

    async def follow() -> dict[int, bytes]:
        ledger = open_ledger(url)
        seen: dict[int, bytes] = {}
        after = START
        async with asyncio.timeout(60):
            while len(seen) < 3 * count:
                await ledger.watch(ONE, after)
                for entry in await ledger.read(ONE, after, 1000):
                    seen[entry.position] = entry.data
                    after = entry.position
        await ledger.close()
        return seen

    names = ("a", "b", "c")
    writers = [writer(url, name, count) for name in names]
    try:
        seen = asyncio.run(follow())
        outputs = [process.communicate(timeout=60)[0] for process in writers]
    finally:
        for process in writers:
            process.kill()
            process.wait()
    assert sorted(seen) == list(range(1, 3 * count + 1))
    for name, output in zip(names, outputs, strict=True):
        told = acknowledged(output)
        assert list(told.values()) == list(range(count))
        for position, i in told.items():
            assert seen[position] == payload(name, i)


@promise("M1")
@pytest.mark.parametrize("kind", ["sqlite", "journal"])
@pytest.mark.parametrize("kill_after", [1, 25, 60])
def test_kill_9(tmp_path: Path, kill_after: int, kind: str) -> None:
    """Killing a process in the middle of its appends loses nothing it was told, and hinders nobody."""
    url, size = local_url(kind, tmp_path), 20_000
    victim = writer(url, "victim", 1_000_000, size)
    survivor = writer(url, "survivor", 50, size)
    assert victim.stdout is not None
    try:
        lines = [victim.stdout.readline() for _ in range(kill_after)]
        os.kill(victim.pid, signal.SIGKILL)
        lines += victim.stdout.readlines()
        victim.wait(timeout=30)
        survived = acknowledged(survivor.communicate(timeout=60)[0])
    finally:
        for process in (victim, survivor):
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
    told = acknowledged("".join(lines))
    assert len(told) >= kill_after
    assert len(survived) == 50

    async def look() -> dict[int, bytes]:
        ledger = open_ledger(url)
        position = await ledger.append(ONE, b"after the kill")
        entries = await ledger.read(ONE, START, 1_000_000)  # a journal shows what was under way with the next sync
        await ledger.close()
        found = {entry.position: entry.data for entry in entries}
        assert (entries[-1].position, found.pop(position)) == (position, b"after the kill")
        return found

    found = asyncio.run(look())
    assert list(found) == list(range(1, len(found) + 1))
    for position, i in told.items():
        assert found[position] == payload("victim", i, size)
    for position, i in survived.items():
        assert found[position] == payload("survivor", i, size)
    # At most one record stands that nobody was told of: the one that was under way.
    assert len(found) <= len(told) + len(survived) + 1


@promise("M1")
def test_sqlite_watch_sees_what_no_notice_told(tmp_path: Path) -> None:
    """`watch` does not hang if the notice was lost and the file's change was seen while nobody watched."""

    async def run() -> None:
        watcher = SqliteLedger(tmp_path / "ledger.db")
        idle = asyncio.create_task(watcher.watch(ONE, START))
        await asyncio.sleep(0)
        idle.cancel()
        await asyncio.wait([idle])
        shutil.rmtree(tmp_path / "ledger.db-notices")
        (tmp_path / "ledger.db-notices").mkdir()
        other = SqliteLedger(tmp_path / "ledger.db")
        position = await other.append(ONE, b"unheard")
        async with asyncio.timeout(20):
            await _until_looked(watcher)
            assert await watcher.watch(ONE, START) >= position
        await other.close()
        await watcher.close()

    asyncio.run(run())


async def _until_looked(ledger: SqliteLedger) -> None:
    """Until the ledger has looked at the file's version twice more."""
    looked = 0
    inner = ledger._data_version

    def counted() -> int:
        nonlocal looked
        looked += 1
        return inner()

    ledger._data_version = counted  # type: ignore[method-assign]
    while looked < 2:
        await asyncio.sleep(0.01)


@promise("M1")
def test_sqlite_urls(tmp_path: Path) -> None:
    """A ledger is named by a URL; anything else is a mistake that says so."""

    async def run() -> None:
        ledger = open_ledger(f"sqlite://{tmp_path}/a%20b/ledger.db")
        await ledger.append(ONE, b"x")
        await ledger.close()
        with pytest.raises(StoreUnavailable):
            await ledger.append(ONE, b"y")

    asyncio.run(run())
    assert (tmp_path / "a b" / "ledger.db").exists()
    for url in ("sqlite://relative/path", "journal://relative", "sqlite:", "oracle:///x", "ledger.db"):
        with pytest.raises(ConfigError):
            open_ledger(url)


@promise("M1")
def test_sqlite_refuses_another_file(tmp_path: Path) -> None:
    """A file that is no ledger is reported, not overwritten."""
    path = tmp_path / "ledger.db"
    path.write_bytes(b"this is not a database, whatever its name says" * 100)
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match="cannot open"):
        SqliteLedger(path)
    assert path.read_bytes() == before
