"""Writes the parts of the docs that are derived from the code: `python scripts/docs.py` (`make docs`)."""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import re
import sys
import textwrap
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from headwater import errors
from headwater.broker import handlers as _registered  # noqa: F401 - fills the registry
from headwater.broker.errors import CODES as KAFKA_ERRORS
from headwater.broker.registry import APIS
from headwater.cli.errors import CODES as EXIT_CODES
from headwater.configs.topics import KEYS
from headwater.gateway import application as _declared  # noqa: F401 - fills the kinds of problems
from headwater.gateway.flight.errors import STATUSES as FLIGHT_ERRORS
from headwater.gateway.problems import ERRORS as HTTP_ERRORS
from headwater.gateway.problems import KINDS, SCHEMA_CODES, Refusal
from headwater.gateway.registry.errors import body_of as registry_body
from headwater.gateway.v3.errors import told
from headwater.settings import settings as config
from headwater.wire.messages import api_name, known_versions

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "headwater"
ROOMS_PAGE = "docs/internals/rooms.md"
DECISIONS = "docs/internals/decisions"
BEGIN, END = "<!-- generated: {name} -->", "<!-- end: {name} -->"

# APIs that only Kafka's own brokers and controllers send to each other; no client needs them.
INTERNAL = {
    "vote", "begin_quorum_epoch", "end_quorum_epoch", "describe_quorum", "alter_partition", "envelope",
    "fetch_snapshot", "broker_registration", "broker_heartbeat", "unregister_broker", "allocate_producer_ids",
    "controller_registration", "assign_replicas_to_dirs", "add_raft_voter", "remove_raft_voter",
    "update_raft_voter", "initialize_share_group_state", "read_share_group_state", "write_share_group_state",
    "delete_share_group_state", "read_share_group_state_summary", "write_txn_markers",
}  # fmt: skip


def served() -> str:
    rows = ["| API | key | versions | in Kafka 4 |", "|---|---|---|---|"]
    for api in sorted(APIS.values(), key=lambda api: api.key):
        known = known_versions(api.key)
        rows.append(f"| {api.name} | {api.key} | {api.versions[0]} to {api.versions[-1]} | {known[0]} to {known[-1]} |")
    return "\n".join(rows)


def missing() -> str:
    names = [api_name(key) for key in range(200) if known_versions(key) and key not in APIS]
    return ", ".join(f"`{name}`" for name in sorted(names) if name not in INTERNAL)


def topic_configs() -> str:
    rows = ["| config | default | effect |", "|---|---|---|"]
    for key in KEYS.values():
        rows.append(f"| `{key.name}` | `{key.default or '(empty)'}` | {key.meaning} |")
    return "\n".join(rows)


def meanings(section: type) -> dict[str, str]:
    """The meaning of each setting of a section: the string below its field, in the class or one of its bases."""
    found: dict[str, str] = {}
    for base in reversed(section.__mro__):
        if not base.__module__.startswith("headwater.settings."):
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        body = cast(ast.ClassDef, tree.body[0]).body
        for field, text in itertools.pairwise(body):
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            match text:
                case ast.Expr(value=ast.Constant(value=str() as words)):
                    found[field.target.id] = " ".join(words.split())
    return found


class Setting(NamedTuple):
    """A row of the table of settings."""

    name: str
    default: str
    meaning: str
    """Empty if the code does not say it."""


class Section(NamedTuple):
    """A section of the settings and what it is for."""

    name: str
    about: str
    settings: list[Setting]


def _shown(value: object) -> str:
    """A default as it is written in a file of settings."""
    if value in ("", (), {}):
        return "(empty)"
    return value if isinstance(value, str) else json.dumps(value)


def sections() -> list[Section]:
    """All settings by section, the ones without a section first."""
    found: list[Section] = []

    def add(name: str, value: msgspec.Struct, about: str) -> None:
        kind = type(value)
        said, inner = meanings(kind), []
        own = Section(name, about or " ".join((kind.__doc__ or "").split()), [])
        found.append(own)
        for field in kind.__struct_fields__:
            default = getattr(value, field)
            path = f"{name}.{field}" if name else field
            if isinstance(default, msgspec.Struct):
                inner.append((path, default, said.get(field, "")))
            else:
                own.settings.append(Setting(path, _shown(default), said.get(field, "")))
        for path, default, text in inner:
            add(path, default, text)

    add("", config.Settings(), "")
    add("security.listeners.NAME", config.ListenerSecurity(), "")
    return [section for section in found if section.settings]


