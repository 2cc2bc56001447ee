"""A topic's Iceberg table says what the journal says, and stays small."""

import asyncio
import json
import struct
import uuid

import pytest
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table.refs import SnapshotRef

from headwater.errors import Retriable
from headwater.lake.tables.follower import Standing
from headwater.lake.tables.iceberg.manifests import SMALL_MANIFESTS
from headwater.lake.tables.iceberg.metadata import METADATA_LOG
from headwater.lake.tables.iceberg.retention import SLACK
from headwater.lake.tables.iceberg.schema import data_file
from headwater.lake.tables.iceberg.table import FOLDER, IcebergFollower
from headwater.objects import ObjectInfo
from headwater.objects.memory import MemoryStore
from headwater.state.commands.columns import Bounds
from headwater.state.streams.tables import Follower
from headwater.types import Pieces
from tests.support.promise import promise
from tests.unit.lake.tables.iceberg.reading import entries, read, shown
from tests.unit.lake.tables.iceberg.story import REF, ROOT, START_MS, TOPIC, Story, objects

PROMISES = ("T2", "T4", "T5")


class CountingStore(MemoryStore):
    """Counts what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    async def put(self, path: str, pieces: Pieces) -> None:
        self.calls += 1
        await super().put(path, pieces)

    async def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        self.calls += 1
        return await super().get(path, start, length)

    async def get_many(self, paths: list[str]) -> list[bytes | None]:  # type: ignore[override]
        self.calls += len(paths)
        return await super().get_many(paths)

    async def delete(self, path: str) -> None:
        self.calls += 1
        await super().delete(path)


class Follow:
    """A story, a store and its follower."""

    def __init__(self, keep_versions: int = 50, max_age_ms: int = 0) -> None:
        self.store = CountingStore()
        self.follower = IcebergFollower(self.store, keep_versions=keep_versions, max_age_ms=max_age_ms)
        self.story = Story()

    @property
    def location(self) -> str:
        return self.story.known(self.follower).location

    async def now(self, *, exact: bool = False) -> Standing:
        return await self.story.follow(self.follower, exact=exact)

    def summary(self) -> dict[str, str]:
        found = read(self.store, self.location).metadata.current_snapshot()
        assert found is not None
        assert found.summary is not None
        return {"operation": found.summary.operation.value, **found.summary.additional_properties}


@promise("T2")
def test_a_new_table() -> None:
    """The first commit makes the table, with the log's columns under their fixed ids."""

    async def run() -> None:
        it = Follow()
        assert await it.follower.standing(REF, "") == Standing(0, 0, "")
        it.story.settle(0, 5)
        standing = await it.now()
        assert standing == Standing(1, 1, it.location)
        assert it.location.startswith(f"{ROOT}/{FOLDER}/00001-")
        metadata = read(it.store, it.location).metadata
        assert metadata.format_version == 2
        assert metadata.table_uuid == TOPIC
        assert metadata.location == f"{it.store.url}/{ROOT}"
        assert metadata.spec().is_unpartitioned()
        assert [field.source_id for field in metadata.sort_order().fields] == [1, 2]
        schema = metadata.schema()
        assert {name: schema.find_field(name).field_id for name in schema.column_names} == {
            "partition": 1,
            "offset": 2,
            "timestamp_ms": 3,
            "timestamp": 4,
            "key": 5,
            "value": 6,
            "headers": 7,
            "headers.element": 13,
            "headers.element.key": 14,
            "headers.element.value": 15,
            "headers_raw": 8,
            "attributes": 9,
            "producer_id": 10,
            "producer_epoch": 11,
            "sequence": 12,
        }
        assert metadata.properties["gc.enabled"] == "false"
        assert metadata.properties["headwater.journal.sequence"] == "1"
        assert metadata.properties["headwater.topic"] == "orders"
        assert metadata.properties["headwater.topic.id"] == str(TOPIC)
        assert metadata.properties["write.metadata.path"] == f"{it.store.url}/{ROOT}/{FOLDER}"
        assert metadata.name_mapping() is not None

    asyncio.run(run())


