"""Engines that know only a table's root: the hint names a whole copy of the newest metadata, whatever happens."""

from __future__ import annotations

import asyncio

import pytest

from headwater.errors import Retriable, StoreUnavailable
from headwater.lake.tables.iceberg.by_path import SWEEP_EVERY
from headwater.lake.tables.iceberg.metadata import METADATA_LOG
from headwater.lake.tables.iceberg.table import IcebergFollower
from headwater.objects.memory import MemoryStore
from headwater.types import Pieces
from tests.unit.lake.tables.iceberg.reading import read, shown
from tests.unit.lake.tables.iceberg.story import REF, ROOT, Story

FOLDER = f"{ROOT}/metadata"
HINT = f"{FOLDER}/version-hint.text"


class Frail(MemoryStore):
    """Does not store objects whose path ends in `broken`."""

    broken = "nothing"

    async def put(self, path: str, pieces: Pieces) -> None:
        if path.endswith(self.broken):
            raise StoreUnavailable(f"{path} cannot be stored")
        await super().put(path, pieces)


class World:
    """A table, its follower, and what a reader finds."""

    def __init__(self, keep_versions: int = 50) -> None:
        self.store, self.story = Frail(), Story()
        self.follower = IcebergFollower(self.store, keep_versions=keep_versions)

    @property
    def location(self) -> str:
        return self.story.known(self.follower).location

    async def settle(self, times: int = 1, *, announced: bool = True) -> None:
        for _ in range(times):
            self.story.settle()
            await self.story.follow(self.follower)
            if announced:
                await self.follower.announce(REF, self.location)

    @property
    def by_hint(self) -> str:
        """What DuckDB opens."""
        return f"{FOLDER}/{self.store.objects[HINT].decode()}.metadata.json"

    @property
    def copies(self) -> list[str]:
        return sorted(path for path in self.store.objects if path.startswith(FOLDER) and path != HINT)

    @property
    def by_number(self) -> str:
        """What ClickHouse opens: the greatest number."""
        return max(self.copies, key=lambda path: int(path.rpartition("/")[2].partition("-")[0]))


def test_both_ways_lead_to_the_newest_metadata() -> None:
    async def run() -> None:
        world = World()
        await world.follower.announce(REF, "")
        assert not world.store.objects
        for _ in range(3):
            await world.settle()
            assert world.by_hint == world.by_number
            assert world.store.objects[world.by_hint] == world.store.objects[world.location]
            assert shown(read(world.store, world.by_hint)) == world.story.names()

    asyncio.run(run())


@pytest.mark.parametrize("broken", [".metadata.json", "version-hint.text"])
def test_a_crash_in_between_leaves_an_older_version(broken: str) -> None:
    """The hint is put last, and a copy only after the ledger has the commit."""

    async def run() -> None:
        world = World()
        await world.settle(2)
        before = world.by_hint
        await world.settle(announced=False)
        assert world.by_hint == world.by_number == before, "nothing shows what may not be committed"
        world.store.broken = broken
        with pytest.raises(Retriable):
            await world.follower.announce(REF, world.location)
        assert world.by_hint == before
        assert shown(read(world.store, before)) == world.story.names(2)
        world.store.broken = "nothing"
        await world.follower.announce(REF, world.location)
        assert shown(read(world.store, world.by_hint)) == world.story.names()

    asyncio.run(run())


def test_few_copies_stay_and_expiry_leaves_the_one_of_the_hint() -> None:
    async def run() -> None:
        world = World(keep_versions=2)
        for _ in range(5 * SWEEP_EVERY):
            await world.settle()
            assert len(world.copies) <= METADATA_LOG + SWEEP_EVERY
        foreign = f"{FOLDER}/notes.txt"
        await world.store.put(foreign, [b"x"])
        await world.settle(SWEEP_EVERY)
        before = world.by_hint
        known = world.story.known(world.follower)
        world.story.enter(world.follower, known, await world.follower.expire(REF, world.location))
        assert world.by_hint == before and foreign in world.store.objects
        assert shown(read(world.store, before)) == world.story.names()

    asyncio.run(run())


def test_what_a_vacuum_deletes_is_put_again() -> None:
    async def run() -> None:
        world = World()
        await world.settle(2)
        for path in (HINT, *world.copies):
            await world.store.delete(path)
        await world.follower.announce(REF, world.location)
        assert world.copies == [world.by_hint] and shown(read(world.store, world.by_hint)) == world.story.names()

    asyncio.run(run())


def test_a_table_that_begins_anew_hides_its_former_versions() -> None:
    """Its numbers begin at 1 again. An engine that takes the greatest number must not find an old one."""

    async def run() -> None:
        world = World()
        await world.settle(3)
        world.story.table.followers.clear()  # the catalog was taken out of the settings, and comes back
        known = world.story.known(world.follower)
        standing = await world.follower.commit(REF, "", world.story.batch(0, exact=True))
        world.story.enter(world.follower, known, standing)
        assert not world.copies and HINT not in world.store.objects
        await world.follower.announce(REF, world.location)
        assert world.by_hint == world.by_number and len(world.copies) == 1
        await world.follower.drop(REF, world.location)
        assert not world.store.objects

    asyncio.run(run())


def test_metadata_that_is_gone_is_not_announced() -> None:
    async def run() -> None:
        world = World()
        await world.settle()
        before = world.by_hint
        await world.settle(announced=False)
        await world.store.delete(world.location)
        with pytest.raises(Retriable, match="is missing"):
            await world.follower.announce(REF, world.location)
        assert world.by_hint == before

    asyncio.run(run())
