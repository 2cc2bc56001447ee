"""Brokers of two builds serve one cluster while it is upgraded, and no client sees an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.cluster import Cluster
from harness.process import environment
from harness.tools import ROOT, needs
from tests.faults.builds import take_compiled
from tests.faults.test_cluster import NODES, loaded, wait_for_traffic
from tests.support.promise import promise

PROMISES = ("M5",)


def older_code(directory: Path) -> Path:
    """The sources before the last change to them, from the history."""
    found = subprocess.run(
        ["git", "log", "--format=%H", "--skip=1", "--max-count=1", "--", "src/headwater"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    needs("the history of the sources", found.returncode == 0 and bool(found.stdout.strip()))
    archive = directory / "older.tar"
    subprocess.run(
        ["git", "archive", "--output", str(archive), found.stdout.strip(), "src"], cwd=ROOT, check=True, timeout=60
    )
    (directory / "older").mkdir()
    subprocess.run(["tar", "-xf", str(archive), "-C", str(directory / "older")], check=True, timeout=60)
    source = directory / "older" / "src"
    imported = subprocess.run(
        [sys.executable, "-c", "import headwater; print(headwater.__file__)"],
        env=environment({"PYTHONPATH": str(source)}), capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert imported.stdout.startswith(str(source)), "the older build is what would run"
    take_compiled(source)
    return source


@promise("M5")
@pytest.mark.timeout(300)
def test_an_older_build_serves_beside_this_one(tmp_path: Path) -> None:
    """A cluster of the older build is upgraded broker by broker; each build reads the other's records and
    checkpoints, and compares digests with it."""
    older = older_code(tmp_path)
    settings = "[housekeeping]\ninterval_ms = 500\ncheckpoint_bytes = 20000\n"
    with Cluster(tmp_path / "cluster", "sqlite", settings=settings, source=older) as cluster, loaded(cluster) as load:
        wait_for_traffic(load)
        for node in NODES:
            cluster.member(node).source = None
            cluster.roll(f"broker-{node}")
            wait_for_traffic(load)
            old = [n for n in NODES if cluster.broker(n).environ()["PYTHONPATH"] == str(older)]
            assert old == [n for n in NODES if n > node]
        load.finish()
        cluster.doctor()