@promise("T2")
def test_operations_and_totals() -> None:
    """Rows that come are an append, a merge is a replace, both at once an overwrite; sums are right."""

    async def run() -> None:
        it = Follow()
        first = it.story.settle(0, 5, files=2)
        await it.now()
        assert it.summary() == {
            "operation": "append",
            "headwater.journal.first": "1",
            "headwater.journal.last": "1",
            "headwater.settled.ends": '{"0":10}',
            "added-data-files": "2",
            "added-records": "10",
            "added-files-size": "2003",
            "total-data-files": "2",
            "total-records": "10",
            "total-files-size": "2003",
            "total-delete-files": "0",
            "total-position-deletes": "0",
            "total-equality-deletes": "0",
        }
        [merged] = it.story.merge(*first)
        await it.now()
        found = it.summary()
        assert found["operation"] == "replace"
        assert (found["deleted-data-files"], found["deleted-records"], found["removed-files-size"]) == (
            "2",
            "10",
            "2003",
        )
        assert (found["total-data-files"], found["total-records"], found["total-files-size"]) == ("1", "10", "1003")
        it.story.settle(1, 2)
        it.story.merge(merged, *it.story.settle(2, 3))
        await it.now()
        found = it.summary()
        assert found["operation"] == "overwrite"
        assert (found["headwater.journal.first"], found["headwater.journal.last"]) == ("3", "5")
        assert json.loads(found["headwater.settled.ends"]) == {"1": 2, "2": 3}
        assert found["total-records"] == "15"
        it.story.delete(it.story.numbers)
        await it.now()
        assert it.summary()["operation"] == "delete"
        assert it.summary()["total-records"] == "2"

    asyncio.run(run())


@promise("T2")
def test_files_that_come_and_go_in_one_batch() -> None:
    """What one batch adds and removes again appears in neither, and rows that only come are an append."""

    async def run() -> None:
        it = Follow()
        passing = it.story.settle(0, 5, files=2)
        it.story.merge(*passing)
        await it.now()
        table = read(it.store, it.location)
        assert it.summary()["operation"] == "append"
        assert shown(table) == {"data/3.parquet"}
        assert len(entries(table, deleted=True)) == 1
        it.story.delete(*it.story.settle(0, 1))
        assert (await it.now()).cursor == 4
        table = read(it.store, it.location)
        assert shown(table) == {"data/3.parquet"}
        assert it.summary()["total-data-files"] == "1"

    asyncio.run(run())


@promise("T2")
def test_statistics_of_a_file() -> None:
    """Engines skip files by partition, offset and time."""
    story = Story()
    story.settle(3, 5)
    [file] = story.batch(0).live
    found = data_file(file, "s3://b/t")
    assert found.file_path == "s3://b/t/data/1.parquet"
    assert found.lower_bounds == {
        1: struct.pack("<i", 3),
        2: struct.pack("<q", 0),
        3: struct.pack("<q", START_MS),
        4: struct.pack("<q", START_MS * 1000),
    }
    assert found.upper_bounds[2] == struct.pack("<q", 4)
    assert found.value_counts == {1: 5, 2: 5, 3: 5, 4: 5}
    assert found.null_value_counts == {1: 0, 2: 0, 3: 0, 4: 0}
    file.timestamp_nulls = 2
    found = data_file(file, "s3://b/t")
    assert 4 not in found.lower_bounds
    assert found.null_value_counts[4] == 2


@promise("T17")
def test_bounds_of_other_columns() -> None:
    """Of the key and of typed columns, as far as they are known."""
    story = Story()
    story.settle(3, 5)
    [file] = story.batch(0).live
    found = data_file(file, "s3://b/t", [Bounds(5, 2, b"a", None), Bounds(120, 5, None, None)])
    assert (found.lower_bounds[5], found.value_counts[5], found.null_value_counts[5]) == (b"a", 5, 2)
    assert 5 not in found.upper_bounds and 120 not in found.lower_bounds
    assert (found.value_counts[120], found.null_value_counts[120]) == (5, 5)


@promise("T2")
@pytest.mark.parametrize("stamp", [-(1 << 63), (1 << 63) - 1, 253_402_300_800_000])
def test_times_that_no_reader_can_show(stamp: int) -> None:
    """A bound that is no date is left out; the raw milliseconds stay."""
    story = Story()
    story.settle()
    [file] = story.batch(0).live
    file.min_timestamp, file.max_timestamp = min(stamp, 0), max(stamp, 0)
    found = data_file(file, "s3://b/t")
    assert 4 not in found.lower_bounds
    assert 4 not in found.upper_bounds
    assert found.upper_bounds[3] == struct.pack("<q", max(stamp, 0))


@promise("T4")
def test_a_batch_that_does_not_follow() -> None:
    """A repetition changes nothing, and a batch that begins elsewhere is refused."""

    async def run() -> None:
        it = Follow()
        it.story.settle()
        batch = it.story.batch(0)
        await it.now()
        before = dict(it.store.objects)
        assert await it.follower.commit(REF, it.location, batch) == Standing(1, 1, it.location)
        it.story.settle()
        it.story.settle()
        with pytest.raises(Retriable, match="is at 1, not at 2"):
            await it.follower.commit(REF, it.location, it.story.batch(2))
        with pytest.raises(Retriable, match="is at 0, not at 1"):
            await it.follower.commit(REF, "", it.story.batch(1))
        assert it.store.objects == before

    asyncio.run(run())


