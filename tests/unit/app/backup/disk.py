"""A cluster on a disk, in one process: a node and a compactor on SQLite and a local directory."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from harness.virtual import SeededChance, VirtualClock
from headwater.app.backup.backup import Copied, back_up
from headwater.app.doctor.examining import examine
from headwater.app.node import Node
from headwater.app.session import kept
from headwater.lake.tables.iceberg.objects import as_written
from headwater.ledger.sqlite.ledger import SqliteLedger
from headwater.objects.local import LocalStore
from headwater.replica.checkpoint import write_checkpoint
from headwater.replica.domains import new_state
from headwater.settings.settings import Settings
from headwater.state.cluster.domain import Topic
from headwater.types import CLUSTER
from tests.support.batches import Rec, batch
from tests.support.lake import ONE, Compaction, LakeWorld, Row, log_rows, rows_of
from tests.support.virtual_nodes import sent, topic


class DiskWorld(LakeWorld):
    """Brokers and compactors on the files of a data directory."""

    def __init__(self, data: Path) -> None:
        super().__init__(data / "objects")
        self.data = data
        data.mkdir(parents=True, exist_ok=True)
        self.ledger: Any = SqliteLedger(data / "ledger.db")
        self.store: Any = LocalStore(data / "objects")
        self.nodes: list[Node] = []
        self.compactions: list[Compaction] = []

    @property
    def settings(self) -> Settings:
        return settings_of(self.data)

    async def begin(self) -> tuple[Node, Topic, Compaction]:
        """A node, a topic of two partitions and a compactor."""
        node = await self.node()
        self.nodes.append(node)
        made = await topic(node, partitions=2)
        self.compactions.append(await self.compaction())
        return node, made, self.compactions[0]

    async def checkpoint(self) -> None:
        """Write a checkpoint of each domain, as housekeeping does."""
        for domain in (CLUSTER, ONE):
            assert await write_checkpoint(self.ledger, self.store, new_state(domain))

    async def back_up(self, target: Path, **options: Any) -> Copied:
        settings = self.settings
        return await back_up(settings, target, VirtualClock(), SeededChance(77), lambda: kept(settings), **options)

    async def close(self) -> None:
        for compaction in self.compactions:
            await compaction.close()
        for node in self.nodes:
            await node.stop()
        await self.ledger.close()
        await self.store.close()


def settings_of(data: Path) -> Settings:
    return Settings(data=str(data))


async def write(node: Node, made: Topic, count: int, mark: str = "v") -> None:
    """Append records to all partitions, one object each time."""
    for number in range(count):
        for stream in made.streams:
            await sent(node, stream, batch([Rec(f"{mark}{number}".encode())]))


async def settle(node: Node, made: Topic, compaction: Compaction, times: int, mark: str = "v") -> None:
    """Append and settle several times, each of which is a version of the table."""
    for number in range(times):
        await write(node, made, 1, f"{mark}{number}-")
        await compaction.domain.barrier()
        while not _is_settled(compaction, made):
            await asyncio.sleep(0.005)
            await compaction.round()


def _is_settled(compaction: Compaction, made: Topic) -> bool:
    """Whether both tables show the whole log, as far as the compactor knows."""
    state = compaction.domain.state
    table = state.tables.get(made.id)
    streams = [state.streams[stream] for stream in made.streams]
    if table is None or any(stream.settled < stream.next_offset for stream in streams):
        return False
    cursors = [follower.cursor for follower in table.followers.values()]
    return cursors == [table.last_sequence] * 2


async def served(data: Path, name: str = "t") -> tuple[list[Row], list[Row], list[Row]]:
    """The records of a topic as a node on a directory, and readers of both tables there, show them."""
    from deltalake import DeltaTable
    from pyiceberg.table import StaticTable

    world = DiskWorld(data)
    node = await world.node(1)
    world.nodes.append(node)
    try:
        made = node.domains.cluster.state.names[name]
        table = node.domains[ONE].state.tables.get(made.id)
        log = await log_rows(node, made)
        if table is None:
            return log, [], []
        location = f"{as_written(world.store.url)}/{table.followers['iceberg'].location}"
        iceberg = rows_of(StaticTable.from_metadata(location).scan().to_arrow())
        return log, iceberg, rows_of(DeltaTable(str(data / "objects" / table.root)).to_pyarrow_table())
    finally:
        await world.close()


async def findings(data: Path) -> list[str]:
    """What the doctor finds wrong with a directory."""
    report = await examine(settings_of(data), deep=True)
    return [f"{one.check} {one.subject}: {one.problem}" for one in report.findings]


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def awaited() -> None:
        await story()

    asyncio.run(awaited())


def files_of(data: Path) -> dict[str, int]:
    """The objects of a data directory and their inodes."""
    root = data / "objects"
    found = (path for path in root.rglob("*") if path.is_file() and ".tmp" not in path.parts)
    return {path.relative_to(root).as_posix(): path.stat().st_ino for path in found}


def kinds_of(data: Path) -> set[str]:
    """The kinds of objects in a data directory: where they are, and how their names end."""
    found = (Path(path) for path in files_of(data))
    return {f"{path.parts[0]} {path.parts[2]} {path.suffix}" for path in found}
