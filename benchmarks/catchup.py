"""Catching up from segments beside reading what was just written: ``python -m benchmarks.catchup``, or
``make bench-catchup``.

The same records, the same librdkafka consumer: first out of the WAL, then, in a server started anew, after all of it
has been settled and the WAL is gone.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.clients import Client, ClientResult
from harness.headwater import QUICK_LAKE, Headwater

TOPIC = "records"
PARTITIONS = 12
WARM_SECONDS = 5.0
LEAST = 0.4
"""What reading segments must reach of what reading the WAL does."""
TIMEOUT_SECONDS = 600.0


def _client(server: Headwater, records: int, *more: str) -> Client:
    command = [sys.executable, "-m", "benchmarks.librdkafka", server.bootstrap, TOPIC, str(records), *more]
    return Client(command, server.directory / "client.log", TIMEOUT_SECONDS)


def _consumed(server: Headwater, records: int, rounds: int, progress: Progress, what: str) -> list[float]:
    task = progress.add_task(f"consume {what}", total=rounds)
    speeds = []
    with _client(server, records) as client:
        client.wait_ready()
        client.turn(ClientResult, 0, WARM_SECONDS)
        for _ in range(rounds):
            result = client.turn(ClientResult, 0, TIMEOUT_SECONDS)
            if result.records != records:
                raise RuntimeError(f"{result.records} records instead of {records}")
            speeds.append(result.mb_per_second)
            progress.advance(task)
    return speeds


def _run(directory: Path, records: int, size: int, rounds: int, progress: Progress) -> tuple[list[float], list[float]]:
    with Headwater(directory, settings=QUICK_LAKE) as server:
        server.cli("topic", "create", TOPIC, "--partitions", str(PARTITIONS), "--bootstrap", server.bootstrap)
        producing = progress.add_task("produce", total=1)
        with _client(server, records, str(size)) as client:
            client.wait_ready()
            client.turn(ClientResult, 0, TIMEOUT_SECONDS)
        progress.advance(producing)
        tail = _consumed(server, records, rounds, progress, "out of the WAL")
    with Headwater(directory, lake=True, settings=QUICK_LAKE) as server:
        settling = progress.add_task("settle, and collect the WAL", total=1)
        server.table("settle", TOPIC, "--timeout", "600")
        server.wait_for_collection()
        progress.advance(settling)
        return tail, _consumed(server, records, rounds, progress, "out of segments")


def main(
    records: Annotated[int, typer.Option(min=1, help="How many records.")] = 1_000_000,
    size: Annotated[int, typer.Option(min=1, help="Bytes of a value.")] = 1024,
    rounds: Annotated[int, typer.Option(min=1, help="How often each is read.")] = 5,
) -> None:
    """Measure both and print the ratio; it fails below what is demanded."""
    console = Console()
    columns = (TextColumn("{task.description:<30}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="headwater-catchup-") as directory,
        Progress(*columns, console=console) as progress,
    ):
        tail, segments = _run(Path(directory), records, size, rounds, progress)
    for what, speeds in (("out of the WAL", tail), ("out of segments", segments)):
        median = statistics.median(speeds)
        console.print(f"{what:16} {median:6.0f} MB/s ({min(speeds):.0f} to {max(speeds):.0f})", highlight=False)
    ratio = statistics.median(segments) / statistics.median(tail)
    console.print(f"ratio {ratio:.2f}, demanded {LEAST}", style="green" if ratio >= LEAST else "red")
    if ratio < LEAST:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
