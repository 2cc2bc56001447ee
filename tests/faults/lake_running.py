"""A real `headwater up` with a compactor that tests may hurt, a writer that notes what was acknowledged, and checks.

The checks ask readers that are not ours: librdkafka, pyiceberg through the REST catalog, delta-rs, DuckDB.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

import confluent_kafka
import psutil

from demo.readers import Sum, delta_rs, duckdb_delta, duckdb_iceberg, pyiceberg, sum_of
from harness.patience import eventually
from harness.process import Process, alive
from harness.storage import Place, stored
from headwater.app.session import LedgerSession, ledger_session
from headwater.settings.settings import load
from headwater.state.streams.tables import TopicTable
from headwater.types import Domain
from tests.support.running import Running

MERGE_FILES = 4
SETTINGS = f"""
[housekeeping]
interval_ms = 500
dead_object_grace_ms = 1000

[lake]
interval_ms = 100
merge_files = {MERGE_FILES}
keep_versions = 3
expire_interval_ms = 1000
orphan_interval_ms = 1000
lease_ms = 4000
"""
"""Everything often."""
FRESHNESS = {"headwater.table.freshness.ms": "300"}
MARK = "HEADWATER_TEST_RUN"
PACE_SECONDS = 0.05
SETTLE_SECONDS = 180.0

Row = tuple[int, int, bytes | None, bytes | None]
"""Partition, offset, key, value."""


def patiently(look: Callable[[], Any], what: str, seconds: float = 60.0) -> None:
    """Like `eventually`, for what costs something to look at."""
    eventually(look, what, seconds, every=0.25)


class LakeRunning(Running):
    """`headwater up` with a compactor. All its processes, also orphaned ones, are known by a mark they inherit.

    With a kind of ledger (`sqlite`, `etcd`, …) objects lie in S3, and the readers look there.
    """

    def __init__(self, directory: Path, *, brokers: int = 1, settings: str = SETTINGS, ledger: str = "") -> None:
        self.mark = uuid.uuid4().hex
        super().__init__(
            directory, brokers=brokers, lake=True, settings=settings, ledger=ledger, variables={MARK: self.mark}
        )
        self._others: set[int] = set()
        own = {name: value for name, value in self.variables.items() if name != MARK}
        self._environment = patch.dict(os.environ, own)
        """The tests look at ledger and objects by themselves."""

    def __enter__(self) -> Self:
        self._environment.start()
        try:
            return super().__enter__()
        except BaseException:
            self._environment.stop()
            raise

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            super().__exit__(kind, *rest)
        finally:
            self._environment.stop()

    def kill_all(self) -> None:
        super().kill_all()
        left = list(self.marked())
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=30)

    # --- processes -----------------------------------------------------------------------------------

    def marked(self) -> Iterator[psutil.Process]:
        """Every process that this server or one of its descendants started, whoever its parent is now."""
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                if process.environ().get(MARK) == self.mark and alive(process):
                    yield process

    def strays(self) -> list[psutil.Process]:
        """Processes whose compactor is gone: a JVM, its Python workers."""
        assert self.process is not None
        roots = {self.process.pid, *self._others}
        return [p for p in self.marked() if p.pid not in roots and not _descends(p, roots)]

    def compactor(self, other_than: int = 0) -> psutil.Process:
        """The supervisor's compactor, once it is another one than that."""
        return eventually(lambda: self._find_compactor(other_than), "a compactor runs", 30)

    def _find_compactor(self, other_than: int) -> psutil.Process | None:
        assert self.process is not None
        for child in psutil.Process(self.process.pid).children():
            with suppress(psutil.NoSuchProcess):
                if child.pid != other_than and alive(child) and "compactor" in child.cmdline():
                    return child
        return None

    @contextmanager
    def second_compactor(self) -> Iterator[psutil.Process]:
        """Another compactor, which nobody starts again."""
        said = self.directory / "second-compactor.stdout"
        other = Process(
            "compactor", self.config, self.log, self.variables, options=["--http", "127.0.0.1:0"], said=said
        )
        other.launch()
        self._others.add(other.pid)
        try:
            yield psutil.Process(other.pid)
        finally:
            other.kill()
            self._others.discard(other.pid)

    # --- what it says --------------------------------------------------------------------------------

    def settle(self, *topics: str) -> None:
        """Have topics settled, and wait for log and tables."""
        for topic in topics:
            self.table("settle", topic, "--timeout", f"{SETTLE_SECONDS:g}")

    def look(self) -> State:
        """The state right now."""

        async def look() -> State:
            async with ledger_session(load(str(self.config), environment={})) as found:
                cluster = found.cluster.state
                tables = {name: _table(found, name) for name in cluster.names}
                return State(tables, frozenset(member.epoch for member in cluster.processes.values()))

        return asyncio.run(look())

    def stored(self) -> set[str]:
        """Whatever lies where segments lie."""
        return {path for path in stored(self.objects, "tables", os.environ) if "/_data/" in path}


