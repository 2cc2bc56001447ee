"""SQL beside the engines on the plain files: ``python -m benchmarks.query``, or ``make bench-query``.

The same statements over the same settled rows: through a gateway with DuckDB and by DuckDB on the files, through the
gateway with Spark and by Spark on the Iceberg table. Both take turns, so that other work of the machine meets both.
Then rows follow that are not settled, and the same statements are asked again. At last a producer runs alone and beside
queries that take all they get. No compactor runs meanwhile.
"""

from __future__ import annotations

import http.client
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import confluent_kafka
import psutil
import typer

from benchmarks.clients import Client, ClientResult
from benchmarks.query_rows import PARTITIONS, TOPIC, Prepared, json_values, prepare
from benchmarks.report import Spread, gather_facts, markdown_table, number, publish_section
from benchmarks.systems import BenchError, busy_seconds, cpu_of
from demo.readers import CATALOG, NAMESPACE, spark
from harness.headwater import Headwater
from headwater.settings.settings import Sql

DUCKDB, SPARK = "duckdb", "spark"
WANTED = {DUCKDB: 1.2, SPARK: 1.3}
"""How much longer a statement may take through a gateway than on the plain files."""
HOT_SECONDS = 1.0
"""What a million rows that are not settled may add."""
PRODUCED = 0.8
"""What producers must reach beside queries of what they reach alone."""
LOAD, LOAD_PARTITIONS, LOAD_BYTES = "load", 12, 1_024
ASKERS = 2
TIMEOUT_SECONDS = 900.0
SETTINGS = "[gateway]\nrequests_per_second = 1000000\n"
COLUMNS = ("statement", "engine", "Headwater, s", "plain, s", "ratio", "ratio of CPU", "wanted", "other processes, %")


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement in the words of each: a gateway takes keys and values for text by itself."""

    name: str
    ours: str
    duckdb: str
    spark: str


STATEMENTS = (
    Statement(
        "count and sum of offsets by partition",
        f"SELECT partition, count(*) AS n, CAST(sum(offset) AS BIGINT) AS s FROM {TOPIC} GROUP BY 1 ORDER BY 1",
        'SELECT "partition", count(*) AS n, CAST(sum("offset") AS BIGINT) AS s FROM {0} GROUP BY 1 ORDER BY 1',
        "SELECT partition, count(*) AS n, CAST(sum(offset) AS BIGINT) AS s FROM {0} GROUP BY 1 ORDER BY 1",
    ),
    Statement(
        "rows by a field of JSON",
        f"SELECT value->>'status' AS status, count(*) AS n FROM {TOPIC} GROUP BY 1 ORDER BY 1",
        "SELECT decode(value)->>'status' AS status, count(*) AS n FROM {0} GROUP BY 1 ORDER BY 1",
        "SELECT get_json_object(CAST(value AS STRING), '$.status') AS status, count(*) AS n FROM {0} "
        "GROUP BY 1 ORDER BY 1",
    ),
    Statement(
        "rows of one key",
        f"SELECT count(*) AS n, min(offset) AS low FROM {TOPIC} WHERE key = 'customer-000042'",
        "SELECT count(*) AS n, min(\"offset\") AS low FROM {0} WHERE key = 'customer-000042'::BLOB",
        "SELECT count(*) AS n, min(offset) AS low FROM {0} WHERE key = CAST('customer-000042' AS BINARY)",
    ),
)
Rows = list[list[Any]]


class Side:
    """One of two that answer the same: what it takes in turns."""

    def __init__(self, answer: Callable[[Statement], Rows], processes: Callable[[], list[psutil.Process]]) -> None:
        self._answer = answer
        self._processes = processes

    def run(self, statement: Statement) -> tuple[Rows, float, float]:
        """The rows, the seconds, and the processor time."""
        spent, began = cpu_of(self._processes()), time.perf_counter()
        rows = self._answer(statement)
        return rows, time.perf_counter() - began, cpu_of(self._processes()) - spent


@dataclass(slots=True)
class Compared:
    """The turns of a statement on both sides."""

    ours: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    ours_cpu: list[float] = field(default_factory=list)
    plain_cpu: list[float] = field(default_factory=list)
    others: float = 0.0

    @property
    def ratio(self) -> float:
        return statistics.median(self.ours) / statistics.median(self.plain)

    @property
    def cpu_ratio(self) -> float:
        return statistics.median(self.ours_cpu) / max(statistics.median(self.plain_cpu), 0.01)

    def row(self, statement: Statement, engine: str) -> list[str]:
        return [
            statement.name, engine, str(Spread.of(self.ours)), str(Spread.of(self.plain)), number(self.ratio),
            number(self.cpu_ratio), f"at most {WANTED[engine]}", number(self.others),
        ]  # fmt: skip


def compare(ours: Side, plain: Side, statement: Statement, rounds: int) -> Compared:
    """Both in turns, after one turn each that does not count."""
    wanted, mine = plain.run(statement)[0], ours.run(statement)[0]
    found, busy, began = Compared(), busy_seconds(), time.monotonic()
    used = 0.0
    for turn in range(rounds):
        for side in (ours, plain) if turn % 2 else (plain, ours):
            rows, seconds, cpu = side.run(statement)
            used += cpu
            if side is ours:
                mine = rows
                found.ours.append(seconds)
                found.ours_cpu.append(cpu)
            else:
                found.plain.append(seconds)
                found.plain_cpu.append(cpu)
    if mine != wanted:
        raise BenchError(f"{statement.name}: {mine} instead of {wanted}")
    idle = (busy_seconds() - busy - used) * 100 / (time.monotonic() - began) / (os.cpu_count() or 1)
    found.others = max(0.0, idle)
    return found


class Gateway:
    """Asks a gateway over HTTP."""

    def __init__(self, server: Headwater) -> None:
        self._server = server

    def ask(self, sql: str, engine: str) -> Rows:
        connection = http.client.HTTPConnection(self._server.gateway, timeout=TIMEOUT_SECONDS)
        try:
            body = json.dumps({"sql": sql, "engine": engine})
            connection.request("POST", "/v1/sql", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            told = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status != 200 or "error" in told or told["row_count"] != len(told["rows"]):
            raise BenchError(f"{sql}: {answer.status} {told}")
        rows: Rows = told["rows"]
        return rows

    def side(self, engine: str) -> Side:
        return Side(lambda statement: self.ask(statement.ours, engine), self._processes)

    def _processes(self) -> list[psutil.Process]:
        gateway = self._server.gateway_process()
        return [gateway, *gateway.children(recursive=True)]


def compare_duckdb(gateway: Gateway, files: Sequence[Path], rounds: int) -> dict[str, Compared]:
    """Against DuckDB in this process, with the threads and the memory of a gateway's."""
    import duckdb

    own = Sql()
    connection = duckdb.connect(config={"threads": own.chosen_threads, "memory_limit": f"{own.memory_bytes}B"})
    source = f"read_parquet({[str(path) for path in files]})"
    me = psutil.Process()

    def answer(statement: Statement) -> Rows:
        return [list(row) for row in connection.execute(statement.duckdb.format(source)).fetchall()]

    try:
        plain, ours = Side(answer, lambda: [me]), gateway.side(DUCKDB)
        return {one.name: told(one, DUCKDB, compare(ours, plain, one, rounds)) for one in STATEMENTS}
    finally:
        connection.close()


