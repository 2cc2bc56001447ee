"""`headwater doctor` finds every kind of damage, names it, and leaves with 6; what is healthy gives 0."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from harness.process import headwater
from headwater.cli import common, main
from headwater.cli.errors import INPUT, LEDGER
from headwater.log.wal import format as wal
from headwater.state.commands.cluster import TakeEpoch
from headwater.state.commands.streams import AppendWal
from headwater.state.records import decode
from tests.faults.raw import Raw, fresh
from tests.support.running import Running

PROMISES = ("O6",)

HEALTHY, SICK = 0, 6
SELDOM = "[housekeeping]\ninterval_ms = 3600000\n"


def checkpoints(data: Path, domain: int = 1) -> list[Path]:
    return sorted((data / f"objects/meta/v1/domain={domain}/checkpoint").glob("*.ckpt"))


def objects(data: Path) -> list[Path]:
    return sorted((data / "objects" / wal.ROOT).rglob(f"*{wal.SUFFIX}"))


def write_checkpoint(data: Path) -> None:
    """Write a checkpoint of domain 1. The broker keeps house too seldom to write any itself."""
    ledger, store = f"sqlite://{data}/ledger.db", f"file://{data}/objects"
    ended = headwater("checkpoint", "--ledger", ledger, "--objects", store, "--domain", "1")
    assert ended.returncode == 0, ended.stderr


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with records, two checkpoints, and more records behind the newest of them."""
    directory = tmp_path_factory.mktemp("doctor")
    with Running(directory, settings=SELDOM) as server:
        for topic in ("t", "u"):
            server.create(topic, 2)
        with Raw(server.port) as raw:
            for _ in range(2):
                for n in range(20):
                    answer = raw.produce("t", fresh([b"%d" % n] * 3), partition=n % 2)
                    assert answer.base_offset >= 0
                write_checkpoint(server.data)
            for _ in range(5):
                raw.produce("u", fresh([b"behind the checkpoint"]))
    assert len(checkpoints(server.data)) == 2
    return server.data