def settings() -> str:
    parts = []
    for section in sections():
        rows = [f"| `{row.name}` | `{row.default}` | {row.meaning} |" for row in section.settings]
        title = f"### `[{section.name}]`\n\n{section.about}\n\n" if section.name else ""
        parts.append("\n".join([f"{title}| setting | default | meaning |", "|---|---|---|", *rows]))
    return "\n\n".join(parts)


def problems() -> str:
    """A section for each kind of problem."""
    parts = []
    for kind in sorted(KINDS.values(), key=lambda kind: (kind.status, kind.name)):
        parts.append(f"### {kind.name}\n\n{kind.status}, `/problems/{kind.name}`: {kind.title}. {kind.meaning}")
    return "\n\n".join(parts)


def contracts(kind: str) -> list[dict[str, Any]]:
    """The import contracts of one kind, as `pyproject.toml` has them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [entry for entry in project["tool"]["importlinter"]["contracts"] if entry["type"] == kind]


def layers() -> list[list[str]]:
    """The names of the rooms and modules of the package, layer by layer, the highest first."""
    [contract] = [entry for entry in contracts("layers") if "containers" not in entry]
    return [[name.strip().removeprefix("headwater.") for name in line.split("|")] for line in contract["layers"]]


def is_room(name: str) -> bool:
    return (SOURCES / name / "__init__.py").is_file()


def docstring(file: Path) -> str:
    """The first paragraph of a module's docstring, as one line."""
    return " ".join((ast.get_docstring(ast.parse(file.read_text())) or "").split("\n\n")[0].split())


def first_sentence(file: Path) -> str:
    return re.split(r"(?<=[.!?])\s+(?=[A-Z`(])", docstring(file))[0]


def layer_table() -> str:
    """A row for each room, and one for each layer of single modules."""
    rows = ["| layer | room | what it does |", "|---:|---|---|"]
    for number, names in enumerate(layers(), 1):
        rooms = [name for name in names if is_room(name)]
        for name in rooms:
            says = first_sentence(SOURCES / name / "__init__.py")
            rows.append(f"| {number} | [{name}]({ROOMS_PAGE}#{name}) | {says} |")
        if single := [name for name in names if name not in rooms]:
            modules = ", ".join(f"`{name}.py`" for name in single)
            rows.append(f"| {number} | [modules]({ROOMS_PAGE}#modules-for-all) | {modules} |")
    return "\n".join(rows)


def room(name: str, below: list[list[str]]) -> str:
    """The section of a room: what it does, what it may import, its modules. `below` has the layers below its own."""
    folder = SOURCES / name
    may = ", ".join(f"`{other}`" for other in below[0]) + (" and the layers below" if below[1:] else "")
    lines = [f"## {name}", "", docstring(folder / "__init__.py"), "", f"May import {may}."]
    for entry in contracts("forbidden"):
        if entry["source_modules"] == [f"headwater.{name}"]:
            banned = ", ".join(f"`{module.removeprefix('headwater.')}`" for module in entry["forbidden_modules"])
            lines.append(f"A contract forbids {banned}: {entry['name']}.")
    lines += ["", "| module | |", "|---|---|"]
    for file in sorted(folder.rglob("*.py"), key=lambda file: (file.parent.parts, file.name)):
        says = first_sentence(file).replace("|", "\\|")
        path = file.relative_to(SOURCES).as_posix()
        if file.name == "__init__.py" and file.parent != folder:
            lines.append(f"| **`{file.parent.relative_to(SOURCES).as_posix()}/`** | {says} |")
        elif file.name != "__init__.py":
            lines.append(f"| `{path}` | {says} |")
    return "\n".join(lines)


def rooms() -> str:
    """All rooms, the highest layer first, and the modules that are no rooms."""
    order = layers()
    parts = []
    for at, names in enumerate(order):
        parts += [room(name, order[at + 1 :]) for name in names if is_room(name)]
    rows = ["## Modules for all", "", "| module | |", "|---|---|"]
    for name in (name for names in order for name in names if not is_room(name)):
        rows.append(f"| `{name}.py` | {first_sentence(SOURCES / f'{name}.py')} |")
    return "\n\n".join([*parts, "\n".join(rows)])


