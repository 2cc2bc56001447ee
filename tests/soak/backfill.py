"""Schemas are switched on for a topic of millions of settled rows, and the past is filled in the background.

Five readers compare all the time: rows and bytes are exact at every moment, a typed value is right or null, and what is
decoded once stays decoded. Compactors, their JVMs and their Python workers are killed by `kill -9` on the way, and
another partition is written. In the end all files are decoded, consumers get the bytes that were appended, and the
store has the files that the state knows.

python -m tests.soak.backfill --rows 5000000 --kills 12
python -m tests.soak.backfill --rows 200000 --kills 3
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import confluent_kafka
import psutil

from demo.readers import Sum, sum_of
from headwater.app.session import ledger_session
from headwater.lake.backfill import undecoded
from headwater.settings.settings import load
from headwater.types import Domain
from tests.faults.lake_running import FRESHNESS, LakeRunning, Row, patiently
from tests.soak.backfill_rows import BESIDE, PARTITIONS, TOPIC, Found, Reader, Rows, Wanted, readers, text, value_of
from tests.soak.common import Verdict, progress, workplace

PROMISES = ("T7",)

SETTINGS = """
[housekeeping]
interval_ms = 500
dead_object_grace_ms = 1000
[lake]
interval_ms = 200
merge_files = 8
small_file_bytes = 16384
keep_versions = 10000
expire_interval_ms = 1000
orphan_interval_ms = 1000
lease_ms = 4000
niceness = 0
"""
"""Old versions stay, because readers by path hold nothing. Only files of the partition that is written are merged."""
FILES = 60
"""Files that the past has, about."""
VICTIMS = ("compactor", "java", "worker")
PACE_SECONDS, LOOK_SECONDS = 0.1, 0.5
LONGEST_SECONDS = 5_400.0
FINISH_SECONDS = 900.0


class Use:
    """Memory and processor time of compactors, their JVMs and their workers."""

    def __init__(self) -> None:
        self.cpu: dict[tuple[str, int], float] = {}
        self.peak: Counter[str] = Counter()

    def look(self, compactor: psutil.Process) -> None:
        now: Counter[str] = Counter()
        for process in _family(compactor):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                kind = _kind(process, compactor)
                times = process.cpu_times()
                self.cpu[kind, process.pid] = times.user + times.system
                now[kind] += process.memory_full_info().pss
        for kind, size in now.items():
            self.peak[kind] = max(self.peak[kind], size)
        self.peak["all"] = max(self.peak["all"], now.total())

    def seconds(self, kind: str) -> float:
        return sum(seconds for (one, _), seconds in self.cpu.items() if one == kind)


def _family(compactor: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return [compactor, *compactor.children(recursive=True)]
    return []


def _kind(process: psutil.Process, compactor: psutil.Process) -> str:
    if process.pid == compactor.pid:
        return "compactor"
    return "java" if os.path.basename(process.exe()) == "java" else "worker"


class Beside:
    """Writes to another partition of the topic, so that settling and decoding share the compactor."""

    def __init__(self, bootstrap: str, first: int) -> None:
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._first = first
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent: list[tuple[bytes, bytes | None]] = []

    def __enter__(self) -> Beside:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join()
        assert not self._producer.flush(120)

    def _run(self) -> None:
        while not self._enough.wait(PACE_SECONDS):
            number = self._first + len(self.sent)
            key, value = b"%012d" % number, value_of(number, self._first)
            self._producer.produce(TOPIC, value, key, BESIDE)
            self._producer.poll(0)
            self.sent.append((key, value))


class Watch:
    """Reads all the time, and notes what is wrong."""

    def __init__(self, chosen: list[Reader], wanted: list[Wanted]) -> None:
        self.readers = chosen
        self._wanted = wanted
        self._typed: Counter[int] = Counter()
        self.problems: list[str] = []
        self.partial = 0
        """Answers in which some rows were decoded and some were not."""

    @property
    def answers(self) -> int:
        return sum(reader.answers for reader in self.readers)

    def run(self, over: threading.Event) -> None:
        """Ask one reader after the other."""
        while not over.is_set() and not self.problems:
            for reader in self.readers:
                try:
                    self.check(reader)
                except Exception as error:  # noqa: BLE001 - whatever it is, it is the result
                    self.problems.append(f"{reader.name}: {type(error).__name__}: {error}")
                if over.is_set() or self.problems:
                    return

    def check(self, reader: Reader, *, complete: bool = False) -> None:
        """One answer. It may show an older version than the last one of another reader, but not fewer rows."""
        found = reader.ask()
        told = f"{reader.name}: {text(found)}"
        assert [one.partition for one in found] == list(range(PARTITIONS)), told
        for one, wanted in zip(found, self._wanted, strict=True):
            assert one.same_log(wanted), f"rows or bytes differ from {wanted}: {told}"
            assert not (one.wrong or one.wrong_errors or one.wrong_old), f"a typed value is wrong: {one}"
            assert one.typed + one.errors <= wanted.present, told
            assert not complete or one.decoded(wanted), f"not decoded as {wanted}: {one}"
        self._note(reader, found)

    def _note(self, reader: Reader, found: list[Found]) -> None:
        typed, whole = sum(one.typed for one in found), sum(one.present - one.bad for one in self._wanted)
        before = self._typed[id(reader)]
        assert typed >= before, f"{reader.name}: {typed} rows are decoded, {before} were"
        self._typed[id(reader)] = typed
        self.partial += 0 < typed < whole


def waiting(server: LakeRunning) -> int:
    """Files that are not decoded yet."""

    async def look() -> int:
        async with ledger_session(load(str(server.config), environment={})) as found:
            topic = found.topic(TOPIC)
            state = found.domains[Domain(topic.domain)].state
            return len(undecoded(state, state.tables[topic.id]))

    return asyncio.run(look())


def consumed(server: LakeRunning, rows: Rows) -> Sum:
    """What a Kafka consumer gets of the partitions that were filled."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": server.bootstrap, "group.id": "x"})
    found, positions = Sum(), dict.fromkeys(range(PARTITIONS), 0)
    try:
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, partition, 0) for partition in positions])
        while any(position < rows.share for position in positions.values()):
            got: list[Row] = []
            for message in consumer.consume(10_000, timeout=0.5):
                partition, offset = message.partition(), message.offset()
                assert message.error() is None and partition is not None and offset == positions[partition], message
                positions[partition] += 1
                got.append((partition, offset, message.key(), message.value()))
            found += sum_of(got)
    finally:
        consumer.close()
    return found


