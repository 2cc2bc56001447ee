"""A topic's table in a foreign Iceberg catalog, here pyiceberg's own over SQLite."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from headwater.errors import ForeignCommit, OutcomeUnknown, Retriable, StoreUnavailable
from headwater.lake.tables.follower import Standing, TableRef
from headwater.lake.tables.iceberg.catalog import CatalogFollower
from headwater.objects import ObjectStore, open_store
from tests.support.promise import promise
from tests.unit.lake.tables.iceberg.story import NAME, REF, ROOT, Story, objects, rows

PROMISES = ("T2", "T4")

FOLDER = "_iceberg-lake"


class World:
    """A catalog, a follower and a story with real segments."""

    def __init__(self, directory: Path, keep_versions: int = 50) -> None:
        self.directory = directory
        self.properties = {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db", "warehouse": directory.as_uri()}
        self.store: ObjectStore = open_store((directory / "objects").as_uri())
        self.keep = keep_versions
        self.follower = self.another()
        self.story = Story(directory / "objects")
        self.catalog: Catalog = load_catalog("lake", **self.properties)

    def another(self) -> CatalogFollower:
        return CatalogFollower("lake", self.properties, self.store, keep_versions=self.keep)

    async def follow(self, *, exact: bool = False) -> Standing:
        return await self.story.follow(self.follower, exact=exact)

    def table(self) -> Table:
        return self.catalog.load_table(("topics", NAME))

    def shown(self, snapshot: int | None = None) -> set[str]:
        tasks = self.table().scan(snapshot_id=snapshot).plan_files()
        return {task.file.file_path.partition(f"{ROOT}/")[2] for task in tasks}

    async def close(self) -> None:
        self.catalog.close()
        await self.follower.close()
        await self.store.close()


def run(directory: Path, tell: Callable[[World], Awaitable[None]], keep_versions: int = 50) -> None:
    async def whole() -> None:
        world = World(directory, keep_versions)
        try:
            await tell(world)
        finally:
            await world.close()

    asyncio.run(whole())


@promise("T2")
def test_following_into_a_catalog(tmp_path: Path) -> None:
    """Appends, merges and both at once, each one snapshot, with the sequence in the same commit."""

    async def tell(world: World) -> None:
        assert await world.follower.standing(REF, "") == Standing(0, 0, "")
        first = world.story.settle(0, 5, files=2)
        assert await world.follow() == Standing(1, 1, "")
        world.story.merge(*first)
        assert await world.follow() == Standing(2, 1, "")
        world.story.merge(*world.story.settle(1, 4), 3)
        assert await world.follow() == Standing(4, 1, "")
        assert await world.another().standing(REF, "") == Standing(4, 1, "")
        table = world.table()
        assert table.location() == f"{world.store.url}/{ROOT}"
        assert table.properties["headwater.journal.sequence"] == "4"
        assert table.properties["write.metadata.path"] == f"{world.store.url}/{ROOT}/{FOLDER}"
        assert [s.summary.operation.value for s in table.snapshots() if s.summary] == ["append", "replace", "overwrite"]
        assert {f.name: f.field_id for f in table.schema().fields}["sequence"] == 12
        assert table.schema().find_field("headers.element.value").field_id == 15
        assert table.scan().to_arrow().num_rows == 14
        counts = [table.scan(snapshot_id=s.snapshot_id).to_arrow().num_rows for s in table.snapshots()]
        assert counts == [10, 10, 14]

    run(tmp_path, tell)


@promise("T4")
def test_a_repetition_changes_nothing(tmp_path: Path) -> None:
    """A batch that is there already, or that begins elsewhere, is not committed again."""

    async def tell(world: World) -> None:
        world.story.settle()
        batch = world.story.batch(0)
        await world.follow()
        assert await world.another().commit(REF, "", batch) == Standing(1, 1, "")
        world.story.settle()
        world.story.settle()
        with pytest.raises(Retriable, match="is at 1, not at 2"):
            await world.follower.commit(REF, "", world.story.batch(2))
        assert len(world.table().snapshots()) == 1

    run(tmp_path, tell)


@promise("T4")
def test_two_followers_at_once(tmp_path: Path) -> None:
    """Of two that commit the same batch one is refused, and finds the work done."""

    async def tell(world: World) -> None:
        world.story.settle()
        await world.follow()
        world.story.settle(files=2)
        rival, batch = world.another(), world.story.batch(1)
        put = world.follower._objects.put

        async def put_late(files: dict[str, bytes]) -> None:
            await put(files)
            assert (await rival.commit(REF, "", batch)).cursor == 2

        world.follower._objects.put = put_late  # type: ignore[assignment, method-assign]
        with pytest.raises(Retriable, match="first"):
            await world.follower.commit(REF, "", batch)
        assert await world.follower.commit(REF, "", batch) == Standing(2, 1, "")
        assert world.shown() == world.story.names()
        assert len(world.table().snapshots()) == 2
        await rival.close()

    run(tmp_path, tell)


@promise("T4")
def test_a_lost_answer(tmp_path: Path) -> None:
    """Whether a commit happened that nobody answered is read from the table."""

    async def tell(world: World) -> None:
        world.story.settle()
        await world.follow()
        world.story.settle()
        found = world.follower._load(REF)
        assert found is not None
        commit = found._do_commit

        def lose(*arguments: object) -> None:
            commit(*arguments)  # type: ignore[arg-type]
            raise ConnectionResetError("the answer is lost")

        found._do_commit = lose  # type: ignore[assignment, method-assign]
        world.follower._load_or_create = lambda table: found  # type: ignore[method-assign]
        with pytest.raises(OutcomeUnknown, match="the answer is lost"):
            await world.follower.commit(REF, "", world.story.batch(1))
        assert (await world.another().standing(REF, "")).cursor == 2
        assert world.shown() == world.story.names()

    run(tmp_path, tell)


@promise("T4")
def test_foreign_commits_hold_the_follower(tmp_path: Path) -> None:
    """After somebody else's rows nothing is committed until they are gone; tags and properties are welcome."""

    async def tell(world: World) -> None:
        world.story.settle()
        await world.follow()
        ours = world.table().current_snapshot()
        assert ours is not None
        with world.table().manage_snapshots() as change:
            change.create_tag(ours.snapshot_id, "mine")
        with world.table().transaction() as change:
            change.set_properties({"owner": "somebody"})
        world.story.settle()
        await world.follow()
        last = world.table().current_snapshot()
        assert last is not None
        world.table().append(rows(9, 0, 2))
        world.story.settle()
        for call in (world.follower.standing(REF, ""), world.follower.commit(REF, "", world.story.batch(2))):
            with pytest.raises(
                ForeignCommit, match=rf"another writer committed .* Make snapshot {last.snapshot_id} .* again"
            ):
                await call
        with world.table().manage_snapshots() as change:
            change.rollback_to_snapshot(last.snapshot_id)
        await world.follow()
        assert world.shown() == world.story.names()
        with world.table().manage_snapshots() as change:
            change.rollback_to_snapshot(last.snapshot_id)
        with pytest.raises(ForeignCommit, match=r"back to journal sequence 2.* Make snapshot .* produce to the topic"):
            await world.follower.standing(REF, "")

    run(tmp_path, tell)


