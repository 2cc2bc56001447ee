"""The Delta follower's tables, read by delta-rs and DuckDB, and what their maintenance does to them."""

import asyncio
import io
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from duckdb_extensions import import_extension

from headwater.clock import SystemClock
from headwater.errors import ForeignCommit
from headwater.lake.tables.delta.table import DeltaFollower
from headwater.lake.tables.follower import Standing
from headwater.objects import ObjectStore
from headwater.objects.local import LocalStore
from headwater.state.streams.tables import DataFile
from tests.support.promise import promise
from tests.unit.lake.tables.delta.making import APP, REF, ROOT, START_MS, TOPIC, Journal, segment

PROMISES = ("T2", "T5")

_T = TypeVar("_T")
HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp_ms", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.field("element", HEADER, nullable=False))),
        pa.field("headers_raw", pa.binary()),
        pa.field("attributes", pa.int32(), nullable=False),
        pa.field("producer_id", pa.int64(), nullable=False),
        pa.field("producer_epoch", pa.int32(), nullable=False),
        pa.field("sequence", pa.int32(), nullable=False),
    ]
)


def run(work: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run(work)


async def stored(store: ObjectStore, path: str, data: bytes) -> None:
    await store.put(path, [data])


def row(partition: int, offset: int) -> dict[str, Any]:
    ms = START_MS + offset
    return {
        "partition": partition,
        "offset": offset,
        "timestamp_ms": ms,
        "timestamp": ms * 1000,
        "key": None if offset % 3 == 0 else b"k%d" % offset,
        "value": None if offset % 5 == 0 else b"\xff%d" % offset,
        "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}] if offset % 2 else [],
        "headers_raw": None,
        "attributes": 0,
        "producer_id": -1,
        "producer_epoch": -1,
        "sequence": -1,
    }


class Lake:
    """A topic table in a directory, with real segments."""

    def __init__(self, directory: Path, keep_versions: int = 50) -> None:
        self.store = LocalStore(directory)
        self.root = directory / ROOT
        self.follower = DeltaFollower(self.store, keep_versions=keep_versions)
        self.journal = Journal(SystemClock().wall_ms())
        self.end = 0
        self.at: dict[int, set[int]] = {}
        """The offsets that every Delta version shows."""
        self._offsets: dict[int, range] = {}

    def write(self, offsets: range) -> DataFile:
        """A segment with these rows."""
        table = pa.Table.from_pylist([row(offset % 2, offset) for offset in offsets], schema=SCHEMA)
        sink = io.BytesIO()
        pq.write_table(table.sort_by([("partition", "ascending"), ("offset", "ascending")]), sink, compression="zstd")
        number = self.journal.fresh().number
        first, last = offsets[0], offsets[-1]
        file = segment(
            number,
            len(offsets),
            size=len(sink.getvalue()),
            last_partition=1,
            first_offset=first,
            last_offset=last,
            min_timestamp=START_MS + first,
            max_timestamp=START_MS + last,
        )
        run(stored(self.store, f"{ROOT}/{file.name}", sink.getvalue()))
        self._offsets[number] = offsets
        return file

    def settle(self, rows: int = 10) -> None:
        file = self.write(range(self.end, self.end + rows))
        self.end += rows
        self.journal.enter([file])

    def merge(self) -> None:
        """Put all files into one."""
        files = sorted(self.journal.table.live(), key=lambda f: f.first_offset)
        merged = self.write(range(files[0].first_offset, self.end))
        self.journal.enter([merged], files, replaces=True)

    def retire(self) -> None:
        """The oldest file goes."""
        oldest = min(self.journal.table.live(), key=lambda f: f.first_offset)
        self.journal.enter([], [oldest])

    def follow(self) -> Standing:
        after = run(self.follower.standing(REF, "")).cursor
        standing = run(self.follower.commit(REF, "", self.journal.batch(after)))
        version = DeltaTable(self.root).version()
        self.at[version] = {o for file in self.journal.table.live() for o in self._offsets[file.number]}
        return standing

    def history(self, count: int) -> None:
        """Commits of every kind."""
        for i in range(count):
            if i % 6 == 4:
                self.merge()
            elif i % 6 == 5:
                self.settle()
                self.retire()
            else:
                self.settle()
            self.follow()

    def delta_rs(self, version: int | None = None) -> pa.Table:
        return pa.table(DeltaTable(self.root, version=version).to_pyarrow_table())

    def duck(self, query: str) -> list[tuple[Any, ...]]:
        import_extension("delta")
        with duckdb.connect() as connection:
            connection.execute("LOAD delta")
            return connection.execute(query.replace("TABLE", f"delta_scan('file://{self.root}')")).fetchall()

    def check(self) -> None:
        """Both engines show the newest version's rows, value by value."""
        shown = self.at[max(self.at)]
        wanted = [row(offset % 2, offset) for offset in sorted(shown)]
        found = self.delta_rs().sort_by("offset")
        assert found.drop_columns(["timestamp"]).to_pylist() == [
            {key: value for key, value in one.items() if key != "timestamp"} for one in wanted
        ]
        assert found.column("timestamp").cast(pa.int64()).to_pylist() == [one["timestamp"] for one in wanted]
        assert self.duck('SELECT count(*), sum("offset"), count(key), count(value) FROM TABLE') == [
            (
                len(wanted),
                sum(shown) if shown else None,
                sum(one["key"] is not None for one in wanted),
                sum(one["value"] is not None for one in wanted),
            )
        ]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path)
    yield made
    run(made.store.close())


