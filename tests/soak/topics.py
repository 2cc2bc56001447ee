"""A thousand topics with a few records a second each: all settle in time, in few jobs, and tables keep up.

python -m tests.soak.topics --topics 1000 --minutes 5 --rate 3
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka

from headwater.app.session import LedgerSession, ledger_session
from headwater.client.client import Client
from headwater.client.model import NewTopic
from headwater.lake.planning import oldest_pending_ms
from headwater.settings.settings import Lake, load
from headwater.state.streams.state import StreamsState
from headwater.state.streams.tables import TopicTable
from headwater.types import Domain
from tests.faults.lake_running import LakeRunning, patiently
from tests.soak.common import Verdict, progress, workplace

PROMISES = ("T10", "T13")

ONE = Domain(1)
SAMPLE_SECONDS = 2.0
CREATE_AT_ONCE = 100
WARM_SECONDS = 60.0
"""Spark starts, and every topic settles for the first time."""
FOLLOWER_SECONDS = 180.0
BEHIND_GROWTH = 1.25
SLACK_SECONDS = 15.0
TOPICS_PER_JOB = 0.1
FILES_PER_TABLE = 3 * Lake().merge_files


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the state."""

    second: float
    settle_seconds: float
    """Age of the oldest record of any topic that is not in a journal."""
    follow_seconds: float
    """Age of the oldest journal entry that some follower has not committed."""
    unfollowed: int
    """Journal entries that followers have not committed."""
    files: int
    most_files: int
    entries: int


@dataclass(slots=True)
class Watch:
    """All looks, and which job settled which topics."""

    samples: list[Sample] = field(default_factory=list)
    jobs: dict[tuple[int, int], set[bytes]] = field(default_factory=dict)

    def look(self, state: StreamsState, second: float) -> Sample:
        now = time.time() * 1000
        pending = [ms for s in state.streams.values() if (ms := oldest_pending_ms(state, s)) is not None]
        behind = [since for table in state.tables.values() for since in _uncommitted(table)]
        live = [sum(1 for _ in table.live()) for table in state.tables.values()]
        for table in state.tables.values():
            self._note_jobs(table)
        sample = Sample(
            second=second,
            settle_seconds=max(0.0, now - min(pending, default=now)) / 1000,
            follow_seconds=max(0.0, now - min(behind, default=now)) / 1000,
            unfollowed=len(behind),
            files=sum(live),
            most_files=max(live, default=0),
            entries=sum(table.last_sequence for table in state.tables.values()),
        )
        self.samples.append(sample)
        return sample

    def _note_jobs(self, table: TopicTable) -> None:
        settled = {number for entry in table.journal if not entry.replaces for number in entry.added}
        for number in settled & table.files.keys():
            epoch, job, *_ = table.files[number].name.rpartition("/")[2].split("-")
            self.jobs.setdefault((int(epoch), int(job)), set()).add(table.topic.bytes)

    def between(self, start: float, end: float) -> list[Sample]:
        return [s for s in self.samples if start <= s.second < end] or self.samples[-1:]


def _uncommitted(table: TopicTable) -> list[int]:
    """When the entries were made that the slowest follower has not committed."""
    cursor = min((f.cursor for f in table.followers.values()), default=0)
    return [entry.ms for entry in table.entries_after(cursor) or ()]


class Trickle:
    """A producer in a thread: every topic gets a few records a second."""

    def __init__(self, bootstrap: str, topics: list[str], rate: float) -> None:
        self._topics = topics
        self._pause = 1 / (rate * len(topics))
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent = self.acknowledged = 0
        self.failures: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._enough.set()
        self._thread.join()

    def _run(self) -> None:
        start = time.monotonic()
        while not self._enough.wait(0.02):  # a pace, not a wait for anything
            while self.sent * self._pause < time.monotonic() - start:
                topic = self._topics[self.sent % len(self._topics)]
                self._producer.produce(topic, b"%0100d" % self.sent, on_delivery=self._note)
                self.sent += 1
            self._producer.poll(0)
        self._producer.flush(60)

    def _note(self, error: object, message: object) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.acknowledged += 1


async def create(bootstrap: str, topics: list[str]) -> None:
    async with Client(bootstrap) as client:
        for i in range(0, len(topics), CREATE_AT_ONCE):
            await client.create_topics([NewTopic(name, 1) for name in topics[i : i + CREATE_AT_ONCE]])


