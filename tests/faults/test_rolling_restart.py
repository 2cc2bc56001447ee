"""Every process of a cluster with a compactor is restarted; it takes minutes, so `make test-cluster` runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cluster import Cluster
from harness.process import Process
from tests.faults.lake_running import FRESHNESS, SETTINGS, patiently
from tests.faults.rolling import loaded, restart_everybody
from tests.faults.storm import SETTLED
from tests.faults.table_checking import check_tables
from tests.support.promise import promise

PROMISES = ("M5",)


def wait_for_settling(compactor: Process) -> None:
    """Until this life of the compactor has settled something."""
    patiently(lambda: compactor.is_ready and compactor.metric(SETTLED), "the compactor has settled something", 150)


@promise("M5")
@pytest.mark.timeout(500)
def test_everybody_and_a_compactor(tmp_path: Path) -> None:
    """Brokers drain, a compactor leaves its work to the next, etcd nodes come back with their data.

    Producers and consumers are told of nothing, and the tables hold exactly what was written.
    """
    with Cluster(tmp_path, "etcd") as cluster:
        compactor = cluster.add_compactor(SETTINGS)

        def restart_compactor() -> None:
            wait_for_settling(compactor)
            cluster.leave("compactor")
            compactor.launch()

        with loaded(cluster, **FRESHNESS) as load:
            restart_everybody(cluster, load, restart_compactor)
            wait_for_settling(compactor)
            log = load.finish()
        check_tables(cluster, load.topic, log)
        cluster.doctor()
