"""Records that a native thread appends to a SQLite ledger, and what happens when it cannot."""

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headwater.errors import OutcomeUnknown, StoreFull, StoreUnavailable
from headwater.ledger.contract import Entry
from headwater.ledger.sqlite import ledger as sqlite
from headwater.ledger.sqlite.ledger import SqliteLedger
from headwater.ledger.sqlite.native_appends import NativeAppends
from headwater.native import rows
from headwater.types import Domain, Position
from tests.support.files import open_handles
from tests.support.promise import promise

PROMISES = ("M1",)

pytestmark = pytest.mark.usefixtures("natively")

ONE, TWO = Domain(1), Domain(2)
START = Position(0)


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """What became of native appends; None for those that were not begun."""
    told: list[int | None] = []
    append = NativeAppends.append

    async def watched(appends: NativeAppends, domain: int, record: bytes, *, alone: bool) -> object:
        row = await append(appends, domain, record, alone=alone)
        told.append(None if row is None else row[rows.RESULT])
        return row

    monkeypatch.setattr(NativeAppends, "append", watched)
    return told


def on_a_ledger(tmp_path: Path, work: Callable[[SqliteLedger], Awaitable[None]]) -> None:
    """Run with an open ledger."""

    async def run() -> None:
        ledger = SqliteLedger(tmp_path / "ledger.db")
        try:
            await work(ledger)
        finally:
            await ledger.close()

    asyncio.run(run())


@promise("M1")
def test_records_arrive_in_order(tmp_path: Path, results: list[int | None]) -> None:
    """Also beside those that are appended in the other way, and empty ones."""
    records = [b"", *(os.urandom(i * 97) for i in range(50))]

    async def work(ledger: SqliteLedger) -> None:
        for i, record in enumerate(records, 1):
            assert await ledger.append(ONE, record) == i
        positions = await asyncio.gather(*(ledger.append(TWO, b"%d" % i) for i in range(20)))
        assert sorted(positions) == list(range(1, 21))
        assert await ledger.read(ONE, START, 100) == [Entry(Position(i), r) for i, r in enumerate(records, 1)]
        assert [entry.data for entry in await ledger.read(TWO, START, 100)] == [
            b"%d" % i for _, i in sorted(zip(positions, range(20), strict=True))
        ]

    on_a_ledger(tmp_path, work)
    assert results.count(rows.DONE) >= len(records) + 1
    assert None in results


@promise("M1")
def test_somebody_else_writes(tmp_path: Path, results: list[int | None]) -> None:
    """A writer that holds the file is waited for, by the ledger's own connection."""

    async def work(ledger: SqliteLedger) -> None:
        await ledger.append(ONE, b"first")
        other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(ledger.append(ONE, b"second"))
        while len(results) < 2:
            await asyncio.sleep(0.001)
        assert not waiting.done()
        other.execute("ROLLBACK")
        other.close()
        assert await waiting == 2

    on_a_ledger(tmp_path, work)
    assert results == [rows.DONE, rows.FAILED]


@promise("M1")
def test_the_lock_file_is_kept_to(tmp_path: Path, results: list[int | None]) -> None:
    """Where other processes use the file, a writer that is in line before us goes first."""

    async def work(ledger: SqliteLedger) -> None:
        await ledger.append(ONE, b"first")
        ledger._notices.peers = ["somebody"]
        assert await ledger.append(ONE, b"second") == 2
        ledger._notices.peers = ["somebody"]
        with open(tmp_path / "ledger.db.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            waiting = asyncio.create_task(ledger.append(ONE, b"third"))
            while len(results) < 3:
                await asyncio.sleep(0.001)
            assert not waiting.done()
        assert await waiting == 3

    on_a_ledger(tmp_path, work)
    assert results == [rows.DONE, rows.DONE, rows.FAILED]


@promise("M1")
def test_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, results: list[int | None]) -> None:
    """A record that does not fit changes nothing, and the ledger goes on when there is space."""
    limited = "PRAGMA max_page_count=16"

    async def work(ledger: SqliteLedger) -> None:
        await ledger.append(ONE, b"first")
        assert ledger._native is not None
        native = ledger._native
        native._library.sqlite3_exec(native._connection, limited.encode(), None, None, None)
        ledger._writer.execute(limited)
        with pytest.raises(StoreFull):
            await ledger.append(ONE, b"x" * 200_000)
        assert await ledger.append(ONE, b"second") == 2
        assert [entry.data for entry in await ledger.read(ONE, START, 9)] == [b"first", b"second"]

    on_a_ledger(tmp_path, work)
    assert results == [rows.DONE, rows.FAILED, rows.DONE]


@promise("M1")
def test_nobody_knows(tmp_path: Path, results: list[int | None]) -> None:
    """An error of which nobody knows what it left is told as that."""

    async def work(ledger: SqliteLedger) -> None:
        await ledger.append(ONE, b"first")
        native = ledger._native
        assert native is not None
        native._library.sqlite3_exec(native._connection, b"PRAGMA query_only=1", None, None, None)
        with pytest.raises(OutcomeUnknown):
            await ledger.append(ONE, b"second")

    on_a_ledger(tmp_path, work)
    assert results == [rows.DONE, rows.UNKNOWN]


@promise("M1")
def test_a_damaged_file(tmp_path: Path, results: list[int | None]) -> None:
    """It is told as what it is, by the ledger's own connection."""

    async def work(ledger: SqliteLedger) -> None:
        await ledger.append(ONE, b"first")
        ledger._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with open(tmp_path / "ledger.db", "r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * 4096 * 4)
        other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
        other.execute("PRAGMA user_version=1")  # has the connections look at the file again
        other.close()
        with pytest.raises(StoreUnavailable, match="doctor"):
            await ledger.append(ONE, b"second")

    on_a_ledger(tmp_path, work)
    assert results == [rows.DONE, rows.FAILED]


@promise("M1")
def test_where_sqlite_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that has SQLite built in appends as ever."""
    monkeypatch.setattr(sqlite, "_sqlite3", asyncio)

    async def work(ledger: SqliteLedger) -> None:
        assert await ledger.append(ONE, b"first") == 1
        assert ledger._native is None

    on_a_ledger(tmp_path, work)


@promise("M1")
def test_nothing_is_left_open(tmp_path: Path) -> None:
    """A closed ledger holds no handles."""

    async def work(ledger: SqliteLedger) -> None:
        await ledger.append(ONE, b"first")
        assert ledger._native is not None

    on_a_ledger(tmp_path / "warm", work)
    before = open_handles()
    on_a_ledger(tmp_path / "again", work)
    assert open_handles() == before
