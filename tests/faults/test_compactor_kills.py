"""Compactors are killed, stopped and doubled while topics are written: log and tables stay exact."""

from __future__ import annotations

import random
from pathlib import Path

import psutil
import pytest

from tests.faults.lake_running import (
    FRESHNESS,
    LakeRunning,
    check_all,
    kill_compactors,
    patiently,
)
from tests.faults.lake_transactions import TransactionalWriter, committed_readers
from tests.support.promise import promise

PROMISES = ("T1", "T2", "T5", "L3")

pytestmark = pytest.mark.long
TOPICS = ("left", "right")
PARTITIONS = 3
SEED = 20_261_115


@promise("T1", "T2", "T5", "L3")
@pytest.mark.timeout(600)
def test_killed_doubled_and_stopped(tmp_path: Path) -> None:
    """`kill -9` once a compactor has settled; then each of two is stopped for longer than its session.

    Plain records and transactions are written, which overlap and of which some abort. Tables hold what is committed.
    The soak kills at all moments.
    """
    with LakeRunning(tmp_path) as server:
        for topic in TOPICS:
            server.create(topic, PARTITIONS, **FRESHNESS)
        with TransactionalWriter(server.bootstrap, TOPICS, PARTITIONS, random.Random(SEED)) as writer:
            kill_compactors(server, writer, ("settled",), random.Random(SEED))
            writers = server.look().writers
            with server.second_compactor() as second:
                patiently(lambda: both_run(server, min(writers)), "both are there, a broker and a gateway", 120)
                writers |= stop_and_wake(server, server.compactor(), whole=False)
                writers |= stop_and_wake(server, second, whole=True)
                writer.finish()
                tables = check_all(server, writer, committed_readers(PARTITIONS))
        writers |= server.look().writers
    assert min(writer.ends["committed"], writer.ends["aborted"], writer.aborted) > 0
    assert len(writers) >= 3, "each compactor wrote files: the one that was killed, and the two after it"
    assert all(table.merges for table in tables.values())


def both_run(server: LakeRunning, killed: int) -> bool:
    """Whether two compactors are members besides a broker and a gateway, and the killed one is no longer."""
    members = server.look().members
    return len(members) == 4 and killed not in members


def stop_and_wake(server: LakeRunning, compactor: psutil.Process, *, whole: bool) -> set[int]:
    """Stop a process, or all of a compactor's, until it is fenced and the other one has settled; wake it again."""
    before = server.look()
    family = [compactor, *(compactor.children(recursive=True) if whole else ())]
    server.pause(*family)
    try:
        patiently(lambda: before.members - server.look().members, "the stopped one is fenced")
        fenced = server.look()
        patiently(lambda: server.look().versions >= fenced.versions + len(TOPICS), "the other one settles", 90)
    finally:
        for process in reversed(family):
            process.resume()
    patiently(lambda: len(server.look().members) >= len(before.members), "the stopped one is back")
    return before.writers | server.look().writers
