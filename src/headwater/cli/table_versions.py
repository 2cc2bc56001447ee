"""`headwater table snapshots`, `changes` and `expire`: versions of tables, changes between them, and expiry."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.common import (
    AgeOption,
    Output,
    OutputOption,
    complain,
    flush,
    json_bytes,
    parse_duration,
    put,
    put_json,
    put_table,
)
from headwater.cli.table_common import (
    POLL_SECONDS,
    ConfigOption,
    DataOption,
    NameArgument,
    WaitOption,
    ask,
    replica_of,
    table_of,
    time_text,
)
from headwater.cli.table_late import compactor_of

if TYPE_CHECKING:
    from headwater.app.session import LedgerSession
    from headwater.lake.tables.follower import Version
    from headwater.lake.versions import Changes
    from headwater.state.streams.tables import TopicTable

FromOption = Annotated[int, typer.Option("--from", metavar="VERSION", min=0, help="Show changes after this version.")]
ToOption = Annotated[
    int | None,
    typer.Option("--to", metavar="VERSION", min=0, help="Show changes up to this version; by default the newest."),
]
RecordsOption = Annotated[bool, typer.Option("--records", help="Print the records themselves, as JSON lines.")]
KeepOption = Annotated[int | None, typer.Option(min=1, help="Versions to keep, fewer than in the settings.")]


def register(table: typer.Typer) -> None:
    """Add the commands to those of `headwater table`."""
    for command in (snapshots, changes, expire):
        table.command(command.__name__)(command)


async def _versions(found: LedgerSession, table: TopicTable | None) -> dict[str, list[Version]]:
    """The versions that each follower still shows. A follower that does not answer is reported and left out."""
    from headwater.errors import HeadwaterError
    from headwater.lake.tables import make_followers
    from headwater.lake.tables.follower import ref_of

    shown: dict[str, list[Version]] = {}
    own = found.settings
    followers = make_followers(found.store, own.lake, options=own.object_store) if table is not None else []
    for follower in followers:
        try:
            if table is not None and follower.name in table.followers:
                known = table.followers[follower.name]
                shown[follower.name] = await follower.versions(ref_of(table), known.location)
        except HeadwaterError as error:
            complain(f"{follower.name} cannot be asked: {error}")
        finally:
            await follower.close()
    return shown


# --- snapshots -------------------------------------------------------------------------------------------


def snapshots(
    name: NameArgument, data: DataOption = None, config: ConfigOption = None, output: OutputOption = Output.TEXT
) -> None:
    """Show the versions of a table: files added and removed, offsets, and the versions of followers."""

    async def look(found: LedgerSession) -> tuple[list[str], list[dict[str, Any]]]:
        table, _ = table_of(found, name)
        shown = await _versions(found, table)
        return list(shown), _history(table, shown) if table is not None else []

    followers, versions = ask(data, config, look)
    if output is Output.JSON:
        put_json([{key: value for key, value in v.items() if key != "moved"} for v in versions])
        return
    put_table(
        ["VERSION", "TIME", "OPERATION", "ADDED", "REMOVED", "ENDS", *(f.upper() for f in followers), "TAGS"],
        [
            (v["version"], v["time"], v["operation"], v["added"], v["removed"],
             ",".join(f"{p}:{end}" for p, end in v["moved"].items()),
             *(v["followers"].get(f, "-") for f in followers), ",".join(v["tags"]))
            for v in versions
        ],
    )  # fmt: skip


def _history(table: TopicTable, shown: Mapping[str, Sequence[Version]]) -> list[dict[str, Any]]:
    from headwater.lake.versions import history

    by_sequence = {name: {v.sequence: v for v in versions} for name, versions in shown.items()}
    found = []
    for entry, ends in history(table):
        here = {name: known[entry.sequence] for name, known in by_sequence.items() if entry.sequence in known}
        found.append(
            {
                "version": entry.sequence,
                "time": time_text(entry.ms),
                "operation": entry.operation,
                "added": len(entry.added),
                "removed": len(entry.removed),
                "ends": ends,
                "moved": dict(entry.ends),
                "followers": {name: version.number for name, version in here.items()},
                "tags": sorted({tag for version in here.values() for tag in version.tags}),
            }
        )
    return found


# --- changes ---------------------------------------------------------------------------------------------


def changes(
    name: NameArgument,
    after: FromOption,
    upto: ToOption = None,
    records: RecordsOption = False,
    data: DataOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show what was added to a table between two versions, and how to read it."""

    async def look(found: LedgerSession) -> dict[str, Any] | None:
        from headwater.errors import NotFound
        from headwater.lake.versions import changes

        table, _ = table_of(found, name)
        if table is None:
            raise NotFound(f"{name} has no table yet, because nothing of it is settled")
        change = changes(table, after, upto)
        if records:
            await _put_records(found, name, table, change)
            return None
        return _document(name, table, change, await _versions(found, table))

    document = ask(data, config, look)
    if document is None:
        return
    if output is Output.JSON:
        put_json(document)
    else:
        _put_changes(document)


