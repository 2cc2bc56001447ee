"""Results of the benchmark beside Kafka as lines and tables, on the terminal and in docs/benchmarks/kafka.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from rich.table import Table

from benchmarks.plan import KAFKA, LAKE, LOG, RATE_BYTES, TITLES, Kind, shape
from benchmarks.report import NOISY_PERCENT, NONE, Spread, markdown_table, number
from benchmarks.results import IDLE, LOADED, STARTUP, THROUGHPUT, Results, Sample
from benchmarks.systems import BROKER, COMPACTOR, GATEWAY, PARTS, SUPERVISOR
from benchmarks.turns import CPU, FOREIGN, IDLING, STOLEN

WANTED_SETTLING = 0.75
"""What a producer's rate with settling on must reach of its rate with settling off."""
SHARES = (STOLEN, FOREIGN, IDLING)

SECTION = """\
## Beside Apache Kafka

Three servers on the same disk of the same machine, driven by the same clients: Apache Kafka; Headwater with the default
settings of `headwater up`, which settles topics into tables; and Headwater with `--no-lake`, which does not. Written by
`make bench ARGS=--publish`.

| | |
|---|---|
| date | {date} |
| machine | {machine} |
| kernel | {kernel} |
| versions | {versions} |
| size | {size} |
| starts of the servers | {starts} |

Medians of all turns, with the lowest and highest turn in brackets; a ratio is Headwater's median over Apache Kafka's.
More is better for rates; less is better for latency, CPU, memory and startup. MB and GB are powers of ten and count
record values only.

{rates}

{settling}

CPU seconds per GB, user and system time. Headwater has parts: the broker, the compactor with Spark (its JVM and
Python workers), and the supervisor.

{cpu}

What others had of the machine during the turns, in percent of all cores: the hypervisor, other processes, and the
servers that were not in turn.

{shares}

- **Turns**: each server is started once and gets the same load before anything counts (see size); a JVM compiles for
  minutes. Then the servers take turns of a few seconds. Each goes first equally often. Dirty pages are written back
  before a turn. After a turn of the server that settles, the next one waits until nothing is left to settle; the CPU of
  that time counts for the turn before.
- **produce**: Kafka's own `ProducerPerformance` at the defaults of the Java client, acks=all, by what the log grows.
  Each server has a producer of its own, which is warm and is paused while another server has its turn.
- **tail**: the same, with a Java consumer at its defaults at the end of the log, all partitions assigned by hand.
- **catch up**: that consumer reads from the beginning of the log. With settling it reads segments.
- **latency**: from the moment a record was due to be sent until the consumer has it, at {rate} MB/s, both Java clients
  in one JVM. A wait in the producer counts.
- **librdkafka**: confluent-kafka at its defaults, the consumer with a longer local queue.
- Partitions, record size and client vary one at a time, between the servers that do not settle.
- Clients and servers share the cores: a server that uses less CPU leaves more to its client.
- Apache Kafka runs as its distribution configures it: one node, a heap of 1 GB, and acknowledgements that do
  not wait for the disk. Headwater acknowledges what is on the disk and in the ledger.
"""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of text: its title, its columns, how many of them are names, and its rows."""

    title: str
    columns: tuple[str, ...]
    left: int
    rows: list[list[str]]

    def markdown(self) -> str:
        return markdown_table(self.columns, self.left, self.rows)

    def terminal(self) -> Table:
        table = Table(title=self.title, title_justify="left")
        for index, column in enumerate(self.columns):
            table.add_column(column, justify="left" if index < self.left else "right", overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        return table


def rates(results: Results) -> Grid:
    """Rates, latencies, startup, idle load and memory: one row per case and metric."""
    columns = ("case", "metric", *(TITLES[name] for name in (KAFKA, LOG)), "ratio", TITLES[LAKE], "ratio")
    hidden = {CPU, *SHARES, *(f"{CPU} {part}" for part in PARTS)}
    rows = []
    for case, metric, unit in _metrics(results):
        if metric in hidden:
            continue
        kafka, log, lake = (results.values(name, case, metric) for name in (KAFKA, LOG, LAKE))
        row = [case, f"{metric}, {unit}", _spread(kafka), _spread(log), _ratio(log, kafka)]
        rows.append([*row, _spread(lake), _ratio(lake, kafka)])
    return Grid("medians (min..max); ratio: over Apache Kafka", columns, 2, rows)


def cpu(results: Results) -> Grid:
    """CPU per GB of each step, and in percent of a core without load; Headwater's in parts."""
    parts = ("broker", "supervisor", "all", "ratio")
    columns = ("case", "Kafka", *(f"no lake: {part}" for part in parts))
    columns += tuple(f"settling: {part}" for part in ("broker", "compactor", "gateway", *parts[1:]))
    rows = []
    for case in dict.fromkeys(case for case, metric, _ in _metrics(results) if metric == CPU):
        kafka = results.values(KAFKA, case, CPU)
        row = [case, _spread(kafka)]
        for name, shown in ((LOG, (BROKER, SUPERVISOR)), (LAKE, (BROKER, COMPACTOR, GATEWAY, SUPERVISOR))):
            row += [_median(results.values(name, case, f"{CPU} {part}")) for part in shown]
            whole = results.values(name, case, CPU)
            row += [_spread(whole), _ratio(whole, kafka)]
        rows.append(row)
    return Grid("CPU seconds per GB", columns, 1, rows)


