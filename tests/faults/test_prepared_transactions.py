"""Transactions that outlive their writers: Flink's sink, producers that were paused, offsets that were only staged."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Producer, TopicPartition

from harness.patience import eventually
from tests.compat.common import new_topic
from tests.faults.copying import Talking, java, read_copies
from tests.support.running import Running

PROMISES = ("K12",)

SOURCE, GROUP = "source", "readers"
PARTITIONS = 2
EACH = 20
QUICK_TIMEOUT_MS = 3_000
LONG_TIMEOUT_MS = 60_000
CALL_S = 60.0
RETURNING: dict[str, Any] = {"reconnect.backoff.max.ms": 500}
"""Clients that are soon back when brokers are."""
QUICK_GROUPS = "[groups]\ninitial_rebalance_delay_ms = 100\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.mark.timeout(120)
def test_another_process_commits_what_a_killed_sink_prepared(server: Running, tmp_path: Path) -> None:
    """As Flink does it: a checkpoint names producer ids and epochs, and a restored job commits them.

    What no checkpoint names is aborted by an InitProducerId of its id.
    """
    topic = new_topic("sink")
    server.create(topic, PARTITIONS)
    command = [*java("PreparedSink"), topic, str(PARTITIONS), server.bootstrap]
    with Talking(command, tmp_path / "writer.log") as writer:
        prepared = {}
        for number, name in enumerate(("kept-1", "kept-2", "lingering")):
            writer.tell(f"write {name} {EACH}")
            writer.waits_for("prepared", number + 1)
            prepared[name] = writer.last["prepared"]
    assert not read_copies(server.bootstrap, topic, PARTITIONS).values
    with Talking(command, tmp_path / "committer.log") as committer:
        committer.tell(f"commit {prepared['kept-1']}")
        committer.waits_for("committed")
        committer.tell(f"commit {prepared['kept-2']}")
        committer.waits_for("committed", 2)
        # A job that is restored a second time commits once more.
        committer.tell(f"commit {prepared['kept-1']}")
        committer.waits_for("committed", 3)
        committer.tell("abort lingering")
        committer.waits_for("aborted")
        committer.tell(f"commit {prepared['lingering']}")
        committer.waits_for("refused")
        committer.finish()
    kept = read_copies(server.bootstrap, topic, PARTITIONS)
    assert {key: len(values) for key, values in kept.values.items()} == {"kept-1": EACH, "kept-2": EACH}
    everything = read_copies(server.bootstrap, topic, PARTITIONS, committed=False)
    assert len(everything.values["lingering"]) == EACH


@pytest.mark.timeout(120)
@pytest.mark.parametrize("successor", [False, True], ids=["by its time-out", "by its successor"])
def test_a_producer_that_was_paused_is_fenced(server: Running, tmp_path: Path, successor: bool) -> None:
    """It sleeps past the end of its transaction; nothing that it wrote before or writes after is ever seen."""
    timeout_ms = LONG_TIMEOUT_MS if successor else QUICK_TIMEOUT_MS
    topic, id_ = new_topic("held"), f"held-{successor}"
    server.create(topic, 1)
    command = [sys.executable, "-m", "tests.faults.holding", id_, topic]
    with Talking([*command, str(timeout_ms), server.bootstrap], tmp_path / "zombie.log") as zombie:
        zombie.waits_for("ready")
        zombie.tell(f"write {EACH}")
        zombie.waits_for("written")
        zombie.process.send_signal(signal.SIGSTOP)
        if successor:
            with Talking([*command, str(timeout_ms), server.bootstrap], tmp_path / "successor.log") as other:
                other.waits_for("ready")
                other.tell("write 1")
                other.waits_for("written")
                other.tell("commit")
                other.waits_for("committed")
        eventually(lambda: _stable(server.bootstrap, topic) > EACH, "the transaction is ended by the broker", CALL_S)
        zombie.process.send_signal(signal.SIGCONT)
        zombie.tell(f"write {EACH}")
        zombie.waits_for("refused")
        zombie.tell("commit")
        zombie.waits_for("refused", 2)
        assert not zombie.heard["committed"]
    seen = read_copies(server.bootstrap, topic, 1)
    assert len(seen.places) == int(successor)
    assert len(read_copies(server.bootstrap, topic, 1, committed=False).places) == EACH + int(successor)


def _stable(bootstrap: str, topic: str) -> int:
    """The end of the first partition for committed readers."""
    consumer = _consumer(bootstrap)
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=CALL_S)[1]
    finally:
        consumer.close()


def _consumer(bootstrap: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            **RETURNING,
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )


@pytest.mark.timeout(120)
def test_staged_offsets_survive_the_death_of_all_brokers(tmp_path: Path) -> None:
    """Records and offsets of open transactions are there after it; a commit makes both visible, an abort neither."""
    with Running(tmp_path, brokers=2, settings=QUICK_GROUPS) as server:
        topic = new_topic("staged")
        server.create(topic, PARTITIONS)
        server.create(SOURCE, PARTITIONS)
        consumer = _consumer(server.bootstrap)
        consumer.subscribe([SOURCE])
        eventually(lambda: consumer.consume(1, 0.1) or consumer.assignment(), "it has partitions", CALL_S)
        producers = {}
        for number, outcome in enumerate(("commit", "abort")):
            producer = Producer({**RETURNING, "bootstrap.servers": server.bootstrap, "transactional.id": outcome})
            producer.init_transactions(CALL_S)
            producer.begin_transaction()
            for counter in range(EACH):
                producer.produce(topic, str(counter), outcome, number)
            staged = [TopicPartition(SOURCE, number, 7)]
            producer.send_offsets_to_transaction(staged, consumer.consumer_group_metadata(), CALL_S)
            assert producer.flush(CALL_S) == 0
            producers[outcome] = producer
        server.kill_all()
        server.start()
        assert not read_copies(server.bootstrap, topic, PARTITIONS).places
        producers["commit"].commit_transaction(CALL_S)
        producers["abort"].abort_transaction(CALL_S)
        eventually(lambda: read_copies(server.bootstrap, topic, PARTITIONS).values, "the commit is seen", CALL_S)
        seen = read_copies(server.bootstrap, topic, PARTITIONS)
        assert {key: len(values) for key, values in seen.values.items()} == {"commit": EACH}
        places = [TopicPartition(SOURCE, partition) for partition in range(PARTITIONS)]
        offsets = {place.partition: place.offset for place in consumer.committed(places, CALL_S)}
        assert offsets == {0: 7, 1: confluent_kafka.OFFSET_INVALID}
        consumer.close()
