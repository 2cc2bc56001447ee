"""T1, T2, T5, L3: compactors are killed, stopped and doubled while topics are written: log and tables stay exact."""

from __future__ import annotations

import random
from pathlib import Path

import psutil
import pytest

from tests.faults.lake_running import (
    FRESHNESS,
    LakeRunning,
    Writer,
    check_all,
    kill_compactors,
    patiently,
)
from tests.faults.lake_transactions import TransactionalWriter, committed_readers

pytestmark = pytest.mark.long
TOPICS = ("left", "right")
PARTITIONS = 3
SEED = 20_261_115


@pytest.mark.timeout(600)
def test_a_kill_after_each_step(tmp_path: Path) -> None:
    """T1, T2, T5, L3: `kill -9` once a compactor has settled, followed, merged. The soak kills at all moments.

    Plain records and transactions are written, which overlap and of which some abort. Tables hold what is committed.
    """
    with LakeRunning(tmp_path) as server:
        for topic in TOPICS:
            server.create(topic, PARTITIONS, **FRESHNESS)
        with TransactionalWriter(server.bootstrap, TOPICS, PARTITIONS, random.Random(SEED)) as writer:
            kill_compactors(server, writer, ("settled", "followed", "merged"), random.Random(SEED))
            writer.finish()
        assert min(writer.ends["committed"], writer.ends["aborted"], writer.aborted) > 0
        tables = check_all(server, writer, committed_readers(PARTITIONS))
        assert all(table.merges for table in tables.values())


@pytest.mark.timeout(600)
def test_two_at_once_one_of_them_stopped(tmp_path: Path) -> None:
    """T1, T2, L3: each of two compactors is stopped for longer than its session, then woken: the other one works on."""
    writers: set[int] = set()
    with LakeRunning(tmp_path) as server:
        for topic in TOPICS:
            server.create(topic, PARTITIONS, **FRESHNESS)
        with Writer(server.bootstrap, TOPICS, PARTITIONS) as writer, server.second_compactor() as second:
            patiently(
                lambda: server.look().versions and len(server.look().members) == 4,
                "both are there, a broker and a gateway",
                90,
            )
            writers |= stop_and_wake(server, server.compactor(), whole=False)
            writers |= stop_and_wake(server, second, whole=True)
            writer.finish()
            tables = check_all(server, writer)
        writers |= server.look().writers
    assert len(writers) >= 2, "only one compactor ever wrote a file"
    assert all(table.merges for table in tables.values())


def stop_and_wake(server: LakeRunning, compactor: psutil.Process, *, whole: bool) -> set[int]:
    """Stop a process, or all of a compactor's, until it is fenced and the other one has settled; wake it again."""
    before = server.look()
    family = [compactor, *(compactor.children(recursive=True) if whole else ())]
    server.pause(*family)
    try:
        patiently(lambda: before.members - server.look().members, "the stopped one is fenced")
        fenced = server.look()
        patiently(lambda: server.look().versions >= fenced.versions + 2 * len(TOPICS), "the other one settles", 90)
    finally:
        for process in reversed(family):
            process.resume()
    patiently(lambda: len(server.look().members) >= len(before.members), "the stopped one is back")
    return before.writers | server.look().writers
