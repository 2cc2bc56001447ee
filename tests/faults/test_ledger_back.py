"""A ledger that has lost its end: every process refuses it, nothing is touched, and an operator may accept the loss."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import deltalake
import pytest

from harness.headwater import QUICK_LAKE
from harness.patience import Patience
from harness.process import headwater
from harness.s3 import BUCKET
from harness.stores import Stores
from headwater.cli.errors import INPUT, LEDGER
from headwater.ledger.journal import frames
from headwater.state.records import encode_record
from headwater.types import Epoch
from tests.faults.raw import Raw, fresh
from tests.support.batches import values
from tests.support.promise import promise
from tests.support.running import Running

pytestmark = pytest.mark.long
TOPIC = "t"
LAST = "(SELECT max(position) FROM records WHERE domain = 1)"


def fingerprint(directory: Path) -> dict[str, str]:
    """All files with their contents and modes."""
    return {
        str(path.relative_to(directory)): f"{path.stat().st_mode:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


class Sqlite:
    """A ledger in one file, `ledger.db`."""

    files = "ledger.db*"
    mark = "ledger.db-mark"

    def variables(self, data: Path) -> dict[str, str]:
        return {"HEADWATER_LEDGER": f"sqlite://{data / 'ledger.db'}"}

    def at_rest(self, data: Path) -> None:
        """Bring the ledger into its one file."""
        with closing(sqlite3.connect(data / "ledger.db")) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def change(self, data: Path, statement: str) -> None:
        with closing(sqlite3.connect(data / "ledger.db", isolation_level=None)) as db:
            db.execute(statement)
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def lose_end(self, data: Path) -> None:
        self.change(data, f"DELETE FROM records WHERE domain = 1 AND position > {LAST} - 3")

    def go_back(self, data: Path, older: Path) -> None:
        """Positions are given again."""
        with closing(sqlite3.connect(data / "ledger.db", isolation_level=None, timeout=60)) as db:
            db.execute(f"DELETE FROM records WHERE domain = 1 AND position > {LAST} - 3")

    def change_end(self, data: Path) -> None:
        first = "(SELECT data FROM records WHERE domain = 1 ORDER BY position LIMIT 1)"
        self.change(data, f"UPDATE records SET data = {first} WHERE domain = 1 AND position = {LAST}")


class Journal:
    """A ledger in the files of a directory."""

    files = "journal"
    mark = "journal/mark"

    def variables(self, data: Path) -> dict[str, str]:
        return {"HEADWATER_LEDGER": f"journal://{data / 'journal'}"}

    def at_rest(self, data: Path) -> None:
        """It is."""

    def lose_end(self, data: Path) -> None:
        """The last three frames become zeros."""
        path, begin = self.frames(data)[-3]
        with path.open("r+b") as file:
            file.seek(begin)
            file.write(bytes(path.stat().st_size - begin))

    def go_back(self, data: Path, older: Path) -> None:
        """The older copy takes the place of the directory."""
        (data / "journal").rename(data / "journal-then")
        shutil.copytree(older / "journal", data / "journal")
        shutil.copyfile(data / "journal-then" / "mark", data / "journal" / "mark")

    def change_end(self, data: Path) -> None:
        """The last frame is that of another record, as a process would have written it that had not noticed."""
        path, begin = self.frames(data)[-1]
        with path.open("r+b") as file:
            head = frames.decode_file_head(file.read(frames.MAX_FILE_HEAD))
            file.seek(begin)
            data_then = file.read(frames.PAGE)
            assert head is not None
            frame = frames.decode_head(head.salt, data_then)
            assert frame is not None
            echo = frames.echo_in(frame, data_then)
            assert echo is not None
            other = frames.encode_frame(
                head.salt, frame.kind, frame.number, frame.synced, frame.domain, frame.position,
                encode_record(Epoch(1), 1, 1, 1, []), echo,
            )  # fmt: skip
            file.seek(begin)
            file.write(b"".join(other.pieces))

    def frames(self, data: Path) -> list[tuple[Path, int]]:
        """Where the frames begin."""
        found = []
        for path in sorted((data / "journal").glob("*.j")):
            content = path.read_bytes()
            head = frames.decode_file_head(content[: frames.MAX_FILE_HEAD])
            for at in range(0, len(content), frames.PAGE):
                if head is not None and frames.decode_head(head.salt, content, at) is not None:
                    found.append((path, at))
        return found


class Sound(NamedTuple):
    """A data directory, and an older copy of its ledger."""

    kind: Sqlite | Journal
    data: Path
    older: Path

    def copy(self, directory: Path) -> Path:
        """A copy of the data directory that may be hurt."""
        return shutil.copytree(self.data, directory / "data", ignore=shutil.ignore_patterns("*notices"))

    def lose(self, data: Path, loss: str) -> None:
        """Let the ledger of a copy go back."""
        match loss:
            case "end":
                self.kind.lose_end(data)
            case "other end":
                self.kind.change_end(data)
            case "older copy":
                mark = (data / self.kind.mark).read_bytes()
                self.lose(data, "everything")
                shutil.copytree(self.older, data, dirs_exist_ok=True)
                (data / self.kind.mark).write_bytes(mark)
            case _:
                for path in data.glob(self.kind.files):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


def made(kind: Sqlite | Journal, root: Path) -> Sound:
    """A cluster that has stopped, and what its ledger was before the last records."""
    data = root / "server" / "data"
    with Running(root / "server", lake=True, settings=QUICK_LAKE, variables=kind.variables(data)) as server:
        server.cli("topic", "create", TOPIC, "--bootstrap", server.bootstrap)
        with Raw(server.port) as raw:
            raw.produce(TOPIC, fresh([b"before"]))
        server.stop()
        kind.at_rest(data)
        (root / "older").mkdir()
        for path in data.glob(kind.files):
            if path.name.endswith("notices"):
                continue
            if path.is_dir():
                shutil.copytree(path, root / "older" / path.name, ignore=shutil.ignore_patterns("*notices"))
            else:
                shutil.copyfile(path, root / "older" / path.name)
        server.start()
        with Raw(server.port) as raw:
            raw.produce(TOPIC, fresh([b"lost"]))
        server.table("settle", TOPIC)
        server.stop()
    kind.at_rest(data)
    return Sound(kind, data, root / "older")


@pytest.fixture(scope="module")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Sound]:
    """One of each kind, made when the first test asks for it."""
    kinds: dict[str, Sqlite | Journal] = {"sqlite": Sqlite(), "journal": Journal()}
    return functools.cache(lambda kind: made(kinds[kind], tmp_path_factory.mktemp(kind)))


@pytest.fixture
def sound(sounds: Callable[[str], Sound], kind: str) -> Sound:
    return sounds(kind)


@promise("M1", "M3")
@pytest.mark.parametrize("loss", ["older copy", "end", "other end", "everything"])
@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_it_is_refused_and_nothing_is_touched(sound: Sound, tmp_path: Path, loss: str) -> None:
    copy = sound.copy(tmp_path)
    sound.lose(copy, loss)
    before, variables = fingerprint(copy), sound.kind.variables(copy)
    for command in (["up"], ["doctor"], ["table", "list"]):
        ended = headwater(*command, "--data", str(copy), more=variables)
        assert ended.returncode == LEDGER and "has gone back" in ended.stderr, ended.stderr
        assert "metadata accept" in ended.stderr and "Traceback" not in ended.stderr
    asked = headwater("metadata", "accept", "--data", str(copy), more=variables)
    assert asked.returncode == INPUT and "nothing was changed" in asked.stderr, asked.stderr
    assert "IT HAD COME TO" in asked.stdout
    assert fingerprint(copy) == before


@promise("M1", "M3")
@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_it_goes_back_under_a_running_cluster(sound: Sound, tmp_path: Path) -> None:
    """Whoever meets that ends, and `up` with it, so that nothing else is written."""
    copy = sound.copy(tmp_path)
    variables = sound.kind.variables(copy)
    with Running(tmp_path / "server", lake=True, settings=QUICK_LAKE, data=copy, variables=variables) as server:
        assert server.process is not None
        sound.kind.go_back(copy, sound.older)
        with contextlib.suppress(OSError, EOFError), Raw(server.port) as raw:
            raw.produce(TOPIC, fresh([b"never"]))
        assert server.process.wait(timeout=60) == LEDGER
        assert "has gone back" in server.end_of_log()
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
                else:
                    ledger.mkdir()
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
@pytest.mark.parametrize(
    ("kind", "loss"), [("sqlite", "older copy"), ("sqlite", "everything"), ("journal", "older copy")]
)
def test_the_loss_is_accepted(sound: Sound, tmp_path: Path, loss: str) -> None:
    """What the ledger still has stays, offsets go on behind it, and tables show the same as the log."""
    copy = sound.copy(tmp_path)
    sound.lose(copy, loss)
    variables = sound.kind.variables(copy)
    accepted = headwater("metadata", "accept", "--yes", "--data", str(copy), more=variables)
    assert accepted.returncode == 0, accepted.stderr
    again = headwater("metadata", "accept", "--yes", "--data", str(copy), more=variables)
    assert again.returncode == INPUT and "nothing to accept" in again.stderr
    kept = [b"before"] if loss == "older copy" else []
    with Running(tmp_path / "server", lake=True, settings=QUICK_LAKE, data=copy, variables=variables) as server:
        if not kept:
            server.cli("topic", "create", TOPIC, "--bootstrap", server.bootstrap)
        with Raw(server.port) as raw:
            raw.produce(TOPIC, fresh([b"after"]))
            found: list[tuple[int, bytes]] = []
            wanted = list(enumerate([*kept, b"after"]))
            patience = Patience(60)
            while len(found) < len(wanted):  # an answer that may not wait is empty while an object is read
                assert not patience.ended, found
                found += values(raw.fetch(TOPIC, len(found)).records)
            assert found == wanted
        server.table("settle", TOPIC)
        place = server.place(TOPIC)
        rows = deltalake.DeltaTable(place.root).to_pyarrow_table(columns=["offset", "value"]).to_pylist()
        assert sorted((row["offset"], row["value"]) for row in rows) == wanted
        server.stop()
        server.doctor()
