"""What the benchmark beside Kafka measures: its steps, the order of the systems in them, and their time limits.

Nothing here starts a process. A step is one kind of load with one shape of records, measured in turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import msgspec

from harness.process import START_SECONDS

KAFKA, LOG, LAKE = "kafka", "headwater-no-lake", "headwater"
TITLES = {KAFKA: "Apache Kafka", LOG: "Headwater `--no-lake`", LAKE: "Headwater"}
HOUR_SECONDS = 3600
RATE_BYTES = 20_000_000
"""Payload a second of the latency steps."""
SLOWEST_BYTES = 30_000_000
"""Payload a second at which a warm-up still ends within its limit."""
DRAIN_SECONDS = 20.0
"""How long settling is expected to need after a turn: a third of the freshness target, and its jobs."""
CLIENT_SECONDS = 4.0
"""How long a client is expected to need to start and to connect."""
PAUSE_SECONDS = 2.0
"""What a turn takes beside the load: dirty pages are written back, counters are read."""


Item = TypeVar("Item")


class Kind(StrEnum):
    """A kind of load."""

    PRODUCE = "produce"
    """Kafka's Java producer at full speed."""
    TAIL = "tail"
    """The same, with a Java consumer at the end of the log."""
    CATCH_UP = "catch up"
    """A Java consumer that reads from the beginning."""
    LATENCY = "latency"
    """A Java producer and a Java consumer at a fixed rate."""
    RDKAFKA_PRODUCE = "librdkafka produce"
    RDKAFKA_CATCH_UP = "librdkafka catch up"
    TRANSACTIONS = "transactions"
    """Java producers with and without transactions, in one JVM. Only a run that names this kind measures it."""
    ISOLATION = "isolation"
    """Java consumers of all and of committed records, in one JVM. Measured after the transactions that it reads."""


WRITES = frozenset({Kind.PRODUCE, Kind.TAIL, Kind.LATENCY, Kind.RDKAFKA_PRODUCE, Kind.TRANSACTIONS})
"""Kinds after which a compactor has something to settle."""
CHOICES = tuple(kind for kind in Kind if kind is not Kind.ISOLATION)
"""Kinds that a run may be limited to."""


@dataclass(frozen=True, slots=True)
class Way:
    """One of several ways of a kind of load. They are measured in every turn, one right after the other."""

    word: str
    """What the client is told."""
    title: str
    base: str = ""
    """The title of the way that it is compared with."""
    wanted: float = 0.0
    """What its rate must reach of that way's rate; 0 if nothing is asked for."""


PLAIN, UNCOMMITTED = "produce plain", "read uncommitted"
WAYS = {
    Kind.TRANSACTIONS: (
        Way("plain", PLAIN),
        Way("idempotent", "produce idempotent", PLAIN, 0.95),
        Way("100", "produce 100 ms transactions", PLAIN, 0.8),
        Way("small", "produce small transactions"),
    ),
    Kind.ISOLATION: (
        Way("read_uncommitted", UNCOMMITTED),
        Way("read_committed", "read committed", UNCOMMITTED, 0.95),
    ),
}


@dataclass(frozen=True, slots=True)
class Step:
    """One kind of load on every system of its group, in turns."""

    kind: Kind
    size: int
    partitions: int
    systems: tuple[str, ...]
    turns: int
    lead_seconds: float
    """For how long the load runs in every turn before it counts."""
    counted_seconds: float
    expected_seconds: float
    limit_seconds: float
    """When the step is given up."""

    @property
    def label(self) -> str:
        return f"{self.kind.value} {shape(self.size, self.partitions)}"

    @property
    def ways(self) -> tuple[Way, ...]:
        return WAYS.get(self.kind, ())

    def case(self, way: Way) -> str:
        """Under what the samples of a way are kept."""
        return f"{way.title} {shape(self.size, self.partitions)}"

    @property
    def cases(self) -> tuple[str, ...]:
        """Under what the samples of the step are kept."""
        return tuple(self.case(way) for way in self.ways) or (self.label,)


