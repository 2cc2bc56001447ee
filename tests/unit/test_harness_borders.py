"""Who imports whom beside `src`: the harness is shared, and tests are imported by tests only."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("src/headwater", "harness", "demo", "benchmarks", "scripts")


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text())))


def imports_below(folder: str) -> Iterator[tuple[str, str]]:
    """Each file with each package that it imports."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield path.relative_to(ROOT).as_posix(), node.module.partition(".")[0]
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    yield path.relative_to(ROOT).as_posix(), alias.name.partition(".")[0]


def test_only_tests_import_tests() -> None:
    offenders = [file for folder in PACKAGES for file, package in imports_below(folder) if package == "tests"]
    assert not offenders


def test_the_harness_imports_none_of_those_it_serves() -> None:
    offenders = [row for row in imports_below("harness") if row[1] in ("tests", "demo", "benchmarks")]
    assert not offenders
    assert any(package == "headwater" for _, package in imports_below("harness"))


def test_only_tests_demo_and_benchmarks_import_the_harness() -> None:
    offenders = [file for folder in ("src/headwater", "scripts") for file, p in imports_below(folder) if p == "harness"]
    assert not offenders


def test_headwater_is_started_as_a_server_in_one_place() -> None:
    """`harness/process.py` has the only command line of `headwater up`, `broker`, `compactor` and `gateway`."""
    starting = []
    for folder in ("harness", "demo", "benchmarks", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in nodes_of(path):
                if isinstance(node, ast.List | ast.Tuple):
                    words = [word.value for word in node.elts if isinstance(word, ast.Constant)]
                    if words[:2] == ["-m", "headwater"] and {"up", "broker", "compactor", "gateway"} & {*words[2:3]}:
                        starting.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not starting