def _document(name: str, table: TopicTable, change: Changes, shown: Mapping[str, Sequence[Version]]) -> dict[str, Any]:
    from headwater.lake.versions import holding, span

    spans = {follower: span(versions, change.after, change.upto) for follower, versions in shown.items()}
    return {
        "topic": name,
        "from": change.after,
        "to": change.upto,
        "operations": dict(change.operations),
        "partitions": [{"partition": r.partition, "start": r.start, "end": r.end} for r in change.ranges],
        "predicate": change.predicate,
        "followers": {
            follower: {"from": found.after, "to": found.upto} if found is not None else None
            for follower, found in spans.items()
        },
        "files": [
            {"file": f.name, "rows": f.rows, "bytes": f.size, "version": f.added} for f in holding(table, change.ranges)
        ],
    }


def _put_changes(document: Mapping[str, Any]) -> None:
    counts = ", ".join(f"{count} of kind {kind}" for kind, count in document["operations"].items()) or "nothing"
    put(f"{document['topic']} after version {document['from']} up to {document['to']}: {counts}\n\n".encode())
    put_table(["PARTITION", "START", "END"], [tuple(p.values()) for p in document["partitions"]])
    put(b"\n")
    rows = [
        (name, found["from"] if found["from"] is not None else "the beginning", found["to"])
        if found
        else (name, "-", "-")
        for name, found in document["followers"].items()
    ]
    put_table(["FOLLOWER", "AFTER", "UP TO"], rows)
    put(f"\nin any later version: {document['predicate']}\n\n".encode())
    put_table(["FILE", "ROWS", "BYTES", "VERSION"], [tuple(f.values()) for f in document["files"]])


async def _put_records(found: LedgerSession, name: str, table: TopicTable, change: Changes) -> None:
    from headwater.client.records import decode_batches
    from headwater.lake.versions import read

    async for partition, batches in read(found.store, table, change.ranges):
        for batch in decode_batches(bytes(batches)):
            for record in batch.records:
                document: dict[str, Any] = {
                    "topic": name,
                    "partition": partition,
                    "offset": record.offset,
                    "timestamp": record.timestamp,
                    **json_bytes("key", record.key),
                    **json_bytes("value", record.value),
                    "headers": [{"name": key, **json_bytes("value", value)} for key, value in record.headers],
                }
                put_json(document)
        flush()


# --- expire ----------------------------------------------------------------------------------------------


def expire(
    name: NameArgument,
    keep: KeepOption = None,
    older_than: AgeOption = None,
    data: DataOption = None,
    config: ConfigOption = None,
    wait: Annotated[bool, typer.Option(help="Wait until versions and files are deleted.")] = True,
    timeout: WaitOption = 120.0,
    output: OutputOption = Output.TEXT,
) -> None:
    """Drop old versions of a table now, with the files that only they need. Needs a running compactor."""
    age = parse_duration(older_than) if older_than is not None else None

    async def order(found: LedgerSession) -> dict[str, Any]:
        return await _expire(found, name, keep or 0, age, timeout if wait else None)

    document = ask(data, config, order, member=True)
    if output is Output.JSON:
        put_json(document)
    elif wait:
        oldest = ", ".join(f"{f['name']} from version {f['oldest']} on" for f in document["followers"])
        put(f"{name}: {document['files_removed']} files removed; {oldest or 'it has no followers'}\n".encode())


async def _expire(
    found: LedgerSession, name: str, keep: int, age_ms: int | None, timeout: float | None
) -> dict[str, Any]:
    from headwater.clock import SystemClock
    from headwater.errors import NotFound, NotReady
    from headwater.state.commands.tables import WantExpired

    topic, replica = found.topic(name), replica_of(found, name)
    table, _ = table_of(found, name)
    if table is None:
        raise NotFound(f"{name} has no table yet, because nothing of it is settled")
    now_ms = replica.state.clocks.retention_now_ms(SystemClock().wall_ms())
    before = max(1, now_ms - age_ms) if age_ms is not None else 0
    files = set(table.files)
    await replica.submit([WantExpired(topic.id, keep, before)])
    try:
        async with asyncio.timeout(timeout):
            while timeout is not None and (table.expiry is not None or replica.state.ripe(table)):
                await asyncio.sleep(POLL_SECONDS)
                await replica.barrier()
                table = replica.state.tables.get(topic.id, table)
    except TimeoutError:
        waiting = ", ".join(table.expiry.waiting) if table.expiry else "the removal of files"
        raise NotReady(
            f"{name}: still waiting for {waiting} after {timeout:g} s; {compactor_of(found, name)}"
        ) from None
    return {
        "topic": name,
        "files_removed": len(files - table.files.keys()),
        "followers": [{"name": n, "version": f.cursor, "oldest": f.oldest} for n, f in table.followers.items()],
    }
