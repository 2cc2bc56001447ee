"""Who imports whom beside `src`: the harness is shared, and tests are imported by tests only."""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.sources import nodes_of

ROOT = Path(__file__).parents[2]
PACKAGES = ("src/headwater", "harness", "demo", "benchmarks", "scripts")


def files_with(folder: str, words: str) -> Iterator[tuple[str, Sequence[ast.AST]]]:
    """Each file whose text has these words, with all its nodes. Other files are not parsed, which takes long."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        if words in path.read_text():
            yield path.relative_to(ROOT).as_posix(), nodes_of(path)


def importers(folder: str, package: str) -> list[str]:
    """The files that import a package."""
    found = []
    for file, nodes in files_with(folder, package):
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            else:
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found += [file for name in names if name.partition(".")[0] == package]
    return found


def test_only_tests_import_tests() -> None:
    assert not [file for folder in PACKAGES for file in importers(folder, "tests")]
    assert importers("tests/cli", "tests")


def test_the_harness_imports_none_of_those_it_serves() -> None:
    assert not [file for package in ("tests", "demo", "benchmarks") for file in importers("harness", package)]
    assert importers("harness", "headwater")


def test_only_tests_demo_and_benchmarks_import_the_harness() -> None:
    assert not [file for folder in ("src/headwater", "scripts") for file in importers(folder, "harness")]
    assert importers("demo", "harness")


def test_headwater_is_started_as_a_server_in_one_place() -> None:
    """`harness/process.py` has the only command line of `headwater up`, `broker`, `compactor` and `gateway`."""
    starting = []
    for folder in ("harness", "demo", "benchmarks", "tests"):
        for file, nodes in files_with(folder, '"headwater"'):
            for node in nodes:
                if isinstance(node, ast.List | ast.Tuple):
                    words = [word.value for word in node.elts if isinstance(word, ast.Constant)]
                    if words[:2] == ["-m", "headwater"] and {"up", "broker", "compactor", "gateway"} & {*words[2:3]}:
                        starting.append(f"{file}:{node.lineno}")
    assert not starting
