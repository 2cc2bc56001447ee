"""Typed columns wherever rows are read: scans over HTTP and in Python, SQL with an external registry.

A gateway on a socket in this process; only SQL starts another one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import headwater
from headwater.errors import BadInput
from headwater.query.scan import schema_of
from headwater.sdk.connection import Connection
from headwater.sdk.remote import RemoteConnection
from headwater.sdk.scan import Scan
from headwater.settings.schema_registry import SchemaRegistry
from tests.support.certificates import issue
from tests.support.promise import promise
from tests.support.registries import FakeRegistry, serving, with_certificate
from tests.support.serving import Served, served
from tests.unit.schemas.test_typer import LINE, POINT, avro, framed

PROMISES = ("T7",)

LOG = schema_of().names


def told(*records: Any) -> list[bytes]:
    return [json.dumps(record).encode() for record in records]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FakeRegistry, SchemaRegistry]]:
    """An external registry that wants certificates, and its settings."""
    directory = tmp_path_factory.mktemp("certificates")
    issuer = issue(directory, "issuer")
    own, client = issue(directory, "registry", issuer), issue(directory, "client", issuer)
    with serving(with_certificate(own, clients_of=issuer)) as server:
        files = {"ca": issuer.certificate, "certificate": client.certificate, "key": client.key}
        yield server, SchemaRegistry(url=server.url, retries=0, **{name: str(path) for name, path in files.items()})


@pytest.fixture(scope="module")
def gateway(
    tmp_path_factory: pytest.TempPathFactory, registry: tuple[FakeRegistry, SchemaRegistry]
) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("rows"), registry[1], workers=1) as found:
        yield found


@pytest.fixture(scope="module")
def cluster(gateway: Served) -> Iterator[Connection]:
    with headwater.connect(gateway.url) as connection:
        yield connection


def in_order(scan: Scan) -> list[dict[str, Any]]:
    return scan.to_arrow().sort_by("offset").to_pylist()


@promise("T7")
def test_scans(gateway: Served, cluster: Connection) -> None:
    """Rows of files of two versions and of the WAL have the columns that the table has now."""
    gateway.topic("t", headwater_value_schema="json")
    gateway.write("t", *told({"user": "ann", "at": {"x": 1}}))
    scan = cluster.scan("t")
    assert scan.schema.names == LOG == scan.to_arrow().column_names
    gateway.settle()
    gateway.write("t", *told({"user": "bob", "at": {"x": 2, "y": [{"z": 0.5}]}, "m": 1}), b"{bad")
    gateway.settle()
    gateway.write("t", *told({"user": "cy", "at": {"y": [{"z": 1, "w": 2}]}, "new": 1}), b"{worse")
    found = in_order(scan)
    assert [row["value_data"] for row in found] == [
        {"user": "ann", "at": {"x": 1, "y": None}, "m": None},
        {"user": "bob", "at": {"x": 2, "y": [{"z": 0.5}]}, "m": 1},
        None,
        {"user": "cy", "at": {"x": None, "y": [{"z": 1.0}]}, "m": None},
        None,
    ]
    assert [bool(row["decode_error"]) for row in found] == [False, False, True, False, True]
    assert scan.schema.names == [*LOG, "decode_error", "value_data"] == scan.to_arrow().column_names
    assert all(not field.metadata for field in scan.schema)
    data = scan.schema.field("value_data").type
    assert all(not data.field(i).metadata for i in range(data.num_fields))
    for columns in (["value_data"], ["offset", "value_data"], ["decode_error", "key"], ["offset"]):
        table = cluster.scan("t", columns=columns).to_arrow()
        assert table.column_names == columns and table.num_rows == 5
    assert cluster.scan("t", columns=["value_data"], from_offset=2, until_offset=4).to_arrow().num_rows == 2
    old = cluster.scan("t", version=1)
    assert old.schema.field("value_data").type.get_field_index("m") < 0 < old.to_arrow().num_rows
    assert cluster.scan("t", version=0).to_arrow().column_names == LOG
    with pytest.raises(BadInput, match=r"no column 'value_date': the columns are .*, value_data"):
        cluster.scan("t", columns=["value_date"]).to_arrow()


WANTED = {"labels": [("a", 1)], "lines": [{"x": 1}, {"x": 2}], "day": date(1970, 1, 2)}


def nested(name: str, gateway: Served, cluster: Connection, registry: FakeRegistry) -> Scan:
    """A scan of a topic with WANTED twice: settled and not."""
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "labels", "type": {"type": "map", "values": "long"}},
            {"name": "lines", "type": {"type": "array", "items": POINT}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        ],
    }
    registry.has(4, schema)
    value = framed(4, avro(schema, {"labels": {"a": 1}, "lines": [{"x": 1}, {"x": 2}], "day": 1}))
    gateway.topic(name, headwater_value_schema="auto", headwater_table_flatten="true")
    gateway.write(name, value)
    gateway.settle()
    gateway.write(name, value)
    return cluster.scan(name, columns=["labels", "lines", "day"])


@promise("T7")
def test_pandas(gateway: Served, cluster: Connection, registry: tuple[FakeRegistry, SchemaRegistry]) -> None:
    """pandas takes the columns, maps and lists too."""
    scan = nested("for_pandas", gateway, cluster, registry[0])
    assert scan.to_arrow().to_pylist() == [WANTED, WANTED] == scan.to_reader().read_all().to_pylist()
    assert scan.to_pandas()["day"].tolist() == [WANTED["day"]] * 2


@promise("T7")
def test_polars(gateway: Served, cluster: Connection, registry: tuple[FakeRegistry, SchemaRegistry]) -> None:
    """Polars takes the columns, maps and lists too."""
    scan = nested("for_polars", gateway, cluster, registry[0])
    assert scan.to_polars()["lines"].to_list() == [WANTED["lines"]] * 2


@promise("T7")
def test_single_records(gateway: Served, cluster: Connection) -> None:
    """Consumers and look-ups give keys and values by their schemas, beside the bytes."""
    cluster.create_topic("people", configs={"headwater.value.schema": "json"})
    cluster.produce("people", {"name": "ann"}, key="p1")
    cluster.produce("people", b"\xff{", key="p2")
    cluster.produce("people", None, key="p1")
    first, second, last = cluster.consume("people", follow=False, decode=True)
    assert first.decoded_value == {"name": "ann"} and first.decoded_key == "p1" and first.json() == {"name": "ann"}
    assert first.value_error is None is first.value_schema
    assert second.decoded_value is None and second.value_error and second.value == b"\xff{"
    assert last.value is None is last.decoded_value and last.value_error is None
    assert cluster.latest("people", "p2", decode=True) == second
    assert cluster.topic("people").get(0, 0, decode=True) == first
    plain = cluster.topic("people").get(0, 0)
    assert plain is not None and plain.decoded_value is None and plain.value == first.value


@promise("T6", "T7")
def test_an_external_registry(tmp_path: Path, registry: tuple[FakeRegistry, SchemaRegistry]) -> None:
    """Scans and SQL ask it for schemas that records name, and say so if it does not answer.

    The gateway is the test's own, because it leaves a registry that failed alone for some seconds.
    """
    with served(tmp_path, registry[1], workers=1) as gateway, headwater.connect(gateway.url) as cluster:
        _ask_an_external_registry(gateway, cluster, registry[0])


def _ask_an_external_registry(gateway: Served, cluster: Connection, server: FakeRegistry) -> None:
    server.has(1, POINT)
    server.has(2, LINE)
    gateway.topic("s", headwater_value_schema="auto")
    points, lines = framed(1, avro(POINT, {"x": 1})), framed(2, avro(LINE, {"x": "a", "y": 2}))
    gateway.write("s", points, lines)
    gateway.settle()
    gateway.write("s", points, lines, framed(9, b"\x02"))
    values = [{"x": 1, "x__string": None, "y": None}, {"x": None, "x__string": "a", "y": 2}]
    asked = "SELECT value_data, decode_error FROM s ORDER BY offset"
    answer = cluster.sql(asked)
    assert [value for value, _ in answer.rows()] == [*values, *values, None] and not answer.notes
    assert "unknown-schema" in cluster.sql(asked).rows()[-1][1]
    count = len(server.asked)
    found = in_order(cluster.scan("s"))
    assert [row["value_data"] for row in found] == [*values, *values, None]
    assert "unknown-schema" in found[-1]["decode_error"] and len(server.asked) == count
    server.failures = 1
    gateway.write("s", framed(3, b"\x02"), points)
    answer = cluster.sql(asked)
    assert [value for value, _ in answer.rows()][-2:] == [None, values[0]]
    assert answer.rows()[-2][1] == "no-answer: value: the registry did not give the schema with the id 3"
    assert "topic 's' that are not settled may be null: the schema registry does not answer" in answer.notes
    assert isinstance(cluster, RemoteConnection)
    assert cluster.look(f"/v1/queries/{answer.query_id}")["notes"] == [answer.notes]
    with urlopen(f"{gateway.url}/v1/topics/s/rows?from_offset=5") as rows:
        assert rows.headers["Headwater-Notes"] == answer.notes and rows.read()
    found = in_order(cluster.scan("s"))[-2:]
    assert [row["value_data"] for row in found] == [None, values[0]]
    assert found[0]["decode_error"].startswith("no-answer: ") and found[1]["decode_error"] is None