def _descends(process: psutil.Process, roots: set[int]) -> bool:
    """Whether a process has an ancestor among those; one that is gone meanwhile does no harm."""
    with suppress(psutil.NoSuchProcess):
        return any(parent.pid in roots for parent in process.parents())
    return True


@dataclass(frozen=True, slots=True)
class Table:
    """A topic's table and log, as far as a test cares."""

    root: str
    files: frozenset[str]
    """All that the state knows, also those that only older versions show."""
    shown: frozenset[str]
    """Those that the newest version shows."""
    expired: frozenset[str]
    """Those that no version shows any more."""
    merges: int
    version: int
    cursors: Mapping[str, int]
    pending: int
    """Offsets that are not settled."""

    @property
    def is_quiet(self) -> bool:
        """Nothing is left to settle, to merge or to follow."""
        caught_up = len(self.cursors) == 2 and all(cursor == self.version for cursor in self.cursors.values())
        return not self.pending and len(self.shown) < MERGE_FILES and caught_up


@dataclass(frozen=True, slots=True)
class State:
    """All tables by topic, and who is in the cluster."""

    tables: Mapping[str, Table]
    members: frozenset[int]
    """Epochs."""

    @property
    def files(self) -> frozenset[str]:
        return frozenset[str]().union(*(table.files for table in self.tables.values()))

    @property
    def versions(self) -> int:
        return sum(table.version for table in self.tables.values())

    @property
    def writers(self) -> set[int]:
        """Epochs of the compactors that wrote the files."""
        return {int(file.rpartition("/")[2].split("-")[0]) for file in self.files}


def _table(found: LedgerSession, name: str) -> Table:
    topic = found.topic(name)
    state = found.domains[Domain(topic.domain)].state
    table = state.tables.get(topic.id) or TopicTable(topic.id, "")
    streams = [state.streams[s] for s in topic.streams]
    return Table(
        root=table.root,
        files=frozenset(f"{table.root}/{file.name}" for file in table.files.values()),
        shown=frozenset(f"{table.root}/{file.name}" for file in table.live()),
        expired=frozenset(f"{table.root}/{file.name}" for file in table.ripe()),
        merges=sum(entry.replaces for entry in table.journal),
        version=table.last_sequence,
        cursors={name: follower.cursor for name, follower in table.followers.items()},
        pending=sum(s.next_offset - s.settled for s in streams),
    )


def key_of(value: bytes) -> bytes:
    """The key of a record that a `Writer` sends."""
    return b"k%d" % (int(value) % 100)


class Writer:
    """An idempotent producer in a thread: small batches to every partition, and a note of what was acknowledged."""

    def __init__(self, bootstrap: str, topics: Sequence[str], partitions: int, each: int = 2) -> None:
        self._topics = topics
        self._partitions = partitions
        self._each = each
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2}
        )
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._sent = 0
        self.acks: dict[str, list[Row]] = {topic: [] for topic in topics}
        self.failures: list[str] = []

    @property
    def count(self) -> int:
        """How many records are acknowledged."""
        return sum(map(len, self.acks.values()))

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._enough.wait(PACE_SECONDS):  # a pace, not a wait for anything
            self.round()
            self._producer.poll(0)
        if left := self._producer.flush(60):
            self.failures.append(f"{left} records were not acknowledged in time")

    def round(self) -> None:
        """Send something to every partition."""
        for topic, partition in self.places():
            for _ in range(self._each):
                self._send(topic, partition)

    def places(self) -> Iterator[tuple[str, int]]:
        """Every partition of every topic."""
        return itertools.product(self._topics, range(self._partitions))

    def _send(self, topic: str, partition: int) -> None:
        value = b"%012d" % self._sent
        key = key_of(value)
        self._sent += 1
        self._producer.produce(topic, value, key, partition, on_delivery=self._noted(topic, key, value))

    def _noted(self, topic: str, key: bytes, value: bytes) -> Callable[[Any, Any], None]:
        def note(error: Any, message: Any) -> None:
            if error is not None:
                self.failures.append(str(error))
            else:
                self.acks[topic].append((message.partition(), message.offset(), key, value))

        return note

    def stop(self) -> None:
        """Write no more. All that was sent is acknowledged."""
        self.__exit__()
        assert not self.failures, self.failures[:5]
        assert sum(map(len, self.acks.values())) == self._sent

    def finish(self) -> None:
        """Write no more. All that was sent is acknowledged, each partition in the order it was sent, without gaps."""
        self.stop()
        for rows in self.acks.values():
            for partition in range(self._partitions):
                mine = sorted((offset, value) for p, offset, _, value in rows if p == partition)
                assert [offset for offset, _ in mine] == list(range(len(mine)))
                assert [value for _, value in mine] == sorted(value for _, value in mine if value is not None)


