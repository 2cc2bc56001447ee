"""Counters of queries, and their metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.errors import NoEngine, QueryCancelled, QueryLimit, SnapshotGone, StatementRefused
from headwater.ops.metrics import Metric
from headwater.query.asking import Engine, Progress
from headwater.query.engines.contract import Workers
from headwater.query.queries.shares import Shares

DONE, BUSY = "done", "busy"
_OUTCOMES: Mapping[type[Exception], str] = {
    StatementRefused: "refused",
    QueryLimit: "too_much",
    QueryCancelled: "cancelled",
    NoEngine: "no_engine",
    SnapshotGone: "snapshot_gone",
}


def outcome_of(error: Exception | None) -> str:
    """How a query has ended, as a word of few."""
    if error is None:
        return DONE
    return next((word for kind, word in _OUTCOMES.items() if isinstance(error, kind)), "failed")


@dataclass(slots=True)
class QueryCounts:
    """Counters of the queries of a gateway. `/metrics` reads them."""

    ended: dict[tuple[Engine, str], int] = field(default_factory=dict)
    """By engine and outcome. The engine is `auto` where none was chosen before the end."""
    seconds: dict[Engine, float] = field(default_factory=dict)
    """From the question to the end, the time of a slow reader included."""
    rows: dict[Engine, int] = field(default_factory=dict)
    result_bytes: dict[Engine, int] = field(default_factory=dict)
    file_bytes: dict[Engine, int] = field(default_factory=dict)
    hot_bytes: dict[Engine, int] = field(default_factory=dict)

    def count(self, engine: Engine, outcome: str, seen: Progress) -> None:
        """Count a query that is over."""
        self.ended[engine, outcome] = self.ended.get((engine, outcome), 0) + 1
        self.seconds[engine] = self.seconds.get(engine, 0.0) + seen.seconds
        for counts, number in (
            (self.rows, seen.rows),
            (self.result_bytes, seen.result_bytes),
            (self.file_bytes, seen.file_bytes),
            (self.hot_bytes, seen.hot_bytes),
        ):
            counts[engine] = counts.get(engine, 0) + number


def collect(
    counts: QueryCounts, running: Mapping[str, int], engines: Mapping[Engine, Workers], shares: Shares
) -> list[Metric]:
    """The metrics of queries. `running` has the number of queries by phase."""
    ended = [
        ({"engine": engine.value, "outcome": outcome}, float(count))
        for (engine, outcome), count in sorted(counts.ended.items())
    ]
    workers = [
        ({"engine": engine.value, "state": state}, float(number))
        for engine, own in engines.items()
        for state, number in (("busy", own.busy), ("idle", own.idle), ("starting", own.starting))
    ]
    waiting = [({"engine": engine.value}, float(own.waiting)) for engine, own in engines.items()]
    deaths = [({"engine": engine.value}, float(own.deaths)) for engine, own in engines.items()]
    phases = [({"phase": phase}, float(number)) for phase, number in running.items()]
    files, hot = _by_engine(counts.file_bytes), _by_engine(counts.hot_bytes)
    return [
        Metric("headwater_queries_total", "counter", "Queries that have ended, by engine and outcome.", ended),
        Metric("headwater_queries", "gauge", "Queries that have not ended, by phase.", phases),
        Metric("headwater_query_seconds_total", "counter", "Time of queries.", _by_engine(counts.seconds)),
        Metric("headwater_query_rows_total", "counter", "Rows of answers.", _by_engine(counts.rows)),
        Metric("headwater_query_result_bytes_total", "counter", "Bytes of answers.", _by_engine(counts.result_bytes)),
        Metric("headwater_query_file_bytes_total", "counter", "Sizes of the files of snapshots.", files),
        Metric("headwater_query_hot_bytes_total", "counter", "Bytes of the WAL in snapshots.", hot),
        Metric("headwater_query_workers", "gauge", "Processes for queries, by state.", workers),
        Metric("headwater_query_worker_waiters", "gauge", "Queries that wait for a process.", waiting),
        Metric(
            "headwater_query_share",
            "gauge",
            "Queries of one asker that an engine works on at most.",
            [({}, float(shares.most))],
        ),
        Metric(
            "headwater_query_share_largest",
            "gauge",
            "Queries of the asker for whom an engine works on most.",
            [({}, float(shares.largest))],
        ),
        Metric(
            "headwater_query_share_waiters",
            "gauge",
            "Queries that wait for others of their askers.",
            [({}, float(shares.waiting))],
        ),
        Metric("headwater_query_worker_deaths_total", "counter", "Processes that died or were killed.", deaths),
    ]


def _by_engine(values: Mapping[Engine, float]) -> list[tuple[Mapping[str, str], float]]:
    return [({"engine": engine.value}, float(value)) for engine, value in sorted(values.items())]
