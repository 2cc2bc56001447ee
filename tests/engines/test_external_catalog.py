"""An Iceberg catalog of somebody else's follows us, and Spark writes there what it must not.

Headwater speaks to the catalog by pyiceberg, Spark by its JDBC catalog; both mean the same SQLite file. A real
`headwater up` with its compactor, Spark's own connector, readers that others wrote.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyiceberg.catalog import load_catalog

from demo.readers import PLAIN, sum_of
from harness.storage import Place
from tests.engines.conftest import Open
from tests.faults import lake_running
from tests.faults.lake_running import LakeRunning, Row, patiently
from tests.support.promise import promise

PROMISES = ("T2", "T4", "T9")

# pyiceberg's HTTP sessions and py4j leave their sockets to the garbage collector.
pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
NAME = "shared"
INSERTED, REWRITTEN, LEFT_ALONE = TOPICS = ("inserted", "rewritten", "left.alone")
OURS = ("iceberg", "delta")
PARTITIONS = 2
RECORDS = 400
SETTINGS = f"""
[lake]
interval_ms = 100
merge_files = 100
expire_interval_ms = 1000
orphan_interval_ms = 1000
foreign_retry_ms = 2000

[lake.catalogs.{NAME}]
"""
"""Nothing is merged, so nothing at all may go, although it is looked for all the time."""


@dataclass(frozen=True, slots=True)
class World:
    """A server, its catalog, a Spark session that shares it, and what was acknowledged."""

    server: LakeRunning
    properties: Mapping[str, str]
    session: Any
    acks: dict[str, list[Row]]

    def produce(self) -> None:
        """So many records to every topic, and wait until log, Iceberg and Delta have settled them."""
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{self.server.port}", "linger.ms": 2})
        failed: list[str] = []

        def note(error: Any, message: Any) -> None:
            if error is not None:
                failed.append(str(error))
            else:
                row = (message.partition(), message.offset(), message.key(), message.value())
                self.acks[message.topic()].append(row)

        for topic in TOPICS:
            start = len(self.acks[topic])
            for i in range(start, start + RECORDS):
                producer.produce(topic, b"value %d" % i, b"key %d" % (i % 7), i % PARTITIONS, on_delivery=note)
        assert (producer.flush(60), failed) == (0, [])
        patiently(self._has_settled, "everything is settled", 180)

    def _has_settled(self) -> bool:
        tables = [self.server.look().tables[topic] for topic in TOPICS]
        return all(t.version and not t.pending and {t.cursors.get(n) for n in OURS} == {t.version} for t in tables)

    def follows(self, *topics: str) -> bool:
        """Whether the shared catalog has come as far as the log."""
        tables = [self.server.look().tables[topic] for topic in topics]
        return all(table.cursors.get(NAME) == table.version for table in tables)

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.session.sql(text).collect()]

    def count(self, topic: str) -> int:
        """The rows that Spark sees in the shared catalog, at this moment."""
        self.session.catalog.clearCache()
        self.sql(f"REFRESH TABLE {in_spark(topic)}")
        [(count,)] = self.sql(f"SELECT count(*) FROM {in_spark(topic)}")
        return int(count)

    def snapshot(self, topic: str) -> int:
        """The current snapshot in the shared catalog, as pyiceberg sees it."""
        with closing(load_catalog(NAME, **self.properties)) as catalog:
            found = catalog.load_table(("topics", topic)).current_snapshot()
            assert found is not None
            return found.snapshot_id

    def place(self, topic: str) -> Place:
        return self.server.place(topic, self.server.look().tables[topic].root)

    def check_readers(self, topic: str) -> None:
        """The log, our Iceberg table and Delta have all that was acknowledged."""
        place, wanted = self.place(topic), sum_of(self.acks[topic])
        assert {name: read(place) for name, read in PLAIN.items()} == dict.fromkeys(PLAIN, wanted), topic

    def files(self, topic: str) -> dict[str, str]:
        """Every file below a topic's root, with a sum of its bytes."""
        root = Path(self.place(topic).root)
        return {
            str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted(root.rglob("*"))
            if p.is_file()
        }

    def held(self) -> set[str]:
        """The roots of the tables that the log says the catalog is held up on."""
        lines = [line for line in self.server.log_lines() if "held up by a foreign commit" in str(line.get("message"))]
        assert all((line["level"].lower(), line["follower"]) == ("error", NAME) for line in lines), lines
        return {line["table"] for line in lines}


