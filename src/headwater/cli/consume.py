"""`headwater consume`: the records of a topic on standard output."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.common import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    Output,
    OutputOption,
    complain,
    fail,
    flush,
    json_bytes,
    put,
    put_json,
    run,
)
from headwater.cli.connecting import connecting, open_client
from headwater.errors import ConfigError

if TYPE_CHECKING:
    from headwater.client.client import Client
    from headwater.client.reader import Reset
    from headwater.client.records import Record

_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
_MAX_OFFSET = (1 << 63) - 1


class Where(Enum):
    """Kinds of positions in a log."""

    BEGINNING = auto()
    END = auto()
    OFFSET = auto()
    TIME = auto()


@dataclass(frozen=True, slots=True)
class Origin:
    """Where reading starts: a kind of position, and its offset or its time in milliseconds."""

    where: Where
    value: int = 0


def register(app: typer.Typer) -> None:
    """Add the command to an app."""
    app.command("consume")(connecting(consume))


def parse_origin(text: str, option: str = "--from") -> Origin:
    """The position in `beginning`, `end`, an offset, `@MILLISECONDS`, or an ISO 8601 time, which is UTC by default."""
    if text in ("beginning", "end"):
        return Origin(Where[text.upper()])
    digits = text.removeprefix("@")
    if digits.isdecimal() and digits.isascii():
        value = int(digits)
        if value > _MAX_OFFSET:
            raise ConfigError(f"{option} {text} is larger than any offset or time")
        return Origin(Where.OFFSET if digits == text else Where.TIME, value)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{option} {text!r} must be beginning, end, an offset, @milliseconds or a time such as 2026-01-31T12:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return Origin(Where.TIME, max(0, (moment - _EPOCH) // datetime.timedelta(milliseconds=1)))


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    origin: Annotated[
        str,
        typer.Option("--from", metavar="PLACE", help="beginning, end, OFFSET, or a time: ISO 8601 or @milliseconds."),
    ] = "beginning",
    partition: Annotated[list[int] | None, typer.Option(min=0, help="Only this partition; repeatable.")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this many records.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more records instead of stopping.")] = False,
    committed: Annotated[
        bool, typer.Option("--committed", help="Leave out records of transactions that are open or aborted.")
    ] = False,
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="With text output: print the key and this text before the value.")
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """Print records. Without --follow, those that exist when the command starts.

    As text, each value is a line. As JSON, each record is an object on a line, with all its fields.
    """
    try:
        start = parse_origin(origin)
        separator = None if key_separator is None else key_separator.encode()
    except ConfigError as error:
        fail(error)
    except UnicodeEncodeError as error:
        fail(ConfigError(f"--key-separator is not text: {error}"))
    write = _json_writer(topic) if output is Output.JSON else _text_writer(separator)
    run(_consume(bootstrap, topic, start, partition, count, follow, write, committed))


Write = Callable[[int, "Record"], None]


async def _consume(
    bootstrap: str,
    topic: str,
    origin: Origin,
    chosen: Sequence[int] | None,
    count: int | None,
    follow: bool,
    write: Write,
    committed: bool,
) -> None:
    from headwater.client.reader import Reader

    left = count
    async with open_client(bootstrap) as client:
        partitions = await _partitions(client, topic, chosen)
        starts, ends = await bounds(client, topic, partitions, origin, committed=committed)
        reader = Reader(client, topic, starts, None if follow else ends, committed=committed, on_reset=_tell)
        async with aclosing(reader.chunks()) as chunks:
            async for chunk in chunks:
                for record in chunk.records[:left]:
                    write(chunk.partition, record)
                flush()
                if left is not None:
                    left -= min(left, len(chunk.records))
                    if not left:
                        return


async def _partitions(client: Client, topic: str, chosen: Sequence[int] | None) -> list[int]:
    known = await client.topic(topic)
    everything = range(len(known.partitions))
    if not chosen:
        return list(everything)
    for partition in chosen:
        if partition not in everything:
            raise ConfigError(f"topic {topic!r} has no partition {partition}; it has {len(everything)} partitions")
    return sorted(set(chosen))


async def bounds(
    client: Client, topic: str, partitions: list[int], origin: Origin, *, committed: bool = False
) -> tuple[dict[int, int], dict[int, int]]:
    """The start offset of each partition, and its current end. See `Client.list_offsets` for `committed`."""
    from headwater.client.model import EARLIEST, LATEST

    latest = await client.list_offsets(topic, dict.fromkeys(partitions, LATEST), committed=committed)
    ends = {p: o.offset for p, o in latest.items()}
    if origin.where is Where.END:
        return dict(ends), ends
    if origin.where is Where.TIME:
        found = await client.list_offsets(topic, dict.fromkeys(partitions, origin.value), committed=committed)
        return {p: o.offset if o.offset >= 0 else ends[p] for p, o in found.items()}, ends
    first = await client.list_offsets(topic, dict.fromkeys(partitions, EARLIEST))
    starts = {p: o.offset for p, o in first.items()}
    if origin.where is Where.BEGINNING:
        return starts, ends
    clamped = {}
    for p in partitions:
        clamped[p] = min(max(origin.value, starts[p]), max(starts[p], ends[p]))
        if clamped[p] != origin.value:
            complain(f"partition {p} holds offsets {starts[p]} to {ends[p]}: starting at {clamped[p]}")
    return clamped, ends


def _tell(reset: Reset) -> None:
    complain(f"partition {reset.partition} no longer holds offset {reset.wanted}: going on at {reset.resumed}")


def _text_writer(separator: bytes | None) -> Write:
    def write(partition: int, record: Record) -> None:
        key = b"" if separator is None else (record.key or b"") + separator
        put(key + (record.value or b"") + b"\n")

    return write


def _json_writer(topic: str) -> Write:
    def write(partition: int, record: Record) -> None:
        document: dict[str, Any] = {
            "topic": topic,
            "partition": partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            **json_bytes("key", record.key),
            **json_bytes("value", record.value),
            "headers": [{"name": name, **json_bytes("value", value)} for name, value in record.headers],
        }
        put_json(document)

    return write
