"""`format("headwater")` in a user's own Spark session: batches, and streams that write every row once.

One Spark session serves all tests.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import psutil
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyarrow import parquet

import headwater
from harness.patience import eventually
from headwater.clock import SystemClock
from headwater.query.scan import schema_of
from headwater.sdk.connection import Connection
from headwater.sdk.records import NewRecord
from headwater.spark import register
from tests.engines.conftest import Open
from tests.engines.spark_stream import NOWHERE, copying, mine
from tests.support.promise import promise
from tests.support.running import Running
from tests.support.serving import served

PROMISES = ("Q5",)

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
# py4j leaves its sockets to the garbage collector.
pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("source"), gateway=True) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(server: Running) -> Iterator[Connection]:
    with headwater.connect(server.gateway_url) as connection:
        yield connection


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="module")
def session(warehouse: Path, open_session: Open) -> Any:
    session = open_session(NOWHERE, mine(warehouse))
    register(session)
    return session


def read(session: Any, server: Running, topic: str, **options: str) -> Any:
    return session.read.format("headwater").options(url=server.gateway_url, **options).load(topic)


def places(frame: Any) -> list[tuple[int, int]]:
    return sorted((row["partition"], row["offset"]) for row in frame.select("partition", "offset").collect())


def test_rows_of_one_moment(session: Any, server: Running, cluster: Connection, tmp_path: Path) -> None:
    """Rows of files and of the WAL, in several input partitions; of transactions only committed ones."""
    cluster.create_topic("rows", 3)
    now = SystemClock().wall_ms()
    rows = (NewRecord(value=f"v{i}", key=f"k{i}", headers={"h": "x"}, timestamp=now + 1_000 * i) for i in range(600))
    cluster.produce_many("rows", rows)
    parquet.write_table(pa.table({"value": [f"bulk{i}" for i in range(500)]}), tmp_path / "rows.parquet")
    server.cli("table", "append", "rows", str(tmp_path / "rows.parquet"), "--config", str(server.config))
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "t"})
    producer.init_transactions(30)
    for commit in (True, False):
        producer.begin_transaction()
        for i in range(10):
            producer.produce("rows", f"transaction {commit} {i}", partition=i % 3)
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)

    wanted = cluster.scan("rows").to_arrow()
    assert wanted.num_rows == 1_110
    frame = read(session, server, "rows", splitBytes="2000")
    assert frame.rdd.getNumPartitions() > 3
    found = frame.toArrow()
    keys = [("partition", "ascending"), ("offset", "ascending")]
    assert found.select(schema_of().names).cast(schema_of()).sort_by(keys) == wanted.sort_by(keys)

    cluster.produce("rows", "later", partition=0)
    assert frame.count() == 1_110, "a data frame has the rows of one moment"
    assert places(frame.where("partition = 1")) == [at for at in places(frame) if at[0] == 1]
    both = frame.where("partition = 0").union(frame.where("partition = 2"))
    assert places(both) == [at for at in places(frame) if at[0] != 1], "uses of a data frame do not disturb each other"
    assert read(session, server, "rows").count() == 1_111
    assert read(session, server, "rows", version="0").count() == 0
    ends = places(frame)
    some = read(session, server, "rows", partitions="0,2", startingOffsets='{"0": 20}', endingOffsets="90")
    assert places(some) == [(p, at) for p, at in ends if p != 1 and at < 90 and (p or at >= 20)]
    timed = read(session, server, "rows", startingTimestamp=str(now + 590_000), endingTimestamp=str(now + 594_000))
    assert sorted(row["value"] for row in timed.collect()) == [b"v590", b"v591", b"v592", b"v593"]
    reader = session.read.format("headwater").options(url=server.gateway_url, topic="rows")
    assert reader.schema("value BINARY, offset BIGINT").load().where("offset = 0").columns == ["value", "offset"]
    with pytest.raises(Exception, match="has the type binary, not string"):
        reader.schema("value STRING").load().collect()
    with pytest.raises(Exception, match="there is no topic 'none'"):
        read(session, server, "none")


@promise("T7")
def test_typed_columns(session: Any, tmp_path: Path) -> None:
    """Of settled rows and of rows in the WAL, in batches and in streams; columns that come later are left out."""
    with served(tmp_path) as gateway:
        gateway.topic("typed", headwater_value_schema="json")
        gateway.write("typed", b'{"user": "ann", "at": {"x": 1}}')
        gateway.settle()
        gateway.write("typed", b'{"user": "bob", "at": {"x": 2}}')
        source = session.read.format("headwater").options(url=gateway.url, topic="typed")
        frame = source.load()
        assert frame.columns[-2:] == ["decode_error", "value_data"]
        users = frame.selectExpr("value_data.user", "value_data.at.x").orderBy("offset")
        assert [tuple(row) for row in users.collect()] == [("ann", 1), ("bob", 2)]
        stream = session.readStream.format("headwater").options(url=gateway.url, topic="typed").load()
        copied = stream.writeStream.format("memory").queryName("copied_types").start()
        try:
            copied.processAllAvailable()
            gateway.write("typed", b'{"user": "cy", "at": {"x": 3, "y": 1}, "more": 1}')
            gateway.settle()
            copied.processAllAvailable()
        finally:
            copied.stop()
        rows = session.sql("SELECT value_data.* FROM copied_types ORDER BY value_data.user").collect()
        assert [row.asDict(recursive=True) for row in rows] == [
            {"user": name, "at": {"x": number}} for number, name in enumerate(("ann", "bob", "cy"), 1)
        ]
        chosen = source.schema("value_data STRUCT<at: STRUCT<y: BIGINT>>").load()
        assert sorted(str(row.value_data["at"]["y"]) for row in chosen.collect()) == ["1", "None", "None"]
        with pytest.raises(Exception, match="value_data has the type"):
            source.schema("value_data STRUCT<user: BIGINT>").load().collect()


def test_each_row_once_after_kill_9(
    session: Any, server: Running, cluster: Connection, warehouse: Path, tmp_path: Path
) -> None:
    """A program dies in the middle of a stream; another one goes on with its checkpoint."""
    cluster.create_topic("copied", 2)
    checkpoint, versions = tmp_path / "checkpoint", warehouse / "db" / "copied" / "metadata"
    arguments = [server.gateway_url, "copied", str(checkpoint), str(warehouse), "mine.db.copied"]
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.engines.spark_stream", *arguments], stderr=subprocess.DEVNULL, env=os.environ
    )
    try:
        cluster.produce_many("copied", (NewRecord(value=f"v{i}") for i in range(2_000)), batch_records=250)
        eventually(lambda: len(list(versions.glob("v*.metadata.json"))) > 3, "batches are in the table", 200)
    finally:
        family = [psutil.Process(program.pid), *psutil.Process(program.pid).children(recursive=True)]
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        program.wait()
    commits = sorted(int(file.name) for file in (checkpoint / "commits").glob("[0-9]*"))
    assert commits and session.table("mine.db.copied").count() < 2_000, "it died in the middle"
    for file in (checkpoint / "commits").glob(f"*{commits[-1]}*"):
        file.unlink()  # as if it had died between the table's commit and its own note of it
    cluster.produce_many("copied", (NewRecord(value=f"v{i}") for i in range(2_000, 2_100)))

    query = copying(session, server.gateway_url, "copied", checkpoint, "mine.db.copied")
    query.processAllAvailable()
    query.stop()
    rows = session.table("mine.db.copied").select("partition", "offset", "value").collect()
    assert Counter(row["value"] for row in rows) == Counter(b"v%d" % i for i in range(2_100))
    assert len({(row["partition"], row["offset"]) for row in rows}) == 2_100

    end = cluster.produce_many("copied", (NewRecord(value="x", partition=0) for _ in range(9))).ranges[0][1] + 1
    trimmed(server, {"partitions": [{"partition": 0, "before": end - 2}]})
    lossy = copying(session, server.gateway_url, "copied", checkpoint, "mine.db.copied")
    with pytest.raises(Exception, match="retention has removed rows of partition 0"):
        lossy.processAllAvailable()
    lossy.stop()


def trimmed(server: Running, body: dict[str, Any]) -> None:
    """Delete the first records of partitions."""
    url = f"{server.gateway_url}/v1/topics/copied/trim"
    headers = {"Content-Type": "application/json"}
    with urlopen(Request(url, json.dumps(body).encode(), headers)) as answer:
        assert answer.status == 200


def test_the_examples_of_the_documentation(
    session: Any, server: Running, cluster: Connection, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """All of them, in order, in one program."""
    cluster.create_topic("orders", 1)
    cluster.produce_many("orders", (f"v{i}" for i in range(200)))
    blocks = re.findall(r"(?m)(?:^    .*\n(?:\n(?=    ))?)+", PAGE.read_text())
    assert len(blocks) == 3
    names: dict[str, Any] = {"spark": session}
    for block in blocks:
        text = "\n".join(line[4:] for line in block.splitlines() if "pip install" not in line)
        text = text.replace("http://127.0.0.1:8081", server.gateway_url).replace("/tmp/checkpoints", str(tmp_path))
        exec(compile(text, str(PAGE), "exec"), names)
    assert names["orders"].count() == session.table("mine.db.orders").count() > 0
    assert "partition" in capfd.readouterr().out
