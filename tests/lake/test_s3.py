"""A compactor on a real S3 server: settling, merging, expiry, collection, and deaths in between.

The story is that of the crash matrix, which dies at every single write over a store in memory. Here it dies once at
every kind of write.
"""

from collections.abc import Iterator

import pytest

from harness.s3 import PROGRAM, S3Server
from harness.tools import needs
from harness.virtual import run
from tests.lake.test_crash_matrix import story
from tests.support.lake import Fate
from tests.support.promise import promise
from tests.support.s3_lake import S3LakeWorld

PROMISES = ("T1", "T2", "T5", "M7")

SETTLE = "append SettleFiles"
KINDS = ("put _data", "put _iceberg", "put metadata", "create _delta_log", SETTLE, "delete _data", "delete _iceberg")


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    needs("versitygw: scripts/setup-tools s3", PROGRAM.exists())
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


def told(s3: S3Server, fate: Fate) -> list[str]:
    with S3LakeWorld(s3) as world:
        return run(story(world, fate))


@pytest.fixture(scope="module")
def steps(s3: S3Server) -> list[str]:
    """The writes of a compactor that lives."""
    return told(s3, Fate())


@promise("T1", "T5", "M7")
@pytest.mark.timeout(300)
def test_nobody_dies(steps: list[str]) -> None:
    """The story itself; it covers every kind of write."""
    assert set(KINDS) <= set(steps)


@promise("T1", "T2", "T5", "M7")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
def test_dies_after_a_write(s3: S3Server, steps: list[str], kind: str) -> None:
    """What was stored and never heard of is found, or goes."""
    fate = Fate(steps.index(kind, len(steps) // 3), after=True)
    told(s3, fate)
    assert fate.steps[-1] == kind


@promise("T1", "T2", "M7")
@pytest.mark.timeout(300)
def test_dies_before_a_commit(s3: S3Server, steps: list[str]) -> None:
    """Segments without a journal entry are orphans and go."""
    fate = Fate(steps.index(SETTLE, len(steps) // 3))
    told(s3, fate)
    assert fate.steps[-1] == SETTLE
