"""`headwater backup`: copies a cluster on this machine while it runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.common import Output, OutputOption, Progress, complain, put, put_json, run
from headwater.cli.errors import HEALTH
from headwater.cli.table_common import ConfigOption, DataOption, time_text

if TYPE_CHECKING:
    from headwater.app.backup.backup import Copied

NICENESS = 1
"""Reads and writes of a backup come after the cluster's. It gets its share of the processors, because one that starves
runs after objects that settling deletes."""


def register(app: typer.Typer) -> None:
    """Add the command `backup`."""
    app.command("backup")(backup)


def backup(
    target: Annotated[str, typer.Argument(metavar="DIR", help="An empty directory, or an earlier backup.")],
    data: DataOption = None,
    config: ConfigOption = None,
    copy: Annotated[bool, typer.Option("--copy", help="Copy all files, share none by hard links.")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Copy a cluster with a SQLite ledger and local objects, running or stopped. `headwater up` serves the copy.

    Into an earlier backup only what is new is copied. Exit code 6 if the cluster itself lacks objects.
    """
    from headwater.app.backup.backup import back_up
    from headwater.app.session import kept
    from headwater.clock import SystemChance, SystemClock
    from headwater.priority import step_back
    from headwater.settings.settings import load

    step_back(NICENESS)
    settings = load(config, flags={"data": data})
    clock, chance = SystemClock(), SystemChance()
    keep = partial(kept, settings)
    found = run(back_up(settings, Path(target), clock, chance, keep, links=not copy, tell=Progress()))
    _say(found, target, output)
    if found.lost:
        raise typer.Exit(HEALTH)


def _say(found: Copied, target: str, output: Output) -> None:
    counts = found.counts
    if output is Output.JSON:
        put_json(
            {"backup": str(Path(target).absolute()), "cluster": found.cluster, "taken_ms": found.taken_ms,
             "rounds": found.rounds, "objects": found.objects, "bytes": found.bytes, "linked": counts.linked,
             "copied": counts.copied, "copied_bytes": counts.copied_bytes, "kept": counts.kept,
             "removed": counts.removed, "lost": found.lost, "catalogs": found.catalogs}
        )  # fmt: skip
    else:
        done = f"{counts.linked} linked, {counts.copied} copied ({counts.copied_bytes} bytes), {counts.kept} kept"
        lines = [
            f"cluster {found.cluster} as of {time_text(found.taken_ms)} is in {Path(target).absolute()}",
            f"{found.objects} objects: {done}; {counts.removed} removed",
        ]
        lines += [f"the catalog {name} is not part of it; see docs/guides/backup.md" for name in found.catalogs]
        put("".join(f"{line}\n" for line in lines).encode())
    for one in found.lost:
        complain(f"the cluster itself lacks what it needs, so the backup does too: {one}; run `headwater doctor`")
