"""What a piece of work costs, and what an engine that is not ours sees of its result."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
import psutil

from benchmarks.systems import BenchError, busy_seconds

DRIVER, JVM, WORKERS = "driver", "JVM", "Python workers"


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one subject on one input."""

    subject: str
    master: str
    """Empty where there is no Spark."""
    case: str
    streams: int
    rows: int
    value_bytes: int
    files: int
    """Data files that it wrote."""
    file_bytes: int
    cpu: float
    wall: float
    cpu_of: dict[str, float] = {}
    """CPU seconds by kind of process."""
    others: float = 0.0
    """CPU seconds that the rest of the machine used meanwhile."""


class Spent(msgspec.Struct, frozen=True):
    """Seconds of CPU and of the clock on the wall."""

    cpu: float
    wall: float
    cpu_of: dict[str, float]
    others: float


def cpu_by_kind() -> dict[str, float]:
    """CPU time of this process and all it started, those that have exited included.

    Who has exited is counted by who waited for it: Spark's JVM waits for its Python daemon, that for its workers. A
    JVM of an earlier session counts as the driver's, whose child it was; differences do not see it.
    """
    own = psutil.Process()
    found = dict.fromkeys((DRIVER, JVM, WORKERS), 0.0)
    for process in [own, *own.children(recursive=True)]:
        try:
            times, name = process.cpu_times(), process.name()
        except psutil.NoSuchProcess:
            continue
        kind = DRIVER if process.pid == own.pid else JVM if name == "java" else WORKERS
        found[kind] += times.user + times.system + times.children_user + times.children_system
    return found


class Meter:
    """Counts from the moment it is made."""

    def __init__(self) -> None:
        self._busy, self._cpu, self._wall = busy_seconds(), cpu_by_kind(), time.perf_counter()

    def read(self) -> Spent:
        wall, now = time.perf_counter() - self._wall, cpu_by_kind()
        cpu_of = {kind: now[kind] - before for kind, before in self._cpu.items()}
        cpu = sum(cpu_of.values())
        return Spent(cpu, wall, cpu_of, max(0.0, busy_seconds() - self._busy - cpu))


def sync(paths: Iterable[Path]) -> None:
    """What peers leave in the page cache goes to the disk, as our own store's objects do before they count."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def files_below(directory: Path) -> set[Path]:
    return {path for path in directory.rglob("*") if path.is_file()}


def check(what: str, source: str, extensions: tuple[str, ...], columns: str, wanted: tuple[int, ...]) -> None:
    """Ask DuckDB for sums over a table, and fail if they are not what was written."""
    import duckdb
    from duckdb_extensions import import_extension

    with duckdb.connect() as connection:
        for name in extensions:
            import_extension(name)
            connection.execute(f"LOAD {name}")
        row = connection.execute(f"SELECT {columns} FROM {source}").fetchone() or ()
    found = tuple(int(number or 0) for number in row)
    if found != wanted:
        raise BenchError(f"{what}: DuckDB finds {columns} = {found}, written was {wanted}")


def newest_metadata(table: Path) -> Path | None:
    """The newest version of a table in a Hadoop catalog, if it is there."""
    found = table.glob("metadata/v*.metadata.json")
    return max(found, key=lambda path: int(path.name[1:].partition(".")[0]), default=None)


ICEBERG = ("avro", "iceberg")
DELTA = ("delta",)
LOG_SUMS = 'count(*), sum(octet_length("value")), count(DISTINCT (("partition"::BIGINT << 40) | "offset"))'
"""Rows, bytes of values, and how many rows have a place of their own in the log."""