@dataclass(frozen=True, slots=True)
class Group:
    """Steps with the same records. They share a topic in each system, and the producer of each."""

    size: int
    partitions: int
    systems: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def fills_itself(self) -> bool:
        """Whether the clients of the steps write all that is read, so that no other producer is needed."""
        return bool(self.steps) and all(step.ways for step in self.steps)

    @property
    def label(self) -> str:
        return shape(self.size, self.partitions)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and times of one run. A run can only be resumed with the plan that it began with."""

    systems: tuple[str, ...] = (KAFKA, LOG, LAKE)
    only: tuple[str, ...] = ()
    """Kinds of load to measure; empty for all."""
    turns: int = 6
    """Turns of each system in a step, rounded up so that each goes first equally often."""
    warm_mb: int = 3_000
    """What goes through each server before anything counts."""
    warm_seconds: float = 10.0
    """For how long each further producer warms up, its server being warm."""
    lead_seconds: float = 3.0
    """How long a load of the full matrix runs in each turn before it is measured, so that settling runs too."""
    measure_seconds: float = 6.0
    short_lead_seconds: float = 1.0
    """The same for variations, and for reading."""
    short_measure_seconds: float = 4.0
    idle_seconds: float = 10.0
    slack: float = 1.15
    """A step is given up when it takes this many times as long as expected, and `slack_seconds` more."""
    slack_seconds: float = 8.0
    drain_limit_seconds: float = 60.0
    """When settling after a turn is given up."""
    linger: str = "default"
    kafka_syncs: bool = False

    def groups(self) -> list[Group]:
        """The full matrix at one shape, then one variation at a time. Its hour is full.

        Transactions are measured by a run of their own.
        """
        full = (Kind.PRODUCE, Kind.TAIL, Kind.CATCH_UP, Kind.LATENCY)
        short = (Kind.PRODUCE, Kind.CATCH_UP)
        librdkafka = (Kind.RDKAFKA_PRODUCE, Kind.RDKAFKA_CATCH_UP)
        transactions = tuple(WAYS) if Kind.TRANSACTIONS in self.only else ()
        found = [
            self._group(1024, 12, self._wanted(full), self.systems, long=True),
            *(self._group(1024, partitions, self._wanted(short), self._pair) for partitions in (1, 4, 100)),
            self._group(100, 12, self._wanted(short), self._pair),
            self._group(1024, 12, self._wanted(librdkafka), self._pair),
            self._group(1024, 12, transactions, self._pair),
        ]
        return [group for group in found if group.steps]

    @property
    def warming(self) -> Group:
        """The records that go through each server before anything counts."""
        return Group(1024, 12, self.systems, ())

    @property
    def _pair(self) -> tuple[str, ...]:
        """Variations compare logs: the system that settles takes no part, unless it is alone with another."""
        pair = tuple(name for name in self.systems if name != LAKE)
        return pair if len(pair) > 1 else self.systems

    def _wanted(self, kinds: Sequence[Kind]) -> list[Kind]:
        return [kind for kind in kinds if not self.only or kind in self.only]

    def _group(
        self, size: int, partitions: int, kinds: Sequence[Kind], systems: tuple[str, ...], long: bool = False
    ) -> Group:
        steps = tuple(self._step(kind, size, partitions, systems, long) for kind in kinds)
        return Group(size, partitions, systems, steps)

    def _step(self, kind: Kind, size: int, partitions: int, systems: tuple[str, ...], long: bool) -> Step:
        count = len(systems)
        turns = -(-self.turns // count) * count
        lead, counted = self.short_lead_seconds, self.short_measure_seconds
        if long and kind in WRITES:
            lead, counted = self.lead_seconds, self.measure_seconds
        settling = DRAIN_SECONDS if kind in WRITES and LAKE in systems else 0
        once = len(WAYS.get(kind, "-")) * (count * (lead + counted + PAUSE_SECONDS) + settling)
        first = 0.0 if kind is Kind.PRODUCE else once + count * CLIENT_SECONDS
        expected = turns * once + first
        return Step(kind, size, partitions, systems, turns, lead, counted, expected, self._limit(expected))

    def _limit(self, expected: float) -> float:
        return expected * self.slack + self.slack_seconds

    @property
    def warm_limit_seconds(self) -> float:
        """When the warm-up of a server is given up."""
        return self.warm_mb * 1e6 / SLOWEST_BYTES + self.client_limit_seconds + self.short_seconds

    @property
    def client_limit_seconds(self) -> float:
        """When the warm-up of a further producer is given up."""
        return self._limit(CLIENT_SECONDS) + self.warm_seconds

    @property
    def short_seconds(self) -> float:
        return self.short_lead_seconds + self.short_measure_seconds

    @property
    def idle_limit_seconds(self) -> float:
        return self.idle_seconds + 5 * PAUSE_SECONDS

    @property
    def limit_seconds(self) -> float:
        """When the whole run ends at the latest."""
        start = len(self.systems) * (START_SECONDS + self.warm_limit_seconds) + self.drain_limit_seconds
        groups = sum(
            len(group.systems) * self.client_limit_seconds + sum(step.limit_seconds for step in group.steps)
            for group in self.groups()
        )
        return start + groups + self.idle_limit_seconds

    def described(self) -> str:
        """The sizes in words, for the table of facts."""
        return (
            f"{self.warm_mb} MB through each server before anything counts; {self.turns} turns, of "
            f"{self.measure_seconds:g} s after {self.lead_seconds:g} s in the full matrix, of "
            f"{self.short_measure_seconds:g} s after {self.short_lead_seconds:g} s in variations and reads"
        )


QUICK = Plan(
    turns=1,
    warm_mb=30,
    warm_seconds=2.0,
    lead_seconds=1.0,
    measure_seconds=1.0,
    short_lead_seconds=0.5,
    short_measure_seconds=1.0,
    idle_seconds=2.0,
    slack=2.0,
    slack_seconds=40.0,
    drain_limit_seconds=300.0,
)
"""Just enough to see that every step works."""


def order(those: Sequence[Item], turn: int) -> list[Item]:
    """The order of systems or ways in a turn, counted from 0. Each goes first equally often, with every other behind
    it."""
    count = len(those)
    first = turn % count
    rest = [*those[first + 1 :], *those[:first]]
    return [those[first], *(rest if turn // count % 2 == 0 else reversed(rest))]


def shape(size: int, partitions: int) -> str:
    return f"{f'{size // 1024} KB' if size % 1024 == 0 else f'{size} B'} × {partitions}"
