"""T1, T2, T5, L3, M7: compactors are killed where everything lies in S3."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults.lake_running import FRESHNESS, LakeRunning, Writer, check_all, kill_compactors

pytestmark = pytest.mark.long
TOPICS = ("left", "right")
PARTITIONS = 3
SEED = 20_261_115


@pytest.mark.timeout(600)
def test_kills_on_s3(tmp_path: Path) -> None:
    """T1, T2, T5, L3, M7: a few times `kill -9` where WAL, segments and tables lie in S3."""
    with LakeRunning(tmp_path, ledger="sqlite") as server:
        assert server.objects.startswith("s3://")
        for topic in TOPICS:
            server.create(topic, PARTITIONS, **FRESHNESS)
        with Writer(server.bootstrap, TOPICS, PARTITIONS) as writer:
            kill_compactors(server, writer, ("settled", "followed"), random.Random(SEED))
            writer.finish()
        check_all(server, writer)
