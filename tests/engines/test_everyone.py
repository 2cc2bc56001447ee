"""One set of files, read by everybody, after the WAL is gone.

A real `headwater up` with its compactor on Spark; readers that others wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from demo.readers import ON_SPARK, PLAIN, sum_of
from harness.headwater import QUICK_LAKE, Headwater
from harness.storage import Place
from tests.engines import payments
from tests.engines.conftest import Open
from tests.engines.everyone import OURS, PARTITIONS, START_MS, TOPIC, Sent, check_consumer, produced
from tests.support.promise import promise

PROMISES = ("T2", "T3", "T9", "K5")

# pyiceberg's HTTP sessions and py4j leave their sockets to the garbage collector.
pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headwater]:
    with Headwater(tmp_path_factory.mktemp("everyone"), lake=True, settings=QUICK_LAKE) as server:
        yield server


@pytest.fixture(scope="module")
def sent(server: Headwater) -> list[Sent]:
    return produced(server)


@pytest.fixture(scope="module")
def place(server: Headwater, sent: list[Sent]) -> Place:
    return server.place(TOPIC)


@pytest.fixture(scope="module")
def session(place: Place, open_session: Open) -> Any:
    return open_session(place)


def files_of(place: Place) -> set[str]:
    """What is ours. A rewrite that was refused may have left files of its own beside it."""
    found = {str(path.relative_to(place.root)) for path in Path(place.root).rglob("*") if path.is_file()}
    return {name for name in found if name.startswith(OURS)}


@promise("T2", "T3")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", PLAIN)
def test_reads_the_same(name: str, place: Place, sent: list[Sent]) -> None:
    assert PLAIN[name](place) == sum_of(record[:4] for record in sent)


@promise("T2", "T9")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", ON_SPARK)
def test_reads_the_same_on_spark(name: str, place: Place, session: Any, sent: list[Sent]) -> None:
    assert ON_SPARK[name](place, session) == sum_of(record[:4] for record in sent)


@promise("T3")
@pytest.mark.timeout(400)
def test_a_consumer_gets_every_byte(place: Place, sent: list[Sent]) -> None:
    """Key, value, headers in order with duplicates and nulls, timestamp, offset; from any offset on."""
    check_consumer(place, sent)


@promise("K5")
@pytest.mark.timeout(400)
def test_offsets_by_time_are_exact(place: Place, sent: list[Sent]) -> None:
    """The first record at or after a time, over settled rows whose clocks run backwards."""
    consumer = Consumer({"bootstrap.servers": place.bootstrap, "group.id": "x"})
    try:
        for stamp in range(START_MS - 1, START_MS + 100_500, 9_973):
            wanted = {}
            for partition, offset, *_, time in reversed(sent):
                if time >= stamp:
                    wanted[partition] = offset
            asked = [TopicPartition(TOPIC, p, stamp) for p in range(PARTITIONS)]
            found = {p.partition: p.offset for p in consumer.offsets_for_times(asked, timeout=30)}
            assert found == {p: wanted.get(p, -1) for p in range(PARTITIONS)}
    finally:
        consumer.close()


@promise("T1", "T2", "K5", "K12")
@pytest.mark.timeout(400)
def test_transactions(server: Headwater, sent: list[Sent]) -> None:
    """Tables and log hold what was committed, with transactions open while others are settled."""
    written = payments.Payments(server)
    written.run()
    server.wait_for_collection()
    for topic, partitions, readers in (
        (payments.TOPIC, payments.PARTITIONS, payments.TABLES),
        (payments.STAMPED, 1, payments.TWO),
    ):
        place, wanted = written.place(topic), written.committed(topic)
        payments.check_tables(place, wanted, readers)
        payments.check_log(place, wanted, partitions)
        payments.check_times(place, wanted, partitions)


@promise("T2")
@pytest.mark.timeout(400)
def test_vacuum_finds_nothing(server: Headwater, place: Place, session: Any, sent: list[Sent]) -> None:
    """Spark's and delta-rs's VACUUM, without any retention, delete nothing of ours: neither segments that the table
    shows, nor such as it does not show yet, nor Iceberg's metadata."""
    from deltalake import DeltaTable

    unfollowed = Path(place.root) / "_data" / "0000000001-00000001-unfollowed.parquet"
    unfollowed.write_bytes(b"settled a moment ago")
    before = files_of(place)
    try:
        session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        session.sql(f"VACUUM delta.`{place.root}` RETAIN 0 HOURS")
        table = DeltaTable(place.root)
        gone = table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
        assert [path for path in gone if path.startswith(OURS)] == []
        assert before - files_of(place) == set()
    finally:
        unfollowed.unlink()


@promise("T2", "T9")
@pytest.mark.timeout(400)
def test_icebergs_own_maintenance_is_refused(place: Place, session: Any, sent: list[Sent]) -> None:
    """Expiry, orphan removal and rewrites through the catalog change nothing."""
    before = files_of(place)
    table = f"topics.`{TOPIC}`"
    for call in (
        f"expire_snapshots(table => '{table}', older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)",
        f"remove_orphan_files(table => '{table}', older_than => TIMESTAMP '2020-01-01 00:00:00')",
        f"rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))",
    ):
        with pytest.raises(Exception):  # noqa: B017 - whatever Spark makes of the refusal
            session.sql(f"CALL headwater.system.{call}").collect()
        assert before - files_of(place) == set()


@promise("T1")
def test_doctor_is_content(server: Headwater, sent: list[Sent]) -> None:
    server.cli("doctor", "--config", str(server.config))
    assert Path(server.data).exists()
