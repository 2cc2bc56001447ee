"""`headwater table append`: appends Parquet or Arrow files to a topic as segments."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.common import Output, OutputOption, complain, fail, put, put_json, put_table, run
from headwater.cli.table_common import ConfigOption, DataOption, NameArgument
from headwater.errors import ConfigError

if TYPE_CHECKING:
    from rich.progress import Progress

    from headwater.lake.bulk.append import BulkLimits, Written
    from headwater.lake.bulk.input import InputFile, Records, Shape
    from headwater.settings.settings import Settings
    from headwater.state.cluster.domain import Topic

ROWS_PER_FILE = 1_000_000


def register(table: typer.Typer) -> None:
    """Add the command to the group `table`."""
    table.command("append")(append)


def append(
    name: NameArgument,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Parquet, or Arrow IPC files or streams.")],
    key_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Binary or string; by default `key`, if there is one. Empty: none."),
    ] = None,
    value_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Binary or string; by default `value`.")
    ] = None,
    timestamp_column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Timestamp, or int64 milliseconds; by default `timestamp`, if there is one. Empty: none. Rows without "
            "one get the current time.",
        ),
    ] = None,
    json_values: Annotated[
        bool, typer.Option("--json-values", help="Each value is a JSON object of all other columns.")
    ] = False,
    partition: Annotated[
        int | None,
        typer.Option(min=0, help="By default by the key as Kafka chooses; without a key, segment by segment in turn."),
    ] = None,
    rows_per_file: Annotated[int, typer.Option(min=1, help="Most rows in a segment.")] = ROWS_PER_FILE,
    yes: Annotated[bool, typer.Option("--yes", help="Append rows that are older than the topic's retention.")] = False,
    data: DataOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Append files of rows to a topic as segments. Consumers can read them at once, and they are part of the table.

    All input is checked before anything is appended.
    """
    from headwater.lake.bulk.append import BulkLimits
    from headwater.lake.bulk.input import Shape
    from headwater.settings.settings import load
    from headwater.state.streams.reserve import MAX_ROWS

    if json_values and value_column is not None:
        fail(ConfigError("--json-values takes the value from all columns; it cannot be combined with --value-column"))
    if rows_per_file > MAX_ROWS:
        fail(ConfigError(f"--rows-per-file must be at most {MAX_ROWS}"))
    shape = Shape(key=key_column, value=value_column, timestamp=timestamp_column, json_values=json_values)
    try:
        settings = load(config, flags={"data": data})
    except ConfigError as error:
        fail(error)
    limits = BulkLimits(rows_per_file=rows_per_file, file_bytes=settings.lake.file_bytes)
    written = run(_append(settings, name, files, shape, partition, limits, yes=yes))
    partitions = [
        {"partition": p, "records": count, "first_offset": first, "last_offset": last}
        for p, (count, first, last) in sorted(written.partitions.items())
    ]
    if output is Output.JSON:
        put_json({"topic": name, "records": written.records, "files": written.files, "partitions": partitions})
        return
    put(f"{written.records} records appended to {name} in {written.files} segments, {written.bytes} bytes\n".encode())
    if partitions:
        put(b"\n")
        put_table(["PARTITION", "RECORDS", "FIRST", "LAST"], [tuple(p.values()) for p in partitions])


async def _append(
    settings: Settings,
    name: str,
    paths: list[Path],
    shape: Shape,
    partition: int | None,
    limits: BulkLimits,
    *,
    yes: bool,
) -> Written:
    from headwater.app.session import ledger_session
    from headwater.clock import SystemChance, SystemClock
    from headwater.configs.topics import TopicConfig
    from headwater.lake.bulk.append import BulkAppend
    from headwater.lake.bulk.input import InputFile
    from headwater.threads import Threads
    from headwater.types import Domain

    thread = Threads(1, "bulk")
    async with ledger_session(settings, member=True) as found:
        topic = found.topic(name)
        replica = found.domains[Domain(topic.domain)]
        bulk = BulkAppend(
            topic,
            replica,
            found.store,
            SystemClock(),
            SystemChance(),
            config=TopicConfig.of(topic.configs, found.cluster.state.resources.common),
            limits=limits,
            partition=partition,
            offload=thread.run,
        )
        try:
            inputs = [await thread.run(InputFile, path, shape) for path in paths]
            known = [input.rows for input in inputs]
            with _progress() as progress:
                task = progress.add_task("checking", total=None if None in known else sum(n or 0 for n in known))
                rows = await bulk.check(_all(inputs), lambda count: progress.update(task, completed=count))
                if bulk.outdated:
                    _warn(topic, found.cluster.state.resources.common, bulk.outdated, rows, yes=yes)
                progress.update(task, description=name, total=rows, completed=0)
                return await bulk.append(_all(inputs), lambda count: progress.update(task, completed=count))
        finally:
            await thread.close()


def _warn(topic: Topic, common: Mapping[str, str], outdated: int, rows: int, *, yes: bool) -> None:
    """Say that retention will delete rows soon; raise unless they shall be appended all the same."""
    from headwater.configs.topics import TopicConfig

    kept = TopicConfig.of(topic.configs, common).retention_ms / 1000
    warning = (
        f"{outdated} of {rows} records are older than retention.ms of {topic.name} ({kept:g} s): "
        "they leave the log soon after they are appended, and only the tables keep them"
    )
    if not yes:
        raise ConfigError(
            f"{warning}; nothing was appended. Raise retention.ms of the topic first, or repeat the command with --yes"
        )
    complain(warning)


def _all(inputs: list[InputFile]) -> Iterator[Records]:
    for input in inputs:
        yield from input.records()


def _progress() -> Progress:
    """A progress bar on standard error if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("records"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
