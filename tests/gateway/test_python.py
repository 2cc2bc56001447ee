"""Python through a real gateway and from a data directory; the examples of the documentation run here."""

from __future__ import annotations

import asyncio
import json
import queue
import re
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pyarrow as pa
import pytest
from pyarrow import parquet

import headwater
from harness.patience import eventually
from headwater.errors import BadInput, NotFound, NotReady
from headwater.sdk.connection import Connection
from headwater.sdk.local import Visited, settings_of
from headwater.sdk.records import NewRecord, Record
from headwater.sdk.remote import RemoteConnection
from headwater.settings.settings import Settings
from tests.support.running import Running
from tests.unit.schemas.test_typer import POINT, avro, framed

PROMISES = ("H5",)

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "python.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("python"), gateway=True) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(server: Running) -> Iterator[Connection]:
    with headwater.connect(server.gateway_url) as connection:
        yield connection


def values(records: Iterator[Record]) -> list[str]:
    return [record.text or "" for record in records]


def test_the_examples_of_the_documentation(server: Running, capsys: pytest.CaptureFixture[str]) -> None:
    """All of them, in order, in one program."""
    blocks = re.findall(r"(?m)(?:^    .*\n(?:\n(?=    ))?)+", PAGE.read_text())
    assert len(blocks) > 7
    names: dict[str, Any] = {}
    for block in blocks:
        text = "\n".join(line[4:] for line in block.splitlines() if "pip install" not in line)
        exec(compile(text.replace("http://127.0.0.1:8081", server.gateway_url), str(PAGE), "exec"), names)
    assert names["table"].num_rows == len(names["frame"]) > 4_000
    names["cluster"].close()
    told = capsys.readouterr().out
    assert "5000" in told and "the next record of partition 0 gets offset" in told


def test_consumers_and_groups(server: Running, cluster: Connection) -> None:
    """A consumer begins where it is told to, follows, and a group goes on behind what was committed."""
    cluster.create_topic("events", 2)
    began = datetime.now(UTC) - timedelta(seconds=1)
    for i in range(6):
        cluster.produce("events", f"e{i}", partition=i % 2, key="k", headers=[("h", b"\xff"), ("h", None)])
    first = list(cluster.consume("events", follow=False))
    assert sorted(record.text or "" for record in first) == [f"e{i}" for i in range(6)]
    assert [r.offset for r in first if r.partition == 1] == [0, 1, 2]
    assert first[0].key == b"k" and first[0].headers == (("h", b"\xff"), ("h", None)) and first[0].topic == "events"
    assert values(cluster.consume("events", start="latest", follow=False)) == []
    assert len(list(cluster.consume("events", start=began, follow=False))) == 6
    assert list(cluster.consume("events", start=began + timedelta(days=1), follow=False)) == []
    assert sorted(values(cluster.consume("events", start={0: 2, 1: 1}, follow=False))) == ["e3", "e4", "e5"]

    with cluster.consume("events", group="g") as consumer:
        taken = [next(consumer), next(consumer)]
        consumer.commit()
    rest = list(cluster.consume("events", group="g", follow=False))
    assert sorted(values(iter([*taken, *rest]))) == [f"e{i}" for i in range(6)]
    with cluster.consume("events", start="latest") as consumer:
        consumer.poll()
        cluster.produce("events", "new", partition=1)
        record = next(consumer)
        assert (record.text, record.partition, record.offset) == ("new", 1, 3)
    with pytest.raises(BadInput, match="has no group"):
        cluster.consume("events").commit()
    with pytest.raises(NotFound, match="no topic 'none'"):
        next(cluster.consume("none"))


