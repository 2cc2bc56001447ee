"""A cluster with nothing but a bucket: ledger and objects on one S3 server, and a broker is killed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from harness.patience import eventually
from harness.s3 import PROGRAM, S3Server
from harness.tools import needs
from tests.faults.checking import acknowledged, acknowledged_count, read_log
from tests.faults.producing import Producing
from tests.support.promise import promise
from tests.support.running import Running

PROMISES = ("M1", "M6")

TOPIC, PARTITIONS, RECORDS = "records", 3, 100_000


@promise("M1", "M6")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("peers", ["", "&peers=127.0.0.1:0"], ids=["alone", "peers"])
def test_a_broker_of_a_cluster_in_a_bucket_is_killed(
    peers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost, doubled or out of order; the bucket is everything that the cluster keeps."""
    needs("versitygw: scripts/setup-tools", PROGRAM.exists())
    (tmp_path / "s3").mkdir()
    with S3Server(tmp_path / "s3") as bucket:
        for name, value in bucket.environment.items():
            monkeypatch.setenv(name, value)
        settings = f'ledger = "{bucket.url}/cluster?slots=4096{peers}"\nobjects = "{bucket.url}/cluster"\n'
        with Running(tmp_path / "up", brokers=3, settings=settings) as server:
            server.create(TOPIC, PARTITIONS)
            command = [sys.executable, "-m", "tests.faults.producing"]
            file = tmp_path / "acks"
            with Producing(command, server.bootstrap, TOPIC, PARTITIONS, "one", RECORDS, file) as producer:
                producer.connected()
                victim = server.leaders(TOPIC)[0]
                killed = server.broker(victim)
                producer.begin()
                eventually(lambda: acknowledged_count(file) > 0, "some are acknowledged", 60)
                killed.kill()
                assert acknowledged_count(file) < RECORDS, "it must be at work when the broker dies"
                producer.finish(within=120)
            assert server.broker(victim).pid != killed.pid
            told = acknowledged(file)
            assert len(told) == RECORDS
            log = read_log(server.bootstrap, TOPIC, PARTITIONS)
            log.check(one=told)
            assert log.count == RECORDS
            requests = re.findall(
                r'headwater_ledger_requests_total\{[^}]*kind="(\w+)"[^}]*\} (\d+)', server.page("/metrics")[1]
            )
            assert {kind for kind, count in requests if int(count)} >= {"put", "get", "list"}
            assert not (tmp_path / "up" / "data" / "ledger.db").exists()
