"""`headwater dlq`: records that could not be decoded. It reads the ledger itself, so it takes --data or --config."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.common import Output, OutputOption, json_bytes, put, put_json, put_list
from headwater.cli.table_common import ConfigOption, DataOption, NameArgument, ask, replica_of, table_of

if TYPE_CHECKING:
    from headwater.app.session import LedgerSession
    from headwater.lake.letters import BadRow

LimitOption = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Most records to show.")]
TRIES = 10
TEXT_WIDTH = 60
"""Characters of a value that are shown to people."""


def register(app: typer.Typer) -> None:
    """Add the commands to an app."""
    dlq = typer.Typer(help="Records that could not be decoded by a schema.", no_args_is_help=True)
    for command in (list_, show, replay):
        dlq.command(command.__name__.rstrip("_"))(command)
    app.add_typer(dlq, name="dlq")


def list_(data: DataOption = None, config: ConfigOption = None, output: OutputOption = Output.TEXT) -> None:
    """List the topics with records that could not be decoded, and those that name a dead-letter topic."""

    async def look(found: LedgerSession) -> list[dict[str, Any]]:
        lines = (_line(found, name) for name in sorted(found.cluster.state.names))
        return [line for line in lines if line["dead_letter_topic"] or line["rows"]]

    lines = ask(data, config, look)
    if output is Output.JSON:
        put_json(lines)
    else:
        columns = ("topic", "dead_letter_topic", "rows", "waiting")
        rows = [[line[c] for c in columns] for line in lines]
        put_list([c.upper() for c in columns], rows, "topics with such records")


def show(
    name: NameArgument,
    limit: LimitOption = 100,
    data: DataOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show the records of a topic's table that could not be decoded, with the reason and their bytes."""

    async def look(found: LedgerSession) -> list[dict[str, Any]]:
        rows = await _rows(found, name, limit)
        return [
            {
                "partition": partition,
                "offset": row.offset,
                "timestamp": row.timestamp,
                "error": row.error,
                **json_bytes("key", row.key),
                **json_bytes("value", row.value),
            }
            for partition, row in rows
        ]

    rows = ask(data, config, look)
    if output is Output.JSON:
        put_json(rows)
    else:
        shown = [(r["partition"], r["offset"], r["error"], (r["value"] or "")[:TEXT_WIDTH]) for r in rows]
        put_list(["PARTITION", "OFFSET", "ERROR", "VALUE"], shown, "such records")


def replay(
    name: NameArgument,
    everything: Annotated[
        bool, typer.Option("--everything", help="Decode all records again, also those that could be decoded.")
    ] = False,
    data: DataOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Decode records again that could not be decoded, after the schema was mended. The compactor does that soon."""

    async def look(found: LedgerSession) -> int:
        from headwater.errors import NotReady
        from headwater.state.commands.columns import WantDecoded
        from headwater.state.results import Done

        [result] = await replica_of(found, name).submit([WantDecoded(found.topic(name).id, everything)])
        if not isinstance(result, Done):
            raise NotReady(f"{name} cannot be decoded again: {result}")
        return result.value

    files = ask(data, config, look, member=True)
    if output is Output.JSON:
        put_json({"topic": name, "files": files})
    else:
        put(f"{name}: {files} files are decoded again\n".encode())


async def _rows(found: LedgerSession, name: str, limit: int) -> list[tuple[int, BadRow]]:
    """The rows that could not be decoded. A file that is replaced while it is looked for is looked for anew."""
    from headwater.errors import ObjectMissing
    from headwater.lake.letters import undecodable

    replica = replica_of(found, name)
    left = TRIES
    while True:
        table, _ = table_of(found, name)
        try:
            rows: list[tuple[int, BadRow]] = []
            if table is None:
                return rows
            async with aclosing(undecodable(found.store, replica.state, table)) as all_rows:
                async for _, partition, row in all_rows:
                    rows.append((partition, row))
                    if len(rows) == limit:
                        break
            return rows
        except ObjectMissing:
            left -= 1
            if not left:
                raise
        await replica.barrier()


def _line(found: LedgerSession, name: str) -> dict[str, Any]:
    from headwater.configs.topics import DLQ_TOPIC
    from headwater.lake.letters import due, failed_rows

    topic, state = found.topic(name), replica_of(found, name).state
    table, streams = table_of(found, name)
    named = topic.configs.get(DLQ_TOPIC, "")
    return {
        "topic": name,
        "dead_letter_topic": named,
        "rows": failed_rows(state, table),
        "waiting": bool(named) and any(due(state, stream) is not None for stream in streams),
    }