def test_a_data_directory_with_and_without_a_server(tmp_path: Path) -> None:
    """A scan has what is in files, here of a bulk append, and what is in the WAL. It needs no server."""
    with Running(tmp_path / "embedded", gateway=True) as server, headwater.connect(server.gateway_url) as remote:
        remote.create_topic("rows", 1)
        remote.produce("rows", "first", key="a")
        bulk = {"key": [f"k{i % 10}" for i in range(100)], "value": [f"bulk{i}" for i in range(100)]}
        parquet.write_table(pa.table(bulk), tmp_path / "rows.parquet")
        server.cli("table", "append", "rows", str(tmp_path / "rows.parquet"), "--config", str(server.config))
        remote.produce("rows", "last", key="a")
        wanted = sorted(["first", "last", *(f"bulk{i}" for i in range(100))])
        with headwater.connect(str(server.config)) as local:
            for connection in (remote, local):
                table = connection.scan("rows").to_arrow()
                assert sorted(value.decode() for value in table["value"].to_pylist()) == wanted
                assert table["offset"].to_pylist() != [] and len(set(table["offset"].to_pylist())) == 102
            assert local.topics() == remote.topics() and local.describe("rows") == remote.describe("rows")
            for connection in (remote, local):
                for key, offset, value in (("a", 101, "last"), (b"k7", 98, "bulk97")):
                    found = connection.latest("rows", key)
                    assert found is not None and (found.offset, found.text) == (offset, value)
                    assert connection.topic("rows").get(0, offset) == found
                assert connection.latest("rows", "none") is None and connection.topic("rows").latest("b") is None
                with pytest.raises(BadInput, match="has the offsets 0 to 102, not 102"):
                    connection.get("rows", 0, 102)
            _decoded(remote, local, settings_of(server.config))
            some = local.topic("rows").scan(columns=["offset"], from_offset=50, until_offset=60)
            assert sorted(some.to_arrow()["offset"].to_pylist()) == list(range(50, 60))
            assert remote.scan("rows", columns=["offset"], version=1).to_arrow().num_rows == 100
            with pytest.raises(NotFound, match="there is no topic 'none'"):
                local.scan("none").to_arrow()
            with pytest.raises(NotReady, match="needs a running server"):
                local.produce("rows", "nobody listens at the port of the settings")
        assert server.stop() == 0
    if not server.stores:
        with headwater.connect(str(server.data)) as local:
            scan = local.scan("rows", columns=["value"])
            assert len(scan.to_pandas()) == sum(b.num_rows for b in scan.to_batches()) == 102


def test_a_scan_becomes_a_frame_of_polars(server: Running, cluster: Connection) -> None:
    """Through a gateway, and out of a data directory."""
    cluster.create_topic("frames", 1)
    for text in ("a", "b"):
        cluster.produce("frames", text)
    with headwater.connect(str(server.config)) as local:
        for connection in (cluster, local):
            frame = connection.topic("frames").scan(columns=["value"]).to_polars()
            assert frame["value"].to_list() == [b"a", b"b"]


def _decoded(remote: Connection, local: Connection, settings: Settings) -> None:
    """Records by a schema of the registry, from a gateway and from a data directory."""
    assert isinstance(remote, RemoteConnection)
    body = json.dumps({"schema": json.dumps(POINT)}).encode()
    request = Request(f"{remote.url}/subjects/points-value/versions", body, {"Content-Type": "application/json"})
    with urlopen(request) as answer:
        number = json.load(answer)["id"]
    remote.create_topic("points", 1, {"headwater.value.schema": "auto"})
    remote.produce("points", framed(number, avro(POINT, {"x": 7})), key="k")
    remote.produce("points", b"no schema", key="k")
    for connection in (remote, local):
        good, bad = (connection.get("points", 0, offset, decode=True) for offset in (0, 1))
        assert good is not None and bad is not None and connection.latest("points", "k", decode=True) == bad
        assert (good.decoded_key, good.decoded_value, good.value_schema, good.value_error) == (
            "k",
            {"x": 7},
            number,
            None,
        )
        assert bad.decoded_value is None and "neither a prefix nor a header" in (bad.value_error or "")
    known = asyncio.run(Visited(settings).schema(str(number)))
    assert known is not None and json.loads(known.text)["name"] == POINT["name"]
    assert asyncio.run(Visited(settings).schema("999")) is None


def test_every_record_once_while_processes_are_killed(server: Running, cluster: Connection) -> None:
    """Gateways and the broker die by kill -9 in the middle of `produce_many`."""
    cluster.create_topic("killed", 3)
    total, victims = 4_000, {500: "gateway", 1_500: "broker", 2_500: "gateway", 3_200: "gateway"}
    wanted: queue.SimpleQueue[str] = queue.SimpleQueue()
    killed: list[str] = []

    def kill() -> None:
        while name := wanted.get():
            (server.gateway_process() if name == "gateway" else server.broker(1)).kill()
            killed.append(name)

    def records() -> Iterator[NewRecord]:
        for i in range(total):
            if i in victims:
                wanted.put(victims[i])  # dies while the next batches are under way
            yield NewRecord(value=f"r{i}", key=f"k{i % 50}")

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        with headwater.connect(server.gateway_url, timeout=100) as patient:
            done = patient.produce_many("killed", records(), batch_records=40)
    finally:
        wanted.put("")
        thread.join()
    assert done.records == total and killed == list(victims.values())
    eventually(lambda: cluster.topics(), "a gateway answers")
    rows = cluster.scan("killed", columns=["partition", "offset", "key", "value"]).to_arrow().to_pylist()
    assert Counter(row["value"] for row in rows) == Counter(b"r%d" % i for i in range(total))
    for partition in range(3):
        mine = sorted((row for row in rows if row["partition"] == partition), key=lambda row: row["offset"])
        assert [row["offset"] for row in mine] == list(range(len(mine)))
        numbers = [int(row["value"][1:]) for row in mine]
        assert numbers == sorted(numbers), "in the order in which they were given"
