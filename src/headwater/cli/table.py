"""`headwater table`: topics as tables. Reads the cluster's own metadata, so it takes --data or --config."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli import table_append, table_versions
from headwater.cli.common import Output, OutputOption, put, put_json, put_table
from headwater.cli.table_common import (
    POLL_SECONDS,
    ConfigOption,
    DataOption,
    NameArgument,
    WaitOption,
    ask,
    replica_of,
    table_of,
)

if TYPE_CHECKING:
    from headwater.app.visitor import Visit


def register(app: typer.Typer) -> None:
    """Add the commands to an app."""
    table = typer.Typer(help="Look at topics as tables, and settle them.", no_args_is_help=True)
    for command in (list_, describe, files, settle):
        table.command(command.__name__.rstrip("_"))(command)
    table_versions.register(table)
    table_append.register(table)
    app.add_typer(table, name="table")


def list_(data: DataOption = None, config: ConfigOption = None, output: OutputOption = Output.TEXT) -> None:
    """List all topics with their tables."""

    async def look(found: Visit) -> list[dict[str, Any]]:
        return [_summary(found, name) for name in sorted(found.cluster.state.names)]

    tables = ask(data, config, look)
    if output is Output.JSON:
        put_json(tables)
    else:
        columns = ("topic", "rows", "files", "bytes", "version", "pending_records")
        put_table([c.upper() for c in columns], [[t[c] for c in columns] for t in tables])


def describe(
    name: NameArgument, data: DataOption = None, config: ConfigOption = None, output: OutputOption = Output.TEXT
) -> None:
    """Describe a topic's table: where it lies, how far it is settled, who follows it."""

    async def look(found: Visit) -> dict[str, Any]:
        table, streams = table_of(found, name)
        return {
            **_summary(found, name),
            "location": f"{found.store.url.rstrip('/')}/{table.root}" if table else None,
            "partitions": [
                {"partition": s.partition, "start": s.log_start, "settled": s.settled, "end": s.end} for s in streams
            ],
            "followers": [
                {"name": n, "version": f.cursor, "oldest": f.oldest, "metadata": f.location}
                for n, f in (table.followers.items() if table else ())
            ],
        }

    document = ask(data, config, look)
    if output is Output.JSON:
        put_json(document)
        return
    put(f"table of {document['topic']} at {document['location']}, version {document['version']}\n\n".encode())
    put_table(
        ["PARTITION", "START", "SETTLED", "END"],
        [(p["partition"], p["start"], p["settled"], p["end"]) for p in document["partitions"]],
    )
    if document["followers"]:
        put(b"\n")
        put_table(
            ["FOLLOWER", "VERSION", "OLDEST", "METADATA"],
            [(f["name"], f["version"], f["oldest"], f["metadata"]) for f in document["followers"]],
        )


def files(
    name: NameArgument, data: DataOption = None, config: ConfigOption = None, output: OutputOption = Output.TEXT
) -> None:
    """Show the segments of a table's newest version."""

    async def look(found: Visit) -> list[dict[str, Any]]:
        table, _ = table_of(found, name)
        return [
            {
                "file": f.name,
                "rows": f.rows,
                "bytes": f.size,
                "version": f.added,
                "partitions": [f.first_partition, f.last_partition],
                "offsets": [f.first_offset, f.last_offset],
            }
            for f in (table.live() if table else ())
        ]

    found = ask(data, config, look)
    if output is Output.JSON:
        put_json(found)
    else:
        put_table(
            ["FILE", "ROWS", "BYTES", "VERSION", "PARTITIONS", "OFFSETS"],
            [
                (f["file"], f["rows"], f["bytes"], f["version"], "-".join(map(str, f["partitions"])),
                 "-".join(map(str, f["offsets"])))
                for f in found
            ],
        )  # fmt: skip


def settle(
    name: NameArgument,
    data: DataOption = None,
    config: ConfigOption = None,
    wait: Annotated[bool, typer.Option(help="Wait until all that is in the log now is in the tables.")] = True,
    timeout: WaitOption = 120.0,
) -> None:
    """Have a topic settled now; needs a running compactor."""

    async def order(found: Visit) -> None:
        await _settle(found, name, wait, timeout)

    ask(data, config, order, member=True)


async def _settle(found: Visit, name: str, wait: bool, timeout: float) -> None:
    from headwater.errors import NotReady
    from headwater.metadata.commands import WantSettled

    topic, replica = found.topic(name), replica_of(found, name)
    ends = {int(stream.id): stream.end for stream in table_of(found, name)[1]}
    await replica.submit([WantSettled(topic.id)])
    if not wait:
        return
    try:
        async with asyncio.timeout(timeout):
            while not _reached(found, name, ends):
                await asyncio.sleep(POLL_SECONDS)
                await replica.barrier()
    except TimeoutError:
        raise NotReady(f"{name} is not settled after {timeout:g} s; is a compactor running?") from None


def _reached(found: Visit, name: str, ends: dict[int, int]) -> bool:
    """Whether log and followers have come so far."""
    table, streams = table_of(found, name)
    if any(s.settled < ends.get(int(s.id), 0) for s in streams):
        return False
    return table is None or all(f.cursor >= table.last_sequence for f in table.followers.values())


def _summary(found: Visit, name: str) -> dict[str, Any]:
    table, streams = table_of(found, name)
    live = list(table.live()) if table else []
    return {
        "topic": name,
        "rows": sum(f.rows for f in live),
        "files": len(live),
        "bytes": sum(f.size for f in live),
        "version": table.last_sequence if table else 0,
        "pending_records": sum(s.end - s.settled for s in streams),
    }
