"""`headwater produce`: lines of standard input or a file become records."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from headwater.cli.common import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    Output,
    OutputOption,
    complain,
    fail,
    pairs,
    put,
    put_json,
    run,
)
from headwater.cli.connecting import DEFAULT_REGISTRY, RegistryOption, connecting, open_client, open_finder
from headwater.errors import BadInput, BadSchema, BadValue, ConfigError, HeadwaterError

if TYPE_CHECKING:
    from rich.progress import Progress

    from headwater.client.producer import Producer
    from headwater.clock import Clock
    from headwater.lake.finding import SchemaFinder
    from headwater.schemas.payloads import Writing

MAX_LINE_BYTES = 32 << 20
_CHUNK_BYTES = 256 << 10
_CHUNKS_AHEAD = 4
FIRST_WORD_SECONDS, NEXT_WORD_SECONDS = 1.0, 10.0
"""How long retries go on in silence, and how long between two words about them."""


class Compression(Enum):
    """Codecs of batches."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a line becomes a record."""

    topic: str
    separator: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    partition: int | None
    key_schema: str | None = None
    value_schema: str | None = None
    """Names of schemas, as the options have them."""


@dataclass(frozen=True, slots=True)
class _Schemas:
    """What encodes keys and values. None: they are written as they are."""

    key: Writing | None = None
    value: Writing | None = None


def register(app: typer.Typer) -> None:
    """Add the command to an app."""
    app.command("produce")(connecting(produce))


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Read this file instead of standard input.")
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The part of a line before it is the key.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A header for every record; repeatable.")
    ] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="By default as Kafka's partitioner chooses.")] = None,
    key_schema: Annotated[
        str | None,
        typer.Option(metavar="SCHEMA", help="Keys are JSON; encode them by a subject's newest schema, or by id:N."),
    ] = None,
    value_schema: Annotated[
        str | None,
        typer.Option(metavar="SCHEMA", help="Values are JSON; encode them by a subject's newest schema, or by id:N."),
    ] = None,
    registry: RegistryOption = DEFAULT_REGISTRY,
    compression: Annotated[Compression, typer.Option(help="Codec of batches.")] = Compression.NONE,
    create: Annotated[bool, typer.Option(help="Let the broker create a missing topic, if it allows that.")] = True,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """Write each line of standard input, or of a file, as a record. All are durable when the command exits with 0.

    A line that does not fit its schema ends the command. The lines before it are written.
    """
    try:
        separator = key_separator.encode() if key_separator is not None else None
        if separator == b"":
            raise ConfigError("--key-separator must not be empty")
        if key_schema is not None and separator is None:
            raise ConfigError("--key-schema needs --key-separator: without it lines have no keys")
        headers = tuple((name, value.encode()) for name, value in pairs(header or (), "--header"))
        source: BinaryIO = file.open("rb", buffering=0) if file else sys.stdin.buffer
    except (ConfigError, UnicodeEncodeError) as error:
        fail(error if isinstance(error, ConfigError) else ConfigError(f"an argument is not text: {error}"))
    except OSError as error:
        fail(ConfigError(f"cannot read {file}: {error.strerror}"))
    size = file.stat().st_size if file and file.is_file() else None
    shape = _Shape(topic, separator, headers, partition, key_schema, value_schema)
    try:
        records, taken = run(_produce(bootstrap, source, size, shape, compression.value, create, registry))
    finally:
        if file:
            source.close()
    if output is Output.JSON:
        put_json({"topic": topic, "records": records, "bytes": taken})
    else:
        put(f"{records} records written to {topic}\n".encode())


class Waiting:
    """Says why nothing is written, once that lasts, and now and then as long as it does."""

    def __init__(self, clock: Clock, tell: Callable[[str], None]) -> None:
        self._clock = clock
        self._tell = tell
        self._next = 0.0
        self._last = float("-inf")

    def __repr__(self) -> str:
        return f"<Waiting, tells again at {self._next:g}>"

    def __call__(self, error: HeadwaterError) -> None:
        now = self._clock.monotonic()
        if now - self._last >= NEXT_WORD_SECONDS:
            self._next = now + FIRST_WORD_SECONDS
        self._last = now
        if now >= self._next:
            self._next = now + NEXT_WORD_SECONDS
            self._tell(f"{error}; retrying")


