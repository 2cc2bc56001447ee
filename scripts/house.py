"""Counts of the tree that say how far it is from the planned layout: `python scripts/house.py` (`make house`).

Each count is a function of the tree. `most` is what it may be today: `tests/processes/test_house.py` fails when a count
is above it. A change that lowers a count lowers its `most` too. The files that a standard change touches are not
counted: only the change itself shows them.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "headwater"
ASKING = ("broker/handlers", "gateway", "servers", "cli", "sdk")
"""Rooms that take requests of users, under their names of today and of the plan."""
SEPARATE = ("ledger/journal", "kernels")
"""Rooms that are planned elsewhere: their lines do not count."""
REASON = re.compile(r"\b([Cc]hild process|[Ii]mported late|[Pp]lug-in)\b")
SMALL_LINES = 70
OPENERS = {f"{PACKAGE}.app.session.ledger_session", f"{PACKAGE}.cli.table_common.ask"}
"""How commands open a ledger."""
REMOTE = f"""
import json, sys
before = set(sys.modules)
import {PACKAGE}
{PACKAGE}.connect("http://127.0.0.1:1")
json.dump(sorted(set(sys.modules) - before), sys.stdout)
"""


@dataclass(frozen=True, slots=True)
class Module:
    name: str
    folder: str
    """The folder below the package, as a path; empty for the package's own modules."""
    is_package: bool
    text: str

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def is_apart(self) -> bool:
        """Whether the docstring gives one of the reasons that a small module may have."""
        return REASON.search(ast.get_docstring(ast.parse(self.text)) or "") is not None

    def is_in(self, *folders: str) -> bool:
        return any(f"{self.folder}/".startswith(f"{folder}/") for folder in folders)


