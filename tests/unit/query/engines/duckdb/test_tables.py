"""Views of a task: whole files, files that reach beyond a bound, rows of the WAL in memory and in DuckDB's own."""

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyarrow import parquet

from headwater.log.segment.schema import segment_schema
from headwater.query.engines.contract import Bound, TaskFile, TaskTable
from headwater.query.engines.duckdb.lockdown import CONFIG, lock_down
from headwater.query.engines.duckdb.tables import hold_hot, make_view
from headwater.query.scan import schema_of


def _rows(partition: int, offsets: range) -> pa.Table:
    empty: dict[str, Any] = dict.fromkeys(schema_of().names)
    numbers = {"timestamp_ms": 1, "attributes": 0, "producer_id": -1, "producer_epoch": -1, "sequence": -1}
    rows = [{**empty, **numbers, "partition": partition, "offset": at, "value": b"%d" % at} for at in offsets]
    return pa.Table.from_pylist(rows, schema=schema_of())


def _file(directory: Path, name: str, *tables: pa.Table) -> TaskFile:
    path = directory / name
    parquet.write_table(pa.concat_tables(tables).cast(segment_schema()), path)
    return TaskFile(name, path.stat().st_size, cut=name.startswith("cut"))


@pytest.mark.parametrize("held", [False, True])
def test_views(tmp_path: Path, held: bool) -> None:
    files = [
        _file(tmp_path, "it's.parquet", _rows(0, range(10)), _rows(1, range(4))),
        _file(tmp_path, "cut.parquet", _rows(0, range(10, 20)), _rows(1, range(4, 6)), _rows(2, range(3))),
    ]
    table = TaskTable("v", "t", files, [Bound(0, 0, 15), Bound(1, 0, 1 << 63)], [])
    hot = [_rows(0, range(12, 13)), _rows(1, range(6, 8))]
    with duckdb.connect(config=CONFIG) as connection:  # type: ignore[arg-type]
        if held:
            hold_hot(connection, table, hot[:1])
            hold_hot(connection, table, hot[1:])
        place = str(tmp_path) + "/"
        make_view(connection, table, lambda path: place + path, None if held else pa.concat_tables(hot))
        lock_down(connection, [place + file.path for file in files])
        found = connection.execute(
            'SELECT "partition", count(*), max("offset") FROM v GROUP BY 1 ORDER BY 1'
        ).fetchall()
        assert found == [(0, 16, 14), (1, 8, 7)]
        assert connection.execute("SELECT * FROM v").to_arrow_table().schema.names == schema_of().names
        with pytest.raises(duckdb.Error, match="disabled by configuration"):
            connection.execute(f"SELECT * FROM '{tmp_path}/other.parquet'")
        with pytest.raises(duckdb.Error, match="locked"):
            connection.execute("SET threads = 7")
        (tmp_path / "cut.parquet").unlink()
        with pytest.raises(duckdb.Error, match=r"cut\.parquet"):
            connection.execute("SELECT count(*) FROM v").fetchall()


def test_a_topic_without_rows() -> None:
    with duckdb.connect(config=CONFIG) as connection:  # type: ignore[arg-type]
        make_view(connection, TaskTable("v", "t", [], [], []), str, schema_of().empty_table())
        assert connection.execute("SELECT count(*), max(value) FROM v").fetchall() == [(0, None)]