def in_spark(topic: str) -> str:
    return f"{NAME}.topics.`{topic}`"


@pytest.fixture
def world(tmp_path: Path, open_session: Open) -> Iterator[World]:
    """Each topic with two versions in all three tables, so that a rewrite has something to do."""
    file, warehouse = tmp_path / "catalog.db", (tmp_path / "warehouse").as_uri()
    properties = {"type": "sql", "uri": f"sqlite:///{file}", "warehouse": warehouse}
    named = "".join(f'{key} = "{value}"\n' for key, value in properties.items())
    catalog = f"spark.sql.catalog.{NAME}"
    more = {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        f"{catalog}.uri": f"jdbc:sqlite:{file}",
        f"{catalog}.warehouse": warehouse,
        f"{catalog}.cache-enabled": "false",
    }
    with LakeRunning(tmp_path, settings=SETTINGS + named) as server:
        for topic in TOPICS:
            server.create(topic, PARTITIONS, **lake_running.FRESHNESS)
        session = open_session(Place("", "", f"{server.gateway_url}/iceberg", str(tmp_path)), more)
        found = World(server, properties, session, {topic: [] for topic in TOPICS})
        found.produce()
        found.produce()
        patiently(lambda: found.follows(*TOPICS), "the catalog follows")
        yield found


@promise("T2", "T4")
@pytest.mark.timeout(900)
def test_a_foreign_commit_stops_that_follower_only(world: World) -> None:
    """Rows that Spark inserts, and files that it rewrites, hold up the catalog they are in, with an alert. The
    log, our Iceberg table and Delta go on; nothing of ours goes; without the foreign table the catalog goes on."""
    assert {topic: world.count(topic) for topic in TOPICS} == dict.fromkeys(TOPICS, 2 * RECORDS)
    ours = {topic: world.snapshot(topic) for topic in TOPICS}
    files = {topic: world.files(topic) for topic in TOPICS}
    for kept in files.values():
        kept.pop("metadata/version-hint.text", None)  # names the newest metadata of our own table, which goes on
    stood = {topic: world.server.look().tables[topic].cursors[NAME] for topic in TOPICS}
    _commit_foreign_data(world)
    foreign = {topic: world.snapshot(topic) for topic in (INSERTED, REWRITTEN)}
    assert all(foreign[topic] != ours[topic] for topic in foreign)

    world.produce()
    roots = {world.server.look().tables[topic].root for topic in foreign}
    patiently(lambda: world.held() == roots, "the log tells of both", 120)
    assert world.server.metric("headwater_followers_held") == len(foreign)
    assert 'headwater_followers_held{follower="shared"' in world.server.page("/metrics")[1]
    patiently(lambda: world.follows(LEFT_ALONE), "the catalog follows the topic that nobody touched")
    for topic in TOPICS:
        world.check_readers(topic)
        found = world.files(topic)
        assert {name: found.get(name) for name in files[topic]} == files[topic], f"{topic} lost something"
    for topic in foreign:
        assert world.server.look().tables[topic].cursors[NAME] == stood[topic]
        assert world.snapshot(topic) == foreign[topic]

    # Somebody puts it right: the tables with foreign data go, and are made anew from the log's files.
    world.sql(f"DROP TABLE {in_spark(INSERTED)}")
    world.sql(f"CALL {NAME}.system.rollback_to_snapshot('topics.{REWRITTEN}', {ours[REWRITTEN]})")
    patiently(lambda: world.follows(*TOPICS), "the catalog follows again")
    assert {topic: world.count(topic) for topic in TOPICS} == dict.fromkeys(TOPICS, 3 * RECORDS)
    patiently(lambda: world.server.metric("headwater_followers_held") == 0, "the alert is over")
    for topic in TOPICS:
        segments = {name: text for name, text in files[topic].items() if name.startswith("_data/")}
        assert segments.items() <= world.files(topic).items()
    world.server.doctor()


def _commit_foreign_data(world: World) -> None:
    table = in_spark(INSERTED)
    world.sql(f"INSERT INTO {table} SELECT * FROM {table} LIMIT 3")
    assert world.count(INSERTED) == 2 * RECORDS + 3
    [result] = world.sql(
        f"CALL {NAME}.system.rewrite_data_files(table => 'topics.{REWRITTEN}', options => map('rewrite-all', 'true'))"
    )
    assert result[0] > 1, f"nothing was rewritten: {result}"
