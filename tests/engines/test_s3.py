"""Everything lies in S3, and everybody reads the same there, after the WAL is gone.

A real `headwater up`, a real S3 server, and a standalone Spark whose worker has the keys in its own environment and
writes the segments; readers that others wrote, with keys of their own.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import parquet

from demo.readers import ON_SPARK, PLAIN, sum_of
from harness.headwater import QUICK_LAKE, Headwater
from harness.s3 import PROGRAM, REGION, SECRET, S3Server
from harness.spark import ON_LOOPBACK, standalone
from harness.storage import Place, stored
from harness.tools import needs
from tests.engines.conftest import Open
from tests.engines.everyone import OURS, TOPIC, Sent, check_consumer, produced
from tests.support.promise import promise

PROMISES = ("T1", "T2", "T3", "T9", "M7")

# pyiceberg's HTTP sessions and py4j leave their sockets to the garbage collector.
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
PREFIX = "lakes/first"
BULK = "bulk"
BULK_ROWS = 3_000


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    needs("versitygw: scripts/setup-tools s3", PROGRAM.exists())
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def workers(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a Spark cluster, and where its worker writes its logs."""
    directory = tmp_path_factory.mktemp("spark")
    with standalone(directory, s3.environment, workers=1) as (master, _):
        yield master, directory


@pytest.fixture(scope="module")
def server(s3: S3Server, workers: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headwater]:
    directory = tmp_path_factory.mktemp("headwater")
    settings = f'{QUICK_LAKE}\n[lake.spark]\nmaster = "{workers[0]}"\n[lake.spark.conf]\n' + "\n".join(
        f'"{key}" = "{value}"' for key, value in ON_LOOPBACK.items()
    )
    with Headwater(
        directory, lake=True, settings=settings, objects=f"{s3.url}/{PREFIX}", variables=s3.environment
    ) as server:
        yield server


@pytest.fixture(scope="module")
def sent(server: Headwater) -> list[Sent]:
    return produced(server)


@pytest.fixture(scope="module")
def place(server: Headwater, sent: list[Sent]) -> Place:
    return server.place(TOPIC)


@pytest.fixture(scope="module")
def session(place: Place, open_session: Open) -> Any:
    return open_session(place)


@promise("T2", "T3", "M7")
@pytest.mark.parametrize("name", PLAIN)
def test_reads_the_same(name: str, place: Place, sent: list[Sent]) -> None:
    assert place.root.startswith(f"s3://headwater/{PREFIX}/tables/")
    assert PLAIN[name](place) == sum_of(record[:4] for record in sent)


@promise("T2", "T9", "M7")
@pytest.mark.parametrize("name", ON_SPARK)
def test_reads_the_same_on_spark(name: str, place: Place, session: Any, sent: list[Sent]) -> None:
    """Iceberg by S3FileIO through the REST catalog, Delta by s3a, in one session."""
    assert ON_SPARK[name](place, session) == sum_of(record[:4] for record in sent)


@promise("T12", "M7")
def test_the_workers_of_the_cluster_settled(workers: tuple[str, Path], sent: list[Sent]) -> None:
    assert list(workers[1].glob("worker-*/app-*/*/stderr"))


@promise("T3", "M7")
def test_a_consumer_gets_every_byte(place: Place, sent: list[Sent]) -> None:
    """Out of segments in S3."""
    check_consumer(place, sent)


@promise("L8", "M7")
def test_a_bulk_append_is_read_by_everybody(server: Headwater, sent: list[Sent], tmp_path: Path) -> None:
    """A file goes into a topic as a segment in S3."""
    server.cli("topic", "create", BULK, "--partitions", "2", "--bootstrap", server.bootstrap)
    rows = pa.table({"key": [b"k%d" % i for i in range(BULK_ROWS)], "value": [b"v%d" % i for i in range(BULK_ROWS)]})
    parquet.write_table(rows, tmp_path / "rows.parquet")
    server.table("append", BULK, str(tmp_path / "rows.parquet"))
    server.table("settle", BULK, "--timeout", "240")
    place = server.place(BULK)
    found = {name: read(place) for name, read in PLAIN.items()}
    assert {total.rows for total in found.values()} == {BULK_ROWS}
    assert len(set(found.values())) == 1, found


@promise("T2", "M7")
def test_vacuum_finds_nothing(server: Headwater, s3: S3Server, place: Place, session: Any) -> None:
    """Spark's and delta-rs's VACUUM, without any retention, delete nothing of ours in S3."""
    assert place.access is not None
    folder = place.root.removeprefix(f"{s3.url}/{PREFIX}/")
    copies = f"{folder}/metadata/"  # for engines that read by path; the compactor puts them again
    before = {path for path in stored(server.objects, folder, s3.environment) if not path.startswith(copies)}
    assert {path.removeprefix(f"{folder}/").split("/")[0] + "/" for path in before} == set(OURS)
    session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    session.sql(f"VACUUM delta.`{place.root.replace('s3://', 's3a://', 1)}` RETAIN 0 HOURS")
    table = DeltaTable(place.root, storage_options=place.access.of_delta_rs)
    gone = table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    assert [path for path in gone if path.startswith(OURS)] == []
    # Each VACUUM may note itself in the log.
    assert before - set(stored(server.objects, folder, s3.environment)) == set()


@promise("S3", "M7")
def test_the_catalog_says_where_and_not_who(server: Headwater, s3: S3Server, place: Place) -> None:
    """Readers are told endpoint and region; nobody's key is in an answer."""
    answers = [asked(f"{place.catalog}/v1/{path}") for path in ("config", f"namespaces/topics/tables/{TOPIC}")]
    assert json.loads(answers[0])["defaults"] == {
        "s3.endpoint": s3.endpoint,
        "s3.path-style-access": "true",
        "s3.region": REGION,
        "client.region": REGION,
    }
    assert json.loads(answers[1])["metadata-location"].startswith(f"{place.root}/_iceberg/")
    assert not any(SECRET in answer for answer in answers)


@promise("S3")
def test_nobody_writes_the_key_down(server: Headwater, s3: S3Server, sent: list[Sent]) -> None:
    """Not in the ledger, not in an object, not in settings that processes hand on, not in a log."""
    files = [
        path
        for folder in (server.directory, s3.directory / "buckets")
        for path in folder.rglob("*")
        if path.is_file() and "ledger.db" not in path.name
    ]
    assert {server.log, server.config} < set(files)
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    assert SECRET.encode() not in (server.data / "ledger.db").read_bytes()


@promise("T1", "M7")
def test_doctor_is_content(server: Headwater, sent: list[Sent]) -> None:
    answer = server.cli("doctor", "--config", str(server.config), "--output", "json")
    assert answer["healthy"], answer["findings"]
    assert answer["checked"]["segments"] > 0


def asked(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())
