"""M1: every test that starts a Headwater runs on clusters too, or it is written down why not."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

from tests.clustered import LEFT_OUT, QUICK, SELECTIONS

ROOT = Path(__file__).parents[2]
STARTS = re.compile(
    r"^from tests\.(faults\.\w+|support\.(server|cluster)) import .*"
    r"\b(Running|LakeRunning|Cluster|bootstrap_address|headwater_up)\b"
    r"|\bbootstrap: str\b|demo\.cluster\b",
    re.MULTILINE,
)
SELECTED = set(chain(*SELECTIONS.values(), *QUICK.values()))


def test_all_that_are_named_exist() -> None:
    """M1"""
    missing = [path for path in (*SELECTED, *LEFT_OUT) if not (ROOT / path).exists()]
    assert not missing
    assert not SELECTED & LEFT_OUT.keys()


def test_whoever_starts_a_headwater_is_named() -> None:
    """M1: by file or by directory."""
    starting = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if STARTS.search(path.read_text()) and path != Path(__file__)
    ]
    assert len(starting) > 20
    unnamed = [path for path in starting if path not in SELECTED and not path.startswith(tuple(LEFT_OUT))]
    assert not unnamed
