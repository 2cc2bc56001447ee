"""A ledger that has lost its end: every process refuses it, nothing is touched, and an operator may accept the loss."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import deltalake
import pytest

from harness.headwater import QUICK_LAKE
from harness.patience import eventually
from harness.process import headwater
from harness.s3 import BUCKET
from harness.stores import Stores
from headwater.cli.errors import INPUT, LEDGER
from headwater.ledger.marks import read_files
from headwater.replica.marking import MARK_PATH
from tests.faults.raw import Raw, fresh
from tests.support.batches import values
from tests.support.promise import promise
from tests.support.running import Running

pytestmark = pytest.mark.long
TOPIC = "t"


def fingerprint(directory: Path) -> dict[str, str]:
    """All files with their contents and modes."""
    return {
        str(path.relative_to(directory)): f"{path.stat().st_mode:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def marked(data: Path) -> int:
    """How far the marks say that the streams have come."""
    marks = read_files([data / "ledger.db-mark", data / "objects" / MARK_PATH])
    return max((mark.ends[1].position for mark in marks), default=0)


def wait_for_marks(data: Path) -> None:
    """Wait until all records of the ledger are marked."""

    def all_marked() -> bool:
        with closing(sqlite3.connect(f"file:{data / 'ledger.db'}?mode=ro", uri=True)) as db:
            [last] = db.execute("SELECT max(position) FROM records WHERE domain = 1").fetchone()
        return marked(data) >= (last or 0)

    eventually(all_marked, "marks of all records")


def merged(path: Path) -> None:
    """Bring a ledger that no process uses into its one file."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A data directory, and an older copy of its ledger."""
    root = tmp_path_factory.mktemp("back")
    older = root / "older.db"
    with Running(root / "server", lake=True, settings=QUICK_LAKE) as server:
        server.cli("topic", "create", TOPIC, "--bootstrap", server.bootstrap)
        with Raw(server.port) as raw:
            raw.produce(TOPIC, fresh([b"before"]))
        server.table("settle", TOPIC)
        wait_for_marks(server.data)
        server.stop()
        merged(server.data / "ledger.db")
        shutil.copyfile(server.data / "ledger.db", older)
        server.start()
        with Raw(server.port) as raw:
            raw.produce(TOPIC, fresh([b"lost"]))
        server.table("settle", TOPIC)
        wait_for_marks(server.data)
        server.stop()
        merged(server.data / "ledger.db")
        yield server.data, older


def older_copy(data: Path, older: Path) -> None:
    for suffix in ("-wal", "-shm"):
        Path(f"{data / 'ledger.db'}{suffix}").unlink(missing_ok=True)
    shutil.copyfile(older, data / "ledger.db")


