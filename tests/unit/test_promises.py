"""Tests name the promises that they hold by ids, and `docs/internals/promises.md` defines each id in one sentence."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.sources import nodes_of, tree_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "internals" / "promises.md"
TESTS = sorted((ROOT / "tests").rglob("*.py"))
FAMILY = re.compile(r"^## ([A-Z]): .+\n\n((?:.+\n)+)", re.MULTILINE)
DEFINITION = re.compile(r"^- \*\*(\w+)\*\* (.+(?:\n  .+)*)", re.MULTILINE)
ID = re.compile(r"[A-Z][1-9]\d?")
SENTENCE = re.compile(r"[A-Z](?:[^.!?]|[.!?](?=\S))+\.")
"""Begins with a capital letter, and ends with the only mark that a space or nothing follows."""
LISTED = re.compile(r"[A-Z]\d{1,2}((, | and | to )[A-Z]\d{1,2})*(\s*$|\.?\n|:|\.$| over HTTP:)")
"""A docstring that begins with ids."""


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def is_test(path: Path) -> bool:
    return path.name.startswith("test_")


@cache
def definitions() -> list[tuple[str, str, str]]:
    """Of each definition the family, the id and the sentence, in their order on the page."""
    return [
        (family, promise, " ".join(sentence.split()))
        for family, listed in FAMILY.findall(PAGE.read_text())
        for promise, sentence in DEFINITION.findall(listed)
    ]


def is_promises(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PROMISES"


def calls_of(path: Path) -> list[ast.Call]:
    """Where a file calls `promise`."""
    calls = (node for node in nodes_of(path) if isinstance(node, ast.Call))
    return [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "promise"]


@cache
def uses() -> list[tuple[Path, str]]:
    """Each id that a test, a module of tests or a program of the soak names, with its file."""
    found: list[tuple[Path, str]] = []
    for path in TESTS:
        for node in tree_of(path).body:
            if isinstance(node, ast.Assign) and is_promises(node):
                found += [(path, promise) for promise in ast.literal_eval(node.value)]
        if is_test(path):
            found += [(path, ast.literal_eval(argument)) for call in calls_of(path) for argument in call.args]
    return found


def decorated(path: Path) -> Iterator[ast.Call]:
    """The calls of `promise` that mark a test."""
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name.startswith(
            ("test_", "Test")
        ):
            yield from (decorator for decorator in node.decorator_list if isinstance(decorator, ast.Call))


def test_each_definition_is_one_sentence() -> None:
    assert len(definitions()) > 50
    listed = re.findall(r"^- \*\*(\w+)\*\*", PAGE.read_text(), re.MULTILINE)
    assert listed == [promise for _, promise, _ in definitions()], "every definition is below the title of a family"
    assert not [promise for _, promise, sentence in definitions() if not SENTENCE.fullmatch(sentence)]


def test_definitions_are_in_order() -> None:
    """Each id is defined once, below the title of its family, by its number."""
    assert not [promise for family, promise, _ in definitions() if not (ID.fullmatch(promise) and promise[0] == family)]
    families = list(dict.fromkeys(family for family, _, _ in definitions()))
    ordered = sorted(definitions(), key=lambda row: (families.index(row[0]), int(row[1][1:])))
    assert definitions() == ordered
    assert not [promise for promise, times in Counter(row[1] for row in definitions()).items() if times > 1]


def test_every_id_that_a_test_names_is_defined() -> None:
    defined = {promise for _, promise, _ in definitions()}
    assert len(uses()) > 1000
    assert not [f"{name_of(path)}: {promise}" for path, promise in uses() if promise not in defined]


def test_every_promise_is_held_by_a_test() -> None:
    """The soak alone is not enough: it runs by hand."""
    held = {promise for path, promise in uses() if is_test(path)}
    assert not [promise for _, promise, _ in definitions() if promise not in held]


def test_only_tests_name_promises() -> None:
    """A promise on a helper would never be run by its id."""
    helpers = [path for path in TESTS if not is_test(path)]
    silent = [path for path in helpers if path.parent.name != "soak"]
    assert not [name_of(path) for path in silent if any(map(is_promises, tree_of(path).body))]
    strays = [
        f"{name_of(path)}:{call.lineno}"
        for path in TESTS
        if is_test(path)
        for call in set(calls_of(path)) - set(decorated(path))
    ]
    assert not strays
    assert not [name_of(path) for path in helpers if calls_of(path) and name_of(path) != "tests/conftest.py"]


def test_no_id_is_named_twice_in_one_place() -> None:
    places = [
        (path, node.lineno, [argument.value for argument in node.args if isinstance(argument, ast.Constant)])
        for path in TESTS
        if is_test(path)
        for node in calls_of(path)
    ]
    assert not [f"{name_of(path)}:{line}" for path, line, ids in places if not ids or len(set(ids)) < len(ids)]


def test_no_docstring_begins_with_an_id() -> None:
    assert all(map(LISTED.match, ["T17: files", "K7, K9: how often", "M1", "K2 to K7, K11: all", "K9."]))
    assert not any(map(LISTED.match, ["S3 keeps objects.", "64 writers", "K9s", "UTF8: text"]))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    assert not [
        f"{name_of(path)}: {text.splitlines()[0]}"
        for path in TESTS
        for node in nodes_of(path)
        if isinstance(node, documented) and LISTED.match(text := ast.get_docstring(node, clean=False) or "")
    ]
