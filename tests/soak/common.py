"""What the long runs share: a directory of their own, a bar that shows how far they are, a verdict."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

console = Console()


@contextmanager
def workplace(name: str) -> Iterator[Path]:
    """A directory that goes if all went well, and stays for a look if it did not."""
    directory = Path(tempfile.mkdtemp(prefix=f"headwater-soak-{name}-"))
    try:
        yield directory
    except BaseException:
        console.print(f"what is left of it lies in {directory}")
        raise
    shutil.rmtree(directory, ignore_errors=True)


def progress() -> Progress:
    now = TextColumn("{task.fields[now]}")
    return Progress(
        TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn(), now,
        console=console,
    )  # fmt: skip


class Verdict:
    """Facts, and rules that must hold."""

    def __init__(self, title: str) -> None:
        self._table = Table("what", "value", "must be", title=title)
        self._failed = False

    def fact(self, what: str, value: object) -> None:
        self._table.add_row(what, _shown(value), "")

    def rule(self, what: str, value: float, at_most: float) -> None:
        """A number with an upper bound."""
        self._row(what, value, f"at most {_shown(at_most)}", value <= at_most)

    def floor(self, what: str, value: float, at_least: float) -> None:
        """A number with a lower bound."""
        self._row(what, value, f"at least {_shown(at_least)}", value >= at_least)

    def _row(self, what: str, value: float, wanted: str, holds: bool) -> None:
        self._failed = self._failed or not holds
        mark = "[green]yes[/green]" if holds else "[red]no[/red]"
        self._table.add_row(what, _shown(value), f"{wanted}: {mark}")

    def leave(self) -> None:
        """Print everything and end the process: with 1 if a rule did not hold."""
        console.print(self._table)
        sys.exit(1 if self._failed else 0)


def _shown(value: object) -> str:
    return f"{value:,.3g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
