"""Engines pass over files: by partition, by key and by chosen columns; and no row is lost by that."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from duckdb_extensions import import_extension
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThan, IsNull, LessThanOrEqual, StartsWith
from pyiceberg.table import StaticTable

from harness.virtual import run
from headwater.app.node import Node
from headwater.state.cluster.domain import Topic
from tests.support.batches import Rec, batch
from tests.support.lake import ONE, LakeWorld, log_rows
from tests.support.promise import promise
from tests.support.virtual_nodes import sent, topic

PROMISES = ("T17",)

PARTITIONS, ROUNDS, ROWS = 4, 3, 10
INDEX = "value_data.n,value_data.name,value_data.deep.id,value_data.price,value_data.absent"
BYTES = 20_000
"""Of each value: WAL objects must be worth reading in parts."""


def record(partition: int, number: int, row: int) -> Rec:
    """A record whose fields rise with the rounds, and whose key with partition and round."""
    n = number * 1_000 + partition * 100 + row
    value: dict[str, Any] = {"n": n, "name": f"name {n:06}" + "é" * 40, "deep": {"id": -n}, "price": n / 8}
    if row == 3:
        value = {"n": None}
    return Rec(json.dumps(value | {"fill": "x" * BYTES}).encode(), key=b"%d-%d-%d" % (partition, number, row))


class Settled:
    """A topic's table in files, and all of its rows."""

    def __init__(self, directory: Path, apart: bool) -> None:
        self.directory = directory
        self.apart = apart
        """Whether partitions are apart from the beginning. Otherwise their common files are cut."""
        self.location = self.root = ""
        run(self._story())
        self.iceberg = StaticTable.from_metadata(f"{directory.as_uri()}/{self.location}")
        self.rows = self.iceberg.scan().to_arrow().to_pylist()
        self.delta = DeltaTable(directory / self.root)

    async def _story(self) -> None:
        world = LakeWorld(self.directory)
        node = await world.node()
        made = await topic(
            node, partitions=PARTITIONS, headwater_value_schema="json", headwater_table_index_columns=INDEX
        )
        compaction = await world.compaction(partition_bytes=100_000 if self.apart else 0, small_file_bytes=1)
        for number in range(ROUNDS):
            await self._produce(node, made, number)
            await compaction.round()
        if not self.apart:
            await compaction.close()
            compaction = await world.compaction(partition_bytes=1, small_file_bytes=1)
            await compaction.finish()
            assert len(list(node.domains[ONE].state.tables[made.id].live())) == ROUNDS
            await node.broker.topics.alter(made, {"headwater.table.cut.partitions": "true"}, [])
        await compaction.finish()
        assert len(await log_rows(node, made)) == PARTITIONS * ROUNDS * ROWS
        table = node.domains[ONE].state.tables[made.id]
        self.location, self.root = table.followers["iceberg"].location, table.root
        self.spans = sorted((file.first_partition, file.last_partition) for file in table.live())
        world.lay_out()
        await compaction.close()
        await node.stop()

    async def _produce(self, node: Node, made: Topic, number: int) -> None:
        for partition, stream in enumerate(made.streams):
            await sent(node, stream, batch([record(partition, number, row) for row in range(ROWS)]))
        await asyncio.sleep(0.01)

    def planned(self, wanted: BooleanExpression) -> int:
        """The files that pyiceberg reads."""
        return len(list(self.iceberg.scan(row_filter=wanted).plan_files()))

    @cached_property
    def duck(self) -> duckdb.DuckDBPyConnection:
        """A DuckDB with both tables as views."""
        for extension in ("avro", "iceberg", "delta"):
            import_extension(extension)
        connection = duckdb.connect()
        connection.execute("LOAD avro; LOAD iceberg; LOAD delta")
        connection.execute(f"CREATE VIEW iceberg AS FROM iceberg_scan('{self.directory}/{self.location}')")
        connection.execute(f"CREATE VIEW delta AS FROM delta_scan('{self.directory}/{self.root}')")
        return connection

    def by_duckdb(self, table: str, wanted: str) -> list[tuple[Any, ...]]:
        return self.duck.execute(f'SELECT partition, "offset" FROM {table} WHERE {wanted} ORDER BY ALL').fetchall()

    def read_by_duckdb(self, table: str, wanted: str) -> int:
        """The files that DuckDB reads."""
        plan = str(self.duck.execute(f"EXPLAIN ANALYZE SELECT key FROM {table} WHERE {wanted}").fetchall())
        [read] = re.findall(r"Total Files Read: (\d+)", plan)
        return int(read)

    @cached_property
    def fusion(self) -> QueryBuilder:
        """delta-rs's own engine."""
        return QueryBuilder().register("t", self.delta)

    def by_delta_rs(self, wanted: str) -> list[tuple[Any, ...]]:
        query = f'SELECT partition, "offset" FROM t WHERE {wanted} ORDER BY 1, 2'
        found = pa.table(self.fusion.execute(query).read_all())
        return [(row["partition"], row["offset"]) for row in found.to_pylist()]


FILES = PARTITIONS * ROUNDS


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settled]:
    """A table with one partition a file."""
    made = Settled(tmp_path_factory.mktemp("pruning"), apart=True)
    yield made
    made.duck.close()


