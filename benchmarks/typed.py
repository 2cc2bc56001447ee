"""A field of JSON by its typed column, beside the same out of the bytes: ``python -m benchmarks.typed``.

Both are columns of the same files. Each statement is asked through a gateway, and of DuckDB on the Iceberg table; with
`--trino` of Trino too, by the gateway's catalog. All take turns, so that other work of the machine meets all of them,
and all must give the same rows.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.query import DUCKDB, Gateway
from benchmarks.query import SETTINGS as GATEWAY_SETTINGS
from benchmarks.report import Spread, gather_facts, markdown_table, number, publish_section
from benchmarks.settle_measure import ICEBERG
from benchmarks.systems import BenchError, busy_seconds
from benchmarks.typed_rows import PARTITIONS, TOPIC, Decoded, prepare
from harness.headwater import Headwater
from harness.trino import Trino, iceberg
from headwater.gateway.catalog import NAMESPACE
from headwater.settings.settings import Sql

SECTION = "typed queries"
WANTED = 10.0
"""How many times faster typed columns must be."""
COLUMNS = ("statement", "asked of", "out of bytes, s", "typed columns, s", "times faster", "wanted")
THROUGH, PLAIN, TRINO = "Headwater's SQL", "DuckDB on the Iceberg table", "Trino"
CATALOG = "lake"
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement with places for the fields: out of bytes as a gateway, DuckDB and Trino take them, and typed."""

    name: str
    text: str
    bytes_through: tuple[str, ...]
    bytes_plain: tuple[str, ...]
    bytes_trino: tuple[str, ...]
    typed: tuple[str, ...]

    def through(self, typed: bool) -> str:
        return self.text.format(*(self.typed if typed else self.bytes_through), table=TOPIC)

    def plain(self, typed: bool, source: str) -> str:
        return self.text.format(*(self.typed if typed else self.bytes_plain), table=source)

    def trino(self, typed: bool) -> str:
        return self.text.format(*(self.typed if typed else self.bytes_trino), table=f"{CATALOG}.{NAMESPACE}.{TOPIC}")


STATEMENTS = (
    Statement(
        "events by user",
        "SELECT {0} AS name, count(*) AS n FROM {table} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 20",
        ("value->>'user'",), ("decode(value)->>'user'",), ("json_extract_scalar(from_utf8(value), '$.user')",),
        ('value_data."user"',),
    ),
    Statement(
        "a number inside, by a field inside",
        "SELECT {0} AS country, count(*) AS n, round(sum(CAST({1} AS DOUBLE))) AS s FROM {table} GROUP BY 1 ORDER BY 1",
        ("value->'geo'->>'country'", "value->'cart'->>'amount'"),
        ("decode(value)->'geo'->>'country'", "decode(value)->'cart'->>'amount'"),
        ("json_extract_scalar(from_utf8(value), '$.geo.country')",
         "json_extract_scalar(from_utf8(value), '$.cart.amount')"),
        ("value_data.geo.country", "value_data.cart.amount"),
    ),
)  # fmt: skip


@dataclass(slots=True)
class Compared:
    """The turns of a statement on one of both ways."""

    statement: str
    way: str
    bytes: list[float] = field(default_factory=list)
    typed: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return statistics.median(self.bytes) / statistics.median(self.typed)

    def row(self) -> list[str]:
        return [
            self.statement, self.way, str(Spread.of(self.bytes)), str(Spread.of(self.typed)), number(self.ratio),
            f"at least {WANTED:g}",
        ]  # fmt: skip


def compare(statement: Statement, ways: dict[str, Callable[[bool], Rows]], rounds: int) -> list[Compared]:
    """All ways in turns, after one turn each that does not count."""
    found = {way: Compared(statement.name, way) for way in ways}
    turns = [(way, typed) for way in ways for typed in (False, True)]
    wanted = None
    for number_ in range(rounds + 1):
        at = number_ % len(turns)
        for way, typed in [*turns[at:], *turns[:at]]:
            began = time.perf_counter()
            rows = [tuple(row) for row in ways[way](typed)]
            seconds = time.perf_counter() - began
            wanted = rows if wanted is None else wanted
            if rows != wanted:
                raise BenchError(f"{statement.name}, {way}: {rows[:3]} instead of {wanted[:3]}")
            if number_:
                (found[way].typed if typed else found[way].bytes).append(seconds)
    for one in found.values():
        print("  ".join(one.row()), flush=True)
    return list(found.values())


