"""`headwater metadata`: commands for ledgers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.common import Output, OutputOption, put, put_json, put_table, run
from headwater.cli.table_common import ConfigOption, DataOption

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from headwater.app.copying import CopiedDomain


def register(app: typer.Typer) -> None:
    """Add the group `metadata`."""
    group = typer.Typer(name="metadata", help="Ledgers: copy the metadata of a cluster.", no_args_is_help=True)
    group.command("copy")(copy)
    app.add_typer(group)


def copy(
    to: Annotated[str, typer.Option("--to", metavar="URL", help="An empty ledger: sqlite:, etcd:, oxia:, s3: …")],
    source: Annotated[
        str | None, typer.Option("--from", metavar="URL", help="The ledger to copy; by default that of the settings.")
    ] = None,
    objects: Annotated[
        str | None, typer.Option("--objects", metavar="URL", help="Object store; by default that of the settings.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Copy even if processes seem to be running.")] = False,
    data: DataOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Copy all metadata into another ledger and compare both. Stop all brokers and compactors first."""
    from headwater.app.directories import begin
    from headwater.settings.settings import load

    settings = load(config, flags={"data": data, "ledger": source, "objects": objects})
    begin(settings, writing=False)
    copied = run(_copy(settings.ledger_url, to, settings.objects_url, force))
    if output is Output.JSON:
        rows = [
            {"domain": c.domain, "from": c.source_position, "to": c.target_position, "bytes": c.image_bytes,
             "fingerprint": f"{c.fingerprint:08x}"}
            for c in copied
        ]  # fmt: skip
        put_json({"domains": rows, "ledger": to})
        return
    put_table(
        ("DOMAIN", "FROM", "TO", "BYTES", "FINGERPRINT"),
        [(c.domain, c.source_position, c.target_position, c.image_bytes, f"{c.fingerprint:08x}") for c in copied],
    )
    put(b"both ledgers have the same state; start every process with the new ledger, and none with the old one\n")


async def _copy(source_url: str, target_url: str, objects_url: str, force: bool) -> list[CopiedDomain]:
    from headwater.app.copying import LedgerCopy
    from headwater.clock import SystemChance, SystemClock
    from headwater.errors import ConfigError
    from headwater.ledger import open_ledger
    from headwater.objects import open_store
    from headwater.types import Domain

    if source_url == target_url:
        raise ConfigError("source and target are the same ledger")
    source, target, store = open_ledger(source_url), open_ledger(target_url), open_store(objects_url)
    try:
        with _progress() as progress:
            tasks: dict[Domain, TaskID] = {}

            def report(domain: Domain, done: int, total: int) -> None:
                if domain not in tasks:
                    tasks[domain] = progress.add_task(f"domain {domain}")
                progress.update(tasks[domain], completed=done, total=total)

            return await LedgerCopy(source, target, store, SystemClock(), SystemChance()).run(
                force=force, report=report
            )
    finally:
        await source.close()
        await target.close()
        await store.close()


def _progress() -> Progress:
    """A progress bar on standard error if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("positions"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
