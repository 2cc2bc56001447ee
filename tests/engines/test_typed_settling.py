"""T7, L3: JSON of a real client, decoded by a real compactor, which dies in the middle; read by engines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from duckdb_extensions import import_extension
from pyiceberg.catalog.rest import RestCatalog

from harness.storage import Place
from tests.faults.lake_running import FRESHNESS, LakeRunning, patiently

# pyiceberg's HTTP sessions leave their sockets to the garbage collector.
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
TOPIC = "orders"
BEFORE, AFTER = 3, 2


def produce(server: LakeRunning, number: int) -> bytes:
    """One record with a field of its own."""
    value = json.dumps({"n": number, "item": {"name": f"i{number}"}, f"only{number}": number}).encode()
    producer = Producer({"bootstrap.servers": server.bootstrap})
    producer.produce(TOPIC, value, partition=0)
    assert producer.flush(60) == 0
    return value


def consumed(server: LakeRunning, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "x", "enable.auto.commit": False})
    got: list[bytes] = []
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        while len(got) < count:
            got += [message.value() for message in consumer.consume(count - len(got), timeout=1.0)]
    finally:
        consumer.close()
    return got


def by_pyiceberg(place: Place) -> list[dict[str, Any]]:
    table = RestCatalog("headwater", uri=place.catalog).load_table(("topics", place.topic))
    rows = table.scan().to_arrow().sort_by("offset").to_pylist()
    return [row.get("value_data") for row in rows]


def by_duckdb(place: Place) -> list[tuple[int, str]]:
    connection = duckdb.connect()
    try:
        import_extension("delta")
        connection.execute("LOAD delta")
        fields = 'value_data.n, value_data.item."name"'
        return connection.execute(f"SELECT {fields} FROM delta_scan('{place.root}') ORDER BY \"offset\"").fetchall()
    finally:
        connection.close()


def test_json_becomes_columns(tmp_path: Path) -> None:
    """T7, L3: the past is filled although the compactor is killed on the way; consumers get the same bytes."""
    with LakeRunning(tmp_path) as server:
        server.create(TOPIC, 1, **FRESHNESS)
        sent = []
        for number in range(BEFORE):
            sent.append(produce(server, number))
            server.settle(TOPIC)
        untyped = server.look().tables[TOPIC].version
        server.cli("topic", "alter", TOPIC, "--config", "headwater.value.schema=json", "--bootstrap", server.bootstrap)
        patiently(lambda: server.look().tables[TOPIC].version > untyped, "the first file is decoded")
        killed = server.compactor()
        killed.kill()
        for number in range(BEFORE, BEFORE + AFTER):
            sent.append(produce(server, number))
        server.compactor(other_than=killed.pid)
        server.settle(TOPIC)
        place = server.place(TOPIC)
        patiently(lambda: None not in by_pyiceberg(place), "all files are decoded", 180)
        server.settle(TOPIC)
        found = by_pyiceberg(place)
        assert [row["n"] for row in found] == list(range(BEFORE + AFTER))
        assert [row["only1"] for row in found] == [None, 1, None, None, None]
        assert by_duckdb(place) == [(number, f"i{number}") for number in range(BEFORE + AFTER)]
        assert consumed(server, len(sent)) == sent
        server.doctor()
