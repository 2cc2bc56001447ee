"""M1, M2, M6: clusters of real processes on every kind of ledger, under load, through the loss of what they consist of."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from headwater.metadata.membership import SESSION_SECONDS
from tests.faults.storm import Storm
from tests.support.cluster import Cluster
from tests.support.load import Load
from tests.support.serving import eventually

TOPIC, PARTITIONS = "load", 4
OUTAGE_SECONDS = 2 * SESSION_SECONDS
"""Longer than any session: whoever mistakes a store's silence for a peer's would fence it."""
ENOUGH = 500


def loaded(cluster: Cluster) -> Load:
    cluster.create(TOPIC, PARTITIONS)
    return Load(cluster.bootstrap, TOPIC, PARTITIONS)


def wait_for_traffic(load: Load) -> None:
    goal, moment = load.count + ENOUGH, time.monotonic()
    eventually(
        lambda: load.problems or (load.count >= goal and load.acknowledged_everywhere(moment)),
        "all partitions take records",
        90,
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ledger", ["etcd", "oxia", "bucket"])
def test_a_broker_is_killed_under_load(tmp_path: Path, ledger: str) -> None:
    """M2: others take over; no acknowledged record is lost, none is there twice, reads never go back."""
    with Cluster(tmp_path, ledger) as cluster, loaded(cluster) as load:
        wait_for_traffic(load)
        before = cluster.epochs()
        storm = Storm(cluster, load, 1, OUTAGE_SECONDS)
        mend = storm.kill_broker()
        [dead] = [node for node in (1, 2, 3) if not cluster.member(node).runs]
        others = [node for node in (1, 2, 3) if node != dead]
        assert cluster.nodes(*others) == others
        mend()
        wait_for_traffic(load)
        after = cluster.epochs()
        assert {node: after[node] for node in others} == {node: before[node] for node in others}
        assert after[dead] > max(before.values())
        load.finish()
        cluster.doctor()


@pytest.mark.timeout(300)
def test_stores_that_go_away_fence_nobody(tmp_path: Path) -> None:
    """M6: a metadata store without its majority, then an object store that is gone, longer than any session."""
    with Cluster(tmp_path, "etcd") as cluster, loaded(cluster) as load:
        wait_for_traffic(load)
        before = cluster.epochs()
        etcd, s3 = cluster.stores.metadata, cluster.stores.s3
        leader = etcd.leader()
        lost = [leader, (leader + 1) % len(etcd.names)]
        for node in lost:
            etcd.kill(node)
        last_through(OUTAGE_SECONDS)
        stalled = load.count
        for node in lost:
            etcd.start(node)
        wait_for_traffic(load)
        assert load.count > stalled
        s3.kill()
        last_through(OUTAGE_SECONDS)
        s3.start()
        wait_for_traffic(load)
        last_through(SESSION_SECONDS)
        assert cluster.epochs() == before
        load.finish()
        cluster.doctor()


def last_through(seconds: float) -> None:
    """Let an outage last so long; a shorter one would only test less."""
    time.sleep(seconds)


@pytest.mark.timeout(300)
def test_one_metadata_node_is_lost(tmp_path: Path) -> None:
    """M6: the leader of three etcd nodes is killed, then another one stops; traffic goes on each time without them."""
    with Cluster(tmp_path, "etcd") as cluster, loaded(cluster) as load:
        etcd = cluster.stores.metadata
        wait_for_traffic(load)
        before = cluster.epochs()
        leader = etcd.leader()
        etcd.kill(leader)
        wait_for_traffic(load)
        etcd.start(leader)
        stopped = etcd.leader()
        etcd.pause(stopped)
        try:
            wait_for_traffic(load)
        finally:
            etcd.resume(stopped)
        wait_for_traffic(load)
        assert cluster.epochs() == before
        load.finish()
