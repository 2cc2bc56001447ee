"""JSON of a real client, decoded by a real compactor, which dies in the middle; read by engines."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import duckdb
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from duckdb_extensions import import_extension
from pyiceberg.catalog.rest import RestCatalog

import headwater
from harness.storage import Place
from tests.faults.lake_running import FRESHNESS, SETTINGS, LakeRunning, patiently
from tests.support.certificates import Pair, issue
from tests.support.promise import promise
from tests.support.registries import FakeRegistry, serving, with_certificate
from tests.unit.schemas.test_typer import POINT, avro, framed

PROMISES = ("T7", "L3")

# pyiceberg's HTTP sessions leave their sockets to the garbage collector.
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
TOPIC, LETTERS, POINTS = "orders", "letters", "points"
BEFORE, AFTER = 3, 2
BAD = b"no JSON"


def order(number: int) -> bytes:
    """A value with a field of its own."""
    return json.dumps({"n": number, "item": {"name": f"i{number}"}, f"only{number}": number}).encode()


def settings_of(registry: FakeRegistry, directory: Path, issuer: Pair, client: Pair) -> str:
    """An external registry with TLS, for clients with a certificate and a password."""
    registry.wanted = f"Basic {b64encode(b'compactor:secret').decode()}"
    password = directory / "password"
    password.write_text("secret")
    return f"""
[schema_registry]
url = "{registry.url}"
user = "compactor"
password_file = "{password}"
ca = "{issuer.certificate}"
certificate = "{client.certificate}"
key = "{client.key}"
"""


def produce(server: LakeRunning, value: bytes, topic: str = TOPIC) -> bytes:
    """One record."""
    producer = Producer({"bootstrap.servers": server.bootstrap})
    producer.produce(topic, value, partition=0)
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


@promise("T7", "L3")
def test_json_becomes_columns(tmp_path: Path) -> None:
    """The past is filled although the compactor is killed on the way; consumers get the same bytes.

    A record that cannot be decoded is a dead letter, once.
    """
    issuer = issue(tmp_path, "issuer")
    own, client = issue(tmp_path, "registry", issuer), issue(tmp_path, "client", issuer)
    with (
        serving(with_certificate(own, clients_of=issuer)) as registry,
        LakeRunning(tmp_path, settings=f"{SETTINGS}{settings_of(registry, tmp_path, issuer, client)}") as server,
    ):
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
        external(server, registry)
        server.doctor()


def external(server: LakeRunning, registry: FakeRegistry) -> None:
    """The compactor and the gateway get schemas of the external registry. Rows are decoded in either place."""
    registry.has(1, POINT)
    server.create(POINTS, 1, **FRESHNESS, **{"headwater.value.schema": "auto"})
    with headwater.connect(server.gateway_url) as cluster:
        for number in range(2):
            produce(server, framed(1, avro(POINT, {"x": number})), POINTS)
            if not number:
                server.settle(POINTS)
            answer = cluster.sql(f"SELECT value_data.x FROM {POINTS} ORDER BY offset")
            assert answer.rows() == [(known,) for known in range(number + 1)] and not answer.notes
        with headwater.connect(str(server.config)) as local:
            for connection in (cluster, local):
                table = connection.scan(POINTS, columns=["offset", "value_data"]).to_arrow().sort_by("offset")
                assert table["value_data"].to_pylist() == [{"x": 0}, {"x": 1}]