async def watch(server: LakeRunning, trickle: Trickle, seconds: float) -> Watch:
    """Look again and again while the topics are written."""
    found = Watch()
    async with ledger_session(load(str(server.config), environment={})) as visited:
        with progress() as bars:
            bar = bars.add_task("seconds", total=round(seconds), now="")
            start = time.monotonic()
            trickle.start()
            while (second := time.monotonic() - start) < seconds:
                sample = found.look(visited.domains[ONE].state, second)
                now = (
                    f"journal {sample.settle_seconds:.0f} s, tables {sample.follow_seconds:.0f} s behind, "
                    f"{sample.files:,} files, {sample.unfollowed:,} entries to follow"
                )
                bars.update(bar, completed=round(second), now=now)
                await asyncio.sleep(SAMPLE_SECONDS)  # the pace of the samples
            await asyncio.to_thread(trickle.finish)
            bars.update(bar, completed=round(seconds))
        await catch_up(visited, found, seconds)
    return found


async def catch_up(visited: LedgerSession, found: Watch, seconds: float) -> None:
    """Until everything is settled and followed, or long enough."""
    start = time.monotonic()
    while (more := time.monotonic() - start) < 2 * FOLLOWER_SECONDS:
        sample = found.look(visited.domains[ONE].state, seconds + more)
        if not sample.unfollowed and not sample.settle_seconds:
            return
        await asyncio.sleep(SAMPLE_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--rate", type=float, default=3.0, help="records a second and topic")
    options = parser.parse_args()
    names = [f"topic-{i:04d}" for i in range(options.topics)]
    seconds = options.minutes * 60
    with workplace("topics") as directory:
        verdict = judge(directory, names, seconds, options.rate)
    verdict.leave()


def judge(directory: Path, names: list[str], seconds: float, rate: float) -> Verdict:
    with LakeRunning(directory, settings="") as server:
        asyncio.run(create(server.bootstrap, names))
        trickle = Trickle(server.bootstrap, names, rate)
        found = asyncio.run(watch(server, trickle, seconds))
        # A compactor that is busy may not answer in time, and then tells nothing.
        patiently(lambda: server.metric("headwater_follower_commits_total"), "a compactor tells its commits")
        commits = round(server.metric("headwater_follower_commits_total"))
        failed = round(server.metric("headwater_settle_failed_jobs_total"))
    target, last = Lake().freshness_ms / 1000, found.samples[-1]
    minute = min(60.0, seconds / 3)
    steady = found.between(WARM_SECONDS, seconds)
    worst = max(steady, key=lambda s: s.settle_seconds)
    before, end = found.between(seconds - 2 * minute, seconds - minute), found.between(seconds - minute, seconds)
    verdict = Verdict(f"{len(names):,} topics, {rate:g} records a second each, {seconds / 60:g} minutes")
    verdict.fact("records acknowledged", trickle.acknowledged)
    verdict.rule("records not acknowledged", trickle.sent - trickle.acknowledged, 0)
    verdict.rule(f"journal behind the log, s, at worst (second {worst.second:.0f})", worst.settle_seconds, target)
    verdict.rule("tables behind the journal, s, at worst", max(s.follow_seconds for s in steady), FOLLOWER_SECONDS)
    earlier, later = (statistics.mean(s.follow_seconds for s in part) for part in (before, end))
    verdict.fact("tables behind the journal, s, the minute before the last", earlier)
    verdict.rule("tables behind the journal, s, the last minute", later, earlier * BEHIND_GROWTH + SLACK_SECONDS)
    verdict.rule("journal entries not followed in the end", last.unfollowed, 0)
    per_job = statistics.median(map(len, found.jobs.values())) if found.jobs else 0
    verdict.fact("settling jobs seen", len(found.jobs))
    verdict.floor("topics in one job, median", per_job, len(names) * TOPICS_PER_JOB)
    verdict.rule("failed jobs", failed, 0)
    verdict.fact("segments in the end", last.files)
    verdict.rule("segments of one table, at most", max(s.most_files for s in found.samples), FILES_PER_TABLE)
    verdict.fact("journal entries", last.entries)
    verdict.floor("followers' commits, at least", commits, 2 * len(names))
    verdict.rule("followers' commits, at most", commits, 2 * last.entries)
    return verdict


if __name__ == "__main__":
    main()