@promise("T4")
def test_a_commit_that_does_not_become_the_table_leaves_orphans() -> None:
    """Whoever comes second begins again from the pointer; the orphans go with an expiry."""

    async def run() -> None:
        it = Follow()
        it.story.settle()
        await it.now()
        it.story.settle()
        lost = await it.follower.commit(REF, it.location, it.story.batch(1))
        before = await objects(it.store)
        await it.now()
        assert lost.location != it.location
        assert shown(read(it.store, it.location)) == it.story.names()
        orphans = before.keys() - (await objects(it.store)).keys()
        assert not orphans
        await it.follower.expire(REF, it.location)
        left = await objects(it.store)
        assert lost.location not in left
        assert len(before.keys() - left.keys()) == 3
        assert shown(read(it.store, it.location)) == it.story.names()

    asyncio.run(run())


@promise("T4")
def test_an_old_pointer_removes_nothing_that_is_newer() -> None:
    """A compactor that has lost its lease without knowing it cannot harm the table of its successor."""

    async def run() -> None:
        it = Follow(keep_versions=2)
        for _ in range(SLACK):
            it.story.settle()
            await it.now()
        stale = it.location
        for _ in range(3):
            it.story.settle()
            await it.now()
        late = IcebergFollower(it.store, keep_versions=1)
        await late.expire(REF, stale)
        await late.commit(REF, stale, it.story.batch(SLACK))
        table = read(it.store, it.location)
        for snapshot in table.metadata.snapshots:
            assert shown(table, snapshot.snapshot_id) == it.story.names(snapshot.sequence_number)

    asyncio.run(run())


@promise("T4")
def test_metadata_that_is_gone() -> None:
    """A pointer to nothing is not a new table."""

    async def run() -> None:
        it = Follow()
        it.story.settle()
        with pytest.raises(Retriable, match="missing"):
            await it.follower.commit(REF, f"{ROOT}/{FOLDER}/00001-x.metadata.json", it.story.batch(0))
        assert not it.store.objects

    asyncio.run(run())


@promise("T2")
def test_sequence_numbers() -> None:
    """Entries keep the sequence numbers of the snapshot that added them, through merges and removals."""

    async def run() -> None:
        it = Follow()
        added = {}
        for turn in range(SMALL_MANIFESTS + 5):
            [number] = it.story.settle()
            added[f"data/{number}.parquet"] = turn + 1
            await it.now()
        it.story.delete(1, 7)
        await it.now()
        table = read(it.store, it.location)
        snapshot = table.metadata.current_snapshot()
        assert snapshot is not None
        assert snapshot.sequence_number == table.metadata.last_sequence_number == SMALL_MANIFESTS + 6
        gone = set()
        for manifest, entry in entries(table, deleted=True):
            name = entry.data_file.file_path.partition(f"{ROOT}/")[2]
            assert entry.sequence_number == added[name]
            assert entry.file_sequence_number == added[name]
            if entry.status == ManifestEntryStatus.DELETED:
                assert entry.snapshot_id == snapshot.snapshot_id
                gone.add(name)
            else:
                assert manifest.min_sequence_number <= added[name] <= manifest.sequence_number
        assert gone == {"data/1.parquet", "data/7.parquet"}
        it.story.settle()
        await it.now()
        assert not [e for _, e in entries(read(it.store, it.location), deleted=True) if e.status == 2]

    asyncio.run(run())


@promise("T5")
def test_manifests_are_left_alone_unless_they_name_a_removed_file() -> None:
    """A commit does not rewrite what it does not change."""

    async def run() -> None:
        it = Follow()
        for _ in range(4):
            it.story.settle()
            await it.now()
        before = {manifest.manifest_path for manifest, _ in entries(read(it.store, it.location))}
        it.story.delete(2)
        await it.now()
        after = {manifest.manifest_path for manifest, _ in entries(read(it.store, it.location))}
        assert len(before - after) == 1
        assert not after - before

    asyncio.run(run())


@promise("T4")
def test_bringing_the_table_to_what_is_live() -> None:
    """A journal that does not reach back far enough is not needed."""

    async def run() -> None:
        it = Follow()
        first = it.story.settle(0, 2, files=3)
        await it.now()
        it.story.merge(*first[:2])
        it.story.settle(1, 4)
        standing = await it.now(exact=True)
        assert standing.cursor == 3
        assert shown(read(it.store, it.location)) == it.story.names()
        found = it.summary()
        assert found["total-records"] == "10"
        assert found["total-data-files"] == "3"
        assert (found["headwater.journal.first"], found["headwater.journal.last"]) == ("2", "3")

        fresh = Follow()
        fresh.story = it.story
        it.story.table.followers.clear()
        await fresh.now(exact=True)
        assert shown(read(fresh.store, fresh.location)) == it.story.names()
        assert fresh.summary()["operation"] == "append"

    asyncio.run(run())