def expected(rows: Rows) -> Sum:
    """The same, by the rules of the rows."""
    every = ((number // rows.share, number % rows.share, number) for number in range(rows.rows))
    return sum_of((partition, at, b"%012d" % n, value_of(n, rows.rows)) for partition, at, n in every)


def fill(server: LakeRunning, rows: Rows, directory: Path) -> list[Wanted]:
    """Append the past in bulk, as files of one partition each."""
    server.create(TOPIC, PARTITIONS + 1, **{**FRESHNESS, "retention.ms": "-1"})
    wanted = []
    for partition in range(PARTITIONS):
        files = list(rows.files(partition, directory / "input"))
        most = str(max(1, rows.rows // FILES))
        server.table("append", TOPIC, *map(str, files), "--partition", str(partition), "--rows-per-file", most)
        wanted.append(rows.wanted(partition, files))
        for path in files:
            path.unlink()
    server.settle(TOPIC)
    return wanted


class Killing:
    """Kills in the middle of the work, each time when some more files are decoded."""

    def __init__(self, server: LakeRunning, kills: int, files: int, seed: int) -> None:
        self._server = server
        self._kills = kills
        self._files = files
        self._chance = random.Random(seed)
        self.killed: Counter[str] = Counter()

    def due(self, left: int) -> bool:
        """Whether it is time for the next kill, with so many files left."""
        done = self.killed.total()
        return done < self._kills and left > 0 and self._files - left >= done * self._files // (self._kills + 1)

    def kill(self, compactor: psutil.Process) -> None:
        time.sleep(self._chance.random() * 2)  # anywhere in a job
        wanted = self._chance.choice(VICTIMS)
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            found = [process for process in _family(compactor) if _kind(process, compactor) == wanted]
            if found:
                self._chance.choice(found).kill()
                self.killed[wanted] += 1


def run(directory: Path, options: argparse.Namespace, verdict: Verdict) -> None:
    rows, use = Rows(options.rows), Use()
    with LakeRunning(directory, settings=SETTINGS) as server:
        began = time.monotonic()
        wanted = fill(server, rows, directory)
        verdict.fact("rows, seconds to append them", f"{rows.rows:,}, {time.monotonic() - began:.0f}")
        place = server.place(TOPIC)
        watch = Watch(readers(server, place), wanted)
        for reader in watch.readers:  # nothing is typed yet, and all of them agree
            watch.check(reader)
        over = threading.Event()
        reading = threading.Thread(target=watch.run, args=[over], daemon=True)
        drained: list[Sum] = []
        draining = threading.Thread(target=lambda: drained.append(consumed(server, rows)), daemon=True)
        schema = ("--config", "headwater.value.schema=json")
        files = len(server.look().tables[TOPIC].shown)
        with Beside(server.bootstrap, rows.rows) as beside, progress() as bars:
            bar = bars.add_task("files decoded", total=files, now="")
            server.cli("topic", "alter", TOPIC, *schema, "--bootstrap", server.bootstrap)
            switched = time.monotonic()
            reading.start()
            draining.start()
            killing = Killing(server, options.kills, files, options.seed)
            while (left := waiting(server)) and not watch.problems and time.monotonic() < switched + LONGEST_SECONDS:
                with suppress(TimeoutError):
                    compactor = server.compactor()
                    use.look(compactor)
                    if killing.due(left):
                        killing.kill(compactor)
                bars.update(bar, completed=max(0, files - left), now=f"{watch.answers} answers, {dict(killing.killed)}")
                time.sleep(LOOK_SECONDS)
            seconds = time.monotonic() - switched
        draining.join()
        over.set()
        reading.join()
        _tell(verdict, watch, killing, use, files, seconds)
        if watch.problems:
            raise AssertionError("\n".join(watch.problems))
        server.settle(TOPIC)
        patiently(lambda: not waiting(server), "all files are decoded", FINISH_SECONDS)
        for reader in watch.readers:
            watch.check(reader, complete=True)
        told = expected(rows)
        verdict.rule(
            "consumers that got other bytes", sum(one != told for one in [*drained, consumed(server, rows)]), 0
        )
        verdict.floor("consumers", len(drained) + 1, 2)
        patiently(lambda: server.stored() == server.look().files, "the store has what the state knows", FINISH_SECONDS)
        patiently(lambda: not server.strays(), "nothing is left of killed processes")
        server.doctor()
        verdict.fact("rows written beside", len(beside.sent))


def _tell(verdict: Verdict, watch: Watch, killing: Killing, use: Use, files: int, seconds: float) -> None:
    verdict.fact("files of the past", files)
    verdict.fact("seconds until all were decoded", seconds)
    for reader in watch.readers:
        verdict.floor(f"exact answers, {reader.name}", reader.answers, 2)
    verdict.floor("answers with some rows decoded and some not", watch.partial, 1)
    for kind in VICTIMS:
        verdict.fact(f"killed: {kind}", killing.killed[kind])
        verdict.fact(f"{kind}: CPU seconds, most MB", f"{use.seconds(kind):.1f}, {use.peak[kind] / 1e6:.0f}")
    verdict.fact("most MB of all together", use.peak["all"] / 1e6)
    verdict.rule("answers that were wrong", len(watch.problems), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    verdict = Verdict(f"schemas switched on for {options.rows:,} settled rows, {options.kills} kills")
    with workplace("backfill") as directory:
        run(directory, options, verdict)
    verdict.leave()


if __name__ == "__main__":
    main()
