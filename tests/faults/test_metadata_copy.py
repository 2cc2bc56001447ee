"""A cluster moves from ledger to ledger with all it holds: SQLite, etcd, a bucket, Oxia, and SQLite again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, TopicPartition

from harness.cluster import Cluster
from harness.etcd import EtcdCluster
from harness.oxia import OxiaServer
from harness.process import headwater
from tests.faults.checking import acknowledged, read_log
from tests.faults.producing import Producing
from tests.support.promise import promise
from tests.support.transactional import PLAIN, Writers, read

PROMISES = ("M1",)

pytestmark = pytest.mark.long
TOPIC, PARTITIONS, EACH = "moved", 3, 2_000
SETTINGS = "[housekeeping]\ninterval_ms = 500\ncheckpoint_bytes = 20000\n"
"""Checkpoints often, so that ledgers are cut when they are copied."""
PAYMENTS, OPEN, DONE, VOID = "payments", "open", "done", "void"
"""A topic, and transactional ids: open over all moves, committed and aborted on every ledger."""


def produced(cluster: Cluster, name: str, directory: Path) -> dict[int, tuple[int, int]]:
    """What librdkafka was told of some records of its own."""
    command, file = [sys.executable, "-m", "tests.faults.producing"], directory / f"{name}.acks"
    with Producing(command, cluster.bootstrap, TOPIC, PARTITIONS, name, EACH, file) as client:
        client.connected()
        client.begin()
        client.finish(within=90)
    return acknowledged(file)


def copy(cluster: Cluster, to: str, *more: str) -> tuple[int, str]:
    """Exit code, and what the command says."""
    done = headwater(
        "metadata", "copy", "--config", str(cluster.config), "--to", to, "--output", "json", *more,
        more=cluster.stores.environment,
    )  # fmt: skip
    return done.returncode, done.stdout or done.stderr


class Transacting:
    """Transactions that are moved: one is open from the first ledger to the last, others end on each of them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._writers = Writers(cluster.bootstrap)
        cluster.create(PAYMENTS)
        self._writers.write(OPEN, PAYMENTS, 0, b"first")
        self._writers.stage(OPEN, OPEN, PAYMENTS, [7])

    def go_on(self, ledger: str) -> None:
        """What was open stays so: readers of committed records get nothing of what comes behind it."""
        for name in (DONE, VOID):
            self._writers.write(name, PAYMENTS, 0, ledger.encode())
            self._writers.end(name, commit=name == DONE)
        self._writers.write(PLAIN, PAYMENTS, 0, ledger.encode())
        self._writers.write(OPEN, PAYMENTS, 0, ledger.encode())
        assert read(self._cluster.bootstrap, PAYMENTS, [0]) == []

    def finish(self) -> None:
        """Its producer commits it: its records and offsets are there, without those of aborted transactions."""
        group = Consumer(
            {"bootstrap.servers": self._cluster.bootstrap, "group.id": OPEN, "isolation.level": "read_uncommitted"}
        )
        [told] = group.committed([TopicPartition(PAYMENTS, 0)], timeout=60)
        assert told.offset == OFFSET_INVALID, "its offsets are staged"
        self._writers.end(OPEN, commit=True)
        assert read(self._cluster.bootstrap, PAYMENTS, [0]) == self._writers.committed(PAYMENTS)
        [told] = group.committed([TopicPartition(PAYMENTS, 0)], timeout=60)
        assert told.offset == 7
        group.close()


@promise("M1", "K12")
@pytest.mark.timeout(300)
def test_from_ledger_to_ledger(tmp_path: Path) -> None:
    """Records are produced on each ledger and read on the last one, with the offsets that were told. A
    transaction is open all the time, with staged offsets, and its producer commits it in the end."""
    acks = {}
    with (
        Cluster(tmp_path / "cluster", "sqlite", brokers=1, settings=SETTINGS) as cluster,
        EtcdCluster(tmp_path / "etcd", 1) as etcd,
        OxiaServer(tmp_path / "oxia") as oxia,
    ):
        cluster.create(TOPIC, PARTITIONS)
        ledgers = {
            "etcd": etcd.url("moved"),
            "bucket": f"{cluster.stores.s3.url}/moved-ledger",
            "oxia": oxia.url("moved"),
            "sqlite": f"sqlite://{tmp_path}/again.db",
        }
        transactions = Transacting(cluster)
        transactions.go_on("first")
        acks["first"] = produced(cluster, "first", tmp_path)
        code, said = copy(cluster, ledgers["etcd"])
        assert code == 1 and "stop all brokers" in said, said
        for kind, url in ledgers.items():
            cluster.stop()
            code, said = copy(cluster, url)
            assert code == 0, said
            assert [row["domain"] for row in json.loads(said)["domains"]] == [1, 0]
            cluster.stores.move(url)
            cluster.write_settings()
            cluster.start()
            acks[kind] = produced(cluster, kind, tmp_path)
            transactions.go_on(kind)
        transactions.finish()
        code, said = copy(cluster, ledgers["etcd"], "--force")
        assert code == 1 and "empty" in said, said
        log = read_log(cluster.bootstrap, TOPIC, PARTITIONS)
        log.check(**acks)
        assert log.count == EACH * len(acks)
        cluster.doctor()
