"""Compactors in virtual time, and the content of log and tables, read by third-party engines."""

import asyncio
import contextlib
import shutil
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from harness.virtual import SeededChance, VirtualClock
from headwater.app.node import Node
from headwater.client.records import decode_batches
from headwater.lake.compactor import Compactor
from headwater.lake.following import Following
from headwater.lake.letters import Letters
from headwater.lake.spark.executor import perform
from headwater.lake.tables import make_followers
from headwater.lake.tables.keys.table import KeyIndexFollower
from headwater.lake.tasks import Task, TaskFacts, decode_facts, decode_task, encode
from headwater.log.wal.cache import WalCache
from headwater.log.write.budget import Budget
from headwater.log.write.writers import Writers
from headwater.replica.domains import Domains
from headwater.settings.settings import Lake, Settings
from headwater.state.cluster.domain import Topic
from headwater.state.records import decode
from headwater.state.streams.tables import TopicTable
from headwater.types import CLUSTER, Domain, Pieces, Position
from tests.support.virtual_nodes import NodeWorld

ONE = Domain(1)
Row = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Partition, offset, timestamp, key, value, headers."""


class Crash(BaseException):
    """The process has crashed. No code in it may catch this."""


class Fate:
    """Lets a process write a number of times, then crashes it."""

    def __init__(self, writes: int | None = None, *, after: bool = False) -> None:
        self.left = writes
        self.after = after
        self.steps: list[str] = []
        self.death = asyncio.Event()

    @property
    def dead(self) -> bool:
        return self.death.is_set()

    async def outlived(self, work: Coroutine[Any, Any, None]) -> bool:
        """Run `work` until it is done or the process crashes. After a crash, tasks in it wait for ever."""
        task, death = asyncio.create_task(work), asyncio.create_task(self.death.wait())
        await asyncio.wait([task, death], return_when=asyncio.FIRST_COMPLETED)
        death.cancel()
        if task.done() and not self.dead:
            task.result()
            return True
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Crash):
            await task
        return False

    async def step(self, what: str, write: Callable[[], Awaitable[Any]]) -> Any:
        """Do a write, unless the process crashes here: before the write, or after it but before its result is known."""
        if self.dead:
            raise Crash
        self.steps.append(what)
        doomed = self.left is not None and len(self.steps) > self.left
        if doomed and not self.after:
            self.death.set()
            raise Crash
        result = await write()
        if doomed:
            self.death.set()
            raise Crash
        return result


class FatedStore:
    """The store of a process that may crash."""

    def __init__(self, inner: Any, fate: Fate) -> None:
        self._inner = inner
        self._fate = fate
        self.url = inner.url

    def __getattr__(self, name: str) -> Any:
        if self._fate.dead:
            raise Crash
        return getattr(self._inner, name)

    async def put(self, path: str, pieces: Pieces) -> None:
        await self._fate.step(f"put {_kind(path)}", lambda: self._inner.put(path, pieces))

    async def create(self, path: str, pieces: Pieces) -> bool:
        return bool(await self._fate.step(f"create {_kind(path)}", lambda: self._inner.create(path, pieces)))

    async def delete(self, path: str) -> None:
        await self._fate.step(f"delete {_kind(path)}", lambda: self._inner.delete(path))


class FatedLedger:
    """The ledger of a process that may crash."""

    dense = True

    def __init__(self, inner: Any, fate: Fate) -> None:
        self._inner = inner
        self._fate = fate

    def __getattr__(self, name: str) -> Any:
        if self._fate.dead:
            raise Crash
        return getattr(self._inner, name)

    async def append(self, domain: Domain, record: bytes) -> Position:
        if domain == CLUSTER:
            position: Position = await self._inner.append(domain, record)
            return position
        kinds = sorted({type(command).__name__ for command in decode(record).commands})
        what = " ".join(["append", *kinds])
        return Position(await self._fate.step(what, lambda: self._inner.append(domain, record)))


def _kind(path: str) -> str:
    return path.split("/")[2] if path.startswith("tables/") else path.split("/")[0]


class Compaction:
    """A compactor with its followers, whose rounds the test runs."""

    def __init__(self, world: "LakeWorld", number: int, fate: Fate, lake: Lake, keys: bool = False) -> None:
        self.fate = fate
        self._world = world
        clock, chance = VirtualClock(), SeededChance(1000 + number)
        self.store: Any = FatedStore(world.store, fate)
        ledger: Any = FatedLedger(world.ledger, fate)
        self.domains = Domains(ledger, self.store, clock, chance)
        self.cluster, self.domain = self.domains.cluster, self.domains[ONE]
        self.membership, self.background = self.domains.membership, self.domains.background
        self.compactor = Compactor(self.domains, self._run_job, lake, slots=2)
        followers = make_followers(self.store, lake)
        if keys:
            followers.append(KeyIndexFollower(self.store, chance=chance))
        self.following = Following(self.domains, followers, self.compactor.lease, lake)
        self._followers = followers
        settings = Settings(objects="memory://", lake=lake)
        profiles = {"cost": settings.wal.cost, "latency": settings.wal.latency}
        self._writers = Writers(
            self.domains, WalCache(self.store, 0), profiles, zone="", hold_ms=0, budget=Budget(1 << 30)
        )
        self.membership.on_epoch = self._writers.join
        self.letters = Letters(self.domains, self._writers, self.compactor.lease, settings)

    async def _run_job(self, tag: str, tasks: Sequence[Task]) -> list[TaskFacts]:
        """Run tasks as Spark does, without Spark. Tasks and facts are encoded and decoded."""
        return [decode_facts(encode(await perform(self.store, decode_task(encode(task))))) for task in tasks]

    async def start(self) -> None:
        await self.domains.follow()
        self._writers.start()
        await self.domains.join()

    async def round(self) -> None:
        """Settle, merge, collect; then bring all followers up to date, and write dead letters.

        A broker has written a checkpoint, so that the compactor may delete what died before.
        """
        await self._world.let_deletions_go_on()
        await self.compactor.round()
        for follower in self._followers:
            await self.following.round(follower)
        await self.letters.round()

    async def finish(self, rounds: int = 6) -> None:
        """Run rounds until nothing is left to do. Time passes between rounds, so that versions expire."""
        for _ in range(rounds):
            await self.round()
            await asyncio.sleep(1)
        await self.compactor.sweep(self.domain)

    async def close(self) -> None:
        await self._writers.drain()
        await self.domains.leave()

    async def abandon(self) -> None:
        """End the process as `kill -9` does: nothing of it runs any more."""
        self.fate.death.set()
        await self.background.close()


class LakeWorld(NodeWorld):
    """Brokers and compactors over one ledger and one store, whose objects can be written to files."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self.store.url = directory.as_uri()
        self._compactions = 0

    async def compaction(self, fate: Fate | None = None, *, keys: bool = False, **lake: Any) -> Compaction:
        """A compactor; with `keys` it keeps indexes of keys, for topics that want one."""
        chosen = {"freshness_ms": 1, "merge_files": 4, "keep_versions": 3, "expire_interval_ms": 500} | lake
        self._compactions += 1
        made = Compaction(self, self._compactions, fate or Fate(), Lake(**chosen), keys)
        await made.start()
        return made

    def lay_out(self) -> None:
        """Write all objects to files, for engines to read."""
        shutil.rmtree(self._directory, ignore_errors=True)
        for path, data in self.store.objects.items():
            target = self._directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)

    def delta_rows(self, node: Node, topic: Topic) -> list[Row]:
        from deltalake import DeltaTable

        root = node.domains[ONE].state.tables[topic.id].root
        return rows_of(DeltaTable(str(self._directory / root)).to_pyarrow_table())

    async def by_path(self, table: TopicTable) -> bytes:
        """The metadata that engines find which know only the table's root."""
        hint = (await self.store.get(f"{table.root}/metadata/version-hint.text")).decode()
        return await self.store.get(f"{table.root}/metadata/{hint}.metadata.json")

    def iceberg_rows(self, node: Node, topic: Topic) -> list[Row]:
        from pyiceberg.table import StaticTable

        location = node.domains[ONE].state.tables[topic.id].followers["iceberg"].location
        return rows_of(StaticTable.from_metadata(f"{self.store.url}/{location}").scan().to_arrow())