@promise("T4")
def test_a_table_of_that_name_which_is_not_ours(tmp_path: Path) -> None:
    """Neither somebody else's table nor one of a deleted topic of the same name is touched."""

    async def tell(world: World) -> None:
        world.story.settle()
        await world.follow()
        heir = TableRef(uuid.UUID(int=7), NAME, f"tables/{NAME}-heir")
        with pytest.raises(ForeignCommit, match=r"not this topic's table\. Drop or rename it"):
            await world.follower.commit(heir, "", world.story.batch(0))
        with pytest.raises(ForeignCommit, match="not this topic's"):
            await world.follower.drop(heir, "")
        assert world.shown() == world.story.names()

    run(tmp_path, tell)


@promise("T4")
def test_a_catalog_that_is_down(tmp_path: Path) -> None:
    """It is asked again later."""

    async def tell() -> None:
        store = open_store((tmp_path / "objects").as_uri())
        follower = CatalogFollower("far", {"type": "rest", "uri": "http://127.0.0.1:9/iceberg"}, store)
        with pytest.raises(StoreUnavailable, match="catalog far"):
            await follower.standing(REF, "")
        await follower.close()
        await store.close()

    asyncio.run(tell())


@promise("T5")
def test_the_catalogs_table_stays_small(tmp_path: Path) -> None:
    """Versions expire, and what only they needed goes."""

    async def tell(world: World) -> None:
        counts = []
        for turn in range(1, 61):
            world.story.settle()
            standing = await world.follow()
            assert standing.cursor == turn
            found = world.table().metadata.snapshots
            assert len(found) <= 6
            assert standing.oldest == turn - len(found) + 1
            counts.append(len(await folder(world)))
        assert max(counts[30:]) <= max(counts[:30])
        for snapshot in world.table().snapshots():
            assert snapshot.sequence_number is not None
            assert world.shown(snapshot.snapshot_id) == world.story.names(snapshot.sequence_number)
        world.story.settle()
        await world.follow()
        await world.follower.expire(REF, "")
        assert len(world.table().metadata.snapshots) == 3
        table = world.table()
        needed = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
        for snapshot in table.snapshots():
            needed |= {snapshot.manifest_list, *(m.manifest_path for m in snapshot.manifests(table.io))}
        assert {f"{world.store.url}/{path}" for path in await folder(world)} == needed

    async def folder(world: World) -> list[str]:
        return [info.path async for info in world.store.scan(f"{ROOT}/{FOLDER}/")]

    run(tmp_path, tell, keep_versions=3)


@promise("T2")
def test_dropping_a_catalogs_table(tmp_path: Path) -> None:
    """The table leaves the catalog; its segments stay until the log lets go of them."""

    async def tell(world: World) -> None:
        world.story.settle()
        await world.follow()
        await world.follower.drop(REF, "")
        await world.follower.drop(REF, "")
        with pytest.raises(NoSuchTableError):
            world.table()
        assert not [info async for info in world.store.scan(f"{ROOT}/{FOLDER}/")]
        assert not await objects(world.store)
        assert [info.path async for info in world.store.scan(f"{ROOT}/data/")]

    run(tmp_path, tell)


@promise("T4")
def test_bringing_a_catalogs_table_to_what_is_live(tmp_path: Path) -> None:
    """A catalog that was down for longer than the journal remembers catches up."""

    async def tell(world: World) -> None:
        first = world.story.settle(files=3)
        await world.follow()
        world.story.merge(*first[1:])
        world.story.settle()
        assert (await world.follow(exact=True)).cursor == 3
        assert world.shown() == world.story.names()

    run(tmp_path, tell)
