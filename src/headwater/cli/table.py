"""`headwater table`: topics as tables. It reads the ledger itself, so it takes --data or --config."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import asdict

from headwater.cli import table_append, table_versions
from headwater.cli.common import Output, OutputOption, put, put_json, put_list, put_table
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
from headwater.cli.table_late import held_words, late_words

if TYPE_CHECKING:
    from headwater.app.session import LedgerSession
    from headwater.errors import HeadwaterError
    from headwater.state.streams.tables import TopicTable

HELD_SECONDS = 1.0
"""How often `settle` asks followers that are behind whether they are held."""


def register(app: typer.Typer) -> None:
    """Add the commands to an app."""
    table = typer.Typer(help="Show topics as tables, and settle them.", no_args_is_help=True)
    for command in (list_, describe, files, settle):
        table.command(command.__name__.rstrip("_"))(command)
    table_versions.register(table)
    table_append.register(table)
    app.add_typer(table, name="table")


def list_(data: DataOption = None, config: ConfigOption = None, output: OutputOption = Output.TEXT) -> None:
    """List all topics with their tables."""

    async def look(found: LedgerSession) -> list[dict[str, Any]]:
        return [_summary(found, name) for name in sorted(found.cluster.state.names)]

    tables = ask(data, config, look)
    if output is Output.JSON:
        put_json(tables)
    else:
        columns = (
            *("topic", "rows", "files", "bytes", "version"),
            *("pending_records", "held_records", "freshness_seconds"),
        )
        put_list([c.upper() for c in columns], [[t[c] for c in columns] for t in tables], "topics")


def describe(
    name: NameArgument, data: DataOption = None, config: ConfigOption = None, output: OutputOption = Output.TEXT
) -> None:
    """Describe the table of a topic: its location, settled offsets and followers, and which of them are held."""

    async def look(found: LedgerSession) -> dict[str, Any]:
        from headwater.clock import SystemClock
        from headwater.lake.described import follower_lag_ms

        table, streams = table_of(found, name)
        # If the pointer to the newest metadata is in the ledger, no other writer can hold the follower.
        ask_for = [n for n, f in table.followers.items() if not f.location] if table else []
        held = await _held(found, name, ask_for)
        now_ms = replica_of(found, name).state.now_ms(SystemClock().wall_ms())
        return {
            **_summary(found, name),
            **_typed(found, name),
            "location": f"{found.store.url.rstrip('/')}/{table.root}" if table else None,
            "partitions": [
                {
                    "partition": s.partition,
                    "start": s.log_start,
                    "settled": s.settled,
                    "stable": s.stable,
                    "end": s.end,
                }
                for s in streams
            ],
            "followers": []
            if table is None
            else [
                {
                    "name": n,
                    "version": f.cursor,
                    "oldest": f.oldest,
                    "behind_seconds": _seconds(follower_lag_ms(table, n, now_ms)),
                    "metadata": f.location,
                    "held": str(held[n]) if n in held else None,
                }
                for n, f in table.followers.items()
            ],
        }

    document = ask(data, config, look)
    if output is Output.JSON:
        put_json(document)
        return
    put(
        f"table of {document['topic']} at {document['location']}, version {document['version']}, "
        f"{document['freshness_seconds']} s behind its log\n\n".encode()
    )
    if "typed_columns" in document:
        put(
            f"{document['typed_columns']} typed columns (version {document['columns_version']}); "
            f"files that are not decoded yet: {document['files_not_decoded']}; "
            f"rows that could not be decoded: {document['rows_not_decodable']}\n\n".encode()
        )
        if document["rest"]:
            put(b"some fields have no column: they are in _rest, as JSON, and the log of the compactor names them\n\n")
    put_table(
        ["PARTITION", "START", "SETTLED", "STABLE", "END"],
        [(p["partition"], p["start"], p["settled"], p["stable"], p["end"]) for p in document["partitions"]],
    )
    _put_held(document, before=b"\n")
    if document["followers"]:
        put(b"\n")
        put_table(
            ["FOLLOWER", "VERSION", "OLDEST", "BEHIND_SECONDS", "METADATA"],
            [(f["name"], f["version"], f["oldest"], f["behind_seconds"], f["metadata"]) for f in document["followers"]],
        )
    for follower in document["followers"]:
        if follower["held"]:
            put(f"\n{follower['name']} is held: {follower['held']}\n".encode())


def files(
    name: NameArgument, data: DataOption = None, config: ConfigOption = None, output: OutputOption = Output.TEXT
) -> None:
    """Show the segments in the newest version of a table."""

    async def look(found: LedgerSession) -> list[dict[str, Any]]:
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
    wait: Annotated[
        bool, typer.Option(help="Wait until all records below the stable offset are in the tables.")
    ] = True,
    timeout: WaitOption = 120.0,
    output: OutputOption = Output.TEXT,
) -> None:
    """Settle a topic now, and say what was settled. Needs a running compactor.

    Records from the first open transaction of a partition on are held back until the transaction ends.
    """

    async def order(found: LedgerSession) -> dict[str, Any]:
        return await _settle(found, name, wait, timeout)

    document = ask(data, config, order, member=True)
    if output is Output.JSON:
        put_json(document)
    elif not wait:
        put(f"{name}: {document['pending_records']} records are to be settled\n".encode())
        _put_held(document)
    elif document["records"]:
        put(
            f"{name}: {document['records']} records settled, {document['files']} segments, "
            f"version {document['version']}\n\n".encode()
        )
        put_table(["PARTITION", "FROM", "TO"], [tuple(p.values()) for p in document["partitions"]])
        _put_held(document, before=b"\n")
    else:
        put(f"{name}: there was nothing to settle, version {document['version']}\n".encode())
        _put_held(document)


def _put_held(document: dict[str, Any], before: bytes = b"") -> None:
    """Say how many records wait for the end of a transaction, if any do."""
    held = document["held_records"]
    if held:
        put(before + f"{document['topic']}: {held_words(held, document['held_by'])}\n".encode())


async def _settle(found: LedgerSession, name: str, wait: bool, timeout: float) -> dict[str, Any]:
    from headwater.state.commands.tables import WantSettled

    topic, replica = found.topic(name), replica_of(found, name)
    table, streams = table_of(found, name)
    ends = {int(stream.id): stream.stable for stream in streams}
    settled = {int(stream.id): stream.settled for stream in streams}
    version = table.last_sequence if table else 0
    waiting = _waiting(found, name)
    await replica.submit([WantSettled(topic.id)])
    if not wait:
        return {"topic": name, **waiting}
    await _wait_until_settled(found, name, ends, timeout)
    table, streams = table_of(found, name)
    partitions = [
        {"partition": s.partition, "from": settled[int(s.id)], "to": s.settled}
        for s in streams
        if s.settled > settled.get(int(s.id), s.settled)
    ]
    return {
        "topic": name,
        "records": sum(p["to"] - p["from"] for p in partitions),
        "files": sum(f.added > version for f in table.live()) if table else 0,
        "version": table.last_sequence if table else 0,
        **_waiting(found, name),
        "partitions": partitions,
    }


async def _wait_until_settled(found: LedgerSession, name: str, ends: dict[int, int], timeout: float) -> None:
    from headwater.clock import SystemClock
    from headwater.errors import ForeignCommit, NotReady

    held: dict[str, HeadwaterError] = {}
    now = SystemClock().monotonic
    look_at = now() + HELD_SECONDS
    try:
        async with asyncio.timeout(timeout):
            while not _reached(found, name, ends):
                await asyncio.sleep(POLL_SECONDS)
                await replica_of(found, name).barrier()
                if now() < look_at or not (late := _late(found, name, ends)):
                    continue
                look_at = now() + HELD_SECONDS
                held = await _held(found, name, late)
                for follower, error in held.items():
                    if isinstance(error, ForeignCommit):
                        raise ForeignCommit(f"{name} is settled, but its follower {follower} is held: {error}")
    except TimeoutError:
        if held:
            why = "; ".join(f"its follower {follower} cannot follow: {error}" for follower, error in held.items())
            raise NotReady(f"{name} is not settled in all tables after {timeout:g} s: {why}") from None
        table, streams = table_of(found, name)
        missing = sum(max(0, ends.get(int(s.id), 0) - s.settled) for s in streams)
        behind = _behind(found, name, table) if table is not None else []
        raise NotReady(late_words(found, name, missing, behind, timeout)) from None


def _late(found: LedgerSession, name: str, ends: dict[int, int]) -> list[str]:
    """The followers that are behind, if the log itself is settled up to these offsets."""
    table, streams = table_of(found, name)
    if table is None or any(s.settled < ends.get(int(s.id), 0) for s in streams):
        return []
    return _behind(found, name, table)


async def _held(found: LedgerSession, name: str, followers: Sequence[str]) -> dict[str, HeadwaterError]:
    """The errors of those followers of a topic's table that cannot follow."""
    from headwater.lake.following import held_followers

    table, _ = table_of(found, name)
    if table is None or not followers:
        return {}
    return await held_followers(found.store, found.settings.lake, found.settings.object_store, table, followers)