class Tree:
    """The sources, read once."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self._package = root / "src" / PACKAGE

    @cached_property
    def modules(self) -> Mapping[str, Module]:
        found = {}
        for path in sorted(self._package.rglob("*.py")):
            parts = path.relative_to(self._package).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join((PACKAGE, *(parts[:-1] if is_package else parts)))
            found[name] = Module(name, "/".join(parts[:-1]), is_package, path.read_text())
        return found

    @cached_property
    def importers(self) -> Mapping[str, set[str]]:
        """The modules that import each module."""
        found: dict[str, set[str]] = {name: set() for name in self.modules}
        for module in self.modules.values():
            for name in imported(module):
                target = name if name in found else name.rpartition(".")[0]
                if target in found:
                    found[target].add(module.name)
        return found

    @cached_property
    def counted(self) -> list[Module]:
        return [module for module in self.modules.values() if not module.is_in(*SEPARATE)]

    @cached_property
    def asking(self) -> list[Module]:
        return [module for module in self.modules.values() if module.is_in(*ASKING)]

    @cached_property
    def simulation(self) -> list[str]:
        return [path.read_text() for path in sorted((self.root / "tests/simulation").rglob("*.py"))]

    @cached_property
    def loaded_by_remote_connection(self) -> list[str]:
        """The modules that a connection to a gateway loads into a fresh process."""
        code = f"import sys; sys.path.insert(0, {str(self.root / 'src')!r})\n{REMOTE}"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
        return re.findall(r'"([^"]+)"', done.stdout)


def imported(module: Module) -> Iterator[str]:
    """Every name that a module imports, with its module; also late imports and those of types alone."""
    for node in ast.walk(ast.parse(module.text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def found_in(texts: Iterable[str], pattern: str) -> int:
    """How often a pattern occurs."""
    return sum(len(re.findall(pattern, text, re.MULTILINE)) for text in texts)


def files_with(modules: Iterable[Module], pattern: str) -> int:
    return sum(re.search(pattern, module.text) is not None for module in modules)


def texts(modules: Iterable[Module]) -> Iterator[str]:
    return (module.text for module in modules)


def importing_commands(tree: Tree) -> int:
    return files_with(tree.asking, r"\bstate\.commands\b")


def submitting(tree: Tree) -> int:
    return found_in(texts(tree.asking), r"(?<!_thread)\.submit\(")


def naming_acl_resources(tree: Tree) -> int:
    return files_with(tree.asking, r"\bAclResource\b")


def texts_not_carried_out(tree: Tree) -> int:
    return found_in(texts(tree.modules.values()), r"[\"']not carried out\b")


def texts_cluster_upgrade(tree: Tree) -> int:
    return found_in(texts(tree.modules.values()), r"\bcluster upgrade\b")


def levels(tree: Tree) -> int:
    return found_in(texts(tree.modules.values()), r"^\w+_LEVEL\b.*=")


def swap_commands(tree: Tree) -> int:
    """Commands that exchange files of a table."""
    commands = [module.text for module in tree.modules.values() if module.is_in("state/commands")]
    return found_in(commands, r"^class (?:Settle|Merge|Replace|Fill)\w*\(Command\b")


def fixtures(tree: Tree) -> int:
    """Data directories of earlier formats."""
    return len([*(tree.root / "tests/formats").glob("*.tar.xz")])


def opening_ledgers(tree: Tree) -> int:
    """Modules of commands that open a ledger, themselves or by the function that they share."""
    commands = [module for module in tree.modules.values() if module.is_in("cli")]
    return sum(not OPENERS.isdisjoint(imported(module)) for module in commands)


def dependencies(tree: Tree) -> int:
    return len(tomllib.loads((tree.root / "pyproject.toml").read_text())["project"]["dependencies"])


def remote_modules(tree: Tree) -> int:
    return sum(name.startswith(f"{PACKAGE}.") for name in tree.loaded_by_remote_connection)


def remote_libraries(tree: Tree) -> int:
    """Third parties of a remote connection; `msgspec` is the one that may stay."""
    tops = {name.partition(".")[0] for name in tree.loaded_by_remote_connection}
    return len(tops - set(sys.stdlib_module_names) - {PACKAGE})


def naming_table_formats(tree: Tree) -> int:
    """Files outside `lake/tables` that name a table format, as text or by an import."""
    outside = [module for module in tree.modules.values() if not module.is_in("lake/tables")]
    return files_with(outside, r"[\"'](?:iceberg|delta)[\"']|\blake\.tables\.(?:iceberg|delta)\b")


def state_modules(tree: Tree) -> int:
    return sum(module.is_in("state") for module in tree.modules.values())


def small_modules(tree: Tree) -> int:
    """Modules of few lines with one importer, in their own folder, unless their docstring says why they are apart."""
    count = 0
    for module in tree.modules.values():
        importers = tree.importers[module.name]
        if not module.is_package and module.lines < SMALL_LINES and len(importers) == 1 and not module.is_apart:
            [importer] = importers
            count += importer.rpartition(".")[0] == module.name.rpartition(".")[0]
    return count


def simulation_lines(tree: Tree) -> int:
    return sum(text.count("\n") for text in tree.simulation)


def simulation_submits(tree: Tree) -> int:
    return found_in(tree.simulation, r"\.submit\(|enqueue\(")


def source_lines(tree: Tree) -> int:
    return sum(module.lines for module in tree.counted)


def source_modules(tree: Tree) -> int:
    return len(tree.counted)


def biggest_room(tree: Tree) -> int:
    """How many percent of the lines the biggest room has, rounded up."""
    rooms: dict[str, int] = {}
    for module in tree.counted:
        room = module.folder.partition("/")[0]
        if room:
            rooms[room] = rooms.get(room, 0) + module.lines
    return -(-100 * max(rooms.values()) // source_lines(tree))


@dataclass(frozen=True, slots=True)
class Count:
    what: str
    measure: Callable[[Tree], int]
    wanted: int
    most: int | None = None
    """What it may be today; None for what may grow."""


COUNTS = (
    Count("`state.commands` in handlers, servers, cli, sdk (files)", importing_commands, 0, 29),
    Count("`.submit(` there", submitting, 0, 24),
    Count("`AclResource` there (files)", naming_acl_resources, 2, 45),
    Count('texts "not carried out"', texts_not_carried_out, 1, 9),
    Count('texts "cluster upgrade"', texts_cluster_upgrade, 2, 2),
    Count("`*_LEVEL` constants", levels, 0, 0),
    Count("swap commands", swap_commands, 3, 3),
    Count("fixtures of formats", fixtures, 1, 1),
    Count("modules of commands that open a ledger", opening_ledgers, 1, 9),
    Count("mandatory dependencies", dependencies, 2, 2),
    Count("modules of a remote connection", remote_modules, 30, 30),
    Count("third parties of a remote connection", remote_libraries, 2, 2),
    Count('"iceberg", "delta" outside `lake/tables` (files)', naming_table_formats, 0, 6),
    Count("modules of the state", state_modules, 42, 63),
    Count(f"modules under {SMALL_LINES} lines with one importer, in their folder", small_modules, 0, 42),
    Count("lines of the simulation", simulation_lines, 5_500),
    Count("`.submit(`, `enqueue(` in the simulation", simulation_submits, 1, 25),
    Count("lines of Python in `src`", source_lines, 99_500),
    Count("modules in `src`", source_modules, 640),
    Count("percent of the lines in the biggest room", biggest_room, 12, 15),
)


def table(tree: Tree) -> Iterator[str]:
    width = max(len(count.what) for count in COUNTS)
    yield f"{'count':<{width}} {'now':>8} {'wanted':>8}"
    for count in COUNTS:
        yield f"{count.what:<{width}} {count.measure(tree):>8,} {count.wanted:>8,}"
    yield "Not counted: the files that a standard change touches."


def main() -> None:
    for line in table(Tree()):
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
