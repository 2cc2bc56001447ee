"""A ledger's file is copied at one moment, while others write, and takes the place of another in one step."""

import asyncio
from pathlib import Path

import pytest

from headwater.errors import ConfigError, StoreUnavailable
from headwater.ledger.contract import Pointer
from headwater.ledger.sqlite.ledger import SqliteLedger
from headwater.ledger.sqlite.snapshot import copy_ledger, exchange, remove_ledger
from headwater.types import Domain, Position
from tests.support.files import mode_of, umask_of

ONE = Domain(1)


async def records(path: Path) -> list[bytes]:
    ledger = SqliteLedger(path)
    try:
        return [entry.data for entry in await ledger.read(ONE, Position(0), 1000)]
    finally:
        await ledger.close()


async def written(path: Path, *data: bytes) -> None:
    ledger = SqliteLedger(path)
    for one in data:
        await ledger.append(ONE, one)
    await ledger.close()


def test_a_copy_of_a_ledger_in_use(tmp_path: Path) -> None:
    """It has what was appended before, also if that is only in SQLite's own log, and nothing of later."""
    source, target = tmp_path / "ledger.db", tmp_path / "copy.db"

    async def story() -> None:
        ledger = SqliteLedger(source)
        await ledger.append(ONE, b"first")
        await ledger.set_pointer(ONE, Position(0), Pointer(Position(1), "checkpoint"))
        await ledger.append(ONE, b"second")
        with umask_of(0):
            copy_ledger(source, target)
        await ledger.append(ONE, b"third")
        assert mode_of(target) == 0o600
        assert [path.name for path in tmp_path.glob("copy*")] == ["copy.db"], "one file"
        assert await records(target) == [b"first", b"second"]
        copied = SqliteLedger(target)
        assert await copied.pointer(ONE) == Pointer(Position(1), "checkpoint")
        assert await copied.append(ONE, b"of the copy") == 3
        await copied.close()
        assert await ledger.last(ONE) == 3
        await ledger.close()

    asyncio.run(story())


def test_writers_go_on_while_it_is_copied(tmp_path: Path) -> None:
    """A copy takes no lock that an append waits for: both end, and the copy is a prefix."""

    async def story() -> None:
        ledger = SqliteLedger(tmp_path / "ledger.db")
        for number in range(20):
            copying = asyncio.to_thread(copy_ledger, tmp_path / "ledger.db", tmp_path / "copy.db")
            results = await asyncio.gather(copying, *(ledger.append(ONE, b"%d" % number) for _ in range(5)))
            assert results[1:] == sorted(results[1:])
            found = await records(tmp_path / "copy.db")
            assert len(found) >= 5 * number
        await ledger.close()

    asyncio.run(story())


def test_taking_the_place_of_another(tmp_path: Path) -> None:
    path, staged = tmp_path / "ledger.db", tmp_path / "staged.db"

    async def story() -> None:
        await written(path, b"old")
        await written(staged, b"new", b"newer")
        exchange(staged, path)
        assert await records(path) == [b"new", b"newer"]
        assert not staged.exists()
        await written(staged, b"newest")
        user = SqliteLedger(path)
        await user.append(ONE, b"in use")
        with pytest.raises(StoreUnavailable, match="another process uses"):
            exchange(staged, path)
        await user.close()
        exchange(staged, path)
        assert await records(path) == [b"newest"]

    asyncio.run(story())


def test_what_is_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no ledger"):
        copy_ledger(tmp_path / "ledger.db", tmp_path / "copy.db")
    (tmp_path / "ledger.db").write_bytes(b"no database" * 100)
    with pytest.raises(StoreUnavailable, match="not a database"):
        copy_ledger(tmp_path / "ledger.db", tmp_path / "copy.db")


def test_removing(tmp_path: Path) -> None:
    """With all that is beside it, and nothing else."""

    async def story() -> None:
        await written(tmp_path / "ledger.db", b"one")
        await written(tmp_path / "other.db", b"two")
        (tmp_path / "ledger.db-notices" / "left").touch()
        remove_ledger(tmp_path / "ledger.db")
        assert not list(tmp_path.glob("ledger*"))
        assert await records(tmp_path / "other.db") == [b"two"]

    asyncio.run(story())