def shares(results: Results) -> Grid:
    """What others had of the machine in the turns of each step."""
    columns = ("case", *(f"{TITLES[name]}: {share}" for name in (KAFKA, LOG, LAKE) for share in SHARES))
    rows = []
    for case in dict.fromkeys(case for case, metric, _ in _metrics(results) if metric == FOREIGN):
        row = [case]
        for name in (KAFKA, LOG, LAKE):
            row += [_spread(results.values(name, case, share)) for share in SHARES]
        rows.append(row)
    return Grid("percent of the machine that others had in the turns", columns, 1, rows)


def ways(results: Results) -> Grid:
    """What one way of a load costs over another: medians of the ratios of every turn, rate and CPU of each system."""
    measured = (f"{TITLES[name]}: {what}" for name in (KAFKA, LOG, LAKE) for what in ("rate", "CPU"))
    columns = ("case", "over", "wanted", *measured)
    rows = []
    for step in (step for group in results.plan.groups() for step in group.steps):
        bases = {way.title: step.case(way) for way in step.ways}
        for way in (way for way in step.ways if way.base):
            row = [step.case(way), way.base, number(way.wanted) if way.wanted else NONE]
            for name in (KAFKA, LOG, LAKE):
                for metric in (THROUGHPUT, CPU):
                    ours, theirs = (results.values(name, case, metric) for case in (step.case(way), bases[way.base]))
                    ratios = [one / other for one, other in zip(ours, theirs, strict=True) if other]
                    row.append(_spread(ratios))
            rows.append(row)
    return Grid("ratios of ways, turn by turn: medians (min..max)", columns, 2, rows)


def tables(results: Results) -> list[Table]:
    grids = [grid(results) for grid in (rates, ways, cpu, shares)]
    return [grid.terminal() for grid in grids if grid.rows]


def settling_ratio(results: Results) -> float | None:
    """The Java producer's rate with settling on over its rate with settling off."""
    case = f"{Kind.PRODUCE.value} {shape(1024, 12)}"
    on, off = (results.values(name, case, THROUGHPUT) for name in (LAKE, LOG))
    return median(on) / median(off) if on and off else None


def settling_line(results: Results) -> str:
    ratio = settling_ratio(results)
    if ratio is None:
        return ""
    return f"Settling on against off: the Java producer reaches {ratio:.2f} of its rate ({WANTED_SETTLING} is wanted)."


def shares_line(results: Results) -> str:
    """A warning if the machine was not ours; empty if it was."""
    worst = [
        (median(values), system, case)
        for system in (KAFKA, LOG, LAKE)
        for case in dict.fromkeys(sample.case for sample in results.samples)
        if (values := _sums(results.samples, system, case))
    ]
    if not worst or max(worst)[0] <= NOISY_PERCENT:
        return ""
    share, system, case = max(worst)
    return f"Others used {share:.0f} % of the machine in {case} of {TITLES[system]}: do not trust these figures."


def _sums(samples: Iterable[Sample], system: str, case: str) -> list[float]:
    """What the hypervisor and other processes had together, turn by turn."""
    found: dict[int, float] = {}
    for sample in samples:
        if (sample.system, sample.case) == (system, case) and sample.metric in (STOLEN, FOREIGN):
            found[sample.turn] = found.get(sample.turn, 0.0) + sample.value
    return list(found.values())


def turn_line(system: str, samples: Sequence[Sample]) -> str:
    """One turn of one system, or what was measured beside turns."""
    values = ", ".join(f"{sample.metric} {number(sample.value)} {sample.unit}" for sample in samples)
    return f"{samples[0].turn} {TITLES[system]}: {values}"


def summary(results: Results) -> str:
    """How much of the run is there, and how long it took."""
    steps = [step for group in results.plan.groups() for step in group.steps]
    left = len(results.steps_left(steps))
    took = sum(results.seconds.values())
    return (
        f"{len(steps) - left} of {len(steps)} steps in {took / 60:.0f} minutes{'; --resume continues' if left else ''}"
    )


def markdown(results: Results) -> str:
    """The section of docs/benchmarks/kafka.md."""
    facts = results.facts
    versions = (
        f"Headwater {facts.commit}, Apache Kafka {facts.kafka}, Python {facts.python}, Java {facts.java}, "
        f"librdkafka {facts.librdkafka}"
    )
    return SECTION.format(
        date=facts.date,
        machine=facts.machine,
        kernel=facts.kernel,
        versions=versions,
        size=results.plan.described(),
        starts=results.starts,
        rates=rates(results).markdown(),
        settling=settling_line(results),
        cpu=cpu(results).markdown(),
        shares=shares(results).markdown(),
        rate=RATE_BYTES // 1_000_000,
    )


def _metrics(results: Results) -> list[tuple[str, str, str]]:
    """Every case with its metrics and their units: steps in the order of the plan, then startup, idling and memory."""
    labels = [case for group in results.plan.groups() for step in group.steps for case in step.cases]
    labels += [STARTUP, IDLE, LOADED]
    found = dict.fromkeys((sample.case, sample.metric, sample.unit) for sample in results.samples)
    return sorted(found, key=lambda row: labels.index(row[0]))


def _spread(values: list[float]) -> str:
    spread = Spread.of(values)
    return NONE if spread is None else str(spread)


def _median(values: list[float]) -> str:
    return number(median(values)) if values else NONE


def _ratio(ours: list[float], theirs: list[float]) -> str:
    return f"{median(ours) / median(theirs):.2f}" if ours and theirs and median(theirs) else NONE
