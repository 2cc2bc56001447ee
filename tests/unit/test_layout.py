"""The house rules: sizes, docstrings, prints, leftovers, skips. One test a rule, which names all offenders."""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.support.sources import nodes_of, tree_of

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "headwater").rglob("*.py"))
HARNESS = sorted((ROOT / "harness").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
MAX_LINES = 900
LEFTOVER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
SKIP = re.compile(r"\b(skip|skipif|xfail)\b")
READY = {f"src/headwater/app/{name}.py" for name in ("lifecycle", "up/supervisor")}
"""Modules that print one line, which says that a server is ready."""
DOORS = (
    *("time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "time.perf_counter", "time.perf_counter_ns"),
    *("uuid.uuid4", "uuid.uuid1", "os.urandom"),
)
LOOPS = ("get_running_loop", "get_event_loop")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def comments_of(path: Path) -> list[tuple[int, str]]:
    """The comments of a file with a word in it that a comment may not have. Other files are not read closely."""
    if not LEFTOVER.search(text := path.read_text()):
        return []
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]


def has_docstring(path: Path) -> bool:
    """Whether a file begins with one."""
    return path.read_text().lstrip().startswith(('"""', 'r"""'))


def offenders(found: Iterable[str]) -> None:
    """Fail with all that were found."""
    listed = sorted(found)
    assert not listed, "\n" + "\n".join(listed)


def test_there_is_something_to_look_at() -> None:
    assert len(SOURCES) > 100 and len(HARNESS) > 10 and len(TESTS) > 100


def test_a_module_is_one_subject() -> None:
    """A longer one has two. Nothing is cut to please a smaller number."""
    lengths = {path: len(path.read_text().splitlines()) for path in [*SOURCES, *HARNESS]}
    offenders(f"{name_of(path)}: {count} lines" for path, count in lengths.items() if count > MAX_LINES)


def test_every_public_module_says_what_it_is() -> None:
    public = [p for p in [*SOURCES, *HARNESS] if not p.name.startswith("_") or p.name == "__init__.py"]
    tests = [p for p in TESTS if p.name.startswith("test_")]
    offenders(f"{name_of(path)}: no docstring" for path in [*public, *tests] if not has_docstring(path))


def test_public_classes_say_what_they_are() -> None:
    offenders(
        f"{name_of(path)}:{node.lineno}: {node.name} has no docstring"
        for path in [*SOURCES, *HARNESS]
        for node in tree_of(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not ast.get_docstring(node)
    )


def prints_of(path: Path) -> list[ast.Call]:
    return [
        node
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]


def test_only_the_command_line_prints() -> None:
    """Besides it only a server's one line that says it is ready."""
    silent = [path for path in SOURCES if "cli" not in path.parts and name_of(path) not in READY]
    offenders(f"{name_of(path)}:{node.lineno}" for path in silent for node in prints_of(path))
    for name in READY:
        [said] = prints_of(ROOT / name)
        assert "ready" in ast.unparse(said)


def test_nothing_is_left_to_do() -> None:
    """What does not work yet is in GAPS.md, not in a comment."""
    offenders(
        f"{name_of(path)}:{line}: {comment}"
        for path in [*SOURCES, *HARNESS, *TESTS]
        if LEFTOVER.search(path.read_text())
        for line, comment in comments_of(path)
        if LEFTOVER.search(comment)
    )


def test_time_and_chance_come_through_one_door() -> None:
    """`clock.py` alone asks the machine for time or randomness."""
    offenders(
        f"{name_of(path)}:{node.lineno}: {node.value.id}.{node.attr}"
        for path in SOURCES
        if path.name != "clock.py"
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (f"{node.value.id}.{node.attr}" in DOORS or node.value.id in ("random", "secrets"))
    )


def test_servers_take_the_time_from_their_clock() -> None:
    """Not from the event loop, which tests cannot replace alone. The client has no clock of its own in a connection."""
    offenders(
        f"{name_of(path)}:{node.lineno}: the time of the event loop"
        for path in SOURCES
        if "client" not in path.parts
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute)
        and node.attr == "time"
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr in LOOPS
    )


def test_no_failure_is_swallowed() -> None:
    """No bare `except`, and nothing that catches everything without a word why."""
    offenders(f"{name_of(path)}:{line}" for path in SOURCES for line in swallowed(path))


def swallowed(path: Path) -> Iterator[int]:
    lines = path.read_text().splitlines()
    for node in nodes_of(path):
        if isinstance(node, ast.ExceptHandler):
            if node.type is None:
                yield node.lineno
            elif isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException"):
                explained = "#" in lines[node.lineno - 1]
                passed_on = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
                logged = any(isinstance(i, ast.Attribute) and i.attr == "exception" for i in ast.walk(node))
                if not (explained or passed_on or logged):
                    yield node.lineno


def test_skipped_tests_say_why() -> None:
    offenders(
        f"{name_of(path)}:{line}: no reason"
        for path in TESTS
        if SKIP.search(path.read_text())
        for line in without_reason(path)
    )


def without_reason(path: Path) -> Iterator[int]:
    calls = [node for node in nodes_of(path) if isinstance(node, ast.Call)]
    called = {id(node.func) for node in calls}
    for node in nodes_of(path):
        skips = isinstance(node, ast.Attribute) and node.attr in ("skip", "xfail") and _is_mark(node.value)
        if isinstance(node, ast.Attribute) and skips and id(node) not in called:
            yield node.lineno
    for node in calls:
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("skip", "skipif", "xfail"):
            keywords = {keyword.arg for keyword in node.keywords}
            positional = len(node.args) >= (2 if node.func.attr == "skipif" else 1)
            if "reason" not in keywords and not positional:
                yield node.lineno


def _is_mark(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "mark"


def test_unit_tests_are_where_their_modules_are() -> None:
    """A folder of unit tests has the name of the folder whose modules it tests."""
    folders = {path.parent.relative_to(ROOT / "tests/unit") for path in TESTS if "tests/unit/" in path.as_posix()}
    offenders(f"tests/unit/{folder}" for folder in folders if not (ROOT / "src/headwater" / folder).is_dir())