def compare_spark(gateway: Gateway, server: Headwater, rounds: int) -> dict[str, Compared]:
    """Against a Spark session of this process, with Iceberg's connector, the threads and memory of a gateway's."""
    own = Sql()
    more = {
        "spark.master": f"local[{own.chosen_threads}]",
        "spark.driver.memory": f"{own.spark_memory_bytes >> 20}m",
        "spark.sql.shuffle.partitions": str(2 * own.chosen_threads),
    }
    table = f"{CATALOG}.{NAMESPACE}.`{TOPIC}`"
    with spark(server.place(TOPIC), more) as session:
        me, theirs = psutil.Process(), _pids(server)

        def answer(statement: Statement) -> Rows:
            return [list(row) for row in session.sql(statement.spark.format(table)).collect()]

        def processes() -> list[psutil.Process]:
            return [me, *(child for child in me.children(recursive=True) if child.pid not in theirs)]

        def spoken(one: Statement) -> Compared:
            nonlocal theirs
            gateway.ask(one.ours, SPARK)  # its process runs now, and is none of ours
            theirs = _pids(server)
            return told(one, SPARK, compare(gateway.side(SPARK), Side(answer, processes), one, rounds))

        return {one.name: spoken(one) for one in STATEMENTS}


def _pids(server: Headwater) -> set[int]:
    """All processes of Headwater."""
    assert server.process is not None
    return {server.process.pid, *(process.pid for process in server.processes())}


