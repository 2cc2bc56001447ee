"""A topic with ten thousand partitions, with real clients and our own commands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from harness.patience import eventually
from harness.process import headwater
from tests.compat.test_zones import java
from tests.faults.raw import Raw
from tests.support.promise import promise
from tests.support.running import Running

PROMISES = ("K2", "K7", "M1")

MANY = 10_000
PAGE = 2_000
GROWTH_MB = 150
DESCRIBE_PARTITIONS = 75
WITHIN = 120


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("many"), brokers=2) as running:
        yield running


@pytest.fixture(scope="module")
def admin(server: Running) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.bootstrap})


@promise("K7", "K5", "M1")
def test_librdkafka(server: Running, admin: AdminClient) -> None:
    """Created, described, written to, all positions told, kept over a crash, deleted; in bounded memory."""
    before = server.broker(1).memory_info().rss
    admin.create_topics([NewTopic("big", MANY - 1, 1)])["big"].result(WITHIN)
    admin.create_partitions([NewPartitions("big", MANY)])["big"].result(WITHIN)
    for refused in (
        admin.create_partitions([NewPartitions("big", MANY + 1)])["big"],
        admin.create_topics([NewTopic("bigger", MANY + 1, 1)])["bigger"],
    ):
        with pytest.raises(KafkaException, match="INVALID_PARTITIONS"):
            refused.result(WITHIN)
    check_described(admin, {1, 2})
    producer = Producer({"bootstrap.servers": server.bootstrap})
    written = range(0, MANY, 1_111)
    for partition in written:
        producer.produce("big", b"x", partition=partition)
    assert producer.flush(WITHIN) == 0
    expected = {partition: int(partition in written) for partition in range(MANY)}
    assert ends(admin) == expected
    assert (server.broker(1).memory_info().rss - before) / 1e6 < GROWTH_MB

    epochs = server.epochs()
    for node in epochs:
        server.broker(node).kill()
    eventually(lambda: reborn(server, epochs), "both brokers run again", WITHIN)
    check_described(admin, {1, 2})
    assert ends(admin) == expected
    admin.delete_topics(["big"])["big"].result(WITHIN)
    eventually(lambda: "big" not in admin.list_topics(timeout=WITHIN).topics, "it is gone")


def reborn(server: Running, epochs: dict[int, int]) -> bool:
    now = server.epochs()
    return now.keys() == epochs.keys() and all(now[n] > e for n, e in epochs.items()) and len(server.nodes(1)) == 2


def check_described(admin: AdminClient, nodes: set[int]) -> None:
    described = admin.describe_topics(TopicCollection(["big"]))["big"].result(WITHIN)
    assert sorted(p.id for p in described.partitions) == list(range(MANY))
    assert {p.leader.id for p in described.partitions} == nodes


def ends(admin: AdminClient) -> dict[int, int]:
    asked = {TopicPartition("big", p): OffsetSpec.latest() for p in range(MANY)}
    return {p.partition: f.result(WITHIN).offset for p, f in admin.list_offsets(asked, request_timeout=WITHIN).items()}


@promise("K2")
def test_java_reads_it_in_pages(server: Running, admin: AdminClient, tmp_path: Path) -> None:
    """kafka-topics describes by DescribeTopicPartitions, of which one answer never holds more than a page."""
    admin.create_topics([NewTopic("paged", MANY, 1)])["paged"].result(WITHIN)
    with Raw(server.port) as raw:
        cursor, pages = None, []
        while cursor is not None or not pages:
            wanted = {"topics": [{"name": "paged"}], "response_partition_limit": 1 << 30, "cursor": cursor}
            answer = raw.ask(DESCRIBE_PARTITIONS, 0, **wanted)
            [topic] = answer.topics
            pages.append([p.partition_index for p in topic.partitions])
            following = answer.next_cursor
            cursor = following and {"topic_name": following.topic_name, "partition_index": following.partition_index}
    assert [len(page) for page in pages] == [PAGE] * (MANY // PAGE)
    assert [index for page in pages for index in page] == list(range(MANY))
    bootstrap = ("--bootstrap-server", server.bootstrap, "--topic", "paged")
    said = java(tmp_path / "log", "TopicCommand", "--describe", *bootstrap)
    assert [int(p) for p in re.findall(r"Partition: (\d+)\tLeader: [12]\t", said)] == list(range(MANY))
    java(tmp_path / "log", "TopicCommand", "--delete", *bootstrap)
    eventually(lambda: "paged" not in admin.list_topics(timeout=WITHIN).topics, "it is gone")


@promise("H3", "K7")
def test_our_commands(server: Running) -> None:
    """`headwater topic` creates, describes, lists and deletes it."""
    where = ("--bootstrap", server.bootstrap)
    made = headwater("topic", "create", "ours", "--partitions", str(MANY), *where, timeout=WITHIN)
    assert made.returncode == 0, made.stderr
    shown = headwater("topic", "describe", "ours", *where, "--output", "json", timeout=WITHIN)
    assert shown.returncode == 0, shown.stderr
    assert [p["partition"] for p in json.loads(shown.stdout)["partitions"]] == list(range(MANY))
    listed = headwater("topic", "list", *where, "--output", "json", timeout=WITHIN)
    assert {t["name"]: t["partitions"] for t in json.loads(listed.stdout)}["ours"] == MANY
    gone = headwater("topic", "delete", "--yes", "ours", *where, timeout=WITHIN)
    assert gone.returncode == 0, gone.stderr
