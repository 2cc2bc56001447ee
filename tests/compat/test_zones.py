"""Real clients that name their zone work with its brokers alone, save for their group's coordinator."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from harness.jvm import OF_KAFKA
from harness.patience import Patience, eventually
from tests.compat.common import TOOLS, tool, unavailable
from tests.faults.raw import Raw
from tests.support.promise import promise
from tests.support.running import Running

PROMISES = ("M3",)

with warnings.catch_warnings():
    # It reads its schemas by a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer

FIND_COORDINATOR, FETCH, PRODUCE = 10, "fetch", "produce"
ZONES = {"a": {1, 3}, "b": {2, 4}}
RECORDS = 200
SETTINGS = 'zones = "a,b"\n[routing]\nenforce_owner = true\n[groups]\ninitial_rebalance_delay_ms = 0\n'


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Two zones, and brokers that insist on being asked for their own partitions only."""
    with Running(tmp_path_factory.mktemp("zones"), brokers=4, settings=SETTINGS) as running:
        running.create("t", 8)
        yield running


@pytest.fixture
def server(brokers: Running) -> Running:
    """The brokers without clients: librdkafka closes connections after its consumer, and may be answered until then."""
    eventually(lambda: set(metric(brokers, "headwater_connections", "").values()) == {0}, "earlier clients are gone")
    return brokers


def group_of(server: Running, zone: str, kind: str) -> str:
    """A group whose coordinator lies in a zone."""
    with Raw(server.port) as raw:
        for i in range(200):
            name = f"{kind}-{zone}-{i}"
            [found] = raw.ask(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[name]).coordinators
            if found.node_id in ZONES[zone]:
                return name
    raise AssertionError(f"no group is coordinated in zone {zone}")


def counts(server: Running, api: str) -> dict[int, int]:
    """How many requests of an API each broker has answered."""
    return metric(server, "headwater_requests_total", f',api="{api}"')


def metric(server: Running, name: str, labels: str) -> dict[int, int]:
    """A metric of each broker."""
    text = server.page("/metrics")[1]
    return {int(n): int(value) for n, value in re.findall(rf'^{name}\{{node="(\d+)"{labels}\}} (\d+)$', text, re.M)}


def assert_used(server: Running, api: str, before: dict[int, int], zone: str) -> None:
    """Since then requests of an API went to brokers of a zone, and to no others."""
    used = {node for node, count in counts(server, api).items() if count > before.get(node, 0)}
    assert used
    assert used <= ZONES[zone]


@promise("M3")
def test_librdkafka_is_told_its_zone(server: Running) -> None:
    """Brokers, leaders and the controller as librdkafka's admin client sees them."""
    for zone, nodes in ZONES.items():
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "client.id": f"zone_id={zone},app=test"})
        metadata = admin.list_topics("t", timeout=30)
        assert set(metadata.brokers) == {node for zone in ZONES.values() for node in zone}
        assert {p.leader for p in metadata.topics["t"].partitions.values()} <= nodes
        assert metadata.controller_id in nodes


@promise("M3")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("zone", ZONES)
def test_librdkafka_with_its_coordinator_elsewhere(server: Running, zone: str, protocol: str) -> None:
    """Producing and fetching stay in the zone; the group lives on while metadata is read again and again."""
    other = next(z for z in ZONES if z != zone)
    common = {"bootstrap.servers": server.bootstrap, "client.id": f"zone_id={zone}"}
    produced, fetched = counts(server, PRODUCE), counts(server, FETCH)
    producer = Producer({**common, "linger.ms": 5})
    mark = f"{zone}-{protocol}"
    for i in range(RECORDS):
        producer.produce("t", f"{mark}-{i}".encode(), partition=i % 8)
    assert producer.flush(30) == 0
    group = group_of(server, other, protocol)
    consumer = Consumer(
        {
            **common, "group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 200, "enable.auto.commit": False,
        }
    )  # fmt: skip
    try:
        consumer.subscribe(["t"])
        seen: set[bytes] = set()
        patience = Patience(60)
        metadata = counts(server, "metadata")
        # Read on until the metadata was told ten times more: librdkafka drops brokers that it does not name.
        while len(seen) < RECORDS or sum(counts(server, "metadata").values()) < sum(metadata.values()) + 10:
            assert not patience.ended, f"{len(seen)} of {RECORDS} records"
            for message in consumer.consume(500, timeout=0.1):
                assert message.error() is None, message.error()
                if message.value().startswith(f"{mark}-".encode()):
                    seen.add(message.value())
        committed = consumer.commit(asynchronous=False)
        assert committed and all(p.error is None for p in committed)
        assert len(consumer.assignment()) == 8
    finally:
        consumer.close()
    assert_used(server, PRODUCE, produced, zone)
    assert_used(server, FETCH, fetched, zone)


