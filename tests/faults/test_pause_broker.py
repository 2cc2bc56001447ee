"""A broker that stops for longer than its session is fenced, and comes back as a new one; nobody notices but it."""

from __future__ import annotations

import fcntl
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from headwater.metadata.membership import SESSION_SECONDS
from tests.faults.checking import acknowledged, acknowledged_count, read_log
from tests.faults.producing import Producing
from tests.faults.running import Running, eventually

TOPIC = "t"
PARTITIONS = 6
COUNT = 200_000


def stop_outside_the_ledger(process: psutil.Process, ledger: Path) -> None:
    """Stop a process at a moment when it does not hold the ledger's lock, which nobody could take from it."""

    def stopped() -> bool:
        process.send_signal(signal.SIGSTOP)
        if can_be_locked(ledger):
            return True
        process.send_signal(signal.SIGCONT)
        return False

    eventually(stopped, "it is stopped without the lock", 20)


def can_be_locked(ledger: Path) -> bool:
    """Whether the lock file and SQLite's own lock come free within a second."""

    def locked() -> bool:
        with Path(f"{ledger}.lock").open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with closing(sqlite3.connect(ledger, isolation_level=None, timeout=0)) as db:
                    db.execute("BEGIN IMMEDIATE")
                    db.execute("ROLLBACK")
            except (BlockingIOError, sqlite3.OperationalError):
                return False
            return True

    try:
        return eventually(locked, "the ledger is free", 1)
    except TimeoutError:
        return False


@pytest.mark.timeout(240)
def test_a_paused_broker_is_fenced_and_returns(tmp_path: Path) -> None:
    file = tmp_path / "p.acks"
    command = [sys.executable, "-m", "tests.faults.producing"]
    with Running(tmp_path, brokers=3) as server:
        server.create(TOPIC, PARTITIONS)
        assert server.nodes() == [1, 2, 3]
        with Producing(command, server.bootstrap, TOPIC, PARTITIONS, "p", COUNT, file) as client:
            client.connected()
            client.begin()
            eventually(lambda: acknowledged_count(file) > COUNT // 10, "some of it is acknowledged", 60)
            paused = server.leaders(TOPIC)[0]
            process = server.broker(paused)
            others = [node for node in (1, 2, 3) if node != paused]
            before = server.epochs()
            stop_outside_the_ledger(process, server.data / "ledger.db")
            assert acknowledged_count(file) < COUNT, "the producer must be at work when the broker stops"
            try:
                eventually(lambda: server.nodes(*others) == others, "it is fenced", SESSION_SECONDS * 10)
            finally:
                process.send_signal(signal.SIGCONT)
            eventually(lambda: server.nodes(*others) == [1, 2, 3], "the others know it again", 30)
            assert server.broker(paused).pid == process.pid, "the same process, under a new epoch"
            after = server.epochs()
            assert after[paused] > max(before.values())
            assert {node: after[node] for node in others} == {node: before[node] for node in others}
            client.finish(within=120)
        told = acknowledged(file)
        assert len(told) == COUNT
        log = read_log(server.bootstrap, TOPIC, PARTITIONS)
        log.check(p=told)
        assert log.count == COUNT
