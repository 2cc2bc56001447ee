"""M5: every process of a cluster is replaced, one after the other, and no client sees an error."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.faults.test_cluster import loaded, wait_for_traffic
from tests.support.cluster import Cluster
from tests.support.serving import ROOT, needs

NODES = (1, 2, 3)


@pytest.mark.timeout(300)
def test_brokers_and_metadata_nodes_are_restarted_one_after_another(tmp_path: Path) -> None:
    """M5: brokers drain, etcd nodes come back with their data; producers and consumers are told of nothing."""
    with Cluster(tmp_path, "etcd") as cluster, loaded(cluster) as load:
        wait_for_traffic(load)
        before = cluster.epochs()
        for node in NODES:
            cluster.roll(f"broker-{node}")
            wait_for_traffic(load)
        etcd = cluster.stores.metadata
        between = cluster.epochs()
        assert min(between.values()) > max(before.values())
        for node in range(len(etcd.names)):
            cluster.stores.end_metadata_node(node)
            wait_for_traffic(load)
            etcd.start(node)
        wait_for_traffic(load)
        assert cluster.epochs() == between
        load.finish()
        cluster.doctor()


def older_code(directory: Path) -> Path:
    """The sources before the last change to them, from the history; what runs from there is another build."""
    found = subprocess.run(
        ["git", "log", "--format=%H", "--skip=1", "--max-count=1", "--", "src/headwater"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    needs("the history of the sources", found.returncode == 0 and bool(found.stdout.strip()))
    archive = directory / "older.tar"
    subprocess.run(
        ["git", "archive", "--output", str(archive), found.stdout.strip(), "src"], cwd=ROOT, check=True, timeout=60
    )
    with tarfile.open(archive) as packed:
        packed.extractall(directory / "older", filter="data")
    return directory / "older" / "src"


@pytest.mark.timeout(300)
def test_an_older_build_serves_beside_this_one(tmp_path: Path) -> None:
    """M5: a cluster of the older build is upgraded broker by broker; both fold the same ledger to the same digests."""
    older = older_code(tmp_path)
    cluster = Cluster(tmp_path / "cluster", "sqlite", settings="[housekeeping]\ncheckpoint_bytes = 20000\n")
    cluster.source = older
    with cluster, loaded(cluster) as load:
        wait_for_traffic(load)
        for node in NODES:
            cluster.member(node).source = None
            cluster.roll(f"broker-{node}")
            wait_for_traffic(load)
            running = {cluster.broker(n).environ()["PYTHONPATH"] == str(older) for n in NODES}
            assert running == ({True, False} if node < NODES[-1] else {False})
        load.finish()
        cluster.doctor()
