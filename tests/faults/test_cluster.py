"""Clusters of real processes under load, while parts of them come and go. The soak has storms of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cluster import Cluster
from harness.patience import eventually
from headwater.replica.membership import SESSION_SECONDS
from tests.faults.rolling import NODES, loaded, restart_everybody, wait_for_traffic
from tests.faults.storm import Storm
from tests.support.promise import promise
from tests.support.soak import WHOLE

PROMISES = ("M1", "M2", "M5", "M6")

OUTAGE_SECONDS = 2 * SESSION_SECONDS
"""Longer than any session: whoever mistakes a store's silence for a peer's would fence it."""
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def etcd_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers in two zones on three nodes of etcd; whoever takes something away brings it back."""
    with Cluster(tmp_path_factory.mktemp("etcd-cluster"), "etcd") as cluster:
        yield cluster


def let_last(seconds: float) -> None:
    """Let an outage last so long; a shorter one would only test less."""
    time.sleep(seconds)


def lose_a_broker(cluster: Cluster) -> None:
    with loaded(cluster) as load:
        wait_for_traffic(load)
        before = cluster.epochs()
        mend = Storm(cluster, load, 1, OUTAGE_SECONDS).kill_broker()
        [dead] = [node for node in NODES if not cluster.member(node).runs]
        others = [node for node in NODES if node != dead]
        eventually(lambda: cluster.nodes(*others) == others, f"broker {dead} is fenced", 60)
        mend()
        wait_for_traffic(load)
        after = cluster.epochs()
        assert {node: after[node] for node in others} == {node: before[node] for node in others}
        assert after[dead] > max(before.values())
        load.finish()
        cluster.doctor()


@promise("M2")
def test_a_broker_is_killed_under_load_on_etcd(etcd_cluster: Cluster) -> None:
    """Others take over; no acknowledged record is lost, none is there twice, reads never go back."""
    lose_a_broker(etcd_cluster)


@promise("M2")
def test_a_broker_is_killed_under_load_on_oxia(tmp_path: Path) -> None:
    """The same with Oxia. `test_bucket_cluster.py` has a bucket that is ledger and objects in one."""
    with Cluster(tmp_path, "oxia") as cluster:
        lose_a_broker(cluster)


@promise("M6")
def test_stores_that_go_away_fence_nobody(etcd_cluster: Cluster) -> None:
    """A metadata store without its majority, then an object store that is gone, longer than any session."""
    with loaded(etcd_cluster) as load:
        wait_for_traffic(load)
        before = etcd_cluster.epochs()
        etcd, s3 = etcd_cluster.stores.metadata, etcd_cluster.stores.s3
        leader = etcd.leader()
        lost = [leader, (leader + 1) % len(etcd.names)]
        for node in lost:
            etcd.kill(node)
        let_last(OUTAGE_SECONDS)
        for node in lost:
            etcd.start(node)
        wait_for_traffic(load)
        s3.kill()
        let_last(OUTAGE_SECONDS)
        s3.start()
        wait_for_traffic(load)
        let_last(SESSION_SECONDS)
        assert etcd_cluster.epochs() == before
        load.finish()
        etcd_cluster.doctor()


@promise("M6")
def test_one_metadata_node_is_lost(etcd_cluster: Cluster) -> None:
    """The leader of three etcd nodes is killed, then another one stops; traffic goes on each time without them."""
    with loaded(etcd_cluster) as load:
        etcd = etcd_cluster.stores.metadata
        wait_for_traffic(load)
        before = etcd_cluster.epochs()
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
        assert etcd_cluster.epochs() == before
        load.finish()


@promise("M5")
def test_everybody_is_restarted_one_after_another(etcd_cluster: Cluster) -> None:
    """Brokers drain, etcd nodes come back with their data; producers and consumers are told of nothing.

    `make test-full` restarts one broker and the leader of etcd here, and every broker in `test_upgrade.py`.
    """
    brokers = NODES if WHOLE else NODES[:1]
    metadata = None if WHOLE else [etcd_cluster.stores.metadata.leader()]
    with loaded(etcd_cluster) as load:
        restart_everybody(etcd_cluster, load, brokers=brokers, metadata=metadata)
        load.finish()
        etcd_cluster.doctor()
