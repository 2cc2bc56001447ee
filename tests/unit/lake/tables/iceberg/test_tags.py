"""Hourly tags of an Iceberg table: which there are, what they keep, and that it stays bounded."""

import asyncio
from pathlib import Path

from pyiceberg.catalog import load_catalog
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Snapshot

from headwater.lake.tables.follower import HOUR_MS, Expiry, Keeping
from headwater.lake.tables.iceberg.catalog import CatalogFollower
from headwater.lake.tables.iceberg.metadata import sequence_of, standing
from headwater.lake.tables.iceberg.retention import SLACK, after_commit, hour_tag, on_expiry, tidied
from headwater.lake.tables.iceberg.table import IcebergFollower
from headwater.objects import open_store
from headwater.objects.memory import MemoryStore
from tests.support.promise import promise
from tests.unit.lake.tables.iceberg.reading import read, shown
from tests.unit.lake.tables.iceberg.story import NAME, REF, START_MS, Story, objects

PROMISES = ("T5", "T15")

KEEP = 6
HOURS = 8
MINUTES = 5
FAR_MS = 4_000_000_000_000


@promise("T15")
def test_names() -> None:
    """An hour in UTC, so that names and times sort alike."""
    assert hour_tag(START_MS) == "hour-2023-11-14T22"
    assert hour_tag(0) == hour_tag(HOUR_MS - 1) == "hour-1970-01-01T00"
    assert hour_tag(HOUR_MS) == "hour-1970-01-01T01"


@promise("T15")
def test_the_last_snapshot_of_an_hour() -> None:
    """The first commit of a later hour tags the last of the one before, once; hours without a commit have none."""

    async def run() -> None:
        store, story = MemoryStore(), Story()
        follower = IcebergFollower(store, keep_versions=2, tag_hours=5)
        wanted: dict[str, int] = {}
        for minutes in (20, 20, 20, 1, 10, 180, 20, 60, 1, 1, 120):
            if (story.ms + 1_000) // HOUR_MS < (story.ms + minutes * 60_000) // HOUR_MS and story.table.last_sequence:
                wanted[hour_tag(story.ms)] = story.table.last_sequence
            story.ms += minutes * 60_000 - 1_000
            story.settle()
            await story.follow(follower)
        metadata = read(store, story.known(follower).location).metadata
        by_id = {s.snapshot_id: s for s in metadata.snapshots}
        found = {name: ref for name, ref in metadata.refs.items() if name != "main"}
        alive = {name: n for name, n in wanted.items() if name >= hour_tag(story.ms - 5 * HOUR_MS)}
        assert {name: sequence_of(by_id[ref.snapshot_id]) for name, ref in found.items()} == alive
        assert len(wanted) > len(alive) > 1
        assert {ref.max_ref_age_ms for ref in found.values()} == {5 * HOUR_MS}
        assert {ref.snapshot_ref_type.value for ref in found.values()} == {"tag"}

    asyncio.run(run())


