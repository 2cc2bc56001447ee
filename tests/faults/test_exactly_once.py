"""Brokers are killed while clients copy records in transactions: committed readers see each record exactly once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.copying import SOURCE, SOURCE_PARTITIONS, TARGET, TARGET_PARTITIONS
from tests.faults.exactly import Copy
from tests.faults.summing import Summing
from tests.support.promise import promise
from tests.support.running import Running

PROMISES = ("K12",)

BROKERS = 3
STEP = 500
"""Records between two kills."""
QUICK_GROUPS = "[groups]\ninitial_rebalance_delay_ms = 100\n"

pytestmark = pytest.mark.long


def serving(directory: Path) -> Running:
    return Running(directory / "server", brokers=BROKERS, settings=QUICK_GROUPS)


def create_topics(server: Running) -> None:
    server.create(SOURCE, SOURCE_PARTITIONS)
    server.create(TARGET, TARGET_PARTITIONS)


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("client", "copiers"), [("java", 1), ("librdkafka", 2)])
def test_each_record_is_copied_once_while_every_broker_dies(tmp_path: Path, client: str, copiers: int) -> None:
    with serving(tmp_path) as server:
        create_topics(server)
        with Copy(server.bootstrap, client, tmp_path, copiers=copiers) as copy:
            for node in range(1, BROKERS + 1):
                copy.progress(STEP)
                server.broker(node).kill()
            copy.progress(STEP)
            count = copy.finish()
            assert count >= (BROKERS + 1) * STEP
            assert copy.heard["committed"] and copy.heard["spoiled"]


@promise("K16")
@pytest.mark.timeout(240)
def test_kafka_streams_counts_each_record_once_while_a_broker_dies(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        create_topics(server)
        with Summing(server.bootstrap, tmp_path) as summing:
            summing.progress(STEP)
            server.broker(server.leaders(TARGET)[0]).kill()
            summing.progress(STEP)
            assert summing.finish() >= 2 * STEP
