"""SQL while everything moves: each answer is exact, whatever is settled, merged, aborted, retired or killed meanwhile.

A real `headwater up` gets records at 20 MB/s, transactions of which some abort, bulk appends, and a reservation that
stays open. Settling, merging and retention run all the time. Both engines are asked for the count and the sum of the
offsets of every partition. An answer must show everything that was acknowledged before it was asked, nothing that was
sent after it ended, and exactly the records that were committed in between its smallest and its largest offset. Now and
then an engine's process or the gateway is killed: queries then fail, and none is wrong. The next kill waits for an
answer of each engine. In the end the store has the files that the state knows, and no others. `--travel` settles a
topic so often and looks at all of its versions. `--long` asks queries that take so many seconds while their files are
merged and expire.

python -m tests.soak.sql --queries 500 --travel 50 --long 180
python -m tests.soak.sql --queries 20 --seconds 60 --travel 0 --long 0
"""

from __future__ import annotations

import argparse
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil

from harness.patience import eventually
from tests.faults.lake_running import LakeRunning, patiently
from tests.soak.common import Verdict, progress, workplace
from tests.soak.sql_asking import BUSY, ENGINES, Failed, ask, asked, workers
from tests.soak.sql_load import AGED, PLACES, STRESS, TABLE_RETENTION_MS, Load, Place
from tests.soak.sql_long import long_queries
from tests.soak.sql_travel import travel

PROMISES = ("Q1", "Q2")

SETTINGS = """
process_session_ms = 30000
[housekeeping]
interval_ms = 500
dead_object_grace_ms = 1000
[lake]
interval_ms = 200
merge_files = 4
keep_versions = 5
expire_interval_ms = 1000
orphan_interval_ms = 5000
niceness = 0
[sql]
niceness = 0
"""
"""Everything often, and nothing steps back: the machine has too little for all of it."""
SQL = " UNION ALL ".join(
    f"SELECT '{topic}' AS topic, partition, count(*) AS n, CAST(sum(offset) AS BIGINT) AS s, min(offset) AS low, "
    f"max(offset) AS high FROM {topic} GROUP BY partition"
    for topic in (STRESS, AGED)
)
KNOWN_SECONDS = 60.0
PAUSE_SECONDS = 0.5
VICTIMS = ("duckdb", "gateway", "spark")
COLLECTED_SECONDS = 600.0


class Wrong(Exception):
    """An answer that is not exact."""


class Asking:
    """Asks both engines in threads, checks the answers, and kills now and then."""

    def __init__(self, server: LakeRunning, load: Load, kill_every: int) -> None:
        self._server = server
        self._load = load
        self._kill_every = kill_every
        self._last_kill = 0.0
        self._hurt: set[str] = set()
        """Engines that have not answered since the last kill. Until all have, none is killed again."""
        self._lock = threading.Lock()
        self.right: Counter[str] = Counter()
        self.killed: Counter[str] = Counter()
        self.failed_by_kills = self.busy = 0
        self.problems: list[str] = []
        self.retired = 0
        """Offsets of `aged` that retention had removed when the last answer came."""

    @property
    def answered(self) -> int:
        return self.right.total()

    def run(self, queries: int, seconds: float) -> None:
        """Ask until there are so many answers, or the time is over."""
        until = time.monotonic() + seconds
        over = threading.Event()
        threads = [threading.Thread(target=self._ask, args=[engine, over], daemon=True) for engine in ENGINES]
        for thread in threads:
            thread.start()
        with progress() as bars:
            bar, kills, due = bars.add_task("answers", total=queries, now=""), 0, self._kill_every
            while self.answered < queries and time.monotonic() < until and not self.problems:
                if self._load.failures:
                    self.problems.append(f"writers: {self._load.failures[:3]}")
                whole = not self._hurt and all(self.right[engine] for engine in ENGINES)
                if self._kill_every and self.answered >= due and whole:
                    self._kill(VICTIMS[kills % len(VICTIMS)])
                    kills, due = kills + 1, self.answered + self._kill_every
                bars.update(
                    bar, completed=self.answered, now=f"{dict(self.right)}, {self._load.rate:.1f} MB/s, {self._shown()}"
                )
                time.sleep(PAUSE_SECONDS)
        over.set()
        for thread in threads:
            thread.join()

    def _shown(self) -> str:
        return f"killed {dict(self.killed)}" if self.killed else ""

    def _ask(self, engine: str, over: threading.Event) -> None:
        while not over.is_set() and not self.problems:
            try:
                self._once(engine)
            except BaseException as error:
                self.problems.append(f"{engine}: {error!r}")
                raise

    def _once(self, engine: str) -> None:
        began, hurt = time.monotonic(), engine in self._hurt
        try:
            self.check(engine)
        except Failed as error:
            with self._lock:
                if error.status == BUSY:
                    self.busy += 1
                elif hurt or self._last_kill > began:
                    self.failed_by_kills += 1
                else:
                    self.problems.append(f"{engine} failed, and nothing was killed: {error}")
            time.sleep(PAUSE_SECONDS)
            return
        with self._lock:
            self.right[engine] += 1
            if began > self._last_kill:
                self._hurt.discard(engine)

    def check(self, engine: str, *, patient: bool = False) -> None:
        """Ask, and check the answer."""
        load = self._load
        floors = {place: load.known[place].floor for place in PLACES}
        rows = (asked if patient else ask)(self._server, SQL, engine)
        ended_ms = time.time_ns() // 1_000_000
        ceilings = {place: load.known[place].ceiling for place in PLACES}
        found: dict[Place, tuple[int, int, int, int]] = {}
        for topic, partition, *sums in rows:
            count, total, low, high = map(int, sums)
            if (topic, partition) in found or (topic, partition) not in floors:
                raise Wrong(f"a row too much for {topic}, {partition}: {rows}")
            found[topic, partition] = count, total, low, high
        for place, known in load.known.items():
            count, total, low, high = found.get(place, (0, 0, 0, -1))
            ceiling = ceilings[place]
            told = f"{place} at {engine}: {count} rows, sum {total}, offsets {low} to {high}; {known}"
            kept = load.kept_from(ended_ms - TABLE_RETENTION_MS) if place[0] == AGED else 0
            if high + 1 < floors[place] and kept < floors[place]:
                raise Wrong(f"what was acknowledged up to {floors[place]} is missing: {told}")
            if ceiling is not None and high >= ceiling:
                raise Wrong(f"nothing may be shown from {ceiling} on: {told}")
            first = 0
            if place[0] == AGED and count:
                if low > kept:
                    raise Wrong(f"the rows from {kept} on are missing: {told}")
                self.retired = first = low
            self._check_sums(place, first, high, (count, total), told)

    def _check_sums(self, place: Place, low: int, high: int, found: tuple[int, int], told: str) -> None:
        """Acknowledgements of records that the answer has may still be on their way."""
        known = self._load.known[place]
        try:
            eventually(lambda: known.between(low, high) == found, "all acknowledgements", KNOWN_SECONDS)
        except TimeoutError:
            raise Wrong(f"{known.between(low, high)} was acknowledged there: {told}") from None

    # --- killing ---------------------------------------------------------------------------------------------

    def _kill(self, victim: str) -> None:
        """Kill a process with SIGKILL, if it runs."""
        found = [gateway := self._server.gateway_process()]
        if victim != "gateway":
            found = workers(gateway, victim)
        if not found:
            return
        with self._lock, suppress(psutil.NoSuchProcess):
            self._last_kill = time.monotonic()
            self._hurt = set(ENGINES)
            found[0].kill()
            self.killed[victim] += 1


