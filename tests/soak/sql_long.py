"""Queries that take minutes, while the files that they read are merged and their versions expire.

A topic is settled into many segments. A query over all of them computes so much for every row that it takes the time
that is asked for, so it opens its last segment near its end. Meanwhile more is settled, everything is merged, and older
versions expire: nothing but the query's hold keeps its files. The answer must be right, and the files go after it. Of a
second query the engine's process is killed, of a third the gateway: each time the query fails, and the files go.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Set
from contextlib import suppress
from pathlib import Path
from typing import Any

import confluent_kafka

from tests.faults.lake_running import LakeRunning, patiently
from tests.soak.common import Verdict, console
from tests.soak.sql_asking import ENGINES, Failed, ask, asked, workers

PROMISES = ("Q2",)

TOPIC = "long"
SETTINGS = """
process_session_ms = 10000
[housekeeping]
interval_ms = 500
dead_object_grace_ms = 1000
[lake]
interval_ms = 100
merge_files = 4
keep_versions = 1
expire_interval_ms = 500
orphan_interval_ms = 1000
niceness = 0
[sql]
niceness = 0
seconds = 3600
"""
SETTLES, SEGMENT_RECORDS = 3, 20_000
"""Fewer than are merged: segments stay as they are until more is settled."""
STEPS = 100
"""Of the work for a row. An engine has a list of them in memory, for many rows at once."""
WORK = {
    "duckdb": f"list_sum(list_transform(range({STEPS}), x -> (x + offset) % 1 + 1))",
    "spark": f"aggregate(sequence(1, {STEPS}), 0L, (sum, x) -> sum + (x + offset) % 1 + 1)",
}
"""The value is the number of steps."""
SAMPLE_ROWS, SAMPLE_TIMES = 2_000, 100
GONE_SECONDS = 180.0
MERGE_TRIES, MERGE_SECONDS = 10, 15.0


class Question(threading.Thread):
    """A query in a thread, and how it ended."""

    def __init__(self, server: LakeRunning, engine: str, times: int, rows: int) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._engine = engine
        self._sql = statement(engine, times)
        self._wanted = [[rows * times, rows * (rows - 1) // 2 * times, rows * times * STEPS]]
        self.found: list[list[Any]] = []
        self.failure = ""
        self.seconds = 0.0

    def run(self) -> None:
        began = time.monotonic()
        try:
            self.found = [[int(cell) for cell in row] for row in ask(self._server, self._sql, self._engine)]
        except Failed as error:
            self.failure = str(error)
        self.seconds = time.monotonic() - began

    @property
    def is_right(self) -> bool:
        return self.found == self._wanted


def statement(engine: str, times: int, rows: int | None = None) -> str:
    """A query that does the work so many times for every row."""
    some = "" if rows is None else f" WHERE offset < {rows}"
    sums = f"CAST(sum(offset) AS BIGINT) AS s, CAST(sum({WORK[engine]}) AS BIGINT) AS w"
    return f"SELECT count(*) AS n, {sums} FROM {TOPIC} CROSS JOIN range({times}){some}"


class Story:
    """One engine after the other."""

    def __init__(self, server: LakeRunning, seconds: float, verdict: Verdict) -> None:
        self._server = server
        self._seconds = seconds
        self._verdict = verdict
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": server.bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        self._rows = 0

    def run(self, engine: str) -> None:
        for _ in range(SETTLES - 1):
            self._settle()
        times = self._times(engine)
        question, files = self._begin(engine, times)
        self._merged(but=files)
        kept = files <= self._server.stored()
        still = question.is_alive()
        question.join()
        self._verdict.fact(f"{engine}: seconds of the query", question.seconds)
        self._verdict.floor(f"{engine}: its files were merged, expired and kept while it ran", int(kept and still), 1)
        self._verdict.floor(f"{engine}: the answer is right", int(question.is_right), 1)
        if question.failure:
            self._verdict.fact(f"{engine}: failed", question.failure)
        self._gone(files)
        for victim in ("process", "gateway"):
            self._killed(engine, times, victim)

    def _killed(self, engine: str, times: int, victim: str) -> None:
        """A process dies in the middle of a query. What the query read goes all the same."""
        for _ in range(SETTLES - 1):
            self._settle()
        question, files = self._begin(engine, times)
        gateway = self._server.gateway_process()
        [target, *_] = [gateway] if victim == "gateway" else workers(gateway, engine)
        self._merged(but=files)
        running = question.is_alive() and files <= self._server.stored()
        target.kill()
        question.join()
        self._verdict.floor(f"{engine}: killed in the middle, {victim}", int(running and bool(question.failure)), 1)
        self._gone(files)
        asked(self._server, f"SELECT count(*) AS n FROM {TOPIC}", engine)

    def _begin(self, engine: str, times: int) -> tuple[Question, set[str]]:
        """Ask, and wait until the query runs. Returns the segments that it reads, too."""
        files = self._live()
        question = Question(self._server, engine, times, self._rows)
        question.start()
        time.sleep(min(10.0, self._seconds / 4))  # the query is under way
        assert question.is_alive(), f"the query has ended: {question.failure or question.found}"
        return question, files

    def _times(self, engine: str) -> int:
        """How often the work makes a query take about as long as it should."""
        taken = []
        for times in (1, 1, 1 + SAMPLE_TIMES):  # the first lets the engine start
            began = time.monotonic()
            asked(self._server, statement(engine, times, SAMPLE_ROWS), engine)
            taken.append(time.monotonic() - began)
        each = max(taken[2] - taken[1], 0.01) / SAMPLE_ROWS / SAMPLE_TIMES
        times = max(1, int(self._seconds / (each * self._rows)))
        console.print(f"{engine}: {each * 1e9 / STEPS:.1f} ns a step, {times} times {STEPS} steps for each row")
        return times

    def _settle(self) -> None:
        for _ in range(SEGMENT_RECORDS):
            self._producer.produce(TOPIC, b"%08d" % self._rows, partition=0)
            self._rows += 1
        if self._producer.flush(120):
            raise RuntimeError("records were not acknowledged")
        self._server.settle(TOPIC)

    def _merged(self, but: Set[str]) -> None:
        """Have everything merged into one segment, and wait until no version shows any of those."""
        for _ in range(MERGE_TRIES):
            self._settle()
            with suppress(TimeoutError):
                patiently(lambda: not self._live() & but, "segments are merged", MERGE_SECONDS)
                break
        self._server.table("expire", TOPIC, "--keep", "1", "--no-wait")
        patiently(lambda: but <= self._server.look().tables[TOPIC].expired, "older versions have expired", GONE_SECONDS)

    def _live(self) -> set[str]:
        return set(self._server.look().tables[TOPIC].shown)

    def _gone(self, files: set[str]) -> None:
        patiently(lambda: not files & self._server.stored(), "what the query read is gone", GONE_SECONDS)


def long_queries(directory: Path, seconds: float, verdict: Verdict) -> None:
    with LakeRunning(directory, settings=SETTINGS) as server:
        server.create(TOPIC, 1, **{"headwater.table.freshness.ms": "3600000"})
        story = Story(server, seconds, verdict)
        for engine in ENGINES:
            story.run(engine)
        server.doctor()
