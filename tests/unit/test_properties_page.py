"""`docs/internals/properties.md` names a test for each of the 35 properties, and each of these tests exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.support.sources import tree_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "internals" / "properties.md"
ROW = re.compile(r"^\| (\d+) \| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows() -> list[tuple[int, str, list[tuple[str, str]], str]]:
    """The number of a property, what it says, its tests, and the examples."""
    found = ROW.findall(PAGE.read_text())
    return [(int(number), says, TEST.findall(tests), examples) for number, says, tests, examples in found]


def test_every_number_is_there_once() -> None:
    assert sorted(number for number, *_ in rows()) == list(range(1, 36))


def test_every_named_test_exists() -> None:
    missing = []
    for number, _, tests, _ in rows():
        assert tests, f"property {number} has no test"
        for path, name in tests:
            known = (ROOT / path).is_file() and any(
                isinstance(node, ast.FunctionDef) and node.name == name for node in tree_of(ROOT / path).body
            )
            if not known:
                missing.append(f"{number}: {path}::{name}")
    assert not missing


def test_every_property_says_what_it_is_tried_on() -> None:
    """At least a hundred examples, as a number."""
    for number, says, _, examples in rows():
        assert says.endswith(".") and any(int(count) >= 100 for count in re.findall(r"\d+", examples)), number


def test_every_property_test_is_named() -> None:
    """A test in `tests/properties` that the page does not name is no use to its reader."""
    named = {test for _, _, tests, _ in rows() for test in tests}
    for path in sorted((ROOT / "tests" / "properties").glob("test_*.py")):
        own = path.relative_to(ROOT).as_posix()
        tests = [n.name for n in tree_of(path).body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")]
        assert tests and not [name for name in tests if (own, name) not in named]
