"""Headwater beside other users and other processes of its machine.

Others can neither hold the ledger's lock nor read users' keys, and settling leaves the processors to producers.
"""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.headwater import Headwater
from harness.patience import eventually
from harness.serving import run
from headwater.client.producer import Producer, ProducerSettings
from tests.support.files import mode_of, modes_below, umask_of
from tests.support.promise import promise

PROMISES = ("S3", "T12")

pytestmark = pytest.mark.long
SETTINGS = """
[housekeeping]
interval_ms = 100
checkpoint_bytes = 1
"""


LITTLE = {"HEADWATER_LAKE__NICENESS": "1"}


def written(server: Headwater) -> list[Path]:
    """Produce, and wait for a checkpoint, which a child of the broker writes; returns the new WAL objects."""
    objects = server.data / "objects"
    known = set(objects.rglob("*"))

    async def produce() -> None:
        async with server.client() as client, Producer(client, ProducerSettings(create_topics=True)) as producer:
            await producer.send("t", value=b"hello")

    run(produce())
    eventually(lambda: set(objects.glob("meta/**/*.ckpt")) - known, "there is a checkpoint")
    return [path for path in objects.glob("wal/**/*.wo") if path not in known]


def check(server: Headwater, top: int, directories: int, files: int) -> None:
    """Produce, and check the modes: of the data directory, of the objects' directories and of WAL objects."""
    data = server.data
    wal_objects = written(server)
    assert mode_of(data) == top
    of_the_ledger = {path.name: mode_of(path) for path in data.glob("ledger.db*")}
    assert of_the_ledger.pop("ledger.db-notices") == 0o700
    assert len(of_the_ledger) > 3 and set(of_the_ledger.values()) == {0o600}
    assert modes_below(data / "run") == {0o700, 0o600}
    assert modes_below(data / "objects" / "meta") == {0o700, 0o600}
    assert {mode_of(data / "objects" / name) for name in ("", "wal", ".tmp")} == {directories}
    assert wal_objects and {mode_of(path) for path in wal_objects} == {files}


@promise("S3")
def test_new_and_loose_directories(tmp_path: Path) -> None:
    """By default all is private, with any umask. A loose directory is tightened at the next start."""
    server = Headwater(tmp_path, brokers=2, settings=SETTINGS)
    with umask_of(0):
        with server:
            check(server, 0o700, 0o700, 0o600)
        for path in (server.data, *server.data.rglob("*")):
            path.chmod(0o777 if path.is_dir() else 0o666)
        with server:
            check(server, 0o700, 0o700, 0o600)


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headwater]:
    """A Headwater whose files a group may read. Settling steps back a little only: others use the machine, too."""
    lake = "[lake]\ninterval_ms = 200\n"
    settings = f'{SETTINGS}{lake}[object_store]\nfile_mode = "0640"\n'
    with (
        umask_of(0o077),
        Headwater(tmp_path_factory.mktemp("group"), lake=True, settings=settings, variables=LITTLE) as server,
    ):
        yield server


@promise("S3")
def test_objects_for_a_group(settled: Headwater) -> None:
    """With `file_mode` others read WAL objects and tables, and nothing else, with any umask."""
    check(settled, 0o710, 0o750, 0o640)
    settled.table("settle", "t")
    tables = settled.data / "objects" / "tables"
    assert {path.suffix for path in tables.rglob("*")} >= {".parquet", ".json", ".avro"}
    assert modes_below(tables) == {0o750, 0o640}


@promise("T12")
def test_settling_leaves_the_machine_to_producers(settled: Headwater) -> None:
    """The compactor, Spark's JVM and its workers step back, within their session and, if there are any, as one."""
    written(settled)
    settled.table("settle", "t")
    broker = settled.broker(1)
    assert (broker.nice(), session_nice(broker)) == (0, 0)
    [compactor] = [p for p in settled.processes() if "compactor" in p.cmdline()]
    spark = [p for p in compactor.children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]
    names = {process.name() for process in spark}
    assert "java" in names and any(name.startswith("python") for name in names)
    assert {(p.nice(), session_nice(p)) for p in (compactor, *spark)} == {(1, 1)}
    assert {p.ionice().ioclass for p in spark} == {psutil.IOPRIO_CLASS_IDLE}
    assert compactor.ionice() == (psutil.IOPRIO_CLASS_BE, 7), "it holds the ledger's lock at times"


def session_nice(process: psutil.Process) -> int:
    """The niceness of the session. A kernel without autogroups has none, so that of the process is all there is."""
    group = Path(f"/proc/{process.pid}/autogroup")
    return int(group.read_text().split()[-1]) if group.exists() else process.nice()
