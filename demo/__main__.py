"""`make demo`: produces a million records over Kafka; every reader gets the same records from the same files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import Producer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from demo.readers import ON_SPARK, PLAIN, Sum, spark
from harness.headwater import QUICK_LAKE, Headwater

TOPIC = "orders"
PARTITIONS = 4
STEP = 10_000


def produce(server: Headwater, records: int, tell: Callable[[int], None]) -> None:
    """Produce records with keys, values and headers, with the idempotent producer of librdkafka."""
    failed: list[str] = []

    def delivered(error: object, message: object) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer(
        {"bootstrap.servers": server.bootstrap, "enable.idempotence": True, "linger.ms": 20, "compression.type": "lz4"}
    )
    for i in range(records):
        while True:
            try:
                producer.produce(
                    TOPIC,
                    key=b"customer-%d" % (i % 1000),
                    value=b'{"order":%d,"amount":%d,"note":"%s"}' % (i, i * 7 % 9973, b"x" * (i % 50)),
                    headers=[("trace", b"%d" % i)],
                    on_delivery=delivered,
                )
                break
            except BufferError:
                producer.poll(0.1)
        if i % STEP == STEP - 1:
            producer.poll(0)
            tell(STEP)
    producer.flush(120)
    if failed or len(producer):
        raise RuntimeError(f"{len(failed) + len(producer)} records were not acknowledged: {failed[:1]}")


def main(
    records: Annotated[int, typer.Option(min=1, help="How many records.")] = 1_000_000,
    keep: Annotated[Path | None, typer.Option(help="Work in this directory and leave it behind.")] = None,
    objects: Annotated[str, typer.Option(help="Keep objects there, s3://BUCKET/PREFIX; AWS_… says how.")] = "",
) -> None:
    """Produce, settle, collect the WAL, and read with every reader."""
    console = Console()
    columns = (SpinnerColumn(), TextColumn("{task.description:<44}"), BarColumn(), MofNCompleteColumn())
    with tempfile.TemporaryDirectory(prefix="headwater-demo-") as temporary:
        directory = keep or Path(temporary)
        with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
            sums = _run(directory, objects, records, progress)
    for name, found in sums.items():
        console.print(f"{name:32} {found}", highlight=False)
    if len(set(sums.values())) != 1 or next(iter(sums.values())).rows != records:
        console.print("the readers do not agree", style="red")
        raise typer.Exit(1)
    console.print(f"all {len(sums)} read the same {records:,} records", style="green")


def _run(directory: Path, objects: str, records: int, progress: Progress) -> dict[str, Sum]:
    starting = progress.add_task("start brokers and a compactor", total=1)
    with Headwater(directory, lake=True, settings=QUICK_LAKE, objects=objects) as server:
        progress.advance(starting)
        server.cli("topic", "create", TOPIC, "--partitions", str(PARTITIONS), "--bootstrap", server.bootstrap)
        producing = progress.add_task("produce over Kafka", total=records)
        produce(server, records, lambda count: progress.advance(producing, count))
        progress.update(producing, completed=records)
        settling = progress.add_task("settle on Spark into Iceberg and Delta", total=1)
        server.table("settle", TOPIC, "--timeout", "600")
        progress.advance(settling)
        collecting = progress.add_task("collect the WAL", total=max(server.wal_objects(), 1))
        server.wait_for_collection()
        progress.update(collecting, completed=progress.tasks[collecting].total)
        return _read(server, progress)


def _read(server: Headwater, progress: Progress) -> dict[str, Sum]:
    place = server.place(TOPIC)
    reading = progress.add_task("read", total=len(PLAIN) + len(ON_SPARK))
    sums = {}
    for name, reader in PLAIN.items():
        progress.update(reading, description=f"read: {name}")
        sums[name] = reader(place)
        progress.advance(reading)
    progress.update(reading, description="read: start Spark with its connectors")
    with spark(place) as session:
        for name, on_spark in ON_SPARK.items():
            progress.update(reading, description=f"read: {name}")
            sums[name] = on_spark(place, session)
            progress.advance(reading)
    return sums


if __name__ == "__main__":
    typer.run(main)
