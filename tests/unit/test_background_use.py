"""Every task of the server is started in `headwater.background`, where its death is seen."""

import ast
from itertools import filterfalse
from pathlib import Path

from tests.support.sources import nodes_of

PROMISES = ("M7",)

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "headwater").rglob("*.py"))
STARTING = {"create_task", "ensure_future", "TaskGroup"}


def _may_start_tasks(path: Path) -> bool:
    """`background.py` itself, and the suites that tests of other projects run."""
    return path.name == "background.py" or path.stem.endswith("conformance")


def test_no_bare_task() -> None:
    found = []
    for path in filterfalse(_may_start_tasks, SOURCES):
        for node in nodes_of(path):
            name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
            if name in STARTING:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno} {name}")
    assert SOURCES and not found, "use Background.run, Tasks, spawn or launch of headwater.background"
