"""Schemas that evolve in thirty steps, read by all engines at every version; odd names and limits.

python -m tests.soak.evolution --seeds 4 --first 1

Each seed has three topics: records with schemas, the same flattened, and JSON without schemas. Of the seeds some settle
every step by itself, others several at once. The reference is what fastavro, Protobuf's library and `json` read, in the
columns that a plain model has by the rules of the documentation.
"""

from __future__ import annotations

import argparse
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from confluent_kafka import Producer
from deltalake import DeltaTable

from demo.readers import CATALOG, NAMESPACE, spark
from harness.jvm import OF_SPARK
from harness.storage import Place
from harness.trino import Trino
from tests.engines.evolving import (
    SETTINGS,
    Evolution,
    Read,
    Rows,
    by_duckdb,
    by_duckdb_delta,
    by_pyiceberg,
    check_odd,
    check_version,
    consumer_of,
    create,
    load,
    snapshots,
    wait_for,
)
from tests.faults.lake_running import LakeRunning
from tests.soak import evolution_trino
from tests.soak.common import Verdict, console, progress, workplace
from tests.support.evolving.odd import Odd, odd_topics

PROMISES = ("T6", "T7")

GROUPS = (1, 3, 10, 2)
"""How many steps are settled at once, seed by seed."""

ENGINES = ("DuckDB", "pyiceberg", "Polars", "Spark", "delta-rs", "Trino")


def by_delta_rs(place: Place, version: int) -> Rows:
    found: Rows = DeltaTable(place.root, version=version).to_pyarrow_table().to_pylist()
    return found


def by_polars_delta(place: Place, version: int) -> Rows:
    found: Rows = pl.scan_delta(place.root, version=version).collect().to_arrow().to_pylist()
    return found


def by_polars_iceberg(place: Place, version: int) -> Rows:
    found: Rows = pl.scan_iceberg(load(place, place.topic), snapshot_id=version).collect().to_arrow().to_pylist()
    return found


def by_spark_iceberg(session: Any) -> Read:
    def read(place: Place, version: int) -> Rows:
        table = f"{CATALOG}.{NAMESPACE}.`{place.topic}`"
        found: Rows = session.sql(f"SELECT * FROM {table} VERSION AS OF {version}").toArrow().to_pylist()
        return found

    return read


def by_spark_delta(session: Any) -> Read:
    def read(place: Place, version: int) -> Rows:
        frame = session.read.format("delta").option("versionAsOf", version).load(place.root)
        found: Rows = frame.toArrow().to_pylist()
        return found

    return read


@dataclass(slots=True)
class Totals:
    """What was read, by engine, and what was wrong."""

    versions: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    odd: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @contextmanager
    def noting(self, what: str) -> Iterator[None]:
        """Go on after a failure, so that one run tells all."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - engines have errors of their own
            if not isinstance(error, AssertionError):
                console.print("".join(traceback.format_exception(error)[-3:]), markup=False)
            self.wrong.append(f"{what}: {type(error).__name__}: {str(error)[:2_000]}")


def versions_of(place: Place, kind: str) -> list[int]:
    """All versions of a table: snapshots of Iceberg, numbers of Delta."""
    if kind == "Iceberg":
        return snapshots(place)
    newest = DeltaTable(place.root)
    return [*range(newest.version() + 1)]


def read_all(readers: dict[str, Read], place: Place, topic: Any, totals: Totals) -> None:
    """Every engine, every version of a topic's table."""
    for name, read in readers.items():
        seen: set[int] = set()

        for version in versions_of(place, name.rpartition(", ")[2]):
            with totals.noting(f"{name}, {place.topic}, version {version}"):
                rows = check_version(name, read(place, version), topic)
                seen.add(rows)
                totals.versions[name] += 1
                totals.rows[name] += rows
        if seen != {*topic.versions}:
            totals.wrong.append(f"{name}, {place.topic}: read {sorted(seen)} of {sorted(topic.versions)}")


