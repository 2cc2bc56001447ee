"""Events of a shop as JSON, nested, of some 450 bytes: appended in bulk, then decoded by the compactor."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.systems import BenchError
from harness.headwater import QUICK_LAKE, Headwater
from headwater.app.session import ledger_session
from headwater.lake.backfill import undecoded
from headwater.settings.settings import load
from headwater.types import Domain

TOPIC, PARTITIONS = "events", 4
USERS = 10_000
FILE_ROWS = 250_000
SETTINGS = f"{QUICK_LAKE}merge_files = 100000\nniceness = 0\n"
DECODED_SECONDS = 3_600.0

_KINDS = (b"page_view", b"add_to_cart", b"search", b"purchase", b"log_in")
_SYSTEMS = ((b"ios", b"safari", b"17.2", 390, 844), (b"android", b"chrome", b"131.0", 412, 915),
            (b"windows", b"edge", b"130.0", 1920, 1080), (b"macos", b"firefox", b"132.0", 1440, 900))  # fmt: skip
_PLACES = ((b"de", b"Berlin", 52, 13), (b"fr", b"Lyon", 45, 4), (b"us", b"Denver", 39, -104),
           (b"jp", b"Osaka", 34, 135), (b"br", b"Recife", -8, -34), (b"in", b"Pune", 18, 73))  # fmt: skip
_TEMPLATE = (
    b'{"id":%d,"type":"%s","at":"2026-11-%02dT%02d:%02d:%02d.%03dZ","user":"user-%05d","session":"%s",'
    b'"device":{"os":"%s","browser":"%s","version":"%s","screen":{"width":%d,"height":%d}},'
    b'"geo":{"country":"%s","city":"%s","lat":%d.%03d,"lon":%d.%03d},'
    b'"page":{"url":"https://shop.example/products/%d","title":"Product %d in the best quality","referrer":%s},'
    b'"cart":{"items":%d,"amount":%d.%02d,"currency":"EUR"},"tags":["%s","spring"],"ok":%s,"ms":%d}'
)


@dataclass(frozen=True, slots=True)
class Decoded:
    """The decoded topic."""

    rows: int
    bytes: int
    """Bytes of values."""
    files: list[Path]
    metadata: Path
    """The newest metadata file of the Iceberg table."""
    seconds: float
    """How long the compactor took to decode all files."""


def user_of(number: int) -> int:
    """Some users do much, most do little."""
    mixed = number * 2_654_435_761 % 4_294_967_291
    return mixed % USERS if mixed % 3 else mixed % (USERS // 100)


def events(first: int, count: int) -> Iterator[bytes]:
    """Events by their numbers, always the same."""
    for i in range(first, first + count):
        mixed = i * 2_654_435_761 % 4_294_967_291
        system, place = _SYSTEMS[mixed % len(_SYSTEMS)], _PLACES[mixed // 7 % len(_PLACES)]
        session = hashlib.blake2b(b"%d" % (i // 20), digest_size=8).hexdigest().encode()
        yield _TEMPLATE % (
            i, _KINDS[mixed // 11 % len(_KINDS)], 1 + i // 86_400_000 % 28, i // 3_600_000 % 24, i // 60_000 % 60,
            i // 1_000 % 60, i % 1_000, user_of(i), session, *system, place[0], place[1], place[2], mixed % 1_000,
            place[3], mixed // 3 % 1_000, mixed % 20_000, mixed % 20_000,
            b"null" if mixed % 2 else b'"https://search.example/?q=%d"' % (mixed % 500), mixed % 9, mixed % 1_000,
            mixed % 100, (b"sale", b"new", b"vip")[mixed % 3], b"true" if mixed % 10 else b"false", mixed % 3_000,
        )  # fmt: skip


def written(directory: Path, rows: int, first: int = 0) -> Iterator[Path]:
    """Parquet files with the events, for bulk appends. The caller may remove each before the next is made."""
    import pyarrow as pa
    from pyarrow import parquet

    directory.mkdir(exist_ok=True)
    for start in range(first, first + rows, FILE_ROWS):
        count, path = min(FILE_ROWS, first + rows - start), directory / f"{start:012d}.parquet"
        keys = [b"user-%05d" % user_of(i) for i in range(start, start + count)]
        columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(events(start, count), pa.binary())}
        parquet.write_table(pa.table(columns), path)
        yield path


def prepare(directory: Path, rows: int) -> Decoded:
    """Append the events, switch schemas on, wait until all files are decoded and the tables have them."""
    with Headwater(directory, lake=True, settings=SETTINGS) as server:
        server.create(TOPIC, PARTITIONS, **{"retention.ms": "-1"})
        for path in written(directory / "input", rows):
            server.table("append", TOPIC, str(path))
            path.unlink()
        server.table("settle", TOPIC, "--timeout", "600")
        began = time.monotonic()
        server.cli("topic", "alter", TOPIC, "--config", "headwater.value.schema=json", "--bootstrap", server.bootstrap)
        while asyncio.run(_waiting(server)):
            if time.monotonic() > began + DECODED_SECONDS:
                raise BenchError(f"files are not decoded after {DECODED_SECONDS:.0f} s: {server.end_of_log()}")
            time.sleep(0.5)
        seconds = time.monotonic() - began
        server.table("settle", TOPIC, "--timeout", "600")
        files, metadata = asyncio.run(_files(server))
    return Decoded(rows, sum(map(len, events(0, 1_000))) * rows // 1_000, files, metadata, seconds)


async def _waiting(server: Headwater) -> int:
    """Files that are not decoded."""
    async with ledger_session(load(str(server.config), environment={})) as found:
        topic = found.topic(TOPIC)
        state = found.domains[Domain(topic.domain)].state
        return len(undecoded(state, state.tables[topic.id]))


async def _files(server: Headwater) -> tuple[list[Path], Path]:
    """The files of the table's newest version, and Iceberg's metadata."""
    root = Path(server.objects.removeprefix("file://"))
    async with ledger_session(load(str(server.config), environment={})) as found:
        topic = found.topic(TOPIC)
        table = found.domains[Domain(topic.domain)].state.tables[topic.id]
        files = [root / table.root / file.name for file in table.live()]
        return files, root / table.followers["iceberg"].location
