"""`headwater consume`: the records of a topic on standard output."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
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
from headwater.cli.connecting import DEFAULT_REGISTRY, RegistryOption, connecting, open_client, open_finder
from headwater.errors import ConfigError

if TYPE_CHECKING:
    from headwater.client.client import Client
    from headwater.client.reader import Reset
    from headwater.client.records import Record
    from headwater.gateway.records.decoding import Decoding, Shown

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
    decode: Annotated[
        bool, typer.Option(help="With JSON output: show keys and values by the schemas that the topic has.")
    ] = True,
    registry: RegistryOption = DEFAULT_REGISTRY,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """Print records. Without --follow, those that exist when the command starts.

    As text, each value is a line. As JSON, each record is an object on a line, with all its fields. Keys and values of
    topics with schemas are decoded then, and `value_schema` is the id of the schema; what cannot be decoded is shown as
    it is, with the reason in `value_error`.
    """
    try:
        start = parse_origin(origin)
        separator = None if key_separator is None else key_separator.encode()
    except ConfigError as error:
        fail(error)
    except UnicodeEncodeError as error:
        fail(ConfigError(f"--key-separator is not text: {error}"))
    printer = Printer(topic, separator, as_json=output is Output.JSON)
    wanted = registry if decode and output is Output.JSON else ""
    run(_consume(bootstrap, topic, start, partition, count, follow, printer, committed, wanted))


async def _consume(
    bootstrap: str,
    topic: str,
    origin: Origin,
    chosen: Sequence[int] | None,
    count: int | None,
    follow: bool,
    printer: Printer,
    committed: bool,
    registry: str,
) -> None:
    """`registry`: where the schemas of records are; empty: nothing is decoded."""
    from headwater.client.reader import Reader

    left = count
    async with open_client(bootstrap) as client, AsyncExitStack() as stack:
        partitions = await _partitions(client, topic, chosen)
        starts, ends = await bounds(client, topic, partitions, origin, committed=committed)
        if registry:
            printer.decoding = await _decoding(client, topic, registry, stack)
        reader = Reader(client, topic, starts, None if follow else ends, committed=committed, on_reset=_tell)
        async with aclosing(reader.chunks()) as chunks:
            async for chunk in chunks:
                await printer.put(chunk.partition, chunk.records[:left])
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


async def _decoding(client: Client, topic: str, registry: str, stack: AsyncExitStack) -> Decoding | None:
    """What decodes records of a topic; None if the topic has no schemas, or the caller may not know."""
    from headwater.client.errors import KafkaError
    from headwater.configs.topics import KEY_SCHEMA, NO_SCHEMA, VALUE_SCHEMA

    try:
        configs = {
            config.name: config.value for config in await client.describe_configs(topic, [KEY_SCHEMA, VALUE_SCHEMA])
        }
    except KafkaError:
        return None
    key, value = (configs.get(name) or NO_SCHEMA for name in (KEY_SCHEMA, VALUE_SCHEMA))
    if key == value == NO_SCHEMA:
        return None
    from headwater.gateway.records.decoding import Decoding

    return Decoding(await stack.enter_async_context(open_finder(registry)), key, value)


class Printer:
    """Prints records."""

    def __init__(self, topic: str, separator: bytes | None = None, *, as_json: bool) -> None:
        self._topic = topic
        self._separator = separator
        self._as_json = as_json
        self.decoding: Decoding | None = None
        """What decodes keys and values; None: they are shown as they are."""

    def __repr__(self) -> str:
        return f"<Printer for {self._topic}>"

    async def put(self, partition: int, records: Sequence[Record]) -> None:
        """Print records of a partition."""
        if self.decoding is not None:
            await self.decoding.prepare(records)
        for record in records:
            if self._as_json:
                put_json(self._document(partition, record))
            else:
                key = b"" if self._separator is None else (record.key or b"") + self._separator
                put(key + (record.value or b"") + b"\n")

    def _document(self, partition: int, record: Record) -> dict[str, Any]:
        decoding = self.decoding
        return {
            "topic": self._topic,
            "partition": partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            **_field("key", record.key, decoding.key(record) if decoding is not None else None),
            **_field("value", record.value, decoding.value(record) if decoding is not None else None),
            "headers": [{"name": name, **json_bytes("value", value)} for name, value in record.headers],
        }


def _field(name: str, data: bytes | None, shown: Shown | None) -> dict[str, Any]:
    """A key or a value: decoded if it could be, else as bytes."""
    if shown is None or not shown.decoded:
        error = {f"{name}_error": shown.error} if shown is not None and shown.error else {}
        return {**json_bytes(name, data), **error}
    schema = {f"{name}_schema": shown.schema} if shown.schema is not None else {}
    return {name: shown.json, **schema}