def lost_end(data: Path, older: Path) -> None:
    with closing(sqlite3.connect(data / "ledger.db", isolation_level=None)) as db:
        db.execute(
            "DELETE FROM records WHERE domain = 1 "
            "AND position > (SELECT max(position) - 3 FROM records WHERE domain = 1)"
        )
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def other_end(data: Path, older: Path) -> None:
    """As a process would leave it that had not noticed: a position of the lost end has another record."""
    with closing(sqlite3.connect(data / "ledger.db", isolation_level=None)) as db:
        db.execute(
            "UPDATE records SET data = (SELECT data FROM records WHERE domain = 1 ORDER BY position LIMIT 1) "
            "WHERE domain = 1 AND position = (SELECT max(position) FROM records WHERE domain = 1)"
        )
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def empty(data: Path, older: Path) -> None:
    for path in data.glob("ledger.db*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@promise("M1", "M3")
@pytest.mark.parametrize("loss", [older_copy, lost_end, other_end, empty])
def test_it_is_refused_and_nothing_is_touched(
    sound: tuple[Path, Path], tmp_path: Path, loss: Callable[[Path, Path], None]
) -> None:
    data, older = sound
    copy = shutil.copytree(data, tmp_path / "data", ignore=shutil.ignore_patterns("*-notices"))
    loss(copy, older)
    before = fingerprint(copy)
    for command in (["up"], ["doctor"], ["table", "list"]):
        ended = headwater(*command, "--data", str(copy))
        assert ended.returncode == LEDGER and "has gone back" in ended.stderr, ended.stderr
        assert "metadata accept" in ended.stderr and "Traceback" not in ended.stderr
    asked = headwater("metadata", "accept", "--data", str(copy))
    assert asked.returncode == INPUT and "nothing was changed" in asked.stderr, asked.stderr
    assert "IT HAD COME TO" in asked.stdout
    assert fingerprint(copy) == before


@promise("M1", "M3")
def test_it_goes_back_under_a_running_cluster(sound: tuple[Path, Path], tmp_path: Path) -> None:
    """Positions are given again: whoever meets that ends, and `up` with it, so that nothing else is written."""
    copy = shutil.copytree(sound[0], tmp_path / "data", ignore=shutil.ignore_patterns("*-notices"))
    with Running(tmp_path / "server", lake=True, settings=QUICK_LAKE, data=copy) as server:
        assert server.process is not None
        with closing(sqlite3.connect(copy / "ledger.db", isolation_level=None, timeout=60)) as db:
            db.execute("DELETE FROM records WHERE domain = 1 AND position > (SELECT max(position) - 3 FROM records "
                       "WHERE domain = 1)")  # fmt: skip
        with contextlib.suppress(OSError, EOFError), Raw(server.port) as raw:
            raw.produce(TOPIC, fresh([b"never"]))
        assert server.process.wait(timeout=60) == LEDGER
        assert "has gone back while this process ran" in server.end_of_log()
        server.kill_all()


@promise("M1", "M3")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["etcd", "bucket"])
def test_a_ledger_with_servers_of_its_own(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older copy is put back, then nothing: all refuse it, no object changes, and the loss can be accepted."""
    with Running(tmp_path / "server", ledger=kind) as server:
        assert server.stores is not None
        for name, value in server.variables.items():
            monkeypatch.setenv(name, value)
        objects = server.stores.s3.directory / "buckets" / BUCKET / "objects"
        server.cli("topic", "create", TOPIC, "--bootstrap", server.bootstrap)
        with Raw(server.port) as raw:
            raw.produce(TOPIC, fresh([b"before"]))
        server.stop()
        with at_rest(server.stores) as ledger:
            older = shutil.copytree(ledger, tmp_path / "older")
        server.start()
        with Raw(server.port) as raw:
            raw.produce(TOPIC, fresh([b"lost"]))
        server.stop()
        before = fingerprint(objects)
        for loss in (older, None):
            with at_rest(server.stores) as ledger:
                shutil.rmtree(ledger)
                if loss is not None:
                    shutil.copytree(loss, ledger)
            doctor = headwater("doctor", "--config", str(server.config))
            assert doctor.returncode == LEDGER and "metadata accept" in doctor.stderr, doctor.stderr
        ended = headwater("up", *server.options, "--config", str(server.config))
        assert ended.returncode == LEDGER and "metadata accept" in ended.stderr, ended.stderr
        assert fingerprint(objects) == before
        accepted = headwater("metadata", "accept", "--yes", "--config", str(server.config))
        assert accepted.returncode == 0, accepted.stderr
        server.start()
        server.cli("topic", "create", TOPIC, "--bootstrap", server.bootstrap)
        with Raw(server.port) as raw:
            raw.produce(TOPIC, fresh([b"after"]))
            assert values(raw.fetch(TOPIC, 0).records) == [(0, b"after")]


@contextlib.contextmanager
def at_rest(stores: Stores) -> Iterator[Path]:
    """The directory of a ledger whose servers do not run until the block ends."""
    if stores.metadata is None:
        yield stores.s3.directory / "buckets" / BUCKET / "ledger"
        return
    etcd = stores.metadata
    for node in range(len(etcd.names)):
        etcd.kill(node)
    yield etcd.directory
    for node in range(len(etcd.names)):
        etcd.spawn(node)
    etcd.wait_healthy()


@promise("M1", "M3", "T3")
@pytest.mark.parametrize("loss", [older_copy, empty])
def test_the_loss_is_accepted(sound: tuple[Path, Path], tmp_path: Path, loss: Callable[[Path, Path], None]) -> None:
    """What the ledger still has stays, offsets go on behind it, and tables show the same as the log."""
    data, older = sound
    copy = shutil.copytree(data, tmp_path / "data", ignore=shutil.ignore_patterns("*-notices"))
    loss(copy, older)
    accepted = headwater("metadata", "accept", "--yes", "--data", str(copy))
    assert accepted.returncode == 0, accepted.stderr
    again = headwater("metadata", "accept", "--yes", "--data", str(copy))
    assert again.returncode == INPUT and "nothing to accept" in again.stderr
    kept = [b"before"] if loss is older_copy else []
    with Running(tmp_path / "server", lake=True, settings=QUICK_LAKE, data=copy) as server:
        if not kept:
            server.cli("topic", "create", TOPIC, "--bootstrap", server.bootstrap)
        with Raw(server.port) as raw:
            raw.produce(TOPIC, fresh([b"after"]))
            for offset, value in enumerate([*kept, b"after"]):
                assert values(raw.fetch(TOPIC, offset).records)[0] == (offset, value)
        server.table("settle", TOPIC)
        place = server.place(TOPIC)
        rows = deltalake.DeltaTable(place.root).to_pyarrow_table(columns=["offset", "value"]).to_pylist()
        assert sorted((row["offset"], row["value"]) for row in rows) == list(enumerate([*kept, b"after"]))
        server.stop()
        server.doctor()
