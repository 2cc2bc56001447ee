"""The Delta follower's commits: what they say, exactly once, beside others."""

import asyncio
import json
from collections.abc import Awaitable
from typing import Any, TypeVar

import pytest

from headwater.errors import Damaged, ForeignCommit, Retriable
from headwater.lake.tables.delta.table import DeltaFollower
from headwater.lake.tables.follower import Standing
from headwater.objects.memory import MemoryStore
from headwater.types import Pieces
from tests.support.promise import promise
from tests.unit.lake.tables.delta.making import (
    APP,
    REF,
    ROOT,
    START_MS,
    TOPIC,
    Journal,
    commit,
    newest,
    segment,
    versions,
)

PROMISES = ("T2",)

_T = TypeVar("_T")


def run(work: Awaitable[_T]) -> _T:
    async def awaited() -> _T:
        return await work

    return asyncio.run(awaited())


def path(version: int) -> str:
    return f"{ROOT}/_delta_log/{version:020d}.json"


def foreign(store: MemoryStore, version: int, *actions: dict[str, Any]) -> None:
    store.objects[path(version)] = b"".join(json.dumps(action).encode() + b"\n" for action in actions)


ADD = {"add": {"path": "x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}}
REMOVE = {"remove": {"path": "data/00000001.parquet", "deletionTimestamp": 1, "dataChange": False}}
INFO = {"commitInfo": {"timestamp": 1, "operation": "VACUUM START", "operationParameters": {"a": 1}, "more": [2]}}


class World:
    """A journal, a store and a follower."""

    def __init__(self, keep_versions: int = 50) -> None:
        self.store = MemoryStore()
        self.follower = DeltaFollower(self.store, keep_versions=keep_versions)
        self.journal = Journal()

    def follow(self, **options: Any) -> Standing:
        """Commit what the table lacks, as one batch."""
        after = run(self.follower.standing(REF, "")).cursor
        return run(self.follower.commit(REF, "", self.journal.batch(after, **options)))

    def changes(self, version: int) -> tuple[dict[str, bool], dict[str, bool]]:
        """The files that a version adds and removes, by number, and whether it says that rows change."""
        found = commit(self.store.objects, version)
        return tuple(  # type: ignore[return-value]
            {int(a["path"][5:13]): a["dataChange"] for a in found.get(kind, [])}  # type: ignore[index, call-overload]
            for kind in ("add", "remove")
        )


@pytest.fixture
def world() -> World:
    return World()


# --- what a version says -----------------------------------------------------------------------------


@promise("T2")
def test_the_first_version(world: World) -> None:
    """The table is made by the commit that brings its first files."""
    assert run(world.follower.standing(REF, "")) == Standing(0, 0, "")
    [file] = world.journal.settle()
    assert world.follow() == Standing(1, 1, "")
    found = commit(world.store.objects, 0)
    assert found["protocol"] == [{"minReaderVersion": 1, "minWriterVersion": 2}]
    assert found["txn"] == [{"appId": APP, "version": 1, "lastUpdated": START_MS + 1000}]
    [meta] = found["metaData"]
    assert (meta["id"], meta["name"], meta["partitionColumns"]) == (str(TOPIC), "orders", [])
    assert meta["format"] == {"provider": "parquet", "options": {}}
    assert meta["configuration"] == {
        "delta.checkpointInterval": "10",
        "delta.logRetentionDuration": "interval 3650 days",
        "delta.deletedFileRetentionDuration": "interval 3650 days",
        "delta.enableExpiredLogCleanup": "false",
    }
    [add] = found["add"]
    assert (add["path"], add["size"], add["dataChange"]) == (file.name, file.size, True)
    assert (add["partitionValues"], add["modificationTime"]) == ({}, START_MS + 1000)
    [info] = found["commitInfo"]
    assert (info["engineInfo"], info["operation"], info["timestamp"]) == ("headwater", "WRITE", START_MS + 1000)
    assert info["operationParameters"] == {"journalAfter": "0", "journalUpto": "1"}


@promise("T2")
def test_the_columns(world: World) -> None:
    """A segment's columns, and which of them are never null."""
    world.journal.settle()
    world.follow()
    schema = json.loads(str(commit(world.store.objects, 0)["metaData"][0]["schemaString"]))
    kinds = {field["name"]: field["type"] for field in schema["fields"]}
    header = kinds.pop("headers")["elementType"]
    assert list(kinds.items()) == [
        ("partition", "integer"),
        ("offset", "long"),
        ("timestamp_ms", "long"),
        ("timestamp", "timestamp"),
        ("key", "binary"),
        ("value", "binary"),
        ("headers_raw", "binary"),
        ("attributes", "integer"),
        ("producer_id", "long"),
        ("producer_epoch", "integer"),
        ("sequence", "integer"),
    ]
    assert [(f["name"], f["type"], f["nullable"]) for f in header["fields"]] == [
        ("key", "string", False),
        ("value", "binary", True),
    ]
    assert {field["name"] for field in schema["fields"] if field["nullable"]} == {
        "timestamp",
        "key",
        "value",
        "headers",
        "headers_raw",
    }


@promise("T2")
@pytest.mark.parametrize(
    ("facts", "timestamps"),
    [
        ({}, ("2026-01-01T00:00:00.007000Z", "2026-01-01T00:00:01.250000Z")),
        ({"min_timestamp": 0, "max_timestamp": 1}, ("1970-01-01T00:00:00.000000Z", "1970-01-01T00:00:00.001000Z")),
        (
            {"max_timestamp": 253_402_300_799_999},
            ("2026-01-01T00:00:00.007000Z", "9999-12-31T23:59:59.999000Z"),
        ),
        ({"max_timestamp": 253_402_300_800_000}, None),
        ({"min_timestamp": -1}, None),
        ({"timestamp_nulls": 1}, None),
        ({"min_timestamp": -(2**63), "max_timestamp": 2**63 - 1}, None),
    ],
)
def test_statistics(world: World, facts: dict[str, int], timestamps: tuple[str, str] | None) -> None:
    """Bounds of partition, offset and both timestamps, the shown one only where every row has it."""
    usual = {"first_partition": 2, "last_partition": 4, "first_offset": 5, "last_offset": 90}
    file = segment(1, 7, **(usual | {"min_timestamp": START_MS + 7, "max_timestamp": START_MS + 1250} | facts))
    world.journal.enter([file])
    world.follow()
    stats = json.loads(str(commit(world.store.objects, 0)["add"][0]["stats"]))
    assert stats["numRecords"] == 7
    assert stats["nullCount"] == {"partition": 0, "offset": 0, "timestamp_ms": 0, "timestamp": file.timestamp_nulls}
    for found, partition, offset, ms, i in (
        (stats["minValues"], 2, 5, file.min_timestamp, 0),
        (stats["maxValues"], 4, 90, file.max_timestamp, 1),
    ):
        shown = {"timestamp": timestamps[i]} if timestamps else {}
        assert found == {"partition": partition, "offset": offset, "timestamp_ms": ms} | shown


@promise("T2")
def test_names_are_uris(world: World) -> None:
    """A path in the log is a URI, so a name with a space or a percent sign is escaped."""
    file = segment(1)
    file.name = "data/partition=0/a b%.parquet"
    world.journal.enter([file])
    world.follow()
    assert commit(world.store.objects, 0)["add"][0]["path"] == "data/partition=0/a%20b%25.parquet"


@promise("T2", "T5")
def test_merges_and_deletions(world: World) -> None:
    """A merge changes no rows, a deletion does, a gap is a version without files."""
    files = world.journal.settle(3)
    world.follow()
    merged = world.journal.merge(files)
    world.follow()
    assert world.changes(1) == ({merged.number: False}, {file.number: False for file in files})
    removes = commit(world.store.objects, 1)["remove"]
    assert [(r["size"], r["deletionTimestamp"], r["extendedFileMetadata"], r["partitionValues"]) for r in removes] == [
        (file.size, START_MS + 2000, True, {}) for file in files
    ]
    world.journal.delete([merged])
    world.follow()
    assert world.changes(2) == ({}, {merged.number: True})
    world.journal.enter([])
    assert world.follow() == Standing(4, 1, "")
    assert world.changes(3) == ({}, {})
    operations = [commit(world.store.objects, v)["commitInfo"][0]["operation"] for v in range(4)]
    assert operations == ["WRITE", "OPTIMIZE", "DELETE", "WRITE"]


@promise("T2")
def test_what_comes_and_goes_in_one_batch(world: World) -> None:
    """A file added and removed within a batch is in no version; rows that are new say so wherever they end up."""
    files = world.journal.settle(2)
    merged = world.journal.merge(files)
    last = world.journal.merge([merged])
    gone = world.journal.settle()
    world.journal.delete(gone)
    assert world.follow() == Standing(5, 5, "")
    assert versions(world.store.objects) == [0]
    assert world.changes(0) == ({last.number: True}, {})
    old = world.journal.merge([last])
    older = world.journal.merge([old])
    new = world.journal.settle()
    world.follow()
    assert world.changes(1) == ({older.number: False, new[0].number: True}, {last.number: False})


@promise("T2")
def test_new_rows_do_not_hide_in_a_merge(world: World) -> None:
    """A merge of new rows with old ones is a version of its own, or a reader of changes would miss some."""
    old = world.journal.settle()
    world.follow()
    new = world.journal.settle()
    merged = world.journal.merge([*old, *new])
    assert world.follow() == Standing(3, 1, "")
    assert world.changes(1) == ({new[0].number: True}, {})
    assert world.changes(2) == ({merged.number: False}, {old[0].number: False, new[0].number: False})
    moved = world.journal.merge([merged])
    world.journal.delete([moved])
    assert world.follow() == Standing(5, 1, "")
    assert world.changes(3) == ({moved.number: False}, {merged.number: False})
    assert world.changes(4) == ({}, {moved.number: True})


# --- exactly once ------------------------------------------------------------------------------------


@promise("T2")
def test_a_repetition_changes_nothing(world: World) -> None:
    """A batch that is committed, or part of what is, leaves the log as it is."""
    for _ in range(3):
        world.journal.settle()
    first = world.journal.batch(0, 2)
    run(world.follower.commit(REF, "", first))
    before = dict(world.store.objects)
    assert run(world.follower.commit(REF, "", first)) == Standing(2, 2, "")
    assert run(world.follower.commit(REF, "", world.journal.batch(0, 1))) == Standing(2, 2, "")
    assert world.store.objects == before
    for after in (0, 1):
        with pytest.raises(Retriable):
            run(world.follower.commit(REF, "", world.journal.batch(after)))
    assert world.store.objects == before


@promise("T2")
def test_two_followers_at_once(world: World) -> None:
    """Of two that commit the same, one does, and both learn where the table is."""
    other = DeltaFollower(world.store)

    async def both() -> list[Standing]:
        found = []
        for sequence in range(1, 26):
            world.journal.settle()
            batch = world.journal.batch(sequence - 1)
            found += await asyncio.gather(world.follower.commit(REF, "", batch), other.commit(REF, "", batch))
        return found

    assert [s.cursor for s in run(both())] == [n for n in range(1, 26) for _ in range(2)]
    assert versions(world.store.objects) == list(range(25))
    assert newest(world.store.objects) == (25, world.journal.shown[25])


class Overtaken(MemoryStore):
    """Somebody else takes the version that is about to be created."""

    def __init__(self) -> None:
        super().__init__()
        self.intruders: list[tuple[dict[str, Any], ...]] = []

    async def create(self, path: str, pieces: Pieces) -> bool:
        if self.intruders and path.endswith(".json"):
            self.objects[path] = b"\n".join(json.dumps(action).encode() for action in self.intruders.pop(0))
        return await super().create(path, pieces)


@promise("T2")
def test_overtaken_by_a_harmless_commit() -> None:
    """Properties that others set in between are kept, and the commit comes after them."""
    world = World()
    world.store = store = Overtaken()
    world.follower = DeltaFollower(store)
    world.journal.settle()
    world.follow()
    store.intruders = [(INFO,), (INFO, {"txn": {"appId": "spark", "version": 3}})]
    world.journal.settle()
    assert world.follow().cursor == 2
    assert versions(store.objects) == [0, 1, 2, 3]
    assert newest(store.objects) == (2, world.journal.shown[2])


@promise("T2")
def test_overtaken_by_data() -> None:
    """Data that others commit in between stops the follower."""
    world = World()
    world.store = store = Overtaken()
    world.follower = DeltaFollower(store)
    world.journal.settle()
    world.follow()
    store.intruders = [(INFO, ADD)]
    world.journal.settle()
    with pytest.raises(ForeignCommit):
        world.follow()
    assert versions(store.objects) == [0, 1]


@promise("T2")
def test_always_overtaken() -> None:
    """Whoever is never fast enough says so instead of trying for ever."""
    world = World()
    world.store = store = Overtaken()
    world.follower = DeltaFollower(store)
    store.intruders = [(INFO,)] * 1000
    world.journal.settle()
    with pytest.raises(Retriable):
        world.follow()


# --- beside others -----------------------------------------------------------------------------------


def altered(world: World, **changes: Any) -> dict[str, Any]:
    """Our own table's metadata, changed."""
    return {"metaData": commit(world.store.objects, 0)["metaData"][0] | changes}


@promise("T2")
def test_foreign_data(world: World) -> None:
    """Files that others add or remove hold the follower until their commit is taken back."""
    world.journal.settle(2)
    world.follow()
    world.journal.settle()
    batch = world.journal.batch(1)
    for actions in ([ADD], [REMOVE], [INFO, REMOVE, ADD], [{"cdc": {"path": "y", "size": 1}}]):
        foreign(world.store, 1, *actions)
        foreign(world.store, 2, INFO)
        before = dict(world.store.objects)
        for call, rest in (
            (world.follower.standing, ()),
            (world.follower.commit, (batch,)),
            (world.follower.expire, ()),
        ):
            with pytest.raises(ForeignCommit, match=r"version 1 of .* changed data. Delete .*1.json .* produce to"):
                run(call(REF, "", *rest))  # type: ignore[operator]
        assert world.store.objects == before
        del world.store.objects[path(1)], world.store.objects[path(2)]
    assert world.follow().cursor == 2


@promise("T2")
def test_foreign_properties(world: World) -> None:
    """Properties, columns of others and what they keep with the table are welcome and last."""
    world.journal.settle()
    world.follow()
    features = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["invariants", "domainMetadata"]}
    configuration = {"delta.enableExpiredLogCleanup": "false", "owner": "me"}
    foreign(world.store, 1, INFO, altered(world, configuration=configuration, description="rows"))
    foreign(world.store, 2, {"protocol": features})
    foreign(world.store, 3, {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}})
    foreign(world.store, 4, {"txn": {"appId": "spark", "version": 3}})
    for _ in range(20):
        world.journal.settle()
        world.follow()
    assert newest(world.store.objects) == (21, world.journal.shown[21])
    state = run(world.follower._state(REF, run(world.follower._open(REF)).listing))
    assert state.meta is not None and state.protocol is not None
    assert (state.meta.configuration, state.meta.description) == (configuration, "rows")
    assert state.protocol.writer_features == ["invariants", "domainMetadata"]
    assert set(state.domains) == {"d"}
    assert state.txns["spark"].version == 3