def stress(directory: Path, options: argparse.Namespace, verdict: Verdict) -> None:
    with LakeRunning(directory, settings=SETTINGS) as server:
        with Load(server, options.megabytes, options.seed) as load:
            asking = Asking(server, load, options.kill_every)
            asking.run(options.queries, options.seconds)
            rate = load.rate
            load.finish()
        _tell(server, load, asking, rate, options.queries, verdict)
        if asking.problems:
            raise AssertionError("\n".join(asking.problems))
        server.settle(STRESS, AGED)
        for engine in ENGINES:
            asking.check(engine, patient=True)
        patiently(lambda: _at_rest(server), "the store has what the state knows, and no more", COLLECTED_SECONDS)
        server.wait_for_collection(COLLECTED_SECONDS)
        patiently(lambda: not server.strays(), "nothing is left of killed processes")
        server.doctor()
        verdict.fact("files and WAL objects went afterwards", "yes")


def _at_rest(server: LakeRunning) -> bool:
    """Whether nothing waits to be settled or followed, and the store has the segments that the state knows."""
    state = server.look()
    tables = state.tables.values()
    caught_up = all(cursor == table.version for table in tables for cursor in table.cursors.values())
    return caught_up and not any(table.pending for table in tables) and server.stored() == state.files


def _tell(server: LakeRunning, load: Load, asking: Asking, rate: float, queries: int, verdict: Verdict) -> None:
    for engine in ENGINES:
        verdict.floor(f"exact answers, {engine}", asking.right[engine], max(1, queries // 100))
    verdict.fact("megabytes a second", rate)
    verdict.fact("transactions committed, aborted", f"{load.committed:,}, {load.aborted:,}")
    verdict.fact("bulk appends", load.bulks)
    verdict.fact("processes killed", dict(asking.killed))
    verdict.fact("queries that failed by it", asking.failed_by_kills)
    verdict.fact("queries that a busy gateway refused", asking.busy)
    verdict.fact("offsets that retention had removed", asking.retired)
    for name in ("settled", "merged", "retired", "gc"):
        verdict.fact(f"files, {name}", server.metric(f"headwater_{name}_files_total"))
    verdict.rule("answers that were wrong, or failed without a reason", len(asking.problems), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=500, help="answers; 0: no stress")
    parser.add_argument("--seconds", type=float, default=2_400.0, help="the longest time of the stress")
    parser.add_argument("--megabytes", type=float, default=20.0, help="megabytes a second that are written")
    parser.add_argument("--kill-every", type=int, default=20, help="answers between two kills; 0: none")
    parser.add_argument("--travel", type=int, default=50, help="settles of the topic of time travel; 0: none")
    parser.add_argument("--long", type=float, default=180.0, help="seconds of a long query; 0: none")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    verdict = Verdict(f"SQL: {options.queries} queries under load, time travel over {options.travel} settles")
    with workplace("sql") as directory:
        if options.queries:
            stress(directory / "stress", options, verdict)
        if options.travel:
            travel(directory / "travel", options.travel, options.seed, verdict)
        if options.long:
            long_queries(directory / "long", options.long, verdict)
    verdict.leave()


if __name__ == "__main__":
    main()
