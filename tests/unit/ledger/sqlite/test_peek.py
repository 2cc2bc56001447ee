"""A look at a SQLite ledger that no process uses: what its marks know and it lacks, without a change to any file."""

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headwater.ledger.marks import End, Mark, crc_of
from headwater.ledger.sqlite.ledger import SqliteLedger
from headwater.ledger.sqlite.peek import in_use, what_is_missing
from headwater.state.records import encode_record
from headwater.types import Domain, Position
from tests.support.promise import promise

PROMISES = ("M1",)

ONE = Domain(1)


def record(number: int) -> bytes:
    return encode_record(1, number, number, number, [])


def mark(position: int, crc: int) -> Mark:
    return Mark("c", "p", "", {1: End(0, position, crc)}, 1, 1, 0)


async def written(path: Path, count: int, truncated: int = 0) -> None:
    ledger = SqliteLedger(path)
    for number in range(1, count + 1):
        await ledger.append(ONE, record(number))
    await ledger.truncate(ONE, Position(truncated))
    await ledger.close()


@promise("M1")
@pytest.mark.parametrize(
    ("position", "crc", "missing"),
    [
        (3, crc_of(record(3)), ""),
        (5, crc_of(record(5)), ""),
        (5, 0, ""),
        (5, crc_of(record(4)), "domain 1 has another record 5 than it had"),
        (6, 0, "domain 1 ends at record 5, and it had record 6"),
        (1, crc_of(record(4)), ""),  # truncated: a checkpoint has it
    ],
)
def test_what_is_missing(tmp_path: Path, position: int, crc: int, missing: str) -> None:
    path = tmp_path / "ledger.db"
    asyncio.run(written(path, 5, truncated=2))
    before = {one.name: one.read_bytes() for one in tmp_path.iterdir() if one.is_file()}
    assert what_is_missing(path, [mark(position, crc)]) == missing
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir() if one.is_file()} == before


@promise("M1")
def test_a_log_that_lost_its_end(tmp_path: Path) -> None:
    """Wherever it is cut: either nothing is missing, or it is named."""
    path, marks = tmp_path / "ledger.db", [mark(5, crc_of(record(5)))]

    async def killed() -> None:
        ledger = SqliteLedger(path)
        for number in range(1, 6):
            await ledger.append(ONE, record(number))
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{path}{suffix}", tmp_path / f"copy{suffix}")
        await ledger.close()

    asyncio.run(killed())
    copy, whole = tmp_path / "copy", (tmp_path / "copy-wal").read_bytes()
    assert what_is_missing(copy, marks) == ""
    found = set()
    for size in range(0, len(whole), 3_001):
        (tmp_path / "copy-wal").write_bytes(whole[:size])
        found.add(what_is_missing(copy, marks))
    assert "domain 1 ends at record 4, and it had record 5" in found
    assert any(text.startswith(("it is empty", "domain 1 ends at record 0")) for text in found)
    copy.unlink()
    assert what_is_missing(copy, marks) == "it is empty"


@promise("M1")
def test_a_ledger_in_use_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    asyncio.run(written(path, 2))
    assert not in_use(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("SELECT count(*) FROM records").fetchall()
        assert in_use(path) and what_is_missing(path, [mark(9, 0)]) == ""
    assert not in_use(path) and what_is_missing(path, [mark(9, 0)])
