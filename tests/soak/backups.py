"""Backups in a loop while records are written and settled: each copy is whole, and producers hardly notice.

A producer writes small batches to a real `headwater up` with a compactor, and takes the time of every batch. For a
while nothing else happens. Then backups follow each other: in turn by links and by copies, each into its own directory,
and some are killed at a random moment. After each one that ended, `headwater doctor --deep` looks at the copy, and its
log has all that was acknowledged before the backup began. At last the original is killed and the newest copy served.

python -m tests.soak.backups --minutes 5
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka

from harness.headwater import Headwater
from harness.process import PROGRAM, environment, headwater
from harness.tools import ROOT
from headwater.app.session import ledger_session
from headwater.settings.settings import Settings
from headwater.types import Domain
from tests.faults.lake_running import FRESHNESS, SETTINGS, LakeRunning, patiently
from tests.soak.common import Verdict, progress, workplace

PROMISES = ("O6",)

TOPIC, PARTITIONS = "kept", 4
PACE_SECONDS = 0.02
BATCH = 20
VALUE = b"x" * 500
EAGER = f"{SETTINGS}niceness = 0\n".replace("keep_versions = 3", "keep_versions = 20")
"""Settling does not step back behind the producer, the doctors and whatever else runs."""
QUIET_SECONDS = 30.0
KILLED_OF_TEN = 3
PAUSE_SECONDS = 3.0
"""The longest that a batch may take beside backups. The machine has other work, so this is no figure of the product."""


@dataclass(slots=True)
class Producer:
    """Writes batches at a pace in a thread, and takes their times."""

    bootstrap: str
    ends: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), 0))
    """The offset after the last acknowledged record of each partition."""
    times: list[tuple[float, float]] = field(default_factory=list)
    """When a batch was sent, and the seconds until all of it was acknowledged."""
    failures: list[str] = field(default_factory=list)
    _enough: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._enough.set()
        assert self._thread is not None
        self._thread.join()

    def _run(self) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 0}
        )
        number = 0
        while not self._enough.wait(PACE_SECONDS):
            began = time.monotonic()
            for _ in range(BATCH):
                producer.produce(TOPIC, VALUE, partition=number % PARTITIONS, on_delivery=self._noted)
                number += 1
            if producer.flush(60):
                self.failures.append("records were not acknowledged in a minute")
            self.times.append((began, time.monotonic() - began))

    def _noted(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is not None or partition is None or offset is None:
            self.failures.append(str(error))
            return
        self.ends[partition] = max(self.ends[partition], offset + 1)

    def seconds(self, since: float, until: float) -> list[float]:
        return sorted(taken for began, taken in self.times if since <= began < until)


@dataclass(slots=True)
class Story:
    """What the backups did."""

    done: int = 0
    killed: int = 0
    resumed: int = 0
    rounds: int = 0
    seconds: list[float] = field(default_factory=list)
    kept: int = 0
    brought: int = 0


def back_up(server: LakeRunning, target: Path, chance: random.Random, story: Story, *, copy: bool) -> bool:
    """One backup, which may be killed; returns whether it ended."""
    words = ["backup", "--config", str(server.config), str(target), "--output", "json", *(["--copy"] if copy else [])]
    began = time.monotonic()
    process = subprocess.Popen(
        [*PROGRAM, *words], cwd=ROOT, env=environment(server.variables), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    usual = statistics.median(story.seconds) if story.seconds else 0.0
    if usual and chance.random() * 10 < KILLED_OF_TEN:
        try:
            process.communicate(timeout=chance.random() * usual)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            story.killed += 1
            return False
    out, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    story.seconds.append(time.monotonic() - began)
    said = json.loads(out)
    assert not said["lost"], said
    story.done += 1
    story.rounds += said["rounds"]
    story.kept += said["kept"]
    story.brought += said["linked"] + said["copied"]
    return True


def ends_of(data: Path) -> dict[int, int]:
    """The ends of the partitions in a copy."""

    async def look() -> dict[int, int]:
        async with ledger_session(Settings(data=str(data))) as found:
            topic = found.topic(TOPIC)
            streams = found.domains[Domain(topic.domain)].state.streams
            return {partition: streams[stream].next_offset for partition, stream in enumerate(topic.streams)}

    return asyncio.run(look())


def check(data: Path, wanted: dict[int, int]) -> None:
    done = headwater("doctor", "--deep", "--data", str(data), timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    found = ends_of(data)
    assert all(found[partition] >= end for partition, end in wanted.items()), f"{found} lacks some of {wanted}"


def loop(server: LakeRunning, producer: Producer, directory: Path, minutes: float, seed: int) -> tuple[Story, Path]:
    chance, story, newest = random.Random(seed), Story(), directory
    until = time.monotonic() + minutes * 60
    waiting: set[Path] = set()
    with progress() as bars:
        bar = bars.add_task("backups", total=None, now="")
        while time.monotonic() < until or story.done < 2:
            copy = bool((story.done + story.killed) % 2)
            target = directory / ("copied" if copy else "linked")
            wanted = dict(producer.ends)
            if back_up(server, target, chance, story, copy=copy):
                story.resumed += target in waiting
                waiting.discard(target)
                newest = target
                check(target, wanted)
            else:
                waiting.add(target)
            bars.update(bar, advance=1, now=f"{story.done} done, {story.killed} killed, {story.rounds} rounds")
    return story, newest


def serve(newest: Path, directory: Path, wanted: dict[int, int]) -> None:
    """The last copy is a cluster: all records can be read, and new ones written and settled."""
    with Headwater(directory / "served", data=newest, lake=True, settings=EAGER) as restored:
        for partition, records in restored.read(TOPIC, range(PARTITIONS)).items():
            assert [offset for offset, _ in records] == list(range(len(records)))
            assert len(records) >= wanted[partition]
        more = Producer(restored.bootstrap)
        more.start()
        patiently(lambda: len(more.times) >= 20, "the copy takes records", 60)
        more.stop()
        assert not more.failures, more.failures[:3]
        restored.table("settle", TOPIC, "--timeout", "300")
        restored.doctor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=20_261_117)
    options = parser.parse_args()
    with workplace("backups") as directory:
        with LakeRunning(directory / "original", settings=EAGER) as server:
            server.create(TOPIC, PARTITIONS, **FRESHNESS)
            producer = Producer(server.bootstrap)
            producer.start()
            patiently(lambda: server.look().versions >= 3, "the table has versions", 180)
            quiet = time.monotonic()
            time.sleep(QUIET_SECONDS)  # a measurement, not a wait for anything
            busy = time.monotonic()
            story, newest = loop(server, producer, directory, options.minutes, options.seed)
            end = time.monotonic()
            wanted = ends_of(newest)
            producer.stop()
            assert not producer.failures, producer.failures[:3]
            server.kill_all()
        serve(newest, directory, wanted)
    alone, beside = producer.seconds(quiet, busy), producer.seconds(busy, end)
    verdict = Verdict(f"{options.minutes:g} minutes of backups under load, with settling")
    verdict.fact("records acknowledged", sum(producer.ends.values()))
    verdict.fact("backups done, killed, continued", f"{story.done}, {story.killed}, {story.resumed}")
    verdict.fact("rounds per backup", story.rounds / story.done)
    verdict.fact("a backup, median s", statistics.median(story.seconds))
    verdict.fact("objects kept, brought", f"{story.kept:,}, {story.brought:,}")
    for name, taken in (("alone", alone), ("beside backups and doctors", beside)):
        verdict.fact(f"a batch, {name}: median ms", statistics.median(taken) * 1000)
        verdict.fact(f"a batch, {name}: 99th percentile ms", taken[int(len(taken) * 0.99)] * 1000)
        verdict.fact(f"a batch, {name}: longest ms", taken[-1] * 1000)
    verdict.rule("longest pause of the producer beside backups, s", beside[-1], PAUSE_SECONDS)
    verdict.leave()


if __name__ == "__main__":
    main()
