"""`headwater table append` against a real server: consumers and readers of tables get the same rows."""

from __future__ import annotations

import datetime
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyarrow import ipc, parquet

from demo.readers import PLAIN, sum_of
from harness.headwater import QUICK_LAKE, Headwater
from harness.process import headwater
from headwater.client.partitioner import partition_of_key
from tests.support.promise import promise
from tests.support.running import Running

PROMISES = ("L8", "T2", "T3")

# pyiceberg's HTTP sessions leave their sockets to the garbage collector.
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
PARTITIONS = 3
ROWS = 5_000
Got = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]], int]
"""Partition, offset, key, value, headers, timestamp."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headwater]:
    with Running(tmp_path_factory.mktemp("bulk"), lake=True, settings=QUICK_LAKE) as server:
        yield server


def create(server: Headwater, topic: str, *configs: str) -> None:
    options = [word for config in configs for word in ("--config", config)]
    server.cli("topic", "create", topic, "--partitions", str(PARTITIONS), *options, "--bootstrap", server.bootstrap)


def table_of(count: int) -> pa.Table:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}][: i % 3] or None for i in range(count)]
    start = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    return pa.table(
        {
            "id": [f"k{i}" for i in range(count)],
            "body": [b"bulk-%d" % i if i % 7 else None for i in range(count)],
            "at": pa.array([start + datetime.timedelta(seconds=i) for i in range(count)], pa.timestamp("us", "UTC")),
            "headers": pa.array(headers, kind),
        }
    )


def produce(server: Headwater, topic: str, word: bytes) -> list[Got]:
    """One record in every partition, acknowledged."""
    done: list[Got] = []
    producer = Producer({"bootstrap.servers": server.bootstrap})

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        done.append((message.partition(), message.offset(), None, word, [], 1_700_000_000_000))

    for partition in range(PARTITIONS):
        producer.produce(topic, word, partition=partition, timestamp=1_700_000_000_000, on_delivery=delivered)
    assert producer.flush(60) == 0
    return done


def consume(server: Headwater, topic: str, count: int) -> list[Got]:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "x", "enable.auto.commit": False})
    got: list[Got] = []
    try:
        consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        while len(got) < count:
            for message in consumer.consume(count - len(got), timeout=1.0):
                assert not message.error(), message.error()
                place = (message.partition(), message.offset())
                more = (message.headers() or [], message.timestamp()[1])
                got.append((*place, message.key(), message.value(), *more))
    finally:
        consumer.close()
    return sorted(got, key=lambda row: row[:2])


def run(server: Headwater, *arguments: str) -> subprocess.CompletedProcess[str]:
    return headwater("table", "append", *arguments, "--config", str(server.config), timeout=120, more=server.variables)


@promise("L8", "T2", "T3")
def test_everybody_reads_what_was_appended(server: Headwater, tmp_path: Path) -> None:
    """Between records of producers, from Parquet and both kinds of Arrow, at once and after settling."""
    topic = "bulk"
    create(server, topic, "retention.ms=-1")
    before = produce(server, topic, b"before")
    table = table_of(ROWS)
    names = [tmp_path / name for name in ("one.parquet", "two.arrow", "three.arrows")]
    parquet.write_table(table, names[0], row_group_size=700)
    for name, make in ((names[1], ipc.new_file), (names[2], ipc.new_stream)):
        with pa.OSFile(str(name), "wb") as sink, make(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=900)
    options = ["--key-column", "id", "--value-column", "body", "--timestamp-column", "at", "--rows-per-file", "4000"]
    done = run(server, topic, *map(str, names), *options, "--output", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["records"], report["files"]) == (3 * ROWS, 4)
    after = produce(server, topic, b"after")

    rows = table.to_pylist() * 3
    wanted = [*before, *after]
    for partition in range(PARTITIONS):
        mine = [row for row in rows if partition_of_key(row["id"].encode(), PARTITIONS) == partition]
        [told] = [p for p in report["partitions"] if p["partition"] == partition]
        assert told == {"partition": partition, "records": len(mine), "first_offset": 1, "last_offset": len(mine)}
        for offset, row in enumerate(mine, 1):
            headers = [(h["key"], h["value"]) for h in row["headers"] or ()]
            time = int(row["at"].timestamp() * 1000)
            wanted.append((partition, offset, row["id"].encode(), row["body"], headers, time))
    wanted.sort(key=lambda row: row[:2])
    assert consume(server, topic, len(wanted)) == wanted

    server.table("settle", topic, "--timeout", "240")
    place = server.place(topic)
    for name, reader in PLAIN.items():
        assert reader(place) == sum_of(row[:4] for row in wanted), name
    assert consume(server, topic, len(wanted)) == wanted
    server.cli("doctor", "--config", str(server.config))


@promise("L8")
def test_json_values_are_read_back(server: Headwater, tmp_path: Path) -> None:
    """Rows of any columns, as JSON objects; the text output says how much went where."""
    create(server, "documents")
    path = tmp_path / "any.parquet"
    parquet.write_table(pa.table({"key": [None] * 4, "n": [0, 1, 2, 3], "value": [1.5] * 4}).cast(
        pa.schema([("key", pa.string()), ("n", pa.int64()), ("value", pa.float64())])
    ), path)  # fmt: skip
    done = run(server, "documents", str(path), "--json-values", "--partition", "2")
    assert done.returncode == 0, done.stderr
    assert "4 records appended to documents in 1 segments" in done.stdout
    assert done.stdout.splitlines()[-1].split() == ["2", "4", "0", "3"]
    got = consume(server, "documents", 4)
    assert [(row[0], json.loads(row[3] or b"")) for row in got] == [(2, {"n": n, "value": 1.5}) for n in range(4)]


@promise("L8")
def test_bad_input_changes_nothing(server: Headwater, tmp_path: Path) -> None:
    """Whatever is wrong is said in one line, and no offset is given out."""
    create(server, "strict", "max.message.bytes=1000")
    create(server, "keyed", "cleanup.policy=compact")
    good, large, keyless, odd = (tmp_path / f"{name}.parquet" for name in ("good", "large", "keyless", "odd"))
    parquet.write_table(pa.table({"key": ["k"], "value": ["v"]}), good)
    parquet.write_table(pa.table({"key": ["k"] * 9, "value": ["v"] * 8 + ["v" * 2_000]}), large)
    parquet.write_table(pa.table({"key": ["k", None], "value": ["v", "v"]}), keyless)
    parquet.write_table(pa.table({"other": [1]}), odd)
    (tmp_path / "text").write_text("not a table")
    for topic, paths, options, message in [
        ("strict", [good, large], [], "large.parquet, row 8: a record of 2"),
        ("keyed", [good, keyless], [], "keyless.parquet, row 1: a compacted topic takes no records without a key"),
        ("strict", [good, odd], [], "odd.parquet has no column 'value'"),
        ("strict", [good, tmp_path / "text"], [], "neither Parquet nor Arrow"),
        ("strict", [good, tmp_path / "missing"], [], "cannot be read"),
        ("nowhere", [good], [], "there is no topic 'nowhere'"),
        ("strict", [good], ["--partition", "3"], "no partition 3"),
        ("strict", [good], ["--value-column", "zz"], "no column 'zz'; it has key, value"),
        ("strict", [good], ["--json-values", "--value-column", "value"], "--json-values"),
        ("strict", [good], ["--rows-per-file", "0"], "rows-per-file"),
    ]:
        done = run(server, topic, *map(str, paths), *options)
        absent = message.startswith(("there is no topic", "no partition"))
        assert done.returncode == (2 if absent else 1), (message, done.stdout, done.stderr)
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1
    for topic in ("strict", "keyed"):
        described = server.cli("topic", "describe", topic, "--output", "json", "--bootstrap", server.bootstrap)
        assert [p["end"] for p in described["partitions"]] == [0] * PARTITIONS
    assert run(server, "strict", str(good)).returncode == 0