def _reached(found: LedgerSession, name: str, ends: dict[int, int]) -> bool:
    """Whether log and followers have reached these offsets."""
    table, streams = table_of(found, name)
    if any(s.settled < ends.get(int(s.id), 0) for s in streams):
        return False
    return table is None or not _behind(found, name, table)


def _behind(found: LedgerSession, name: str, table: TopicTable) -> list[str]:
    """The followers that have not reached the table's version: those that follow it, and those that will."""
    from headwater.configs.topics import TopicConfig
    from headwater.lake.described import behind

    lake, common = found.settings.lake, found.cluster.state.resources.common
    shown = TopicConfig.of(found.topic(name).configs, common).table
    return behind(table, (*lake.followers, *lake.catalogs) if shown else ())


def _summary(found: LedgerSession, name: str) -> dict[str, Any]:
    from headwater.clock import SystemClock
    from headwater.lake.described import freshness_ms, totals_of

    table, streams = table_of(found, name)
    state = replica_of(found, name).state
    late = freshness_ms(state, table, streams, state.now_ms(SystemClock().wall_ms()))
    return {
        "topic": name,
        **asdict(totals_of(table)),
        **_waiting(found, name),
        "freshness_seconds": _seconds(late),
    }


def _waiting(found: LedgerSession, name: str) -> dict[str, Any]:
    """The offsets that can be settled now, and those that are held back by open transactions, with their ids."""
    from headwater.lake.described import waiting_of

    return asdict(waiting_of(replica_of(found, name).state, table_of(found, name)[1]))


def _typed(found: LedgerSession, name: str) -> dict[str, Any]:
    """The typed columns of a topic; empty if it has none and gets none."""
    from headwater.configs.topics import TopicConfig
    from headwater.lake.described import typed_of

    config = TopicConfig.of(found.topic(name).configs, found.cluster.state.resources.common)
    totals = typed_of(replica_of(found, name).state, table_of(found, name)[0], config)
    return asdict(totals) if totals is not None else {}


def _seconds(ms: int) -> float:
    return round(ms / 1000, 1)