async def _produce(
    bootstrap: str, source: BinaryIO, size: int | None, shape: _Shape, codec: str, create: bool, registry: str
) -> tuple[int, int]:
    """Returns the number of records and of input bytes."""
    from headwater.client.producer import Producer, ProducerSettings

    settings = ProducerSettings(codec=codec, create_topics=create)
    records = taken = 0
    schemas = await _schemas(shape, registry)
    async with (
        open_client(bootstrap) as client,
        Producer(client, settings) as producer,
        aclosing(_lines(source)) as chunks,
    ):
        client.on_retry = Waiting(client.clock, complain)
        await client.topic(shape.topic, create=create)
        with _progress(size) as progress:
            task = progress.add_task(shape.topic, total=size, records=0)
            try:
                async for lines, chunk_bytes in chunks:
                    taken += chunk_bytes
                    for line in lines:
                        records += 1
                        await _send(producer, shape, schemas, line, records)
                    if producer.failure is not None:
                        break
                    progress.update(task, completed=taken, records=records)
            except BadInput:
                await producer.flush()  # the lines before the bad one are delivered
                raise
            await producer.flush()
            progress.update(task, completed=taken, records=records)
    return records, taken


async def _schemas(shape: _Shape, registry: str) -> _Schemas:
    """What encodes keys and values, by the schemas that the options name."""
    if shape.key_schema is None and shape.value_schema is None:
        return _Schemas()
    async with open_finder(registry) as finder:
        return _Schemas(
            await _writing(finder, "--key-schema", shape.key_schema),
            await _writing(finder, "--value-schema", shape.value_schema),
        )


async def _writing(finder: SchemaFinder, option: str, name: str | None) -> Writing | None:
    from headwater.client.errors import Unreachable
    from headwater.errors import RegistryUnavailable
    from headwater.gateway.records.choosing import choice_of

    if name is None:
        return None
    choice = choice_of(option, name)
    try:
        if choice.id:
            schema = await finder.find(str(choice.id))
        else:
            found = await finder.version(choice.subject)
            schema = found[1] if found is not None else None
        if schema is None:
            raise ConfigError(f"{option}: the registry has no {choice}")
        return await finder.writing(schema)
    except (BadSchema, BadValue) as error:
        raise ConfigError(f"{option}: {choice} cannot be used: {error}") from error
    except RegistryUnavailable as error:
        raise Unreachable(f"{option}: the schema registry cannot be asked: {error}") from error


async def _send(producer: Producer, shape: _Shape, schemas: _Schemas, line: bytes, number: int) -> None:
    key: bytes | None = None
    value: bytes | None = line
    if shape.separator is not None:
        key, found, value = line.partition(shape.separator)
        if not found:
            raise BadInput(f"line {number} has no key separator {shape.separator.decode()!r}")
    key = _encoded(schemas.key, key, number, "key")
    value = _encoded(schemas.value, value, number, "value")
    await producer.send(shape.topic, value, key=key, headers=shape.headers, partition=shape.partition)


def _encoded(writing: Writing | None, text: bytes | None, number: int, what: str) -> bytes | None:
    """The bytes of a JSON value. Null is no key, or no value."""
    if writing is None or text is None:
        return text
    import msgspec

    try:
        value = msgspec.json.decode(text)
        return writing.encode(value) if value is not None else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"line {number}: the {what} is no JSON: {error}") from None
    except BadValue as error:
        raise BadInput(f"line {number}: the {what} does not fit its schema: {error}") from None


def _progress(size: int | None) -> Progress:
    """A progress bar on standard error if that is a terminal. Without a size it only counts."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    columns = [TextColumn("{task.description}"), *([BarColumn()] if size is not None else [])]
    return Progress(
        *columns,
        DownloadColumn(),
        TextColumn("{task.fields[records]} records"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )


async def _lines(source: BinaryIO) -> AsyncGenerator[tuple[list[bytes], int], None]:
    """Whole lines as they arrive, several at a time, without their line feeds; and the bytes read."""
    rest = b""
    async with aclosing(_chunks(source)) as chunks:
        async for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > MAX_LINE_BYTES:
                raise BadInput(f"a line has more than {MAX_LINE_BYTES} bytes")
            yield lines, len(chunk)
    if rest:
        yield [rest], 0


async def _chunks(source: BinaryIO) -> AsyncGenerator[bytes, None]:
    """Chunks that a thread reads, a few ahead.

    The thread is a daemon, so that an interrupt does not wait for the next line of input.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(_CHUNKS_AHEAD)
    left = threading.Event()
    raw = getattr(source, "raw", source)  # a buffered reader would hold its lock when the process ends

    def read() -> None:
        chunk: bytes | OSError = b"-"
        while chunk and isinstance(chunk, bytes):
            room.acquire()
            if left.is_set():
                return
            try:
                got = raw.read(_CHUNK_BYTES)
                chunk = BlockingIOError("the input does not block") if got is None else got
            except OSError as error:
                chunk = error
            except ValueError:
                return  # the reader has closed it
            try:
                loop.call_soon_threadsafe(queue.put_nowait, chunk)
            except RuntimeError:
                return  # the loop has ended

    threading.Thread(target=read, name="headwater-input", daemon=True).start()
    try:
        while chunk := await queue.get():
            if isinstance(chunk, OSError):
                raise chunk
            yield chunk
            room.release()
    finally:
        left.set()
        room.release()