@promise("T2")
def test_foreign_changes_that_do_harm(world: World) -> None:
    """A protocol that asks more of a writer, or other columns, hold the follower."""
    world.journal.settle()
    world.follow()
    vectors = {"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": ["deletionVectors"]}
    for action in (
        {"protocol": vectors},
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        altered(world, partitionColumns=["partition"]),
        altered(world, schemaString='{"type":"struct","fields":[]}'),
        altered(world, schemaString="nonsense"),
    ):
        foreign(world.store, 1, action)
        with pytest.raises(ForeignCommit):
            run(world.follower.standing(REF, ""))


@promise("T2")
def test_a_table_that_somebody_made_before(world: World) -> None:
    """An empty table with our columns is taken over, one with data is not."""
    world.journal.settle()
    world.follow()
    first = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, altered(world)]
    foreign(world.store, 0, *first)
    assert run(world.follower.standing(REF, "")) == Standing(0, 0, "")
    assert world.follow() == Standing(1, 0, "")
    assert newest(world.store.objects) == (1, world.journal.shown[1])
    del world.store.objects[path(1)]
    foreign(world.store, 0, *first, ADD)
    with pytest.raises(ForeignCommit):
        run(world.follower.standing(REF, ""))


@promise("T2")
def test_a_log_that_is_none(world: World) -> None:
    """Bytes that are no commit are reported, never guessed about."""
    world.journal.settle()
    world.follow()
    world.store.objects[path(1)] = b'{"add": '
    with pytest.raises(Damaged):
        run(world.follower.standing(REF, ""))
    world.store.objects[path(1)] = b'{"commitInfo":{}}'
    del world.store.objects[path(0)]
    with pytest.raises(Damaged):
        run(world.follower.standing(REF, ""))


