"""What a commit costs on each ledger backend: ``python -m benchmarks.ledgers``, or ``make bench-ledgers``.

Every writer is a process of its own that appends records of 1 KB one after the other, as a replica does, for a few
seconds. Afterwards one process follows the whole ledger by watching, and one asks for its end again and again.
Backends whose servers `scripts/setup-tools` has not built are left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.report import gather_facts, markdown_table, publish_section
from harness.etcd import PROGRAM, EtcdCluster
from harness.ledgers import SERVERS, LedgerServer
from harness.tools import ROOT

TIMEOUT_SECONDS = 120.0
COLUMNS = ("backend", "what", "a second", "p50 ms", "p99 ms", "CPU µs each")
TEXT = """\
## Ledgers

`make bench-ledgers`: what a commit costs on each backend. Records of 1 KB, every writer a process of its own that
appends one after the other for {seconds:g} s; *last* asks for the ledger's end, *follow* reads all of it by watching.
Servers and writers share one machine and its disk: {machine}, {date}, Headwater {commit}.

{table}

- SQLite is shared by processes on one machine; etcd runs with three members and with one, Oxia standalone, the bucket
  on an S3 server (versitygw) on the same disk.
- Writers of a bucket contend for the next slot with conditional PUTs. This is without `peers`; with them, one process
  writes for all ([ledgers](../guides/ledgers.md) has both).
- A commit is one round trip on each of them, whatever it says; a broker has one under way and puts all that came
  meanwhile into the next, so commits a second do not bound records a second.
"""


@dataclass(frozen=True, slots=True)
class Place:
    """A running store: fresh namespaces on it, and what a process needs to reach it."""

    url: Callable[[], str]
    environment: Mapping[str, str]


@contextmanager
def _sqlite(directory: Path) -> Iterator[Place]:
    names = iter(range(1_000))
    yield Place(lambda: f"sqlite://{directory}/{next(names)}/ledger.db", {})


@contextmanager
def _journal(directory: Path) -> Iterator[Place]:
    names = iter(range(1_000))
    yield Place(lambda: f"journal://{directory}/{next(names)}/journal", {})


@contextmanager
def _etcd(directory: Path) -> Iterator[Place]:
    names = iter(range(1_000))
    with EtcdCluster(directory) as cluster:
        yield Place(lambda: cluster.url(f"bench{next(names)}"), {})


def _served(make: Callable[[Path], LedgerServer]) -> Callable[[Path], Any]:
    @contextmanager
    def place(directory: Path) -> Iterator[Place]:
        with make(directory) as server:
            yield Place(lambda: server.direct(server.url()), server.environment)

    return place


def _places() -> dict[str, Callable[[Path], Any]]:
    """Everything that can be measured here, by name."""
    found: dict[str, Callable[[Path], Any]] = {"sqlite": _sqlite, "journal": _journal}
    if PROGRAM.exists():
        found["etcd, 3 members"] = _etcd
    for name, (program, make) in SERVERS.items():
        if program.exists():
            found[f"{name}, 1 member" if name == "etcd" else name] = _served(make)
    return found


# --- from outside ------------------------------------------------------------------------------------


def _run(place: Place, url: str, mode: str, count: int, seconds: float) -> list[Any]:
    """Start processes, let them begin together, and take what each says."""
    command = [sys.executable, "-m", "benchmarks.ledger_process", mode, url, str(seconds)]
    environment = {**os.environ, **place.environment}
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
                )
            )
            for _ in range(count)
        ]
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError(f"a {mode} process did not get ready on {url}")
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return [json.loads(process.communicate(timeout=TIMEOUT_SECONDS)[0]) for process in processes]


def _milliseconds(took: list[float], fraction: float) -> str:
    return f"{sorted(took)[min(len(took) - 1, int(len(took) * fraction))] * 1000:.2f}"


def _measure(name: str, place: Place, writers: list[int], seconds: float) -> Iterator[tuple[str, ...]]:
    url = ""
    for count in writers:
        url = place.url()
        took = [one for process in _run(place, url, "write", count, seconds) for one in process]
        what, rate = f"append, {count} writer{'s' * (count > 1)}", f"{len(took) / seconds:,.0f}"
        yield name, what, rate, _milliseconds(took, 0.5), _milliseconds(took, 0.99), ""
    [looks] = _run(place, url, "look", 1, seconds)
    rate = f"{len(looks) / sum(looks):,.0f}"
    yield name, "last", rate, _milliseconds(looks, 0.5), _milliseconds(looks, 0.99), ""
    [[wall, cpu, count]] = _run(place, url, "follow", 1, seconds)
    yield name, f"follow {count:,} records", f"{count / wall:,.0f}", "", "", f"{cpu / count * 1e6:.0f}"


def main(
    seconds: Annotated[float, typer.Option(help="How long writers write.")] = 3.0,
    only: Annotated[str, typer.Option(help="Only backends whose name begins so.")] = "",
    writers: Annotated[str, typer.Option(help="How many writers, comma separated.")] = "1,3,8",
    publish: Annotated[bool, typer.Option("--publish", help="Put the table on docs/benchmarks/ledgers.md.")] = False,
) -> None:
    rows: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory(prefix="headwater-ledgers-") as root:
        facts = gather_facts(Path(root))
        for number, (name, start) in enumerate(_places().items()):
            if name.startswith(only):
                directory = Path(root) / str(number)
                directory.mkdir()
                with start(directory) as place:
                    rows += _measure(name, place, [int(count) for count in writers.split(",")], seconds)
    table = Table(title="Ledgers: records of 1 KB, every writer a process")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in COLUMNS[:2] else "right")
    for row in rows:
        table.add_row(*row)
    Console(width=100).print(table)
    if publish:
        text = TEXT.format(
            seconds=seconds,
            machine=facts.machine,
            date=facts.date,
            commit=facts.commit,
            table=markdown_table(COLUMNS, 2, rows),
        )
        publish_section("ledgers", text)


if __name__ == "__main__":
    typer.run(main)
