"""`headwater ingest` beside a real Apache Kafka: from nothing to a table that can be queried, by one command."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyiceberg.catalog.rest import RestCatalog

from harness import kafka
from harness.patience import eventually
from harness.ports import free_port
from harness.process import Process, headwater
from headwater.gateway.catalog import NAMESPACE
from tests.compat.common import unavailable
from tests.faults.linking import delete_records

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
PARTITIONS = 3
REMOVED = 3
"""Records that the source has removed from its first partition."""
SETTINGS = """
[lake]
interval_ms = 200
freshness_ms = 600000
[links]
metadata_ms = 1000
"""


class Ingest(Process):
    """`headwater ingest` of the topic `orders`."""

    def __init__(self, directory: Path, source: str) -> None:
        self.data = directory / "data"
        self.gateway = f"127.0.0.1:{free_port()}"
        config = directory / "settings.toml"
        config.write_text(SETTINGS)
        options = ["--source", source, "--topics", "orders", "--data", str(self.data)]
        options += ["--http", "127.0.0.1:0", "--gateway-http", self.gateway]
        super().__init__("ingest", config, directory / "stderr", {}, options=options, said=directory / "stdout")

    def sums(self) -> tuple[int, int]:
        """How many records SQL finds, and how many different places they have."""
        question = 'SELECT count(*), count(DISTINCT ("partition", "offset")) FROM orders'
        body = json.dumps({"sql": question}).encode()
        request = urllib.request.Request(
            f"http://{self.gateway}/v1/sql", body, {"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            [[records, places]] = json.load(answer)["rows"]
        return records, places

    def found(self, path: str) -> tuple[int, int, str] | int:
        """Partition, offset and value of a record that is looked up; the status of the answer if there is none."""
        try:
            with urllib.request.urlopen(f"http://{self.gateway}/v1/topics/orders/{path}", timeout=60) as answer:
                record = json.load(answer)["record"]
                return record["partition"], record["offset"], record["value"]
        except urllib.error.HTTPError as refusal:
            return refusal.code

    def has(self, records: int) -> bool:
        """Whether SQL finds all records, each once. Before the topic is linked there is no such table."""
        try:
            return self.sums() == (records, records)
        except OSError:
            assert self.runs, self.end_of_log()
            return False

    def rows(self) -> Iterator[tuple[int, int, bytes]]:
        """The rows of the Iceberg table, by the catalog of the gateway."""
        table = RestCatalog("headwater", uri=f"http://{self.gateway}/iceberg").load_table((NAMESPACE, "orders"))
        found = table.scan(selected_fields=("partition", "offset", "value")).to_arrow().to_pylist()
        yield from ((row["partition"], row["offset"], row["value"]) for row in found)


def produce(bootstrap: str, numbers: Iterable[int]) -> None:
    """Records in turn over the partitions."""
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4"})
    for number in numbers:
        producer.produce("orders", b"%d" % number, b"key %d" % number, partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def look_ups(server: Ingest) -> list[tuple[int, int, str] | int]:
    """By key and by offset, also of offsets that the source had removed."""
    paths = ("latest?key=key%20301", "partitions/1/records/100", "partitions/0/records/3", "partitions/0/records/2")
    return [server.found(path) for path in paths]


def test_from_nothing_to_a_table_by_one_command(tmp_path: Path) -> None:
    """Records are in SQL and look-ups before they are settled, later ones too, and then in the table, each once."""
    if not kafka.is_installed():
        unavailable(".tools/kafka", "run scripts/setup-tools kafka")
    more = f"{kafka.QUICK_GROUPS}num.partitions={PARTITIONS}\n"
    with kafka.Kafka(tmp_path / "kafka", settings=more, heap=kafka.SMALL) as source:
        produce(source.bootstrap, range(600))
        delete_records(source.bootstrap, "orders", REMOVED)
        server = Ingest(tmp_path, source.bootstrap)
        try:
            server.launch()
            server.wait_until_ready()
            eventually(lambda: server.has(600 - REMOVED), "all records of the source are in SQL", 120, 0.2)
            produce(source.bootstrap, range(600, 900))
            eventually(lambda: server.has(900 - REMOVED), "the later records are in SQL", 120, 0.2)
            wanted = [(1, 100, "301"), (1, 100, "301"), (0, 3, "9"), 404]
            assert look_ups(server) == wanted, "nothing is settled yet"
            settle = ("table", "settle", "orders", "--data", str(server.data), "--timeout", "300")
            settled = headwater(*settle, timeout=320)
            assert settled.returncode == 0, settled.stderr
            assert look_ups(server) == wanted
            places = [(number % PARTITIONS, number // PARTITIONS, b"%d" % number) for number in range(900)]
            assert sorted(server.rows()) == sorted(place for place in places if place[0] or place[1] >= REMOVED)
            assert server.stop() == 0, server.end_of_log()
        finally:
            server.kill()
