"""Imports form no circle, between modules or between the children of any folder, and private names stay private."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import grimp
import pytest

from tests.support.sources import nodes_of

ROOT = Path(__file__).parents[2] / "src"
PACKAGE = "headwater"
SOURCES = sorted((ROOT / PACKAGE).rglob("*.py"))
FOLDERS = sorted({path.parent for path in SOURCES})
MAX_MODULES = 25
PUBLIC = {"_replace", "_asdict", "_fields", "_make", "_value_", "_name_"}
"""Names of named tuples and enums that are public in spite of their underscore."""

Edges = Mapping[str, Iterable[str]]


def dotted(path: Path) -> str:
    relative = path.relative_to(ROOT).with_suffix("")
    return ".".join(part for part in relative.parts if part != "__init__")


@cache
def imports() -> Edges:
    """Which module imports which, in functions and under `TYPE_CHECKING` too."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    return {module: sorted(graph.find_modules_directly_imported_by(module)) for module in sorted(graph.modules)}


def circles(edges: Edges) -> list[list[str]]:
    """The sets of nodes that reach each other, as Tarjan's algorithm finds them."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        for target in edges.get(node, ()):
            if target not in number:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], number[target])
        if low[node] == number[node]:
            circle = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    for node in edges:
        if node not in number:
            visit(node)
    return sorted(found)


def between_children(folder: str, edges: Edges) -> Edges:
    """Which direct child of a folder imports which, whatever is inside them."""

    def child(module: str) -> str | None:
        return module.removeprefix(folder + ".").split(".")[0] if module.startswith(folder + ".") else None

    found: dict[str, set[str]] = {}
    for module, targets in edges.items():
        own = child(module)
        if own is not None:
            found.setdefault(own, set()).update(
                other for target in targets if (other := child(target)) is not None and other != own
            )
    return {name: sorted(targets) for name, targets in sorted(found.items())}


def test_circles_are_found() -> None:
    edges = {"a.x": ["b.x"], "b.x": ["b.y"], "b.y": ["c"], "c": ["a.y"], "a.y": []}
    assert circles(edges) == []
    assert circles({**edges, "a.y": ["b.x"]}) == [["a.y", "b.x", "b.y", "c"]]
    rooms = between_children("top", {f"top.{name}": [f"top.{t}" for t in targets] for name, targets in edges.items()})
    assert rooms == {"a": ["b"], "b": ["c"], "c": ["a"]}
    assert circles(rooms) == [["a", "b", "c"]]


def test_no_module_imports_itself_through_others() -> None:
    assert circles(imports()) == []


def test_the_children_of_a_folder_form_layers() -> None:
    found = {folder: circles(between_children(folder, imports())) for folder in map(dotted, FOLDERS)}
    assert not {folder: tied for folder, tied in found.items() if tied}


@pytest.mark.parametrize("folder", FOLDERS, ids=dotted)
def test_a_folder_can_be_taken_in_at_a_glance(folder: Path) -> None:
    assert len(list(folder.glob("*.py"))) <= MAX_MODULES


# --- private names -----------------------------------------------------------------------------------


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def is_own(value: ast.expr) -> bool:
    """Whether an attribute belongs to the object or class itself, its base classes included."""
    return (isinstance(value, ast.Name) and value.id in ("self", "cls")) or (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "super"
    )


def private_names(nodes: Sequence[ast.AST]) -> set[str]:
    """Private functions, classes, variables, fields and attributes that a module defines."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node.value):
            names.add(node.attr)
    return {name for name in names if is_private(name)}


def trespasses(nodes: Sequence[ast.AST], others: set[str]) -> Iterator[tuple[int, str]]:
    """Lines where a module uses a private name of another; `others` are those that other modules define."""
    modules: set[str] = set()
    """Names that imports bind; an attribute of one belongs to what is imported."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE:
            modules |= {alias.asname or alias.name for alias in node.names}
            yield from ((node.lineno, alias.name) for alias in node.names if is_private(alias.name))
        elif isinstance(node, ast.Import):
            modules |= {alias.asname for alias in node.names if alias.asname and alias.name.startswith(PACKAGE + ".")}
    own = private_names(nodes)
    for node in nodes:
        if isinstance(node, ast.Attribute) and is_private(node.attr) and not is_own(node.value):
            imported = isinstance(node.value, ast.Name) and node.value.id in modules
            if imported or (node.attr in others and node.attr not in own):
                yield node.lineno, ast.unparse(node)


@cache
def all_private_names() -> Mapping[Path, set[str]]:
    return {path: private_names(nodes_of(path)) for path in SOURCES}


def test_uses_of_private_names_are_found() -> None:
    source = """
from headwater.a import _x, y
class A:
    def __init__(self):
        self._own = 1
    def f(self, other):
        return other._own, self._inherited, super()._inherited, other._theirs, y._own, other._foreign, other._replace()
"""
    found = [name for _, name in trespasses(list(ast.walk(ast.parse(source))), {"_theirs", "_inherited"})]
    assert sorted(found) == ["_x", "other._theirs", "y._own"]


def test_private_names_stay_in_their_module() -> None:
    defined = Counter(name for names in all_private_names().values() for name in names)
    for path, own in all_private_names().items():
        others = {name for name, count in defined.items() if count > (name in own)}
        assert list(trespasses(nodes_of(path), others)) == [], dotted(path)
