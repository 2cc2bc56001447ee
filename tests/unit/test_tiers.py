"""Each test file has one tier in `tests/tiers.toml`, and a run of a tier collects the tests of that tier alone."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from harness.tools import ROOT
from tests.support.sources import nodes_of
from tests.support.tiers import FULL, TEST, Selection, Tiers, listed, parted, read

ANY, SOME, NONE = "tests/cli/test_any.py", "tests/cli/test_some.py", "tests/cli/test_none.py"
TIERS = Tiers({ANY: TEST, SOME: TEST, NONE: FULL}, frozenset({f"{SOME}::test_dear", f"{SOME}::test_case[a::b]"}))


def test_each_file_has_one_tier() -> None:
    """A new test file is named in `tests/tiers.toml`; a file that went is not."""
    there = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    named = Counter(file for file, _ in listed())
    assert there == named.keys(), "tests/tiers.toml names each test file once"
    assert [file for file, times in named.items() if times > 1] == []
    assert {tier for _, tier in listed()} == {TEST, FULL}


def test_tests_that_are_named_exist() -> None:
    """They are functions in files of the tier `test`."""
    tiers = read()
    assert tiers.full_tests
    for nodeid in tiers.full_tests:
        file, _, name = nodeid.partition("::")
        assert tiers.files[file] == TEST, f"{nodeid}: all of its file is in the tier {tiers.files.get(file)}"
        functions = {node.name for node in nodes_of(ROOT / file) if isinstance(node, ast.FunctionDef)}
        assert name.partition("[")[0].rpartition("::")[2] in functions, f"{nodeid}: there is no such test"


@pytest.mark.parametrize(
    ("nodeid", "tier"),
    [
        (f"{ANY}::test_one", TEST),
        (f"{NONE}::test_one[x]", FULL),
        (f"{SOME}::test_dear", FULL),
        (f"{SOME}::test_dear[x::y]", FULL),
        (f"{SOME}::test_case[a::b]", FULL),
        (f"{SOME}::test_case[a]", TEST),
        (f"{SOME}::test_dearest", TEST),
        (f"{SOME}::TestOne::test_dear", TEST),
    ],
)
def test_the_tier_of_a_test(nodeid: str, tier: str) -> None:
    assert TIERS.of(nodeid) == tier


def ignored(file: str, tier: str) -> bool:
    return Selection(tier, TIERS).pytest_ignore_collect(ROOT / file) is True


def test_files_of_another_tier_are_not_imported() -> None:
    """They may need libraries that are not installed. A file with tests of both tiers is collected in both."""
    assert [ignored(file, TEST) for file in (ANY, SOME, NONE)] == [False, False, True]
    assert [ignored(file, FULL) for file in (ANY, SOME, NONE)] == [True, False, False]


def test_folders_and_other_files_are_left_alone(tmp_path: Path) -> None:
    """Also a test file outside the repository, as a test of pytest itself makes one."""
    selection = Selection(FULL, TIERS)
    assert selection.pytest_ignore_collect(ROOT / "tests") is None
    assert selection.pytest_ignore_collect(ROOT / "tests" / "conftest.py") is None
    assert selection.pytest_ignore_collect(tmp_path / "test_any.py") is None


def test_both_tiers_are_all_tests() -> None:
    """What one tier leaves out is in the other."""
    names = [f"{ANY}::test_one", f"{SOME}::test_dear[x]", f"{SOME}::test_case[a]", f"{NONE}::test_one"]
    items = [cast(pytest.Item, SimpleNamespace(nodeid=name)) for name in names]
    kept, left = parted(items, TEST, TIERS)
    assert [item.nodeid for item in kept] == [names[0], names[2]]
    assert parted(items, FULL, TIERS) == (left, kept)