@promise("T5")
def test_days_of_commits() -> None:
    """Snapshots, objects and their bytes stop growing; every tag shows what the table showed at its hour's end."""

    async def run() -> None:
        store, story, small = MemoryStore(), Story(), list[int]()
        follower = IcebergFollower(store, keep_versions=KEEP, tag_hours=HOURS)
        sizes: list[tuple[int, int, int]] = []
        for turn in range(4 * HOURS * 60 // MINUTES):
            story.ms += MINUTES * 60_000 - 1_000
            small += story.settle()
            await story.follow(follower)
            if len(small) == 8:
                [merged] = story.merge(*small)
                small = []
                await story.follow(follower)
                if turn % 16 == 15:  # old rows leave, so that the table itself stays small
                    story.delete(*[f.number for f in story.table.live() if f.number < merged])
                    await story.follow(follower)
            found = await objects(store)
            sizes.append((len(found), sum(found.values()), found[story.known(follower).location]))
        early, late = sizes[len(sizes) // 2 : -len(sizes) // 4], sizes[-len(sizes) // 4 :]
        for kind in range(3):
            assert max(row[kind] for row in late) <= 1.2 * max(row[kind] for row in early)
        table = read(store, story.known(follower).location)
        tags = {name: ref.snapshot_id for name, ref in table.metadata.refs.items() if name != "main"}
        assert len(tags) == HOURS
        assert len(table.metadata.snapshots) <= HOURS + KEEP + SLACK
        for snapshot in tags.values():
            [one] = [s for s in table.metadata.snapshots if s.snapshot_id == snapshot]
            assert shown(table, snapshot) == story.names(sequence_of(one))
        told = standing(table.metadata, "")
        kept = [sequence_of(s) for s in table.metadata.snapshots]
        assert (told.oldest, told.pinned) == (kept[0], tuple(n for n in kept if n < told.recent))
        assert len(told.pinned) <= HOURS

    asyncio.run(run())


@promise("T5")
def test_expiry_leaves_tags_until_their_time() -> None:
    """A wish for fewer versions takes no tag; time does, also where nothing is committed; others' tags stay."""

    async def run() -> None:
        store, story = MemoryStore(), Story()
        follower = IcebergFollower(store, keep_versions=50, tag_hours=HOURS)
        for _ in range(9):
            story.ms += HOUR_MS // 2
            story.settle()
            await story.follow(follower)
        known = story.known(follower)
        told = await follower.expire(REF, known.location, Expiry(story.ms, keep=1))
        story.enter(follower, known, told)
        metadata = read(store, told.location).metadata
        tags = set(metadata.refs) - {"main"}
        assert len(metadata.snapshots) == len(tags) + 1
        assert len(told.pinned) == len(tags) == 4
        mine = SnapshotRef.model_validate({"snapshot-id": metadata.snapshots[1].snapshot_id, "type": "tag"})
        tagged = metadata.model_copy(update={"refs": {**metadata.refs, "hour-zero": mine}})
        keeping = Keeping(1, 0, HOURS)
        later = tidied(tagged, on_expiry(tagged, keeping, Expiry(story.ms + 20 * HOUR_MS)), keeping)
        assert set(later.refs) == {"main", "hour-zero"}
        assert [s.snapshot_id for s in later.snapshots] == [mine.snapshot_id, metadata.current_snapshot_id]
        off = Keeping(50, 0, 0)
        assert set(on_expiry(tagged, off, Expiry(story.ms)).untagged) == tags
        assert not after_commit(later, off, story.ms)

    asyncio.run(run())


@promise("T5")
def test_a_tag_that_nobody_needs_is_a_version_again() -> None:
    """A table that is seldom written keeps so many versions, whatever becomes of their tags."""

    async def run() -> None:
        store, story = MemoryStore(), Story()
        follower = IcebergFollower(store, keep_versions=6, tag_hours=4)
        for _ in range(12):
            story.ms += 2 * HOUR_MS
            story.settle()
            standing = await story.follow(follower)
        metadata = read(store, story.known(follower).location).metadata
        assert len(metadata.refs) - 1 == 2
        assert 6 <= len(metadata.snapshots) <= 2 + 6 + 6
        assert standing.oldest == sequence_of(metadata.snapshots[0])

    asyncio.run(run())


@promise("T15", "T4")
def test_in_another_catalog(tmp_path: Path) -> None:
    """Tags come and go in the same commits as elsewhere."""
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": tmp_path.as_uri()}

    async def run() -> None:
        store, story = open_store((tmp_path / "objects").as_uri()), Story()
        follower = CatalogFollower("lake", properties, store, keep_versions=3, tag_hours=4)
        catalog = load_catalog("lake", **properties)
        story.ms = FAR_MS  # a catalog's table is as old as it is, whatever a journal says
        for turn in range(24):
            story.ms += HOUR_MS // 3
            story.settle()
            told = await story.follow(follower)
            metadata = catalog.load_table(("topics", NAME)).metadata
            tags = {name: ref.snapshot_id for name, ref in metadata.refs.items() if name != "main"}
            assert len(tags) <= 4
            by_id: dict[int, Snapshot] = {s.snapshot_id: s for s in metadata.snapshots}
            assert all(hour_tag(by_id[snapshot].timestamp_ms) == name for name, snapshot in tags.items())
            assert len(by_id) <= 4 + 3 + 3
            assert turn < 12 or len(told.pinned) >= 2, told
        told = await follower.expire(REF, "", Expiry(story.ms + 9 * HOUR_MS, keep=1))
        assert set(catalog.load_table(("topics", NAME)).metadata.refs) == {"main"}
        assert (told.oldest, told.pinned) == (24, ())
        assert [v.sequence for v in await follower.versions(REF, "")] == [24]
        catalog.close()
        await follower.close()
        await store.close()

    asyncio.run(run())
