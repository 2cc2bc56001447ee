"""An evolution in a real Headwater: schemas are registered, records produced, and tables read at every version.

`test_evolution.py` reads with DuckDB and pyiceberg, `tests/soak/evolution.py` with all engines.
"""

from __future__ import annotations

import copy
import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import duckdb
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from duckdb_extensions import import_extension
from pyiceberg.catalog.rest import RestCatalog

from harness.storage import Place
from headwater.log.segment.schema import segment_schema
from tests.faults.lake_running import SETTLE_SECONDS, LakeRunning, patiently
from tests.support.evolving import model, reading
from tests.support.evolving.model import Column
from tests.support.evolving.odd import Odd
from tests.support.evolving.steps import PLAIN, Step, evolution

SETTINGS = """
[lake]
interval_ms = 50
merge_files = {merge_files}
keep_versions = 500
niceness = 0
"""
LOG = frozenset(segment_schema().names)
ERROR = "decode_error"
HEADER = "__value_schema_id"
Rows = list[dict[str, Any]]
Read = Callable[[Place, int], Rows]
"""The rows of a table at a version (a snapshot's id in Iceberg, a number in Delta) with all columns, in any order."""


@dataclass(frozen=True, slots=True)
class Version:
    """What a table must have while it has so many rows."""

    columns: list[Column]
    rows: Rows


@dataclass(slots=True)
class Topic:
    """A topic, what was sent, and what its table has to be after each settle."""

    name: str
    steps: list[Step] = field(default_factory=list)
    table: model.Table = field(default_factory=model.Table)
    sent: list[tuple[bytes, list[tuple[str, bytes]]]] = field(default_factory=list)
    """Value and headers."""
    versions: dict[int, Version] = field(default_factory=dict)
    """By the number of rows."""
    source: str = "auto"

    def note(self) -> None:
        """The table is settled as far as the model is."""
        columns = copy.deepcopy(self.table.columns)
        rows = reading.plain_rows(columns, self.table.expected(len(self.table.rows)))
        self.versions[len(rows)] = Version(columns, rows)


class Evolution:
    """Topics whose schemas change in the same steps: with schemas, the same flattened, and JSON without schemas."""

    def __init__(self, server: LakeRunning, seed: int, group: int) -> None:
        """`group` steps are settled at once."""
        self._server, self._group = server, group
        steps, plain = evolution(seed), evolution(seed, PLAIN)
        self.topics = [
            Topic(f"typed{seed}", steps),
            Topic(f"flat{seed}", steps, model.Table(flatten=True)),
            Topic(f"plain{seed}", plain, source="json"),
        ]
        self._producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 1_000})
        for topic in self.topics:
            more = {"headwater.table.flatten": "true"} if topic.table.flatten else {}
            create(server, topic.name, topic.source, **more)

    def run(self, each: Callable[[], None] = lambda: None) -> None:
        """All steps, settled group by group."""
        with SchemaRegistryClient({"url": self._server.gateway_url}) as registry:
            registry.set_compatibility(level="NONE")
            for number, first in enumerate(range(0, len(self.topics[0].steps), self._group)):
                schemas: dict[str, tuple[int, bytes]] = {}
                for topic in self.topics:
                    self._produce(topic, topic.steps[first : first + self._group], registry, schemas, number % 2 == 1)
                assert self._producer.flush(60) == 0
                for topic in self.topics:
                    wait_for(self._server, topic.name, len(topic.sent))
                    topic.note()
                each()

    def _produce(
        self,
        topic: Topic,
        steps: Sequence[Step],
        registry: SchemaRegistryClient,
        schemas: dict[str, tuple[int, bytes]],
        by_header: bool,
    ) -> None:
        topic.table.settle(steps)
        for step in steps:
            if step.text and step.text not in schemas:
                schemas[step.text] = registered(registry, step)
            for payload in step.payloads:
                value, headers = framed(step, payload, schemas.get(step.text), by_header)
                self._producer.produce(topic.name, value, partition=0, headers=[*headers])
                topic.sent.append((value, headers))


def create(server: LakeRunning, topic: str, source: str, **more: str) -> None:
    """A topic that is settled as soon as it has records."""
    configs = {"headwater.table.freshness.ms": "100", "headwater.value.schema": source}
    server.create(topic, 1, **configs, **more)


def registered(registry: SchemaRegistryClient, step: Step) -> tuple[int, bytes]:
    """The id and the GUID of a step's schema."""
    told = registry.register_schema_full_response("evolving-value", Schema(step.text, step.format.name))
    assert told.schema_id is not None and told.guid is not None
    return told.schema_id, uuid.UUID(told.guid).bytes


def framed(
    step: Step, payload: bytes, known: tuple[int, bytes] | None, by_header: bool
) -> tuple[bytes, list[tuple[str, bytes]]]:
    """The value of a record and its headers. The indexes of a Protobuf message follow the id or the GUID."""
    if known is None:
        return payload, []
    if not by_header:
        return struct.pack(">bI", 0, known[0]) + payload, []
    front = 0 if step.format.name != "PROTOBUF" else 2 if payload[0] else 1
    return payload[front:], [(HEADER, b"\x01" + known[1] + payload[:front])]


