"""Brokers of two builds serve one cluster while it is upgraded, or refuse each other's data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cluster import Cluster
from harness.ports import free_port
from harness.process import Process, headwater
from headwater.state.records import FORMAT
from tests.faults.builds import code_of, older_commit
from tests.faults.rolling import NODES, loaded, wait_for_traffic
from tests.support.contents import contents
from tests.support.promise import promise

PROMISES = ("M5",)


@promise("M5")
@pytest.mark.timeout(300)
def test_an_older_build_serves_beside_this_one(tmp_path: Path) -> None:
    """A cluster of the older build is upgraded broker by broker, and no client sees an error. Each build reads the
    other's records and checkpoints, and compares digests with it. Right after a change of the format there is no such
    build: then the build before refuses."""
    commit = older_commit(same_format=True)
    if commit is None:
        check_refusals(tmp_path)
        return
    older = code_of(commit, tmp_path)
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


@promise("M5")
@pytest.mark.timeout(300)
def test_builds_of_two_formats_refuse_each_others_data(tmp_path: Path) -> None:
    """Unchanged, and each says which format the data has."""
    check_refusals(tmp_path)


def check_refusals(directory: Path) -> None:
    """The newest build of another format refuses what this one wrote, and the other way round."""
    commit = older_commit(same_format=False)
    assert commit is not None, "no commit has another format"
    older = code_of(commit, directory)
    number = int((older / "headwater/state/records.py").read_text().partition("\nFORMAT = ")[2].partition("\n")[0])
    assert number != FORMAT
    for writer, reader, told in ((None, older, FORMAT), (older, None, number)):
        data = directory / f"format-{told}"
        file = directory / f"format-{told}.json"
        own = {"data": str(data), "kafka": f"127.0.0.1:{free_port()}", "http": "127.0.0.1:0"}
        file.write_text(json.dumps(own))
        broker = Process("broker", file, directory / "stderr", {}, source=writer)
        broker.launch()
        try:
            broker.wait_until_ready()
            made = headwater("topic", "create", "t", "--partitions", "1", "--bootstrap", own["kafka"])
            assert made.returncode == 0 and broker.stop() == 0, made.stderr
        finally:
            broker.kill()
        before = contents(data)
        assert "ledger.db" in before
        done = headwater("doctor", "--data", str(data), more={"PYTHONPATH": str(reader)} if reader else None)
        assert done.returncode == 1, done.stdout + done.stderr
        assert f"has format {told}" in done.stderr and "use the build that wrote it" in done.stderr.lower()
        assert contents(data) == before
