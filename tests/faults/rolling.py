"""Traffic on a cluster, and a restart of everybody in it, one after another."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence

from harness.cluster import Cluster
from harness.patience import eventually
from tests.support.load import Load

PARTITIONS = 4
ENOUGH = 500
NODES = (1, 2, 3)


def loaded(cluster: Cluster, **configs: str) -> Load:
    """Traffic on a topic of its own."""
    topic = f"load-{uuid.uuid4().hex[:8]}"
    cluster.create(topic, PARTITIONS, **configs)
    return Load(cluster.bootstrap, topic, PARTITIONS)


def wait_for_traffic(load: Load) -> None:
    """Until every partition has taken something from now on, or something is wrong, which `finish` tells."""
    goal, moment = load.count + ENOUGH, time.monotonic()
    eventually(
        lambda: load.problems or (load.count >= goal and load.acknowledged_everywhere(moment)),
        "all partitions take records",
        90,
    )


def nothing() -> None:
    """Between the brokers and the nodes of etcd."""


def restart_everybody(
    cluster: Cluster,
    load: Load,
    between: Callable[[], None] = nothing,
    *,
    brokers: Sequence[int] = NODES,
    metadata: Sequence[int] | None = None,
) -> None:
    """Restart the brokers, then the nodes of etcd, or some of both, under traffic that goes on."""
    wait_for_traffic(load)
    before = cluster.epochs()
    for node in brokers:
        cluster.roll(f"broker-{node}")
        wait_for_traffic(load)
    epochs = cluster.epochs()
    assert all(
        epochs[node] > max(before.values()) if node in brokers else epochs[node] == before[node] for node in NODES
    )
    between()
    etcd = cluster.stores.metadata
    for node in range(len(etcd.names)) if metadata is None else metadata:
        cluster.stores.end_metadata_node(node)
        wait_for_traffic(load)
        etcd.start(node)
    wait_for_traffic(load)
    assert cluster.epochs() == epochs