@pytest.fixture
def data(sound: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    return shutil.copytree(sound, tmp_path / "data", ignore=shutil.ignore_patterns("*-notices"))


def doctor(data: Path) -> tuple[int, dict[str, list[str]]]:
    """The exit code of the command, run in this process, and the findings as text, by check."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = common.call(main.app, ["doctor", "--data", str(data), "--output", "json"])
    assert not err.getvalue()
    report = json.loads(out.getvalue())
    assert report["healthy"] == (not report["findings"])
    found: dict[str, list[str]] = {}
    for finding in report["findings"]:
        found.setdefault(finding["check"], []).append(f"{finding['subject']}: {finding['problem']}")
    return code, found


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)


def truncate(path: Path, by: int) -> None:
    os.truncate(path, path.stat().st_size - by)


def sql(data: Path, statement: str) -> None:
    with closing(sqlite3.connect(data / "ledger.db", isolation_level=None)) as db:
        assert db.execute(statement).rowcount == 1


def test_a_healthy_directory(data: Path) -> None:
    assert doctor(data) == (HEALTHY, {})
    text = headwater("doctor", "--data", str(data))
    assert text.returncode == HEALTHY and text.stdout.endswith("all is well\n")
    for what in ("checkpoints", "streams", "index entries", "objects", "topics", "ledger positions"):
        assert f" {what}\n" in text.stdout


def test_an_empty_directory(tmp_path: Path) -> None:
    ended = headwater("doctor", "--data", str(tmp_path / "nothing"))
    assert (ended.returncode, ended.stdout) == (INPUT, "") and "no cluster here" in ended.stderr
    assert not (tmp_path / "nothing").exists()


def test_a_sick_directory(data: Path) -> None:
    """The same by a process of its own."""
    victim = objects(data)[3]
    victim.unlink()
    ended = headwater("doctor", "--data", str(data))
    assert ended.returncode == SICK and "Traceback" not in ended.stderr
    assert victim.name in ended.stdout


def test_nothing_is_changed(data: Path) -> None:
    before = {path: path.read_bytes() for path in (data / "objects").rglob("*") if path.is_file()}
    flip(objects(data)[0], 60)
    damaged = objects(data)[0].read_bytes()
    doctor(data)
    after = {path: path.read_bytes() for path in (data / "objects").rglob("*") if path.is_file()}
    assert after == {**before, objects(data)[0]: damaged}


OBJECT_DAMAGE: dict[str, Callable[[Path], None]] = {
    "deleted": Path.unlink,
    "a byte of its header flipped": lambda path: flip(path, 3),
    "a byte of its index flipped": lambda path: flip(path, 60),
    "a byte of a record flipped": lambda path: flip(path, -12),
    "a byte of its CRC flipped": lambda path: flip(path, -1),
    "cut short": lambda path: truncate(path, 10),
    "cut to nothing": lambda path: os.truncate(path, 0),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "random bytes": lambda path: path.write_bytes(os.urandom(path.stat().st_size)),
}


@pytest.mark.parametrize("damage", OBJECT_DAMAGE)
def test_a_damaged_wal_object(data: Path, damage: str) -> None:
    victim = objects(data)[3]
    OBJECT_DAMAGE[damage](victim)
    code, found = doctor(data)
    assert code == SICK
    assert found.keys() == {"objects"}
    assert len(found["objects"]) == 1 and victim.name in found["objects"][0]


def test_another_object_in_its_place(data: Path) -> None:
    first, second = objects(data)[:2]
    shutil.copy(first, second)
    code, found = doctor(data)
    assert code == SICK
    assert found.keys() == {"objects"} and second.name in found["objects"][0]


@pytest.mark.parametrize("which", [0, 1], ids=["the older", "the newest"])
@pytest.mark.parametrize("damage", ["deleted", "a byte of a record flipped", "cut short", "cut to nothing"])
def test_a_damaged_checkpoint(data: Path, which: int, damage: str) -> None:
    """One of two is enough to go on, but it is found."""
    victim = checkpoints(data)[which]
    OBJECT_DAMAGE[damage](victim)
    code, found = doctor(data)
    assert code == SICK
    assert found.keys() == {"checkpoint"}
    position = int(victim.name.split("-")[0])
    assert len(found["checkpoint"]) == 1 and f"domain 1 at {position}" in found["checkpoint"][0]


def test_both_checkpoints_damaged(data: Path) -> None:
    for victim in checkpoints(data):
        flip(victim, -5)
    code, found = doctor(data)
    assert code == SICK
    assert any("domain 1" in text for text in found["ledger"])


def newest_with(data: Path, domain: int, command: type) -> int:
    """The position of a domain's newest record that holds such a command."""
    with closing(sqlite3.connect(data / "ledger.db")) as db:
        rows = db.execute("SELECT position, data FROM records WHERE domain = ? ORDER BY position", (domain,)).fetchall()
    return max(position for position, raw in rows if any(isinstance(c, command) for c in decode(raw).commands))


@pytest.mark.parametrize(
    ("domain", "command"),
    [(1, AppendWal), (0, TakeEpoch)],
    ids=["an append", "an epoch"],
)
def test_a_ledger_row_deleted(data: Path, domain: int, command: type) -> None:
    position = newest_with(data, domain, command)
    sql(data, f"DELETE FROM records WHERE domain = {domain} AND position = {position}")
    code, found = doctor(data)
    assert code == SICK
    assert any(f"domain {domain}" in text for text in found.get("ledger", [])), found


def test_the_last_ledger_rows_deleted_with_their_objects_left(data: Path) -> None:
    """As after a restore of an older ledger."""
    position = newest_with(data, 1, AppendWal)
    with closing(sqlite3.connect(data / "ledger.db", isolation_level=None)) as db:
        db.execute("DELETE FROM records WHERE domain = 1 AND position >= ?", (position,))
    ended = headwater("doctor", "--data", str(data))
    assert (ended.returncode, ended.stdout) == (LEDGER, "") and "has gone back" in ended.stderr


@pytest.mark.parametrize("value", ["x'00'", "zeroblob(40)", "x'93ff'"])
def test_a_ledger_row_overwritten(data: Path, value: str) -> None:
    sql(
        data,
        f"UPDATE records SET data = {value} WHERE domain = 1"
        " AND position = (SELECT max(position) FROM records WHERE domain = 1)",
    )
    code, found = doctor(data)
    assert code == SICK
    assert any("domain 1" in text for text in found["ledger"])


def test_a_ledger_that_is_no_database(data: Path) -> None:
    for name in ("ledger.db-wal", "ledger.db-shm"):
        (data / name).unlink(missing_ok=True)
    (data / "ledger.db").write_bytes(os.urandom(8192))
    ended = headwater("doctor", "--data", str(data))
    assert ended.returncode not in (HEALTHY, 10), ended.stderr
    assert "Traceback" not in ended.stderr and "ledger.db" in ended.stderr


def test_an_orphan_is_noted_and_no_damage(data: Path) -> None:
    first = objects(data)[0]
    shutil.copy(first, first.with_name("7777-1.wo"))
    ended = headwater("doctor", "--data", str(data))
    assert ended.returncode == HEALTHY
    assert "named by no record" in ended.stdout