def told(statement: Statement, engine: str, found: Compared) -> Compared:
    print("  ".join(found.row(statement, engine)), flush=True)
    return found


# --- rows that are not settled ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hot:
    """What rows that are not settled add to a statement."""

    statement: str
    before: float
    first: float
    later: float

    def row(self) -> list[str]:
        added = (self.first - self.before, self.later - self.before)
        return [self.statement, *map(number, (self.before, self.first, self.later)), *(f"{x:.2f}" for x in added)]


HOT_COLUMNS = ("statement, DuckDB", "settled only, s", "first, s", "later, s", "the first adds, s", "later ones add, s")


def produce_hot(server: Headwater, rows: int, first: int) -> None:
    """Rows like the settled ones, over Kafka. Nothing settles them."""
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 20})
    for at, value in enumerate(json_values(first, rows)):
        while True:
            try:
                producer.produce(TOPIC, value, b"customer-%06d" % (at % 100_000), at % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
        if not at % 1_000:
            producer.poll(0)
    if left := producer.flush(TIMEOUT_SECONDS):
        raise BenchError(f"{left} rows were not acknowledged")


def measure_hot(
    gateway: Gateway, server: Headwater, prepared: Prepared, rows: int, settled: dict[str, Compared], rounds: int
) -> list[Hot]:
    """The first query decodes the rows, later ones find them in memory, unless they need other columns."""
    produce_hot(server, rows, prepared.rows)
    side, found = gateway.side(DUCKDB), []
    for statement in STATEMENTS[:2]:
        answer, first, _ = side.run(statement)
        shown = sum(row[1] for row in answer)
        if shown != prepared.rows + rows:
            raise BenchError(f"{statement.name}: {shown} rows instead of {prepared.rows + rows}")
        later = statistics.median(side.run(statement)[1] for _ in range(rounds))
        found.append(Hot(statement.name, statistics.median(settled[statement.name].ours), first, later))
        print("  ".join(found[-1].row()), flush=True)
    return found


# --- producers beside queries -------------------------------------------------------------------------------


@dataclass(slots=True)
class Produced:
    """Megabytes a second of a producer alone and beside queries, in turns."""

    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    queries: int = 0

    @property
    def ratio(self) -> float:
        return statistics.median(self.beside) / statistics.median(self.alone)


def measure_produce(gateway: Gateway, server: Headwater, rounds: int, seconds: float) -> Produced:
    server.create(LOAD, LOAD_PARTITIONS)
    command = [sys.executable, "-m", "benchmarks.librdkafka", server.bootstrap, LOAD, "1000000000", str(LOAD_BYTES)]
    found = Produced()
    with Client(command, server.directory / "client.log", TIMEOUT_SECONDS) as client:
        client.wait_ready()
        client.turn(ClientResult, 0, 1)
        for _ in range(rounds):
            found.alone.append(client.turn(ClientResult, 1, seconds).mb_per_second)
            stop, asked, failed = threading.Event(), list[int](), list[str]()

            def ask(stop: threading.Event, asked: list[int], failed: list[str]) -> None:
                while not stop.is_set():
                    try:
                        gateway.ask(STATEMENTS[1].ours, DUCKDB)
                        asked.append(1)
                    except BenchError as error:
                        failed.append(str(error))
                        return

            askers = [threading.Thread(target=ask, args=(stop, asked, failed), daemon=True) for _ in range(ASKERS)]
            for asker in askers:
                asker.start()
            found.beside.append(client.turn(ClientResult, 1, seconds).mb_per_second)
            stop.set()
            for asker in askers:
                asker.join()
            if failed:
                raise BenchError(failed[0])
            found.queries += len(asked)
    print(f"alone {Spread.of(found.alone)} MB/s, beside queries {Spread.of(found.beside)} MB/s", flush=True)
    return found


# --- the report ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Results:
    """All figures of a run."""

    prepared: Prepared
    duckdb: dict[str, Compared]
    spark: dict[str, Compared]
    hot_rows: int
    hot: list[Hot]
    produced: Produced

    def short_of(self) -> list[str]:
        """What was not reached."""
        missed = []
        for engine, found in ((DUCKDB, self.duckdb), (SPARK, self.spark)):
            missed += [f"{engine}, {name}: {c.ratio:.2f}" for name, c in found.items() if c.ratio > WANTED[engine]]
        missed += [f"{hot.statement}, not settled: {hot.first - hot.before:.2f} s more" for hot in self.hot
                   if hot.first - hot.before > HOT_SECONDS]  # fmt: skip
        if self.produced.ratio < PRODUCED:
            missed.append(f"producing beside queries: {self.produced.ratio:.2f}")
        return missed

    def text(self, machine: str) -> str:
        rows = [
            found[one.name].row(one, engine)
            for engine, found in ((DUCKDB, self.duckdb), (SPARK, self.spark))
            for one in STATEMENTS
            if one.name in found
        ]
        produced = self.produced
        return "\n".join([
            "## SQL", "",
            f"`make bench-query`: {self.prepared.rows:,} settled rows in {len(self.prepared.files)} files of "
            f"{self.prepared.bytes / 1e6:.0f} MB in all, {PARTITIONS} partitions. {machine}. The plain sides are "
            "DuckDB on the list of files and Spark on the Iceberg table, with as many threads and as much memory. "
            "They take turns with the gateway; medians, with the range.", "",
            markdown_table(COLUMNS, 2, rows), "",
            f"{self.hot_rows:,} more rows that are not settled (wanted: at most {HOT_SECONDS:g} s more):", "",
            markdown_table(HOT_COLUMNS, 1, [hot.row() for hot in self.hot]), "",
            f"A producer of {LOAD_BYTES:,} byte records: {Spread.of(produced.alone)} MB/s alone, "
            f"{Spread.of(produced.beside)} MB/s beside {ASKERS} callers that ask for rows by a field of JSON without a "
            f"pause ({produced.queries} answers): {produced.ratio:.2f} (wanted: at least {PRODUCED}).",
        ])  # fmt: skip


def main(
    rows: Annotated[int, typer.Option(min=1_000, help="Settled rows.")] = 10_000_000,
    hot: Annotated[int, typer.Option(min=1, help="Rows that are not settled.")] = 1_000_000,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each side.")] = 5,
    seconds: Annotated[float, typer.Option(min=1, help="How long a producer runs in a turn.")] = 10.0,
    quick: Annotated[bool, typer.Option("--quick", help="Few rows and turns; no figures to trust.")] = False,
    on_spark: Annotated[bool, typer.Option("--spark/--no-spark", help="Measure Spark too.")] = True,
    publish: Annotated[bool, typer.Option(help="Write the section of docs/benchmarks/queries.md.")] = False,
) -> None:
    """Measure SQL over topics; it fails if less is reached than wanted."""
    if quick:
        rows, hot, rounds, seconds = min(rows, 300_000), min(hot, 50_000), min(rounds, 2), min(seconds, 3.0)
    with tempfile.TemporaryDirectory(prefix="headwater-query-") as name:
        directory = Path(name)
        facts = gather_facts(directory)
        prepared = prepare(directory, rows)
        with Headwater(directory, gateway=True, settings=SETTINGS) as server:
            gateway = Gateway(server)
            by_duckdb = compare_duckdb(gateway, prepared.files, rounds)
            by_spark = compare_spark(gateway, server, rounds) if on_spark else {}
            tail = measure_hot(gateway, server, prepared, hot, by_duckdb, rounds)
            produced = measure_produce(gateway, server, rounds, seconds)
    results = Results(prepared, by_duckdb, by_spark, hot, tail, produced)
    text = results.text(
        f"{facts.machine}, {facts.date}, Headwater {facts.commit}, load average before it {facts.load_average:.1f}"
    )
    print(text)
    if publish:
        publish_section("query", text)
    missed = results.short_of()
    print("\n".join(["", "reached less than wanted:", *missed]) if missed else "\nall that is wanted was reached")
    if missed and not quick:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
