"""Samples of settling into tables, on the terminal and in `docs/benchmarks/settling.md`."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from rich.table import Table

from benchmarks import settle_ours, settle_plain
from benchmarks.report import NONE, Facts, Spread, markdown_table
from benchmarks.settle_inputs import JSON_CASES
from benchmarks.settle_measure import Sample

SECTION = "settling"
COLUMNS = (
    "",
    "on",
    "records",
    "streams",
    "1,000 records/CPU-s",
    "MB/CPU-s",
    "1,000 records/s",
    "MB/s",
    "over plain, per CPU-s",
)
LEFT = 3
JSON_NAMES = [case.name for case in JSON_CASES]
TARGETS = "600,000 records per CPU-second at 100 B in batches, 60 MB at 1 KB, 250,000 in batches of one"

TEXT = """\
## Settling

From WAL in the object store to both tables committed, beside a plain PySpark append of the same rows into Iceberg and,
for JSON values, beside Apache Iceberg's sink for Kafka Connect. Written by `make bench-settle ARGS=--publish`.

| | |
|---|---|
| date | {date} |
| machine | {machine} |
| versions | {versions} |
| size | {size} |
| CPU used by others meanwhile | {others} |

Medians, with the lowest and highest run in brackets; more is better. MB are powers of ten and count record values only.
Targets: {targets}, and no slower per CPU-second than the plain append.

{table}

- **CPU** is user and system time of all processes: the driver's Python, Spark's JVM, Python workers, those that have
  exited too. Everything is warm: runs before have started sessions, compiled kernels and let the JVM compile.
- **Headwater**: a topic's records are in WAL objects of 4 MB, batches of its streams interleaved. The clock runs from
  the compactor's look at them until Iceberg and Delta are committed; ledger and files are synced to the disk. Default
  settings.
- **plain PySpark append**: `frame.writeTo(table).append()` of the segments that Headwater has just settled, read as
  Parquet, into an Iceberg table in a Hadoop catalog, in a session of its own; one task a segment, zstd level 1 as
  ours, so that files come out as large. Its files are synced within the measured time.
- **Iceberg sink**: a standalone worker with one task and its default settings, but for a commit every {commit:g} s,
  an idle wait of 1 s instead of a minute, and zstd level 1. The topic is in Kafka, in one partition, before it
  starts; the clock runs from the first record to the last commit that came while it was still reading. Only the
  worker's CPU counts, Kafka's and the producer's do not. *JSON opened* parses values into columns, which is what the
  sink is made for and settling does not do here; *raw values* keeps them as bytes with partition, offset and
  timestamp, as settling does. Runs before let the JVM compile.
- After every run DuckDB reads the tables: rows, bytes of values and distinct offsets must be those that were written.
"""


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """All that a run leaves behind."""

    facts: Facts
    size: str
    samples: list[Sample]


def rows(samples: Iterable[Sample]) -> list[list[str]]:
    """The cells of the table, one row for each subject and input, in the order of first appearance."""
    groups: dict[tuple[str, str, str, int], list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.subject, sample.master, sample.case, sample.streams), []).append(sample)
    plain = {key[1:3]: _per_cpu(found).median for key, found in groups.items() if key[0] == settle_plain.SUBJECT}
    table = []
    # What stands beside the sink comes last, together.
    for (subject, master, case, streams), found in sorted(groups.items(), key=lambda group: group[0][2] in JSON_NAMES):
        beside = plain.get((master, case.removesuffix(", zstd")))
        size = found[0].value_bytes / 1000
        per_cpu, per_second = _per_cpu(found), Spread.of([s.rows / s.wall / 1000 for s in found])
        assert per_second is not None
        ratio = f"{per_cpu.median / beside:.2f}" if beside and subject == settle_ours.SUBJECT else NONE
        table.append(
            [subject, master or NONE, case, str(streams), str(per_cpu), f"{per_cpu.median * size:.0f}",
             str(per_second), f"{per_second.median * size:.0f}", ratio]
        )  # fmt: skip
    return table


def _per_cpu(samples: list[Sample]) -> Spread:
    found = Spread.of([s.rows / s.cpu / 1000 for s in samples])
    assert found is not None
    return found


def terminal_table(samples: Iterable[Sample]) -> Table:
    table = Table(title="settling: medians (min..max)", title_justify="left")
    for index, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if index < LEFT else "right", overflow="fold")
    for row in rows(samples):
        table.add_row(*row)
    return table


def noise(samples: list[Sample], cores: int) -> float:
    """The share of the machine, in percent, that others used while samples were taken."""
    return 100 * sum(s.others for s in samples) / max(sum(s.wall for s in samples) * cores, 1e-9)


def markdown(results: Results, versions: str, commit_seconds: float) -> str:
    """The section of `docs/benchmarks/settling.md`."""
    facts = results.facts
    return TEXT.format(
        date=facts.date,
        machine=facts.machine,
        versions=f"Headwater {facts.commit}, {versions}, Python {facts.python}, Java {facts.java}",
        size=results.size,
        others=f"{noise(results.samples, facts.cores):.0f} %",
        targets=TARGETS,
        commit=commit_seconds,
        table=markdown_table(COLUMNS, LEFT, rows(results.samples)),
    )