def wait_until_quiet(server: LakeRunning, topics: Iterable[str], seconds: float = 120.0) -> Mapping[str, Table]:
    """Until nothing moves any more, and exactly the segments that the state knows are in the store."""
    names, state, stored = list(topics), State({}, frozenset()), set[str]()

    def quiet() -> bool:
        nonlocal state, stored
        state, stored = server.look(), server.stored()
        return all(state.tables[name].is_quiet for name in names) and stored == state.files

    try:
        patiently(quiet, "log and tables come to rest", seconds)
    except TimeoutError:
        unknown, missing = sorted(stored - state.files), sorted(state.files - stored)
        raise AssertionError(f"{unknown=} {missing=} {state}\n{server.end_of_log()}") from None
    return state.tables


def kafka(place: Place) -> Sum:
    """librdkafka, every partition from its beginning to its end; offsets follow each other."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": place.bootstrap, "group.id": "unused"})
    rows: list[Row] = []
    try:
        ends = {}
        for p in consumer.list_topics(place.topic, timeout=30).topics[place.topic].partitions:
            ends[p] = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(place.topic, p), timeout=30)[1]
        consumer.assign([confluent_kafka.TopicPartition(place.topic, p, 0) for p in ends])
        positions = dict.fromkeys(ends, 0)
        while positions != ends:
            messages = consumer.consume(1_000, timeout=0.1)
            for message in messages:
                assert message.error() is None, message.error()
                partition, offset = message.partition(), message.offset()
                assert partition is not None and offset is not None
                assert offset == positions[partition], f"{offset} follows {positions[partition] - 1}"
                positions[partition] += 1
                rows.append((partition, offset, message.key(), message.value()))
    finally:
        consumer.close()
    return sum_of(rows)


READERS: Mapping[str, Callable[[Place], Sum]] = {
    "librdkafka": kafka,
    "pyiceberg": pyiceberg,
    "DuckDB, Iceberg": duckdb_iceberg,
    "delta-rs": delta_rs,
    "DuckDB, Delta": duckdb_delta,
}


def check_all(
    server: LakeRunning, writer: Writer, readers: Mapping[str, Callable[[Place], Sum]] = READERS
) -> Mapping[str, Table]:
    """Everybody who reads a topic finds exactly what was acknowledged, and the house is in order."""
    server.settle(*writer.acks)
    tables = wait_until_quiet(server, writer.acks)
    for topic, rows in writer.acks.items():
        wanted, place = sum_of(rows), server.place(topic, tables[topic].root)
        found = {name: read(place) for name, read in readers.items()}
        assert found == dict.fromkeys(readers, wanted), f"{topic}: {wanted} was acknowledged, found {found}"
    server.doctor()
    patiently(lambda: not server.strays(), "what belonged to a killed compactor is gone", 60)
    java = [p for p in server.marked() if _is_java(p)]
    assert len(java) <= 2, f"more JVMs than compactors: {java}"
    return tables


def _is_java(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return os.path.basename(str(process.exe())) == "java"
    return False


MOMENTS: Mapping[str, str] = {
    "start": "",
    "settled": "headwater_settled_files_total",
    "followed": "headwater_follower_commits_total",
    "merged": "headwater_merged_files_total",
    "collected": "headwater_gc_files_total",
}
"""When a compactor is killed: at any moment of its start, or a little after it has first done something."""
STARTS_IN_TEN = 7
START_RECORDS, LATER_RECORDS = 1_500, 150


def many_moments(kills: int, chance: random.Random) -> list[str]:
    """Moments for so many kills, most of them during a start."""
    others = [moment for moment in MOMENTS if moment != "start"]
    starts = max(1, kills * STARTS_IN_TEN // 10)
    moments = ["start"] * starts + [others[i % len(others)] for i in range(kills - starts)]
    chance.shuffle(moments)
    return moments


def kill_compactors(
    server: LakeRunning,
    writer: Writer,
    moments: Sequence[str],
    chance: random.Random,
    told: Callable[[str], None] = lambda moment: None,
) -> None:
    """Kill a compactor with SIGKILL at each of these moments. The supervisor starts the next one."""
    last = 0
    for moment in moments:
        victim = server.compactor(other_than=last)
        _await(server, writer, moment, chance)
        victim.kill()
        last = victim.pid
        told(moment)
    server.compactor(other_than=last)


def _await(server: LakeRunning, writer: Writer, moment: str, chance: random.Random) -> None:
    metric = MOMENTS[moment]
    if metric:
        patiently(lambda: server.metric(metric), f"a compactor has {moment}", 240)
    goal = writer.count + chance.randrange(LATER_RECORDS if metric else START_RECORDS)
    eventually(lambda: writer.count >= goal, "records are acknowledged")
