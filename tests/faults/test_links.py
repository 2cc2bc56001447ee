"""Links against a real Apache Kafka: every committed record once, at its offset, whatever is killed."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from harness import kafka
from harness.patience import eventually
from tests.compat.common import unavailable
from tests.faults.linking import (
    QUICK_LINKS,
    committed,
    consume,
    create_link,
    create_topic,
    delete_records,
    ends,
    fill,
    kill_while_it_copies,
    produce,
    rewrite,
    seen,
    until_copied,
)
from tests.support.running import Running

PROMISES = ("N1",)

pytestmark = pytest.mark.long
PARTITIONS = 12
RECORDS = 30_000
KILLS = 2
"""The soak kills twenty, over a million records (`tests/soak/links.py`)."""
CLEANER = "log.cleaner.backoff.ms=50\n"
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "20", "min.cleanable.dirty.ratio": "0.01"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.Kafka]:
    """A Kafka with records."""
    if not kafka.is_installed():
        unavailable(".tools/kafka", "run scripts/setup-tools kafka")
    directory = tmp_path_factory.mktemp("source")
    with kafka.Kafka(directory, settings=kafka.QUICK_GROUPS + CLEANER, heap=kafka.SMALL) as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A Headwater that copies links."""
    with Running(tmp_path_factory.mktemp("headwater"), settings=QUICK_LINKS) as running:
        yield running


def described(server: Running, link: str, topic: str) -> dict[str, str]:
    """What `headwater link describe` says of a topic."""
    told = server.cli("link", "describe", link, "--config", str(server.config), "--output", "json")
    [found] = [one for one in told["linked"] if one["topic"] == topic]
    return dict(found)


def stopped(server: Running, name: str) -> str:
    """Why the topic of a link has stopped, which have the same name; empty if it has not."""
    found = described(server, name, name)
    return found["reason"] if found["state"] == "stopped" else ""


