"""`headwater table`: topics as tables. Reads the cluster's own metadata, so it takes --data or --config."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.common import Output, OutputOption, put, put_json, put_table, run
from headwater.types import Domain

if TYPE_CHECKING:
    from headwater.app.visitor import Visit
    from headwater.config import Settings
    from headwater.metadata.streams import Stream
    from headwater.metadata.tables import TopicTable

NameArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")]
DataOption = Annotated[str | None, typer.Option("--data", metavar="DIR", help="Where ledger and objects lie.")]
ConfigOption = Annotated[str | None, typer.Option("--config", metavar="FILE", help="Settings, TOML.")]
POLL_SECONDS = 0.1


def register(app: typer.Typer) -> None:
    """Add the commands to an app."""
    table = typer.Typer(help="Look at topics as tables, and settle them.", no_args_is_help=True)
    for command in (list_, describe, snapshots, files, settle):
        table.command(command.__name__.rstrip("_"))(command)
    app.add_typer(table, name="table")


def _settings(data: str | None, config: str | None) -> Settings:
    from headwater.config import load

    return load(config, flags={"data": data})


def list_(data: DataOption = None, config: ConfigOption = None, output: OutputOption = Output.TEXT) -> None:
    """List all topics with their tables."""
    from headwater.app.visitor import visit

    async def main() -> list[dict[str, Any]]:
        async with visit(_settings(data, config)) as found:
            return [_summary(found, name) for name in sorted(found.cluster.state.names)]

    tables = run(main())
    if output is Output.JSON:
        put_json(tables)
    else:
        columns = ("topic", "rows", "files", "bytes", "version", "pending_records")
        put_table([c.upper() for c in columns], [[t[c] for c in columns] for t in tables])


def describe(
    name: NameArgument, data: DataOption = None, config: ConfigOption = None, output: OutputOption = Output.TEXT
) -> None:
    """Describe a topic's table: where it lies, how far it is settled, who follows it."""
    from headwater.app.visitor import visit

    async def main() -> dict[str, Any]:
        async with visit(_settings(data, config)) as found:
            table, streams = _found(found, name)
            return {
                **_summary(found, name),
                "location": f"{found.store.url}/{table.root}" if table else None,
                "partitions": [
                    {"partition": s.partition, "start": s.log_start, "settled": s.settled, "end": s.next_offset}
                    for s in streams
                ],
                "followers": [
                    {"name": n, "version": f.cursor, "oldest": f.oldest, "metadata": f.location}
                    for n, f in (table.followers.items() if table else ())
                ],
            }

    document = run(main())
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


def snapshots(
    name: NameArgument, data: DataOption = None, config: ConfigOption = None, output: OutputOption = Output.TEXT
) -> None:
    """Show a table's journal: its versions, with what each added and removed and the offsets it reaches."""
    from headwater.app.visitor import visit

    async def main() -> list[dict[str, Any]]:
        async with visit(_settings(data, config)) as found:
            table, _ = _found(found, name)
            return [
                {
                    "version": e.sequence,
                    "time": _time(e.ms),
                    "operation": "merge" if e.replaces else "settle",
                    "added": len(e.added),
                    "removed": len(e.removed),
                    "ends": dict(e.ends),
                }
                for e in (table.journal if table else ())
            ]

    versions = run(main())
    if output is Output.JSON:
        put_json(versions)
    else:
        put_table(
            ["VERSION", "TIME", "OPERATION", "ADDED", "REMOVED", "ENDS"],
            [
                (v["version"], v["time"], v["operation"], v["added"], v["removed"],
                 ",".join(f"{p}:{end}" for p, end in v["ends"].items()))
                for v in versions
            ],
        )  # fmt: skip


def files(
    name: NameArgument, data: DataOption = None, config: ConfigOption = None, output: OutputOption = Output.TEXT
) -> None:
    """Show the segments of a table's newest version."""
    from headwater.app.visitor import visit

    async def main() -> list[dict[str, Any]]:
        async with visit(_settings(data, config)) as found:
            table, _ = _found(found, name)
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

    found = run(main())
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
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait at most.")] = 120.0,
) -> None:
    """Have a topic settled now; needs a running compactor."""
    run(_settle(_settings(data, config), name, wait, timeout))


async def _settle(settings: Settings, name: str, wait: bool, timeout: float) -> None:
    from headwater.app.visitor import visit
    from headwater.errors import NotReady
    from headwater.metadata.commands import WantSettled

    async with visit(settings, member=True) as found:
        topic = found.topic(name)
        replica = found.domains[Domain(topic.domain)]
        ends = {s: replica.state.streams[s].next_offset for s in topic.streams if s in replica.state.streams}
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
    table, streams = _found(found, name)
    if any(s.settled < ends.get(int(s.id), 0) for s in streams):
        return False
    return table is None or all(f.cursor >= table.last_sequence for f in table.followers.values())


def _found(found: Visit, name: str) -> tuple[TopicTable | None, list[Stream]]:
    topic = found.topic(name)
    state = found.domains[Domain(topic.domain)].state
    return state.tables.get(topic.id), [state.streams[s] for s in topic.streams if s in state.streams]


def _summary(found: Visit, name: str) -> dict[str, Any]:
    table, streams = _found(found, name)
    live = list(table.live()) if table else []
    return {
        "topic": name,
        "rows": sum(f.rows for f in live),
        "files": len(live),
        "bytes": sum(f.size for f in live),
        "version": table.last_sequence if table else 0,
        "pending_records": sum(s.next_offset - s.settled for s in streams),
    }


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
