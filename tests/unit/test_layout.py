"""The house rules, as a test: sizes, docstrings, prints, leftovers, skips."""

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "headwater").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
MAX_LINES = 500
LEFTOVER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def comments_of(path: Path) -> list[tuple[int, str]]:
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    return [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_module_fits_on_a_few_screens(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_LINES


@pytest.mark.parametrize(
    "path", [p for p in SOURCES if not p.name.startswith("_") or p.name == "__init__.py"], ids=name_of
)
def test_every_public_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(tree_of(path)), "no docstring"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_public_classes_say_what_they_are(path: Path) -> None:
    missing = [
        node.name
        for node in tree_of(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not ast.get_docstring(node)
    ]
    assert not missing


@pytest.mark.parametrize("path", [p for p in SOURCES if "cli" not in p.parts], ids=name_of)
def test_only_the_command_line_prints(path: Path) -> None:
    """Besides it only a server's one line that says it is ready."""
    prints = [
        ast.unparse(node)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    if name_of(path) in (f"src/headwater/app/{name}.py" for name in ("process", "supervisor", "compactor")):
        assert len(prints) == 1
        assert "ready" in prints[0]
    else:
        assert not prints


@pytest.mark.parametrize("path", [*SOURCES, *TESTS], ids=name_of)
def test_nothing_is_left_to_do(path: Path) -> None:
    """What does not work yet stands in GAPS.md, not in a comment."""
    left = [(line, comment) for line, comment in comments_of(path) if LEFTOVER.search(comment)]
    assert not left


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_time_and_chance_come_through_one_door(path: Path) -> None:
    """`clock.py` alone asks the machine for wall-clock time or randomness."""
    if path.name == "clock.py":
        return
    asked = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            said = f"{node.value.id}.{node.attr}"
            if said in ("time.time", "time.time_ns", "uuid.uuid4", "uuid.uuid1", "os.urandom") or (
                node.value.id in ("random", "secrets")
            ):
                asked.append((node.lineno, said))
    assert not asked


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_no_failure_is_swallowed(path: Path) -> None:
    """No bare `except`, and nothing that catches everything without a word why."""
    lines = path.read_text().splitlines()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"line {node.lineno}: a bare except"
            if isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException"):
                explained = "#" in lines[node.lineno - 1]
                passed_on = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
                logged = any(isinstance(i, ast.Attribute) and i.attr == "exception" for i in ast.walk(node))
                assert explained or passed_on or logged, f"line {node.lineno}"


@pytest.mark.parametrize("path", TESTS, ids=name_of)
def test_skipped_tests_say_why(path: Path) -> None:
    for node in ast.walk(tree_of(path)):
        if not isinstance(node, ast.Call):
            if isinstance(node, ast.Attribute) and node.attr in ("skip", "xfail") and _is_mark(node.value):
                assert _is_called(tree_of(path), node), f"line {node.lineno}: no reason"
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("skip", "skipif", "xfail"):
            keywords = {keyword.arg for keyword in node.keywords}
            positional = len(node.args) >= (2 if node.func.attr == "skipif" else 1)
            assert "reason" in keywords or positional, f"line {node.lineno}: no reason"


def _is_mark(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "mark"


def _is_called(tree: ast.Module, wanted: ast.Attribute) -> bool:
    return any(isinstance(node, ast.Call) and node.func is wanted for node in ast.walk(tree))


@pytest.mark.parametrize("path", [p for p in TESTS if p.name.startswith("test_")], ids=name_of)
def test_every_test_file_says_what_it_covers(path: Path) -> None:
    assert ast.get_docstring(tree_of(path)), "no docstring"
