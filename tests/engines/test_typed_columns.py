"""Engines read a table whose columns grew three times, with files of every version of them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
from deltalake import DeltaTable
from duckdb_extensions import import_extension
from pyiceberg.catalog import load_catalog
from pyiceberg.table import StaticTable

from headwater.clock import SystemChance
from headwater.lake.segments import NewSegment
from headwater.lake.tables.delta.log import read_commit
from headwater.lake.tables.delta.table import DeltaFollower
from headwater.lake.tables.follower import Batch, TableFollower, TableRef
from headwater.lake.tables.iceberg.catalog import CatalogFollower
from headwater.lake.tables.iceberg.table import IcebergFollower
from headwater.log.segment.rows import plain_rows, plain_schema
from headwater.log.segment.schema import segment_schema
from headwater.log.segment.typed import typed_schema
from headwater.objects import open_store
from headwater.schemas.conform import arrow_fields
from headwater.state.commands.columns import Addition, Column, grown
from headwater.state.streams.stored.typed import Columns, ColumnsVersion
from headwater.state.streams.tables import DataFile, Follower, TopicTable
from tests.support.promise import promise

PROMISES = ("T6", "T17")

TOPIC = uuid.UUID("11111111-2222-3333-4444-555555555555")
REF = TableRef(TOPIC, "orders", f"tables/orders-{TOPIC}")
MS = 1_700_000_000_000
LOG = set(segment_schema().names)


def column(number: int, name: str, kind: str, *children: Column, doc: str = "") -> Column:
    return Column(number, name, name, kind, doc, children)


VALUE = 101
TAGS = column(106, "tags", "list", column(107, "element", "struct", column(108, "t", "string")))
SCORES = column(109, "scores", "map", column(110, "key", "string"), column(111, "value", "double"))
STEPS: list[list[Addition]] = [
    [
        Addition(0, column(100, "decode_error", "string")),
        Addition(0, column(VALUE, "value_data", "struct", column(102, "a", "long", doc="The first."))),
        Addition(0, column(103, "key_data", "struct", column(104, "Id", "json"))),
    ],
    [
        Addition(VALUE, column(105, "b", "string")),
        Addition(VALUE, TAGS),
        Addition(VALUE, SCORES),
        Addition(VALUE, column(112, "price", "decimal(10,2)")),
        Addition(VALUE, column(113, "day", "date")),
        Addition(VALUE, column(114, "at", "timestamptz")),
    ],
    [
        Addition(107, column(115, "u", "long")),
        Addition(VALUE, column(116, "local", "timestamp")),
        Addition(VALUE, column(117, "flag", "boolean")),
        Addition(VALUE, column(118, "raw", "binary")),
        Addition(VALUE, column(119, "odd name", "double")),
    ],
]
FULL: dict[str, Any] = {
    "a": 7,
    "b": "b",
    "tags": [{"t": "x", "u": 3}, None, {"t": None, "u": None}],
    "scores": [("k", 0.5), ("l", None)],
    "price": Decimal("12.34"),
    "day": date(2024, 2, 29),
    "at": datetime(2024, 2, 29, 12, tzinfo=UTC),
    "local": datetime(2024, 2, 29, 12, 30),
    "flag": True,
    "raw": b"\x00\xff",
    "odd name": 1.5,
}


class World:
    """A journal with real segments, and three followers of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = open_store((directory / "objects").as_uri())
        self.table = TopicTable(TOPIC, REF.root)
        self.columns = Columns()
        catalog = {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db", "warehouse": directory.as_uri()}
        self.catalog = load_catalog("lake", **catalog)
        self.iceberg, self.delta = IcebergFollower(self.store), DeltaFollower(self.store)
        self.outside = CatalogFollower("lake", catalog, self.store)
        self.followers: list[TableFollower] = [self.delta]
        self.rows: dict[int, list[dict[str, Any]]] = {}
        self.at: dict[int, list[dict[str, Any]]] = {}
        """The rows of each version of the table."""

    async def close(self) -> None:
        self.catalog.close()
        await self.outside.close()
        await self.store.close()

    def grow(self, added: Sequence[Addition]) -> None:
        newest = grown(self.columns.newest, added)
        last = max(ids(newest))
        version = ColumnsVersion(last, self.table.last_sequence)
        self.columns = Columns(newest, (*self.columns.versions, version))

    async def file(self, rows: list[dict[str, Any]]) -> DataFile:
        """A segment with the present columns."""
        fields = arrow_fields(self.columns.newest)
        segment = NewSegment(fields)
        first, schema = rows[0]["offset"], typed_schema(fields)
        plain: dict[str, list[Any]] = {"key": [b"k"] * len(rows), "value": [b"v%d" % row["offset"] for row in rows]}
        plain |= {"timestamp_ms": [MS] * len(rows), "headers": [None] * len(rows)}
        log = plain_rows(0, first, pa.RecordBatch.from_pydict(plain, schema=plain_schema()), append_time=False)
        typed = [pa.array([fitting(row.get(f.name), f.type) for row in rows], f.type) for f in fields]
        segment.writer.add(0, pa.RecordBatch.from_arrays([*log.columns, *typed], schema=schema))
        segment.writer.end_part()
        made = segment.close("_data/", SystemChance())
        assert made is not None
        await self.store.put(f"{REF.root}/{made.name}", segment.pieces)
        number = len(self.rows) + 1
        self.rows[number] = [
            {"offset": row["offset"], **{f.name: fitting(row.get(f.name), f.type) for f in fields}} for row in rows
        ]
        return msgspec.convert((number, *msgspec.structs.astuple(made), 0, 0, 0, 0, 0, 0, 0), DataFile)

    async def enter(self, rows: list[dict[str, Any]], removed: Sequence[int] = (), *, replaces: bool = False) -> None:
        file = await self.file(rows)
        ms = MS + 1_000 * (self.table.last_sequence + 1)
        self.table.record(ms, ms, [file], removed, (), replaces=replaces)
        self.at[self.table.last_sequence] = [row for live in self.table.live() for row in self.rows[live.number]]
        for follower in self.followers:
            await self.follow(follower)
        await self.iceberg.announce(REF, self.known(self.iceberg).location)

    def known(self, follower: TableFollower) -> Follower:
        return self.table.followers.get(follower.name, Follower(0, 0, "", 0, ()))

    def batch(self, after: int, *, changes: bool = True) -> Batch:
        entries = self.table.entries_after(after)
        assert entries is not None
        files, upto = self.table.files, self.table.last_sequence
        return Batch(after, upto, entries, files, list(self.table.live()), MS, MS, self.columns, changes)

    async def follow(self, follower: TableFollower) -> None:
        known = self.known(follower)
        standing = await follower.commit(REF, known.location, self.batch(known.cursor))
        entered = Follower(standing.cursor, standing.oldest, standing.location, 0, ())
        self.table.followed(follower.name, entered)


def ids(columns: Sequence[Column]) -> list[int]:
    return [number for one in columns for number in (one.id, *ids(one.children))]


def fitting(value: Any, kind: pa.DataType) -> Any:
    """A value without the fields that a type lacks."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {f.name: fitting(value.get(f.name), f.type) for f in kind}
    if pa.types.is_list(kind):
        return [fitting(one, kind.value_type) for one in value]
    return value


def rows(first: int, count: int, *, typed: bool = True) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"offset": first + i} for i in range(count)]
    for i, row in enumerate(found if typed else ()):
        row["value_data"] = FULL if i == 0 else {**dict.fromkeys(FULL), "a": i} if i == 1 else None
        row["key_data"] = {"Id": '{"x":1}'} if i == 0 else None
        row["decode_error"] = None if i < 2 else "it is no Avro"
    return found


def expected(found: list[dict[str, Any]], columns: Sequence[Column]) -> list[dict[str, Any]]:
    fields = arrow_fields(columns)
    return [
        {"offset": row["offset"], **{f.name: flat(fitting(row.get(f.name), f.type)) for f in fields}}
        for row in sorted(found, key=lambda row: int(row["offset"]))
    ]


def flat(value: Any) -> Any:
    """A value that compares alike, whatever engine gave it: maps are lists of pairs, times have no zone."""
    if isinstance(value, dict):
        return {
            name: dict(flat(one)) if name == "scores" and one is not None else flat(one) for name, one in value.items()
        }
    if isinstance(value, list):
        return [flat(one) for one in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    return value


def shown(table: pa.Table) -> list[dict[str, Any]]:
    """What an engine gave, without the log's columns."""
    kept = [name for name in table.column_names if name == "offset" or name not in LOG]
    found = [{name: flat(value) for name, value in row.items()} for row in table.select(kept).to_pylist()]
    return sorted(found, key=lambda row: int(row["offset"]))


def by_pyiceberg(table: pa.Table) -> list[dict[str, Any]]:
    """What pyiceberg gave. Inside of a struct it shows lists that are null as empty ones."""
    found = shown(table)
    for row in found:
        if row.get("value_data") and row["value_data"].get("tags") == []:
            row["value_data"]["tags"] = None
    return found


def iceberg(world: World, snapshot: int | None = None) -> list[dict[str, Any]]:
    return by_pyiceberg(static(world).scan(snapshot_id=snapshot).to_arrow())


def static(world: World) -> StaticTable:
    return StaticTable.from_metadata(f"{world.store.url}/{world.known(world.iceberg).location}")


def duck(kind: str, path: str) -> pa.Table:
    for extension in ("avro", "iceberg") if kind == "iceberg" else ("delta",):
        import_extension(extension)
    with duckdb.connect() as connection:
        connection.execute("LOAD avro; LOAD iceberg" if kind == "iceberg" else "LOAD delta")
        connection.execute("SET TimeZone = 'UTC'")
        return connection.execute(f"SELECT * FROM {kind}_scan('{path}')").to_arrow_table()


async def story(world: World) -> None:
    """Rows without columns, three versions of columns, a merge of two of them, and the past decoded."""
    await world.enter(rows(0, 2, typed=False))
    for i, added in enumerate(STEPS):
        world.grow(added)
        await world.enter(rows(10 + 3 * i, 3))
    await world.enter([*world.rows[2], *world.rows[3]], [2, 3], replaces=True)
    await world.enter(rows(0, 2), [1])


@promise("T6")
def test_every_engine_reads_every_version_of_the_columns(tmp_path: Path) -> None:
    """Old files read as null, merged and rewritten ones are whole; older versions keep their columns."""

    async def tell() -> None:
        world = World(tmp_path)
        try:
            world.followers += [world.iceberg, world.outside]
            await story(world)
            check(world)
        finally:
            await world.close()

    asyncio.run(tell())


def check(world: World) -> None:
    columns, last = world.columns, world.table.last_sequence
    wanted = expected(world.at[last], columns.newest)
    root = f"{world.directory}/objects/{REF.root}"
    assert iceberg(world) == wanted
    assert shown(DeltaTable(root).to_pyarrow_table()) == wanted
    assert shown(duck("iceberg", root)) == wanted
    assert shown(duck("delta", f"file://{root}")) == wanted
    outside = world.catalog.load_table(("topics", "orders"))
    assert by_pyiceberg(outside.scan().to_arrow()) == wanted
    table = static(world)
    for metadata in (table.metadata, outside.metadata):
        assert [s.summary.operation.value for s in metadata.snapshots if s.summary][-3:] == [
            "append",
            "replace",
            "overwrite",
        ]
        assert [s.schema_id for s in metadata.snapshots] == [0, 1, 2, 3, 3, 3]
        assert metadata.last_column_id == columns.last_id
        assert metadata.properties["headwater.columns.version"] == "3"
        assert "odd name" in metadata.properties["schema.name-mapping.default"]
        assert metadata.schema().find_field("value_data.a").doc == "The first."
        assert metadata.schema().find_field("value_data.tags.element.u").field_id == 115
    for sequence, snapshot in enumerate(table.metadata.snapshots, 1):
        then = columns.of(columns.at(sequence))
        assert iceberg(world, snapshot.snapshot_id) == expected(world.at[sequence], then)
        version = DeltaTable(root, version=sequence - 1)
        assert shown(version.to_pyarrow_table()) == expected(world.at[sequence], then)


@promise("T2")
def test_commits_of_delta_depend_on_the_journal_only(tmp_path: Path) -> None:
    """A table that is written anew, one journal entry at a time, has the same bytes."""

    async def tell() -> None:
        world = World(tmp_path)
        try:
            await story(world)
            directory = tmp_path / "objects" / REF.root / "_delta_log"
            before = {path.name: path.read_bytes() for path in directory.glob("*.json")}
            await world.delta.drop(REF, "")
            for upto in range(1, world.table.last_sequence + 1):
                whole = world.batch(upto - 1)
                live = [f for f in world.table.files.values() if f.added <= upto and not 0 < f.removed <= upto]
                batch = Batch(upto - 1, upto, whole.entries[:1], whole.files, live, MS, 0, world.columns)
                await world.delta.commit(REF, "", batch)
                await world.delta.commit(REF, "", batch)
            assert {path.name: path.read_bytes() for path in directory.glob("*.json")} == before
            metas = [name for name, data in sorted(before.items()) if b'"metaData"' in data]
            assert [int(name[:20]) for name in metas] == [0, 1, 2, 3]
            protocols = [
                a.protocol for name, data in sorted(before.items()) for a in read_commit(name, data) if a.protocol
            ]
            assert [p.reader_features for p in protocols] == [None, ["timestampNtz"]]
        finally:
            await world.close()

    asyncio.run(tell())


@promise("T17")
def test_a_rewrite_is_a_change_of_data_if_the_topic_says_so(tmp_path: Path) -> None:
    """Delta's streaming readers stop at one, or do not hear of it."""

    async def tell() -> None:
        world = World(tmp_path)
        try:
            await story(world)
            for changes in (True, False):
                upto, found = world.table.last_sequence, list[bool]()
                await world.delta.drop(REF, "")
                for at in range(upto):
                    entry = world.table.journal[at]
                    batch = Batch(at, at + 1, [entry], world.table.files, [], MS, MS, world.columns, changes)
                    await world.delta.commit(REF, "", batch)
                path = tmp_path / "objects" / REF.root / "_delta_log" / f"{upto - 1:020d}.json"
                for action in read_commit(path.name, path.read_bytes()):
                    found += [one.data_change for one in (action.add, action.remove) if one is not None]
                    if action.commit_info is not None:
                        assert action.commit_info.operation == "REWRITE"
                assert found == [changes, changes]
                versions = await world.delta.versions(REF, "")
                assert [v.operation for v in versions] == ["append"] * 4 + ["replace", "overwrite"]
        finally:
            await world.close()

    asyncio.run(tell())