def decisions() -> str:
    """A line for each record of a decision: its number and its title."""
    lines = []
    for file in sorted((ROOT / DECISIONS).glob("[0-9]*.md")):
        number, _, title = file.read_text().partition("\n")[0].removeprefix("# ").partition(". ")
        lines.append(f"- {number}: [{title}]({file.name})")
    return "\n".join(lines)


def error_kinds() -> list[type[errors.HeadwaterError]]:
    """The kinds of errors, in the order of the tree's module."""
    return [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, errors.HeadwaterError)]


def error_table() -> str:
    """A row for each kind of error: what it means, and what it is to the clients of each server."""
    rows = [
        "| kind | what it means | the caller | Kafka | HTTP | REST Proxy | registry | Flight SQL | exit |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for kind in error_kinds():
        problem, rest = HTTP_ERRORS[kind]
        refusal = Refusal(problem)
        registry = json.loads(registry_body(refusal, {}).data)["error_code"]
        cells = [
            f"`{kind.__name__}`", " ".join((kind.__doc__ or "").split()),
            {"retry": "retries", "fix": "mends it", "give up": "gives up"}[kind.action],
            KAFKA_ERRORS[kind].name.upper(), f"{problem.status} `{problem.name}`", rest or told(refusal).error_code,
            "by its reason" if kind is errors.SchemaRefused else registry,
            FLIGHT_ERRORS[kind], EXIT_CODES[kind],
        ]  # fmt: skip
        rows.append(f"| {' | '.join(str(cell) for cell in cells)} |")
    return "\n".join(rows)


def schema_reasons() -> str:
    """The numbers of the schema registry."""
    rows = ["| reason | code |", "|---|---|"]
    return "\n".join([*rows, *(f"| {reason.name} | {code} |" for reason, code in SCHEMA_CODES.items())])


class Measured(NamedTuple):
    """A row of the table of metrics."""

    name: str
    kind: str
    meaning: str
    room: str


def measured() -> list[Measured]:
    """All metrics, by their names: each call of `Metric` in the sources is one."""
    found = []
    for file in sorted(SOURCES.rglob("*.py")):
        text = file.read_text()
        if "Metric(" not in text:
            continue
        module = "headwater." + ".".join(file.relative_to(SOURCES).with_suffix("").parts)
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Call(func=ast.Name(id="Metric"), args=[ast.Constant(name), ast.Constant(kind), meaning, _]):
                    words = eval(compile(ast.Expression(meaning), module, "eval"), vars(import_module(module)))
                    found.append(Measured(name, kind, words, file.relative_to(SOURCES).parts[0]))
                case ast.Call(func=ast.Name(id="Metric")):
                    raise SystemExit(f"{module}: name and kind of a metric are words, so that the docs can list it")
    return sorted(found)


def metrics() -> str:
    """A row for each metric."""
    rows = ["| metric | kind | what it counts | room |", "|---|---|---|---|"]
    for row in measured():
        rows.append(f"| `{row.name}` | {row.kind} | {row.meaning} | [{row.room}](../internals/rooms.md#{row.room}) |")
    return "\n".join(rows)


PAGES = {
    "docs/reference/errors.md": {"errors": error_table, "schema reasons": schema_reasons},
    "ARCHITECTURE.md": {"layers": layer_table},
    ROOMS_PAGE: {"rooms": rooms},
    f"{DECISIONS}/README.md": {"decisions": decisions},
    "docs/guides/http.md": {"problems": problems},
    "docs/reference/protocol.md": {"served": served, "topic configs": topic_configs},
    "docs/reference/configuration.md": {"settings": settings},
    "docs/reference/metrics.md": {"metrics": metrics},
    "GAPS.md": {"missing": missing},
}


def render(page: str, text: str) -> str:
    """A page with its generated parts made anew."""
    for name, make in PAGES[page].items():
        begin, end = BEGIN.format(name=name), END.format(name=name)
        head, found, rest = text.partition(begin)
        _, closed, tail = rest.partition(end)
        if not found or not closed:
            raise SystemExit(f"{page} has no part {name!r}")
        text = f"{head}{begin}\n{make()}\n{end}{tail}"
    return text


def main() -> int:
    for page in PAGES:
        path = ROOT / page
        path.write_text(render(page, path.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