@promise("M3")
def test_kafka_python_with_its_coordinator_elsewhere(server: Running) -> None:
    """kafka-python goes to the address that FindCoordinator names."""
    server.create("kafka-python", 2)
    fill(server, "kafka-python")
    consumer = KafkaConsumer(
        "kafka-python", bootstrap_servers=server.bootstrap.split(","), client_id="zone_id=a,app=x",
        group_id=group_of(server, "b", "kafka-python"), auto_offset_reset="earliest", enable_auto_commit=False,
        metadata_max_age_ms=200,
    )  # fmt: skip
    try:
        seen, patience = 0, Patience(60)
        while seen < RECORDS:
            assert not patience.ended, f"{seen} of {RECORDS} records"
            seen += sum(map(len, consumer.poll(500).values()))
        consumer.commit()
    finally:
        consumer.close()


@promise("M3")
def test_aiokafka_with_its_coordinator_elsewhere(server: Running) -> None:
    """A client that looks its coordinator up among the brokers of its metadata finds it there."""
    server.create("aiokafka", 4)
    fill(server, "aiokafka")
    fetched = counts(server, FETCH)

    async def consume() -> int:
        consumer = AIOKafkaConsumer(
            "aiokafka", bootstrap_servers=server.bootstrap, client_id="zone_id=a,app=x", auto_offset_reset="earliest",
            group_id=group_of(server, "b", "aiokafka"), enable_auto_commit=False,
        )  # fmt: skip
        await consumer.start()
        try:
            seen = 0
            async with asyncio.timeout(60):
                while seen < RECORDS:
                    seen += sum(map(len, (await consumer.getmany(timeout_ms=500)).values()))
            await consumer.commit()
        finally:
            await consumer.stop()
        return seen

    assert asyncio.run(consume()) == RECORDS
    assert_used(server, FETCH, fetched, "a")


def fill(server: Running, topic: str) -> None:
    """Records in a topic."""
    producer = Producer({"bootstrap.servers": server.bootstrap, "client.id": "zone_id=a"})
    for i in range(RECORDS):
        producer.produce(topic, str(i).encode())
    assert producer.flush(30) == 0


def java(log: Path, name: str, *arguments: str, given: str = "") -> str:
    """One of Kafka's own tools."""
    program = shutil.which("java") or unavailable("java", "install a JDK, 17 or later")
    tool("kafka/libs")
    log.write_text("rootLogger.level = ERROR\n")
    command = [program, *OF_KAFKA, "-Xmx128M"]
    command += [f"-Dlog4j2.configurationFile={log}", "-cp", f"{TOOLS / 'kafka/libs'}/*"]
    command += [f"org.apache.kafka.tools.{name}", *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@promise("M3")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_java_with_its_coordinator_elsewhere(server: Running, tmp_path: Path, protocol: str) -> None:
    """So does the Java client, by a connection of its own to its coordinator."""
    zone, other = ("a", "b") if protocol == "classic" else ("b", "a")
    produced, fetched = counts(server, PRODUCE), counts(server, FETCH)
    topic = f"java-{protocol}"
    server.create(topic, 8)
    lines = "".join(f"{i}\n" for i in range(RECORDS))
    bootstrap = ("--bootstrap-server", server.bootstrap, "--topic", topic)
    named = ("--command-property", f"client.id=zone_id={zone},app=java")
    options = ("--command-property", "partitioner.class=org.apache.kafka.clients.producer.RoundRobinPartitioner")
    java(tmp_path / "log", "ConsoleProducer", *bootstrap, *named, *options, given=lines)
    asked = ("--group", group_of(server, other, f"java-{protocol}"), "--from-beginning", "--max-messages", str(RECORDS))
    asked += ("--timeout-ms", "60000", "--command-property", f"group.protocol={protocol}")
    said = java(tmp_path / "log", "consumer.ConsoleConsumer", *bootstrap, *named, *asked)
    assert sorted(map(int, said.split())) == list(range(RECORDS))
    assert_used(server, PRODUCE, produced, zone)
    assert_used(server, FETCH, fetched, zone)


@promise("M2", "M3")
def test_a_client_of_a_zone_whose_brokers_go_is_served_by_the_others(server: Running) -> None:
    """Every record of a producer in zone b is acknowledged while all of zone b is killed."""
    producer = Producer(
        {"bootstrap.servers": server.bootstrap, "client.id": "zone_id=b", "enable.idempotence": True, "linger.ms": 5}
    )
    failed: list[object] = []
    for i in range(RECORDS):
        producer.produce("t", f"kill-{i}".encode(), partition=i % 8, on_delivery=lambda e, _: e and failed.append(e))
        if i == RECORDS // 2:
            for node in ZONES["b"]:
                server.broker(node).kill()
    assert producer.flush(60) == 0
    assert not failed
    values = [v for part in server.read("t", range(8)).values() for _, v in part if v.startswith(b"kill-")]
    assert sorted(values) == sorted(f"kill-{i}".encode() for i in range(RECORDS))
    eventually(lambda: set(server.nodes(1)) == {1, 2, 3, 4}, "the supervisor has started them again")
