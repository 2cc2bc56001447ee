"""Followers of tables: when the newest version is shown to engines that read by path."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from harness.virtual import run
from headwater.app.node import Node
from headwater.state.cluster.domain import Topic
from headwater.state.streams.tables import TopicTable
from tests.support.batches import Rec, batch
from tests.support.lake import Compaction, LakeWorld
from tests.support.virtual_nodes import sent, topic

INTERVAL_MS = 60_000


class World:
    """A cluster with one topic and a compactor."""

    def __init__(self, lake: LakeWorld, node: Node, made: Topic, compaction: Compaction) -> None:
        self.lake = lake
        self.node = node
        self.made = made
        self.compaction = compaction

    async def settle(self) -> None:
        await sent(self.node, self.made.streams[0], batch([Rec(b"a record")]))
        await asyncio.sleep(1)
        await self.compaction.round()

    @property
    def table(self) -> TopicTable:
        return self.compaction.domain.state.tables[self.made.id]

    @property
    def named(self) -> str | None:
        """The metadata that the hint names, as a name in `_iceberg`."""
        hint = self.lake.store.objects.get(f"{self.table.root}/metadata/version-hint.text")
        return None if hint is None else f"{self.table.root}/_iceberg/{bytes(hint).decode()}.metadata.json"

    @property
    def newest(self) -> str:
        return self.table.followers["iceberg"].location

    def vacuum(self) -> None:
        for path in [path for path in self.lake.store.objects if "/metadata/" in path]:
            del self.lake.store.objects[path]


def play(directory: Path, story: Callable[[World], Awaitable[None]]) -> None:
    async def whole() -> None:
        lake = LakeWorld(directory / "objects")
        node = await lake.node()
        made = await topic(node)
        world = World(lake, node, made, await lake.compaction(expire_interval_ms=INTERVAL_MS))
        await story(world)
        await world.compaction.close()
        await node.stop()

    run(whole())


def test_every_commit_is_announced(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        seen = set()
        for _ in range(3):
            await world.settle()
            assert world.named == world.newest
            seen.add(world.newest)
        assert len(seen) == 3

    play(tmp_path, story)


def test_the_hint_is_put_again_from_time_to_time(tmp_path: Path) -> None:
    """Another writer of the table's directory, such as Delta's VACUUM, may have deleted it."""

    async def story(world: World) -> None:
        await world.settle()
        world.vacuum()
        await world.compaction.round()
        assert world.named is None, "a look at a table without news costs no request"
        await asyncio.sleep(INTERVAL_MS / 1000)
        await world.compaction.round()
        assert world.named == world.newest

    play(tmp_path, story)


def test_another_compactor_announces_what_a_dead_one_has_committed(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.settle()
        world.vacuum()
        await world.compaction.close()
        world.compaction = await world.lake.compaction(expire_interval_ms=INTERVAL_MS)
        await world.compaction.finish(2)
        assert world.named == world.newest

    play(tmp_path, story)


def test_a_deleted_topic_leaves_nothing(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.settle()
        root = world.table.root
        await world.node.broker.topics.delete(world.made)
        await world.compaction.finish()
        assert not [path for path in world.lake.store.objects if path.startswith(f"{root}/metadata/")]

    play(tmp_path, story)