def readers_of(engines: Sequence[str], stack: ExitStack, place: Place, directory: Path) -> dict[str, Read]:
    """The readers of some engines by their names, with the format behind a comma."""
    found: dict[str, Read] = {
        "DuckDB, Iceberg": by_duckdb,
        "pyiceberg, Iceberg": by_pyiceberg,
        "Polars, Iceberg": by_polars_iceberg,
        "delta-rs, Delta": by_delta_rs,
        "Polars, Delta": by_polars_delta,
        "DuckDB, Delta": by_duckdb_delta,
    }
    if "Spark" in engines:
        session = stack.enter_context(spark(place, {**OF_SPARK, "spark.sql.session.timeZone": "UTC"}))
        found |= {"Spark, Iceberg": by_spark_iceberg(session), "Spark, Delta": by_spark_delta(session)}
    if "Trino" in engines:
        trino = Trino(directory / "trino")
        stack.enter_context(trino)
        found |= evolution_trino.readers(trino, place, directory / "deltas")
    return {name: read for name, read in found.items() if name.partition(", ")[0] in engines}


def story(
    server: LakeRunning, directory: Path, seeds: list[int], group: int, engines: Sequence[str], totals: Totals
) -> None:
    odd = odd_topics()
    _produce_odd(server, odd)
    places = {}
    with progress() as bars:
        bar = bars.add_task("evolutions", total=len(seeds), now="")
        evolutions = []
        for at, seed in enumerate(seeds):
            evolution = Evolution(server, seed, group or GROUPS[at % len(GROUPS)])
            with consumer_of(server, [topic.name for topic in evolution.topics]) as consumed:
                evolution.run()
                got = consumed(sum(len(topic.sent) for topic in evolution.topics))
            for topic in evolution.topics:
                if got[topic.name] != topic.sent:
                    totals.wrong.append(f"{topic.name}: a consumer got other bytes")
            evolutions.append(evolution)
            bars.update(bar, advance=1, now=f"seed {seed}")
        for one in odd:
            wait_for(server, one.topic, len(one.payloads))
        places = {name: server.place(name, table.root) for name, table in server.look().tables.items() if table.root}
        with ExitStack() as stack:
            readers = readers_of(engines, stack, next(iter(places.values())), directory)
            for one in odd:
                place = places[one.topic]
                for name, read in readers.items():
                    newest = versions_of(place, name.rpartition(", ")[2])[-1]
                    with totals.noting(f"{name}, {one.topic}"):
                        check_odd(name, read(place, newest), one)
                        totals.odd[name] += 1
            bar = bars.add_task("topics", total=3 * len(seeds), now="")
            for evolution in evolutions:
                for topic in evolution.topics:
                    bars.update(bar, now=topic.name)
                    read_all(readers, places[topic.name], topic, totals)
                    bars.update(bar, advance=1)


def _produce_odd(server: LakeRunning, odd: list[Odd]) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 1_000})
    for one in odd:
        create(server, one.topic, "json", **({"headwater.table.flatten": "true"} if one.flatten else {}))
        for payload in one.payloads:
            producer.produce(one.topic, payload, partition=0)
    assert producer.flush(60) == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--group", type=int, default=0, help="how many steps are settled at once, for all seeds")
    parser.add_argument(
        "--engines", nargs="+", choices=ENGINES, default=ENGINES, help="those that read; all by default"
    )
    options = parser.parse_args()
    seeds, totals = [*range(options.first, options.first + options.seeds)], Totals()
    with (
        workplace("evolution") as directory,
        LakeRunning(directory / "headwater", settings=SETTINGS.format(merge_files=5)) as server,
    ):
        story(server, directory, seeds, options.group, options.engines, totals)
    verdict = Verdict(f"{len(seeds)} evolutions of thirty steps, read by {', '.join(options.engines)}")
    for name in totals.versions:
        verdict.fact(f"{name}: versions", totals.versions[name])
        verdict.fact(f"{name}: rows", totals.rows[name])
        verdict.floor(f"{name}: tables with odd names and limits", totals.odd[name], len(odd_topics()))
    for line in totals.wrong[:20]:
        console.print(line, markup=False)
    verdict.rule("differences", len(totals.wrong), 0)
    verdict.leave()


if __name__ == "__main__":
    main()