def test_link_processes_that_are_killed_copy_every_committed_record_once(source: kafka.Kafka, server: Running) -> None:
    create_topic(source.bootstrap, "orders", PARTITIONS)
    fill(source.bootstrap, "orders", PARTITIONS, RECORDS // 2, seed=1)
    create_link(server, "killed", source.bootstrap, "--topics", "orders")
    kill_while_it_copies(server, source.bootstrap, "orders", PARTITIONS, RECORDS // 2, KILLS)
    until_copied(server, source.bootstrap, "orders", PARTITIONS)
    assert seen(server.bootstrap, "orders", PARTITIONS) == seen(source.bootstrap, "orders", PARTITIONS)


def test_a_compacted_topic_with_gaps_is_copied_up_to_its_end(source: kafka.Kafka, server: Running) -> None:
    """Nine tenths of its offsets have no record any more (`tests/soak/links_compacted.py` has tables and figures)."""
    create_topic(source.bootstrap, "compacted", 1, **COMPACTED)

    def cleaned() -> bool:
        """Each look adds a batch: the cleaner leaves the newest segment alone."""
        rewrite(source.bootstrap, "compacted", 10, 10)
        return len(seen(source.bootstrap, "compacted", 1)[0]) * 10 < ends(source.bootstrap, "compacted", 1)[0]

    rewrite(source.bootstrap, "compacted", 1_000, 10)
    eventually(cleaned, "it is compacted", 60, 0.1)
    create_link(server, "compacted", source.bootstrap, "--topics", "compacted")
    until_copied(server, source.bootstrap, "compacted", 1)
    server.cli("link", "promote", "compacted", "--wait", "--config", str(server.config))
    ours, theirs = (seen(at, "compacted", 1)[0] for at in (server.bootstrap, source.bootstrap))
    assert ends(server.bootstrap, "compacted", 1) == ends(source.bootstrap, "compacted", 1)
    assert set(theirs) <= set(ours) and {line[2]: line for line in ours} == {line[2]: line for line in theirs}
    assert len(ours) * 10 < ends(server.bootstrap, "compacted", 1)[0]


def test_a_group_and_its_producer_move_over_and_see_every_record_once(source: kafka.Kafka, server: Running) -> None:
    create_topic(source.bootstrap, "moving", 1)
    produce(source.bootstrap, "moving", [b"%d" % number for number in range(20)])
    create_link(server, "moves", source.bootstrap, "--topics", "moving", "--groups", "mover")
    until_copied(server, source.bootstrap, "moving", 1)
    before = consume(source.bootstrap, "moving", "mover", 8)
    config = ("--config", str(server.config))
    server.cli("link", "promote", "moves", *config)
    assert committed(server.bootstrap, "moving", "mover") == 8
    server.cli("link", "resume", "moves", "--topic", "moving", *config)  # nothing was written: the way back
    produce(source.bootstrap, "moving", [b"20"])
    server.cli("link", "promote", "moves", "--wait", *config)
    produce(server.bootstrap, "moving", [b"21", b"22"])
    after = consume(server.bootstrap, "moving", "mover", 15)
    assert before + after == [(number, b"%d" % number) for number in range(23)]


def test_a_topic_that_is_created_anew_stops_and_others_go_on(source: kafka.Kafka, server: Running) -> None:
    for name in ("anew", "other"):
        create_topic(source.bootstrap, name, 1)
        produce(source.bootstrap, name, [b"first"])
    create_link(server, "stops", source.bootstrap, "--topics", "anew,other")
    until_copied(server, source.bootstrap, "anew", 1)
    admin = AdminClient({"bootstrap.servers": source.bootstrap})
    for future in admin.delete_topics(["anew"], operation_timeout=30).values():
        future.result()
    create_topic(source.bootstrap, "anew", 1)
    produce(source.bootstrap, "anew", [b"another", b"history"])
    eventually(lambda: described(server, "stops", "anew")["state"] == "stopped", "the topic is stopped", 30, 0.3)
    produce(source.bootstrap, "other", [b"second"])
    until_copied(server, source.bootstrap, "other", 1)
    assert [line[3] for line in seen(server.bootstrap, "anew", 1)[0]] == [b"first"]


def test_a_source_that_hangs_makes_the_link_degraded_until_it_is_back(source: kafka.Kafka, server: Running) -> None:
    create_topic(source.bootstrap, "pausing", 2)
    produce(source.bootstrap, "pausing", [b"before"])
    create_link(server, "hangs", source.bootstrap, "--topics", "pausing")
    until_copied(server, source.bootstrap, "pausing", 2)
    assert source.process is not None
    source.process.send_signal(signal.SIGSTOP)
    try:
        eventually(lambda: server.metric("headwater_link_breaker") > 0, "a breaker opens", 60, 0.2)
        assert json.loads(server.page("/health")[1])["components"]["link"] == "degraded"
    finally:
        source.process.send_signal(signal.SIGCONT)
    produce(source.bootstrap, "pausing", [b"after"])
    until_copied(server, source.bootstrap, "pausing", 2)
    eventually(lambda: server.metric("headwater_link_breaker") == 0, "all breakers close", 60, 0.2)
    assert seen(server.bootstrap, "pausing", 2) == seen(source.bootstrap, "pausing", 2)


def test_a_transaction_that_hangs_holds_up_its_own_partition_only(source: kafka.Kafka, server: Running) -> None:
    create_topic(source.bootstrap, "held", 2)
    hanging = Producer({"bootstrap.servers": source.bootstrap, "transactional.id": "hangs"})
    hanging.init_transactions(30)
    hanging.begin_transaction()
    hanging.produce("held", b"open", partition=0)
    assert hanging.flush(30) == 0
    produce(source.bootstrap, "held", [b"behind it"])
    produce(source.bootstrap, "held", [b"%d" % number for number in range(10)], partition=1)
    create_link(server, "held", source.bootstrap, "--topics", "held")
    until_copied(server, source.bootstrap, "held", 2)
    assert ends(server.bootstrap, "held", 2) == [0, 10]
    hanging.commit_transaction(30)
    until_copied(server, source.bootstrap, "held", 2)
    assert seen(server.bootstrap, "held", 2) == seen(source.bootstrap, "held", 2)
    assert [line[3] for line in seen(server.bootstrap, "held", 2)[0]] == [b"open", b"behind it"]


def test_retention_that_is_ahead_stops_the_topic_until_the_gap_is_accepted(
    source: kafka.Kafka, server: Running
) -> None:
    config = ("--config", str(server.config))
    create_topic(source.bootstrap, "removed", 1)
    produce(source.bootstrap, "removed", [b"%d" % number for number in range(5)])
    create_link(server, "removed", source.bootstrap, "--topics", "removed")
    until_copied(server, source.bootstrap, "removed", 1)
    server.cli("link", "pause", "removed", *config)
    produce(source.bootstrap, "removed", [b"%d" % number for number in range(5, 10)])
    delete_records(source.bootstrap, "removed", 8)
    server.cli("link", "resume", "removed", *config)
    told = eventually(lambda: stopped(server, "removed"), "the topic is stopped", 30, 0.3)
    assert "begins at offset 8" in told
    server.cli("link", "resume", "removed", "--accept-gap", *config)
    until_copied(server, source.bootstrap, "removed", 1)
    assert [line[0] for line in seen(server.bootstrap, "removed", 1)[0]] == [0, 1, 2, 3, 4, 8, 9]
