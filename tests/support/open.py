"""What differs from Apache Kafka and is not mended: `tests/open.txt`, one a line, with what differs or why.

A name without a dot is a story of `tests/differential`. `Class.method` is one of Apache Kafka's own tests, which
`tests/apache` runs; `Class.*` are all tests of a class. Who no longer differs must leave the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

FILE = Path(__file__).parents[1] / "open.txt"


def read() -> dict[str, str]:
    """Everything that is open, with what differs or why."""
    lines = (line.partition(": ") for line in FILE.read_text().splitlines() if line)
    return {name: what for name, _, what in lines}


def stories() -> dict[str, str]:
    """The stories that are open, each with its first difference."""
    return {name: what for name, what in read().items() if "." not in name}


def tests() -> dict[str, str]:
    """Apache Kafka's tests that are left out, each with the reason."""
    return {name: why for name, why in read().items() if "." in name}


def write_stories(found: Mapping[str, Iterable[str]]) -> None:
    """The list with these stories in place of those that it has."""
    rows = {**tests(), **{name: _first(lines) for name, lines in found.items()}}
    FILE.write_text("".join(f"{name}: {what}\n" for name, what in sorted(rows.items())))


def _first(lines: Iterable[str]) -> str:
    first = next(iter(lines), "")
    asked, _, what = first.partition("\n")
    api = asked.partition(", ")[2].partition(" {")[0]
    return f"{api} {what.strip()}"[:200] if what else asked[:200]