@promise("T2")
def test_both_engines_read_every_stage(lake: Lake) -> None:
    """After each commit, over checkpoints too, the rows are the journal's."""
    for i in range(13):
        lake.history(1) if i != 6 else lake.merge()
        lake.follow()
        if i in (0, 6, 9, 10, 11, 12):
            lake.check()
    assert DeltaTable(lake.root).transaction_version(APP) == lake.journal.table.last_sequence


@promise("T2")
def test_the_table_as_delta_rs_sees_it(lake: Lake) -> None:
    """Name, id, properties, columns, statistics."""
    lake.settle()
    lake.follow()
    table = DeltaTable(lake.root)
    meta = table.metadata()
    assert (str(meta.id), meta.name, meta.partition_columns) == (str(TOPIC), "orders", [])
    assert (table.protocol().min_reader_version, table.protocol().min_writer_version) == (1, 2)
    fields = {field.name: field.nullable for field in table.schema().fields}
    assert {name for name, nullable in fields.items() if not nullable} == {
        "partition",
        "offset",
        "timestamp_ms",
        "attributes",
        "producer_id",
        "producer_epoch",
        "sequence",
    }
    [facts] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert (facts["num_records"], facts["min.offset"], facts["max.offset"], facts["max.partition"]) == (10, 0, 9, 1)
    assert facts["min.timestamp"].timestamp() * 1000 == START_MS
    assert facts["null_count.timestamp"] == 0
    assert table.history()[0]["engineInfo"] == "headwater"


@promise("T2")
def test_statistics_leave_no_row_out(lake: Lake) -> None:
    """Queries with bounds find exactly the rows that match, by either engine."""
    lake.history(16)
    shown = lake.at[max(lake.at)]
    low, high = min(shown) + 7, max(shown) - 13
    assert {low, high} <= shown
    wanted = sorted(offset for offset in shown if low <= offset <= high)
    table = DeltaTable(lake.root)
    found = table.to_pyarrow_table(filters=[("offset", ">=", low), ("offset", "<=", high)])
    assert sorted(found.column("offset").to_pylist()) == wanted
    condition = f'"offset" BETWEEN {low} AND {high}'
    assert offsets_of(lake.duck(f'SELECT "offset" FROM TABLE WHERE {condition}')) == wanted
    moment = f"epoch_ms(timestamp) BETWEEN {START_MS + low} AND {START_MS + high}"
    assert offsets_of(lake.duck(f'SELECT "offset" FROM TABLE WHERE {moment}')) == wanted
    exact = f"timestamp = make_timestamptz({(START_MS + high) * 1000}::BIGINT)"
    assert offsets_of(lake.duck(f'SELECT "offset" FROM TABLE WHERE {exact}')) == [high]


