"""The rows of the benchmark of SQL: orders as JSON, appended in bulk, in files that nothing merges any more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.headwater import QUICK_LAKE, Headwater
from headwater.app.session import ledger_session
from headwater.settings.settings import load
from headwater.types import Domain

TOPIC, PARTITIONS = "bench", 4
CUSTOMERS = 100_000
STATES = ("new", "paid", "packed", "shipped", "returned")
FILE_ROWS = 1_000_000
FEW_MERGES = f"{QUICK_LAKE}merge_files = 100000\nniceness = 0\n"


@dataclass(frozen=True, slots=True)
class Prepared:
    """The settled rows of the topic."""

    rows: int
    files: list[Path]
    bytes: int


def json_values(first: int, rows: int) -> Iterator[bytes]:
    """Values of orders, by their numbers."""
    for i in range(first, first + rows):
        customer, state = i * 7919 % CUSTOMERS, STATES[i * 31 % len(STATES)]
        yield b'{"id":%d,"customer":"customer-%06d","amount":%d.%02d,"status":"%s"}' % (
            i, customer, i % 1_000, i % 100, state.encode(),
        )  # fmt: skip


def prepare(directory: Path, rows: int) -> Prepared:
    """Append the rows to a new topic, wait until its tables have them, and end the servers."""
    inputs = list(_written(directory / "input", rows))
    with Headwater(directory, lake=True, settings=FEW_MERGES) as server:
        server.create(TOPIC, PARTITIONS, **{"retention.ms": "-1"})
        server.table("append", TOPIC, *map(str, inputs))
        server.table("settle", TOPIC, "--timeout", "600")
        files = asyncio.run(_files(server))
    for path in inputs:
        path.unlink()
    return Prepared(rows, files, sum(path.stat().st_size for path in files))


def _written(directory: Path, rows: int) -> Iterator[Path]:
    import pyarrow as pa
    from pyarrow import parquet

    directory.mkdir()
    for first in range(0, rows, FILE_ROWS):
        count, path = min(FILE_ROWS, rows - first), directory / f"{first:012d}.parquet"
        keys = [b"customer-%06d" % (i * 7919 % CUSTOMERS) for i in range(first, first + count)]
        columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(json_values(first, count), pa.binary())}
        parquet.write_table(pa.table(columns), path)
        yield path


async def _files(server: Headwater) -> list[Path]:
    """The files of the table's newest version."""
    root = Path(server.objects.removeprefix("file://"))
    async with ledger_session(load(str(server.config), environment={})) as found:
        topic = found.topic(TOPIC)
        table = found.domains[Domain(topic.domain)].state.tables[topic.id]
        return [root / table.root / file.name for file in table.live()]