def rows_of(table: Any) -> list[Row]:
    """An Arrow table's rows, in the order of the log."""
    found = []
    for row in table.select(["partition", "offset", "timestamp_ms", "key", "value", "headers"]).to_pylist():
        headers = tuple((h["key"], h["value"]) for h in row["headers"] or ())
        found.append((row["partition"], row["offset"], row["timestamp_ms"], row["key"], row["value"], headers))
    return sorted(found, key=lambda row: row[:2])


async def log_rows(node: Node, topic: Topic) -> list[Row]:
    """All records of all partitions, as a consumer gets them."""
    found: list[Row] = []
    for partition, stream in enumerate(topic.streams):
        replica = node.domains[ONE]
        offset = replica.state.streams[stream].log_start
        while offset < replica.state.streams[stream].next_offset:
            result = await node.broker.reader.read(replica, stream, offset, 1 << 20, True)
            before = offset
            for batch in decode_batches(bytes(result.records)):
                for record in batch.records:
                    if record.offset >= offset:
                        headers = tuple((_text(k), v) for k, v in record.headers)
                        found.append((partition, record.offset, record.timestamp, record.key, record.value, headers))
                offset = max(offset, batch.next_offset)
            assert offset > before, f"a consumer of partition {partition} is stuck at {offset}"
    return found


def _text(key: str | bytes) -> str:
    return key if isinstance(key, str) else key.decode()


def files_left(world: LakeWorld, node: Node) -> tuple[set[str], set[str]]:
    """The data files in the store, and those in the state."""
    stored = {path for path in world.store.objects if "/_data/" in path}
    tables = node.domains[ONE].state.tables.values()
    return stored, {f"{table.root}/{file.name}" for table in tables for file in table.files.values()}


__all__ = ["Compaction", "Crash", "Fate", "LakeWorld", "Row", "files_left", "log_rows", "rows_of"]
