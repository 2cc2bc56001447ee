"""Queries in numbers: what `/metrics` shows of them."""

from __future__ import annotations

import pytest

from headwater.errors import (
    BadInput,
    HeadwaterError,
    NoEngine,
    QueryCancelled,
    QueryFailed,
    QueryLimit,
    SnapshotGone,
    StatementRefused,
)
from headwater.ops.metrics import render
from headwater.query.asking import Engine, Progress
from headwater.query.engines.contract import Workers
from headwater.query.queries.counts import QueryCounts, collect, outcome_of
from headwater.query.queries.shares import Shares


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (None, "done"),
        (StatementRefused("x"), "refused"),
        (QueryFailed("x"), "failed"),
        (QueryLimit("x"), "too_much"),
        (QueryCancelled("x"), "cancelled"),
        (NoEngine("x"), "no_engine"),
        (SnapshotGone("x"), "snapshot_gone"),
        (BadInput("x"), "failed"),
    ],
)
def test_every_end_has_a_word(error: HeadwaterError | None, word: str) -> None:
    assert outcome_of(error) == word


def test_queries_are_added_up_by_engine() -> None:
    counts = QueryCounts()
    counts.count(Engine.DUCKDB, "done", Progress(seconds=0.5, rows=3, result_bytes=40, file_bytes=1000, hot_bytes=20))
    counts.count(Engine.DUCKDB, "done", Progress(seconds=1.0, rows=4, result_bytes=60))
    counts.count(Engine.DUCKDB, "failed", Progress(seconds=0.25))
    counts.count(Engine.SPARK, "done", Progress(seconds=2.0, rows=1))
    engines = {Engine.DUCKDB: Workers(busy=1, idle=2, starting=3, waiting=4, deaths=5)}
    found = render(collect(counts, {"waiting": 1, "running": 2}, engines, Shares(2))).splitlines()
    for line in (
        'headwater_queries_total{engine="duckdb",outcome="done"} 2',
        'headwater_queries_total{engine="duckdb",outcome="failed"} 1',
        'headwater_queries_total{engine="spark",outcome="done"} 1',
        'headwater_queries{phase="running"} 2',
        'headwater_query_seconds_total{engine="duckdb"} 1.75',
        'headwater_query_rows_total{engine="duckdb"} 7',
        'headwater_query_result_bytes_total{engine="duckdb"} 100',
        'headwater_query_file_bytes_total{engine="duckdb"} 1000',
        'headwater_query_hot_bytes_total{engine="duckdb"} 20',
        'headwater_query_workers{engine="duckdb",state="busy"} 1',
        'headwater_query_workers{engine="duckdb",state="idle"} 2',
        'headwater_query_workers{engine="duckdb",state="starting"} 3',
        'headwater_query_worker_waiters{engine="duckdb"} 4',
        'headwater_query_worker_deaths_total{engine="duckdb"} 5',
    ):
        assert line in found, line