@promise("T5")
def test_versions_expire() -> None:
    """Old versions go, those with a tag stay, and the standing says how far back one can read."""

    async def run() -> None:
        it = Follow(keep_versions=3)
        for _ in range(1, 5):
            it.story.settle()
            standing = await it.now()
            assert standing.oldest == 1
        tagged = await tag(it, "monthly", sequence=2)
        for turn in range(5, 30):
            it.story.settle()
            standing = await it.now()
            assert (standing.cursor, standing.oldest) == (turn, 1 if turn < 8 else 2)
            metadata = read(it.store, it.location).metadata
            assert len(metadata.snapshots) <= 3 + 3 + 1
            assert tagged in {s.snapshot_id for s in metadata.snapshots}
        standing = await it.follower.expire(REF, it.location)
        it.story.enter(it.follower, it.story.known(it.follower), standing)
        metadata = read(it.store, it.location).metadata
        assert [s.sequence_number for s in metadata.snapshots] == [2, 27, 28, 29]
        assert [e.snapshot_id for e in metadata.snapshot_log] == [s.snapshot_id for s in metadata.snapshots[1:]]
        assert standing == Standing(29, 2, it.location, 27, (2,))
        assert await it.follower.expire(REF, it.location) == standing
        table = read(it.store, it.location)
        for snapshot in metadata.snapshots:
            assert shown(table, snapshot.snapshot_id) == it.story.names(snapshot.sequence_number)

    async def tag(it: Follow, name: str, sequence: int) -> int:
        metadata = read(it.store, it.location).metadata
        [snapshot] = [s for s in metadata.snapshots if s.sequence_number == sequence]
        ref = SnapshotRef(snapshot_id=snapshot.snapshot_id, snapshot_ref_type="tag")
        tagged = metadata.model_copy(update={"refs": {**metadata.refs, name: ref}})
        known = it.story.known(it.follower)
        location = f"{ROOT}/{FOLDER}/00005-{uuid.uuid4()}.metadata.json"
        await it.store.put(location, [tagged.model_dump_json().encode()])
        it.story.table.followed(it.follower.name, Follower(known.cursor, known.oldest, location, 0, ()))
        return snapshot.snapshot_id

    asyncio.run(run())


@promise("T5")
def test_versions_expire_by_age() -> None:
    """With a largest age, versions older than that go, counted from the newest."""

    async def run() -> None:
        it = Follow(max_age_ms=2_500)
        for _ in range(6):
            it.story.settle()
            await it.now()
        metadata = read(it.store, it.location).metadata
        assert [s.sequence_number for s in metadata.snapshots] == [4, 5, 6]

    asyncio.run(run())


@promise("T5")
def test_the_thousandth_commit_costs_what_the_fiftieth_did() -> None:
    """Objects, their sizes and requests per commit stay bounded."""

    async def run() -> None:
        it = Follow(keep_versions=10)
        seen: list[tuple[int, int, int, int]] = []
        for turn in range(200):
            before = it.store.calls
            added = it.story.settle(0, 3)
            if turn % 8 == 7:
                it.story.merge(*range(added[0] - 6, added[0] + 1))
            await it.now()
            found = await objects(it.store)
            seen.append((len(found), sum(found.values()), found[it.location], it.store.calls - before))
        early, late = seen[30:70], seen[-40:]
        for kind in range(4):
            assert max(row[kind] for row in late) <= 1.5 * max(row[kind] for row in early)
        assert sum(row[3] for row in late) <= 1.2 * sum(row[3] for row in early)
        metadata = read(it.store, it.location).metadata
        assert len(metadata.snapshots) <= 20
        assert len(metadata.metadata_log) == METADATA_LOG
        manifests = {manifest.manifest_path for manifest, _ in entries(read(it.store, it.location))}
        assert len(manifests) <= SMALL_MANIFESTS + 2

    asyncio.run(run())


@promise("T2")
def test_dropping_a_table() -> None:
    """The metadata goes; the segments are not ours to remove."""

    async def run() -> None:
        it = Follow()
        it.story.settle()
        await it.now()
        await it.store.put(f"{ROOT}/data/1.parquet", [b"x"])
        await it.follower.drop(REF, it.location)
        assert [info async for info in it.store.scan("")] == [ObjectInfo(f"{ROOT}/data/1.parquet", 1)]

    asyncio.run(run())