@promise("T17")
def test_files_that_partitions_share_are_cut(tmp_path: Path) -> None:
    """Into one for each partition, with all rows and with the bounds of chosen columns."""
    cut = Settled(tmp_path, apart=False)
    assert cut.spans == [(partition, partition) for partition in range(PARTITIONS)]
    assert cut.planned(EqualTo("partition", 3)) == cut.planned(EqualTo("value_data.n", 2_305)) == 1
    rows = cut.iceberg.scan(row_filter=EqualTo("value_data.n", 2_305)).to_arrow().to_pylist()
    assert [(row["partition"], row["key"]) for row in rows] == [(3, b"3-2-5")]
    facts = pa.table(cut.delta.get_add_actions(flatten=True)).to_pylist()
    assert sorted((one["min.value_data.n"], one["max.value_data.n"]) for one in facts) == [
        (partition * 100, 2_000 + partition * 100 + ROWS - 1) for partition in range(PARTITIONS)
    ]


CONDITIONS: list[tuple[BooleanExpression, str, str, int]] = [
    (EqualTo("partition", 3), "partition = 3", "partition = 3", ROUNDS),
    (EqualTo("key", b"2-1-7"), "key = '2-1-7'::BLOB", "key = X'322d312d37'", 1),
    (
        StartsWith("value_data.name", "name 0021"),
        "value_data.name LIKE 'name 0021%'",
        "value_data['name'] LIKE 'name 0021%'",
        1,
    ),
    (EqualTo("value_data.n", 1_205), "value_data.n = 1205", "value_data['n'] = 1205", 1),
    (
        And(GreaterThan("value_data.deep.id", -1_120), LessThanOrEqual("value_data.deep.id", -1_000)),
        "value_data.deep.id > -1120 AND value_data.deep.id <= -1000",
        "value_data['deep']['id'] > -1120 AND value_data['deep']['id'] <= -1000",
        2,
    ),
    (GreaterThan("value_data.price", 2_300 / 8), "value_data.price > 287.5", "value_data['price'] > 287.5", 1),
    (IsNull("value_data.n"), "value_data.n IS NULL", "value_data['n'] IS NULL", FILES),
    (EqualTo("value_data.n", 7_000), "value_data.n = 7000", "value_data['n'] = 7000", 0),
]  # fmt: skip


@promise("T17")
@pytest.mark.parametrize(("wanted", "duck", "fusion", "files"), CONDITIONS, ids=[c[1] for c in CONDITIONS])
def test_files_are_passed_over(settled: Settled, wanted: BooleanExpression, duck: str, fusion: str, files: int) -> None:
    """pyiceberg opens the files that may have such rows and no others; all engines find all rows."""
    assert settled.planned(wanted) == files
    found = settled.iceberg.scan(row_filter=wanted).to_arrow().to_pylist()
    rows = sorted((row["partition"], row["offset"]) for row in found)
    everything = {(row["partition"], row["offset"]): row for row in settled.rows}
    assert rows == sorted(place for place, row in everything.items() if matches(duck, row))
    assert settled.by_duckdb("iceberg", duck) == settled.by_duckdb("delta", duck) == settled.by_delta_rs(fusion) == rows


@promise("T17")
def test_duckdb_passes_over_files(settled: Settled) -> None:
    """In both formats; of Iceberg's bounds it does not use those of fields inside of structs."""
    assert (
        settled.read_by_duckdb("iceberg", "partition = 3") == settled.read_by_duckdb("delta", "partition = 3") == ROUNDS
    )
    assert settled.read_by_duckdb("iceberg", "key = '2-1-7'::BLOB") == 1
    assert settled.read_by_duckdb("delta", "value_data.n = 1205") == 1


def matches(condition: str, row: dict[str, Any]) -> bool:
    """The conditions again, by hand."""
    data = row["value_data"]
    return {
        "partition = 3": row["partition"] == 3,
        "key = '2-1-7'::BLOB": row["key"] == b"2-1-7",
        "value_data.name LIKE 'name 0021%'": (data["name"] or "").startswith("name 0021"),
        "value_data.n = 1205": data["n"] == 1_205,
        "value_data.deep.id > -1120 AND value_data.deep.id <= -1000": data["deep"] is not None
        and -1_120 < data["deep"]["id"] <= -1_000,
        "value_data.price > 287.5": data["price"] is not None and data["price"] > 287.5,
        "value_data.n IS NULL": data["n"] is None,
        "value_data.n = 7000": False,
    }[condition]


@promise("T17")
def test_what_the_delta_log_says(settled: Settled) -> None:
    """Bounds of chosen columns, also inside of structs; a text is cut short and rounded up."""
    facts = pa.table(settled.delta.get_add_actions(flatten=True)).to_pylist()
    assert len(facts) == FILES and settled.spans == sorted([(p, p) for p in range(PARTITIONS)] * ROUNDS)
    for one in facts:
        assert one["min.partition"] == one["max.partition"]
        assert one["null_count.value_data.n"] == one["null_count.value_data.name"] == 1
        assert one["max.value_data.n"] - one["min.value_data.n"] == ROWS - 1
        assert one["max.value_data.deep.id"] == -one["min.value_data.n"]
        low, high = one["min.value_data.name"], one["max.value_data.name"]
        assert low == f"name {one['min.value_data.n']:06}" + "é" * 21
        assert high == f"name {one['max.value_data.n']:06}" + "é" * 20 + "ê"
