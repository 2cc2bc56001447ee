"""Every test that starts a Headwater runs on clusters too, or it is written down why not."""

from __future__ import annotations

import ast
import re
from itertools import chain
from pathlib import Path

from tests.clustered import LEFT_OUT, SELECTIONS
from tests.support.promise import promise
from tests.support.sources import nodes_of

PROMISES = ("M1",)

ROOT = Path(__file__).parents[2]
STARTING = {"Running", "LakeRunning", "Cluster", "Headwater", "bootstrap_address"}
"""Names that a module imports in order to start a Headwater."""
USING = re.compile(r"\bbootstrap: str\b|demo\.cluster\b")
"""Signs of a module that uses one that a fixture starts, or starts the demo's."""
SELECTED = set(chain(*SELECTIONS.values()))


@promise("M1")
def test_all_that_are_named_exist() -> None:
    missing = [path for path in (*SELECTED, *LEFT_OUT) if not (ROOT / path).exists()]
    assert not missing
    assert not SELECTED & LEFT_OUT.keys()


def starts(path: Path) -> bool:
    """Whether a test module starts or uses a Headwater."""
    imported = {
        alias.name
        for node in nodes_of(path)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("harness.", "tests."))
        for alias in node.names
    }
    return bool(imported & STARTING or USING.search(path.read_text()))


@promise("M1")
def test_every_module_that_starts_a_headwater_is_named() -> None:
    """By file or by directory."""
    modules = sorted((ROOT / "tests").rglob("test_*.py"))
    starting = [path.relative_to(ROOT).as_posix() for path in modules if path != Path(__file__) and starts(path)]
    assert len(starting) > 20
    unnamed = [path for path in starting if path not in SELECTED and not path.startswith(tuple(LEFT_OUT))]
    assert not unnamed, "name them in tests/clustered.py: in a selection, or among those left out"