def load(place_or_server: Place | LakeRunning, topic: str) -> Any:
    """A table, by the REST catalog."""
    catalog = (
        place_or_server.catalog if isinstance(place_or_server, Place) else f"{place_or_server.gateway_url}/iceberg"
    )
    return RestCatalog("headwater", uri=catalog).load_table(("topics", topic))


def settled(server: LakeRunning, topic: str) -> int:
    """How many rows a table has."""
    from pyiceberg.exceptions import NoSuchTableError

    try:
        snapshot = load(server, topic).current_snapshot()
    except NoSuchTableError:
        return 0
    return int(snapshot.summary["total-records"]) if snapshot is not None and snapshot.summary is not None else 0


def wait_for(server: LakeRunning, topic: str, count: int) -> None:
    """Until a table has so many rows."""
    patiently(lambda: settled(server, topic) == count, f"{topic} is settled", SETTLE_SECONDS)


# --- what a consumer gets --------------------------------------------------------------------------------------


@contextmanager
def consumer_of(server: LakeRunning, topics: Sequence[str]) -> Iterator[Callable[[int], dict[str, list[Any]]]]:
    """A consumer that is there before the first record. The call gives what it got, once that are so many records."""
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "before", "enable.auto.commit": False})
    got: dict[str, list[Any]] = {topic: [] for topic in topics}

    def read(count: int) -> dict[str, list[Any]]:
        def enough() -> bool:
            for message in consumer.consume(1_000, timeout=0.2):
                assert message.error() is None, message.error()
                got[str(message.topic())].append((message.value(), message.headers() or []))
            return sum(map(len, got.values())) >= count

        patiently(enough, "a consumer gets all records")
        return got

    try:
        consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])
        consumer.poll(0.1)
        yield read
    finally:
        consumer.close()


# --- readers ---------------------------------------------------------------------------------------------------


def by_pyiceberg(place: Place, version: int) -> Rows:
    found: Rows = load(place, place.topic).scan(snapshot_id=version).to_arrow().to_pylist()
    return found


def by_duckdb(place: Place, version: int) -> Rows:
    location = load(place, place.topic).metadata_location
    return _duckdb(f"iceberg_scan('{location}', snapshot_from_id = {version}::UBIGINT)", "avro", "iceberg")


def by_duckdb_delta(place: Place, version: int) -> Rows:
    return _duckdb(f"delta_scan('file://{place.root}', version = {version})", "delta")


def _duckdb(source: str, *extensions: str) -> Rows:
    with duckdb.connect() as connection:
        for extension in extensions:
            import_extension(extension)
            connection.execute(f"LOAD {extension}")
        connection.execute("SET TimeZone = 'UTC'")
        found: Rows = connection.execute(f"SELECT * FROM {source}").to_arrow_table().to_pylist()
        return found


def snapshots(place: Place) -> list[int]:
    """The snapshots of a table, the oldest first."""
    return [snapshot.snapshot_id for snapshot in load(place, place.topic).metadata.snapshots]


# --- checks ----------------------------------------------------------------------------------------------------


def check_version(name: str, found: Rows, topic: Topic) -> int:
    """One engine agrees with the model at one version: columns, and values record by record. Returns the rows."""
    rows = len(found)
    what = f"{name}, {topic.name}, {rows} rows"
    assert rows in topic.versions, f"{what}: no settle ended there"
    version = topic.versions[rows]
    check(what, found, version.columns, version.rows, [value for value, _ in topic.sent[:rows]])
    return rows


def check_odd(name: str, found: Rows, odd: Odd) -> None:
    """One engine agrees about odd records."""
    wanted = reading.plain_rows(odd.columns, odd.rows)
    check(f"{name}, {odd.topic}", found, odd.columns, wanted, odd.payloads)


def check(what: str, found: Rows, columns: Sequence[Column], wanted: Rows, values: Sequence[bytes]) -> None:
    """A table of an engine has these typed columns, no others, and these values, and the bytes of the log."""
    own = found[0].keys() - LOG
    assert own == {ERROR, *(column.name for column in columns)}, f"{what}: {own}"
    given = sorted(found, key=lambda row: int(row["offset"]))
    assert [row["offset"] for row in given] == list(range(len(values))), what
    assert [bytes(row["value"]) for row in given] == list(values), what
    assert [row[ERROR] for row in given] == [None] * len(values), what
    told = reading.plain_rows(columns, given)
    if "pyiceberg" in what:  # it shows lists and maps of structs that are null as empty ones
        told, wanted = reading.without_empty(told), reading.without_empty(wanted)
    if "Trino, Delta" in what:
        told, wanted = (reading.in_milliseconds(columns, rows) for rows in (told, wanted))
    for offset, (one, other) in enumerate(zip(told, wanted, strict=True)):
        differing = {name: (one.get(name), value) for name, value in other.items() if one.get(name) != value}
        assert one == other, f"{what}, offset {offset}: found and wanted {differing}"