def measure(server: Headwater, decoded: Decoded, rounds: int, trino: Trino | None = None) -> list[Compared]:
    """Through the gateway, by DuckDB in this process with as many threads and as much memory, and by Trino."""
    import duckdb
    from duckdb_extensions import import_extension

    gateway, own = Gateway(server), Sql()
    connection = duckdb.connect(config={"threads": own.chosen_threads, "memory_limit": f"{own.memory_bytes}B"})
    try:
        for name in ICEBERG:
            import_extension(name)
            connection.execute(f"LOAD {name}")
        source = f"iceberg_scan('{decoded.metadata}')"
        found = []
        for statement in STATEMENTS:
            ways = _ways(statement, gateway, connection, source)
            found += compare(statement, ways | (_of_trino(statement, trino) if trino else {}), rounds)
        return found
    finally:
        connection.close()


def _ways(statement: Statement, gateway: Gateway, connection: Any, source: str) -> dict[str, Callable[[bool], Rows]]:
    def through(typed: bool) -> Rows:
        return [tuple(row) for row in gateway.ask(statement.through(typed), DUCKDB)]

    def plain(typed: bool) -> Rows:
        rows: Rows = connection.execute(statement.plain(typed, source)).fetchall()
        return rows

    return {THROUGH: through, PLAIN: plain}


def _of_trino(statement: Statement, trino: Trino) -> dict[str, Callable[[bool], Rows]]:
    def answer(typed: bool) -> Rows:
        return [tuple(row) for row in trino.rows(statement.trino(typed))]

    return {TRINO: answer}


def text_of(decoded: Decoded, found: list[Compared], machine: str, others: float) -> str:
    return "\n".join([
        "## Typed columns in queries", "",
        f"`make bench-typed`: {decoded.rows:,} JSON events of {decoded.bytes / decoded.rows:.0f} B with 23 fields, "
        f"nested, in {len(decoded.files)} files, {PARTITIONS} partitions. {machine}. The compactor decoded them in "
        f"{decoded.seconds:.0f} s after schemas were switched on. Bytes and typed columns are in the same files. All "
        f"take turns; medians, with the range. Other processes used {others:.0f} % of the machine.", "",
        markdown_table(COLUMNS, 2, [one.row() for one in found]),
    ])  # fmt: skip


def main(
    rows: Annotated[int, typer.Option(min=1_000, help="Events.")] = 2_000_000,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each.")] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="Few rows and turns; no figures to trust.")] = False,
    with_trino: Annotated[bool, typer.Option("--trino", help="Ask Trino too.")] = False,
    publish: Annotated[bool, typer.Option(help="Write the section of docs/benchmarks/queries.md.")] = False,
) -> None:
    """Measure queries by typed columns; it fails if less is reached than wanted."""
    if quick:
        rows, rounds = min(rows, 200_000), min(rounds, 2)
    with tempfile.TemporaryDirectory(prefix="headwater-typed-") as name:
        directory = Path(name)
        facts = gather_facts(directory)
        decoded = prepare(directory, rows)
        print(f"{len(decoded.files)} files decoded in {decoded.seconds:.1f} s", flush=True)
        with (
            Headwater(directory, gateway=True, settings=GATEWAY_SETTINGS) as server,
            Trino(directory / "trino", thorough=True) if with_trino else nullcontext() as trino,
        ):
            if trino:
                trino.attach(CATALOG, iceberg(server.place(TOPIC)))
            busy, began = busy_seconds(), time.monotonic()
            own = _own_seconds(server, trino)
            found = measure(server, decoded, rounds, trino)
            used = _own_seconds(server, trino) - own
            others = max(0.0, busy_seconds() - busy - used) * 100 / (time.monotonic() - began) / facts.cores
    machine = f"{facts.machine}, {facts.date}, Headwater {facts.commit}"
    text = text_of(decoded, found, machine, others)
    print(text)
    if publish:
        publish_section(SECTION, text)
    missed = [f"{one.statement}, {one.way}: {one.ratio:.1f} times faster" for one in found if one.ratio < WANTED]
    print("\n".join(["", "reached less than wanted:", *missed]) if missed else "\nall that is wanted was reached")
    if missed and not quick:
        raise typer.Exit(1)


def _own_seconds(server: Headwater, trino: Trino | None) -> float:
    """Processor time of this process, of the server's and of Trino's."""
    import psutil

    from benchmarks.systems import cpu_of

    more = [psutil.Process(trino.process.pid)] if trino and trino.process else []
    return cpu_of([psutil.Process(), *server.processes(), *more])


if __name__ == "__main__":
    typer.run(main)