# --- backfill and drop -------------------------------------------------------------------------------


@promise("T11")
def test_backfill(world: World) -> None:
    """Where the journal does not reach back, the table is brought to exactly the files that are live."""
    files = world.journal.settle(4)
    world.journal.delete(files[:1])
    assert world.follow(whole=True) == Standing(2, 2, "")
    assert world.changes(0) == ({file.number: True for file in files[1:]}, {})
    merged = world.journal.merge(files[1:3])
    new = world.journal.settle()
    assert world.follow(whole=True) == Standing(4, 2, "")
    assert newest(world.store.objects) == (4, world.journal.shown[4])
    assert set(world.changes(1)[0]) == {merged.number, new[0].number}
    assert set(world.changes(1)[1]) == {files[1].number, files[2].number}
    for _ in range(30):
        world.journal.settle()
        world.follow()
    world.journal.delete(list(world.journal.table.live())[:20])
    world.follow(whole=True)
    assert newest(world.store.objects) == (35, world.journal.shown[35])


@promise("T2")
def test_drop(world: World) -> None:
    """A deleted topic's log goes, its files and Iceberg's are left to others, and again is no error."""
    for _ in range(12):
        world.journal.settle()
        world.follow()
    kept = {f"{ROOT}/data/x.parquet": b"x", f"{ROOT}/_iceberg/m.json": b"y", f"{ROOT}0/_delta_log/a.json": b"z"}
    world.store.objects.update(kept)
    for _ in range(2):
        run(world.follower.drop(REF, ""))
        assert world.store.objects == kept
    assert run(world.follower.standing(REF, "")) == Standing(0, 0, "")
