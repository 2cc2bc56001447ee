"""A table's metadata for a copy elsewhere: other URLs, the same table."""

import asyncio
from typing import Any

import pytest

from headwater.errors import Damaged, ObjectMissing
from headwater.lake.tables.follower import TableRef
from headwater.lake.tables.iceberg.relocation import Relocation
from headwater.lake.tables.iceberg.table import IcebergFollower
from headwater.objects.memory import MemoryStore
from tests.unit.lake.tables.iceberg.reading import entries, read, shown
from tests.unit.lake.tables.iceberg.story import REF, TOPIC, Story

HINT = f"{REF.root}/metadata/version-hint.text"
HERE, THERE = "file:///var/data/objects", "file:///mnt/a copy/objects"


class World:
    """A table with settles, a merge and a deletion, and a copy of its metadata."""

    def __init__(self) -> None:
        self.store, self.copy, self.story = MemoryStore(), MemoryStore(), Story()
        self.store.url, self.copy.url = HERE, THERE
        self.follower = IcebergFollower(self.store, keep_versions=5, tag_hours=4)
        self.copier = Relocation(self.store, THERE, self.size)

    def size(self, path: str) -> int | None:
        return len(self.copy.objects[path]) if path in self.copy.objects else None

    @property
    def location(self) -> str:
        return self.story.known(self.follower).location

    async def settle(self, times: int) -> None:
        for number in range(times):
            self.story.settle(number % 2, files=2)
            await self.story.follow(self.follower)

    async def move(self) -> list[str]:
        """Returns the paths of what was written."""
        new = []
        async for path, data in self.copier.objects(REF, self.location):
            if data is not None:
                self.copy.objects[path] = data
                new.append(path)
            else:
                assert path in self.copy.objects
        return new

    def facts(self, store: MemoryStore) -> list[Any]:
        """All that readers of a table see, but for places."""
        table = read(store, self.location)
        metadata = table.metadata
        listed = [
            (e.status, e.snapshot_id, e.sequence_number, e.data_file.file_path.removeprefix(store.url),
             e.data_file.record_count, e.data_file.lower_bounds, e.data_file.upper_bounds, m.sequence_number,
             m.min_sequence_number, m.added_snapshot_id, m.added_files_count, m.deleted_files_count)
            for m, e in entries(table, deleted=True)
        ]  # fmt: skip
        return [
            *(sorted(shown(table, s.snapshot_id)) for s in metadata.snapshots),
            [(s.snapshot_id, s.parent_snapshot_id, s.sequence_number, s.summary) for s in metadata.snapshots],
            (metadata.refs, metadata.current_snapshot_id, metadata.snapshot_log, metadata.table_uuid),
            sorted(listed, key=repr),
        ]


def test_the_same_table_elsewhere() -> None:
    async def story() -> None:
        world = World()
        await world.settle(7)
        live = [file.number for file in world.story.table.live()]
        world.story.merge(*live[:3])
        await world.story.follow(world.follower)
        world.story.delete(live[3])
        await world.story.follow(world.follower)
        await world.move()
        assert world.facts(world.copy) == world.facts(world.store)
        everything = b"".join(world.copy.objects.values())
        assert HERE.encode() not in everything
        table = read(world.copy, world.location)
        assert table.metadata.location == f"{THERE}/{REF.root}"
        for manifest, _ in entries(table):
            path = manifest.manifest_path.removeprefix(f"{THERE}/")
            assert manifest.manifest_length == len(world.copy.objects[path])
        named = f"{REF.root}/metadata/{world.copy.objects[HINT].decode()}.metadata.json"
        assert world.copy.objects[named] == world.copy.objects[world.location]

    asyncio.run(story())


def test_the_follower_goes_on_in_the_copy() -> None:
    """It commits on top of what was moved, and sweeps it."""

    async def story() -> None:
        world = World()
        await world.settle(4)
        await world.move()
        world.follower = IcebergFollower(world.copy, keep_versions=2)
        world.store = world.copy
        await world.settle(14)
        assert shown(read(world.copy, world.location)) == world.story.names()

    asyncio.run(story())


def test_only_what_is_new_is_written_again() -> None:
    async def story() -> None:
        world = World()
        await world.settle(3)
        first = await world.move()
        assert await world.move() == [HINT]
        await world.settle(1)
        second = await world.move()
        assert 0 < len(second) < len(first)
        assert world.facts(world.copy) == world.facts(world.store)

    asyncio.run(story())


def test_earlier_metadata_that_is_gone() -> None:
    """The follower keeps a few earlier metadata files, and may delete the oldest while they are read."""

    async def story() -> None:
        world = World()
        await world.settle(4)
        log = read(world.store, world.location).metadata.metadata_log
        del world.store.objects[log[0].metadata_file.removeprefix(f"{HERE}/")]
        await world.move()
        assert world.facts(world.copy) == world.facts(world.store)
        moved = [entry.metadata_file for entry in read(world.copy, world.location).metadata.metadata_log]
        assert moved == [entry.metadata_file.replace(HERE, THERE) for entry in log[1:]] and moved
        assert all(url.removeprefix(f"{THERE}/") in world.copy.objects for url in moved)

    asyncio.run(story())


def test_what_cannot_be_moved() -> None:
    async def story() -> None:
        world = World()
        await world.settle(2)
        gone = next(path for path in world.store.objects if "-list-" in path)
        data = world.store.objects.pop(gone)
        with pytest.raises(ObjectMissing, match=gone):
            await world.move()
        world.store.objects[gone] = data
        with pytest.raises(Damaged, match="does not end in"):
            async for _ in world.copier.objects(TableRef(TOPIC, "other", "tables/other"), world.location):
                pass

    asyncio.run(story())