def offsets_of(rows: list[tuple[Any, ...]]) -> list[int]:
    return sorted(offset for (offset,) in rows)


@promise("T2", "T5")
def test_time_travel_within_retention(tmp_path: Path) -> None:
    """After old versions are gone, those that are kept read as they were, by version."""
    lake = Lake(tmp_path, keep_versions=12)
    lake.history(45)
    lake.check()
    left = sorted(int(p.name[:20]) for p in (lake.root / "_delta_log").glob("*.json"))
    assert left[0] > 0
    assert len(left) >= 12
    for version in left:
        assert set(lake.delta_rs(version).column("offset").to_pylist()) == lake.at[version], version
    run(lake.store.close())


@promise("T2")
@pytest.mark.parametrize("full", [True, False])
def test_vacuum_by_delta_rs_takes_nothing_that_is_shown(lake: Lake, full: bool) -> None:
    """The hardest vacuum there is leaves the table's files, Iceberg's metadata and the log."""
    lake.history(3)
    others = [f"{ROOT}/_iceberg/v1.metadata.json", f"{ROOT}/_iceberg/deep/snap.avro"]
    for path in others:
        run(stored(lake.store, path, b"x"))
    before = {path for path in lake.root.rglob("*") if path.is_file()}
    DeltaTable(lake.root).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=full)
    assert before <= {path for path in lake.root.rglob("*") if path.is_file()}
    lake.check()
    lake.settle()
    lake.follow()
    lake.check()


@promise("T2", "T5")
@pytest.mark.parametrize("full", [True, False])
def test_vacuum_with_defaults_takes_nothing(lake: Lake, full: bool) -> None:
    """Within the table's own retention, files that only older versions show stay too."""
    lake.history(24)
    before = {path for path in lake.root.rglob("*") if path.is_file()}
    assert DeltaTable(lake.root).vacuum(dry_run=True, full=full) == []
    DeltaTable(lake.root).vacuum(dry_run=False, full=full)
    assert before <= {path for path in lake.root.rglob("*") if path.is_file()}
    for version, offsets in lake.at.items():
        assert set(lake.delta_rs(version).column("offset").to_pylist()) == offsets


@promise("T2")
def test_properties_by_delta_rs_are_welcome(lake: Lake) -> None:
    """The follower goes on after them, and they last over checkpoints."""
    lake.history(4)
    DeltaTable(lake.root).alter.set_table_properties({"delta.dataSkippingNumIndexedCols": "4"})
    lake.history(14)
    lake.check()
    assert DeltaTable(lake.root).metadata().configuration["delta.dataSkippingNumIndexedCols"] == "4"


@promise("T2")
def test_a_checkpoint_by_delta_rs_is_welcome(lake: Lake) -> None:
    """The follower builds on another engine's checkpoint."""
    lake.history(4)
    DeltaTable(lake.root).create_checkpoint()
    assert (lake.root / "_delta_log" / f"{3:020d}.checkpoint.parquet").exists()
    lake.history(12)
    lake.check()


@promise("T2")
def test_data_by_delta_rs_is_foreign(lake: Lake) -> None:
    """Rows that another engine appends, deletes or rewrites hold the follower."""
    lake.history(3)
    batch = lake.journal.batch(0)
    changes = [
        lambda: write_deltalake(lake.root, pa.Table.from_pylist([row(0, 9999)], schema=SCHEMA), mode="append"),
        lambda: DeltaTable(lake.root).delete("offset = 3"),
        lambda: DeltaTable(lake.root).optimize.compact(),
    ]
    newest = DeltaTable(lake.root).version()
    for change in changes:
        change()
        with pytest.raises(ForeignCommit):
            run(lake.follower.standing(REF, ""))
        with pytest.raises(ForeignCommit):
            run(lake.follower.commit(REF, "", batch))
        for path in (lake.root / "_delta_log").glob("*.json"):
            if int(path.name[:20]) > newest:
                path.unlink()
    lake.settle()
    lake.follow()
    lake.check()
