"""Stories that Headwater does not tell as Apache Kafka does yet: `open.txt`, one a line with what differs first.

`python -m tests.differential KAFKA OURS --write` makes the list anew. A story that no longer differs must leave it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

FILE = Path(__file__).parent / "open.txt"


def read() -> dict[str, str]:
    """What is open: each story with its first difference."""
    lines = (line.partition(": ") for line in FILE.read_text().splitlines() if line)
    return {name: what for name, _, what in lines}


def write(found: Mapping[str, Iterable[str]]) -> None:
    """The list from what was found."""
    rows = [f"{name}: {_first(lines)}" for name, lines in sorted(found.items())]
    FILE.write_text("".join(f"{row}\n" for row in rows))


def _first(lines: Iterable[str]) -> str:
    first = next(iter(lines), "")
    asked, _, what = first.partition("\n")
    api = asked.partition(", ")[2].partition(" {")[0]
    return f"{api} {what.strip()}"[:200] if what else asked[:200]
