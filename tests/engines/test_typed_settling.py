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
TOPIC, LETTERS = "orders", "letters"
BEFORE, AFTER = 3, 2
BAD = b"no JSON"


def order(number: int) -> bytes:
    """A value with a field of its own."""
    return json.dumps({"n": number, "item": {"name": f"i{number}"}, f"only{number}": number}).encode()


def produce(server: LakeRunning, value: bytes) -> bytes:
    """One record."""
    producer = Producer({"bootstrap.servers": server.bootstrap})
    producer.produce(TOPIC, value, partition=0)
    assert producer.flush(60) == 0
    return value


def consumed(server: LakeRunning, count: int, topic: str = TOPIC) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "x", "enable.auto.commit": False})
    got: list[bytes] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while len(got) < count:
            got += [message.value() for message in consumer.consume(count - len(got), timeout=1.0)]
    finally:
        consumer.close()
    return got


def end_of(server: LakeRunning, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "x"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)[1])
    finally:
        consumer.close()


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
    """T7, L3: the past is filled although the compactor is killed on the way; consumers get the same bytes.

    A record that cannot be decoded is a dead letter, once.
    """
    with LakeRunning(tmp_path) as server:
        server.create(TOPIC, 1, **FRESHNESS)
        server.create(LETTERS, 1)
        sent = []
        for number in range(BEFORE):
            sent.append(produce(server, order(number)))
            server.settle(TOPIC)
        untyped = server.look().tables[TOPIC].version
        configs = ("headwater.value.schema=json", f"headwater.dlq.topic={LETTERS}")
        chosen = [word for config in configs for word in ("--config", config)]
        server.cli("topic", "alter", TOPIC, *chosen, "--bootstrap", server.bootstrap)
        patiently(lambda: server.look().tables[TOPIC].version > untyped, "the first file is decoded")
        killed = server.compactor()
        killed.kill()
        for number in range(BEFORE, BEFORE + AFTER):
            sent.append(produce(server, order(number)))
        sent.append(produce(server, BAD))
        server.compactor(other_than=killed.pid)
        server.settle(TOPIC)
        place = server.place(TOPIC)
        patiently(lambda: by_pyiceberg(place).count(None) == 1, "all files are decoded", 180)
        server.settle(TOPIC)
        *found, bad = by_pyiceberg(place)
        assert bad is None
        assert [row["n"] for row in found] == list(range(BEFORE + AFTER))
        assert [row["only1"] for row in found] == [None, 1, None, None, None]
        assert by_duckdb(place) == [*((number, f"i{number}") for number in range(BEFORE + AFTER)), (None, None)]
        assert consumed(server, len(sent)) == sent
        assert consumed(server, 1, LETTERS) == [BAD]
        own = ("--config", str(server.config), "--output", "json")
        line = {"topic": TOPIC, "dead_letter_topic": LETTERS, "rows": 1, "waiting": False}
        assert server.cli("dlq", "list", *own) == [line]
        [row] = server.cli("dlq", "show", TOPIC, *own)
        assert (row["partition"], row["offset"], row["value"]) == (0, len(sent) - 1, BAD.decode())
        assert row["error"].startswith("bad-data: ")
        version = server.look().tables[TOPIC].version
        assert server.cli("dlq", "replay", TOPIC, *own) == {"topic": TOPIC, "files": 1}
        patiently(lambda: server.look().tables[TOPIC].version > version, "the file is decoded again")
        server.settle(TOPIC)
        assert end_of(server, LETTERS) == 1
        server.doctor()
