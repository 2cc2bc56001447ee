"""`headwater metadata`: commands for ledgers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.common import Output, OutputOption, fail, put, put_json, put_table, run
from headwater.cli.table_common import ConfigOption, DataOption

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from headwater.app.ledgers.copying import CopiedDomain


def register(app: typer.Typer) -> None:
    """Add the group `metadata`."""
    group = typer.Typer(
        name="metadata",
        help="Ledgers: copy the metadata of a cluster, go on after a loss, show its clocks.",
        no_args_is_help=True,
    )
    group.command("copy")(copy)
    group.command("accept")(accept)
    group.command("clock")(clock)
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


def accept(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    data: DataOption = None,
    config: ConfigOption = None,
) -> None:
    """Go on with a ledger that has gone back, without what it has lost. Shows first what that is.

    Stop all processes of the cluster before.
    """
    from headwater.app.ledgers import accepting
    from headwater.errors import ConfigError
    from headwater.replica.marking import moment
    from headwater.settings.settings import load

    settings = load(config, flags={"data": data})
    loss = run(accepting.look(settings))
    put(f"{loss.reason.partition('. ')[0]}.\n\n".encode())
    put_table(
        ("DOMAIN", "THE LEDGER ENDS AT", "IT HAD COME TO"),
        [(line.domain, moment(line.ends_ms), moment(line.came_to_ms)) for line in loss.domains],
    )
    put(_PRICE.format(loss.forgotten, loss.forgotten_bytes, loss.missing).encode())
    if not yes:
        if not sys.stdin.isatty():
            fail(ConfigError("say that this is lost for good with --yes; nothing was changed"))
        typer.confirm("Is this lost for good?", abort=True, err=True)
    life = run(accepting.accept(settings, loss))
    put(f"the loss is accepted, and the ledger goes on as {life}: start the processes again\n".encode())


_PRICE = """
What was acknowledged between the two times is lost: records, topics, users, rights, offsets of groups. Its offsets
will be given to other records: consumers that have read them would miss those, so set their groups back. Transactions
that are open in the ledger are aborted by their time-outs. {} WAL objects and segments ({} bytes) are known to no
record any more and will be deleted: copy them first, if they may be needed. {} that the ledger names are gone; their
records cannot be read. Every table is written anew, with higher numbers of versions, and without its older versions.
"""


def clock(data: DataOption = None, config: ConfigOption = None, output: OutputOption = Output.TEXT) -> None:
    """Show the times of a cluster, the clocks that they come from, and what a wrong clock can do."""
    from headwater.app.describing import describe
    from headwater.replica.clocks import span
    from headwater.settings.settings import load

    facts = run(describe(load(config, flags={"data": data})))
    if output is Output.JSON:
        put_json({"times": facts.times, "clocks": facts.clocks})
        return
    put_table(
        ("DOMAIN", "LEDGER TIME", "AGREED DATE", "DATE", "RETENTION DATE"),
        [(t.domain, *map(_moment, (t.ledger_ms, t.agreed_ms, t.date_ms, t.retention_ms))) for t in facts.times],
    )
    put(b"\n")
    put_table(
        ("CLOCK OF", "EPOCH", "BESIDE THE AGREED DATE"),
        [(c.process, c.epoch, f"{'+' if c.ahead_ms >= 0 else '-'}{span(c.ahead_ms)}") for c in facts.clocks],
    )
    put(_BOUNDS)


_BOUNDS = b"""
Ledger time runs with the processes: leases, graces and expiries count in it, and no wall clock moves it.
The agreed date is that of the clock in the middle. A process believes a jump of its own clock after ten minutes.
If the agreed date jumps, the others run on for half an hour. Then they follow: back at once, ahead by a day an hour.
Until then records get the later date as their time of append, and retention goes by the earlier one.
The way back from a wrong clock: set the clock of its host right. Nothing else has to be done. Records that got a wrong
time of append keep it.
"""


def _moment(ms: int) -> str:
    """A time as ISO 8601 has it, in UTC."""
    from datetime import UTC, datetime, timedelta

    try:
        return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms):%Y-%m-%dT%H:%M:%SZ}"
    except OverflowError:
        return f"{ms} ms"


async def _copy(source_url: str, target_url: str, objects_url: str, force: bool) -> list[CopiedDomain]:
    from headwater.app.ledgers.copying import LedgerCopy
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
