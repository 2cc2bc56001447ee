"""Views of a task: whole files, files that reach beyond a bound, rows of the WAL in memory and in DuckDB's own."""

from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pytest
from pyarrow import parquet

from headwater.log.segment.schema import segment_schema
from headwater.query.engines.contract import Bound, TaskFile, TaskTable
from headwater.query.engines.duckdb.lockdown import CONFIG, lock_down
from headwater.query.engines.duckdb.narrowing import narrowed
from headwater.query.engines.duckdb.reading import check_reading
from headwater.query.engines.duckdb.tables import hold_hot, make_view
from headwater.query.engines.hot import hot_schema
from headwater.query.scan import schema_of
from headwater.schemas.conform import arrow_fields
from headwater.state.commands.columns import Column, up_to


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


def _column(number: int, name: str, kind: str, *children: Column) -> Column:
    return Column(number, name, name, kind, "", children)


TYPED = (
    _column(100, "decode_error", "string"),
    _column(
        101,
        "value_data",
        "struct",
        _column(102, "user name", "string"),
        _column(
            103, "tags", "list", _column(104, "element", "struct", _column(105, "x", "long"), _column(110, "y", "date"))
        ),
        _column(106, "by", "map", _column(107, "key", "string"), _column(108, "value", "decimal(9,2)")),
        _column(109, 'it\'s "new"', "timestamptz"),
    ),
    _column(111, "raw", "binary"),
)


def _typed_rows(offsets: range, columns: tuple[Column, ...], value: dict[str, Any] | None) -> pa.Table:
    table, count = _rows(0, offsets), len(offsets)
    values = {"value_data": [value] * count}
    for field in arrow_fields(columns):
        table = table.append_column(field, pa.array(values.get(field.name, [None] * count), field.type))
    return table


def test_files_that_are_older_than_columns(tmp_path: Path) -> None:
    """What a file lacks is null: columns, and fields of structs, also inside of lists."""
    versions = [(), up_to(TYPED, 105), up_to(TYPED, 108), TYPED]
    value = {"user name": "u", "tags": [{"x": 1}]}
    files = []
    for i, columns in enumerate(versions):
        rows = _typed_rows(range(10 * i, 10 * i + 2), columns, value)
        name = f"{'cut' if i % 2 else 'whole'}{i}.parquet"
        schema = pa.schema([*segment_schema(), *arrow_fields(columns)])
        parquet.write_table(rows.cast(schema), tmp_path / name)
        files.append(TaskFile(name, 1, cut=bool(i % 2), version=i))
    table = TaskTable("v", "t", files, [Bound(0, 0, 31)], [], TYPED, version=3)
    hot = _typed_rows(range(40, 41), TYPED, {**value, "by": [("k", None)]}).cast(hot_schema(TYPED))
    with duckdb.connect(config=CONFIG) as connection:  # type: ignore[arg-type]
        make_view(connection, table, lambda path: f"{tmp_path}/{path}", hot)
        lock_down(connection, [f"{tmp_path}/{file.path}" for file in files])
        found = connection.execute('SELECT "offset", value_data FROM v ORDER BY 1').fetchall()
        assert [offset for offset, _ in found] == [0, 1, 10, 11, 20, 21, 30, 40]
        whole = {"user name": "u", "tags": [{"x": 1, "y": None}], "by": None, 'it\'s "new"': None}
        assert [one for _, one in found] == [None, None, *[whole] * 5, {**whole, "by": {"k": None}}]
        kinds = dict(connection.execute("SELECT column_name, column_type FROM (DESCRIBE v)").fetchall())
        told = dict(connection.execute("SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM v)").fetchall())
        assert kinds == told and list(kinds) == [*schema_of().names, "decode_error", "value_data", "raw"]
        nested = """SELECT count(*) FROM v WHERE value_data."user name" = 'u' AND value_data.tags[1].x = 1"""
        assert connection.execute(nested).fetchall() == [(6,)]


def test_files_of_the_newest_columns_are_read_by_field(tmp_path: Path) -> None:
    """Only older files are read with `schema`: with it DuckDB reads structs whole."""
    schema = pa.schema([*segment_schema(), *arrow_fields(TYPED)])
    rows = _typed_rows(range(2), TYPED, {"user name": "u", "tags": []}).cast(schema)
    older = pa.schema([*segment_schema(), *arrow_fields(up_to(TYPED, 105))])
    parquet.write_table(rows, tmp_path / "new.parquet")
    parquet.write_table(_typed_rows(range(5, 7), up_to(TYPED, 105), None).cast(older), tmp_path / "old.parquet")
    new, old = TaskFile("new.parquet", 1, cut=False, version=3), TaskFile("old.parquet", 1, cut=False, version=1)
    for files in ([new], [old], [new, old]):
        with duckdb.connect(config=CONFIG) as connection:  # type: ignore[arg-type]
            table = TaskTable("v", "t", files, [], [], TYPED, version=3)
            make_view(connection, table, lambda path: f"{tmp_path}/{path}", hot_schema(TYPED).empty_table())
            [[text]] = connection.execute("SELECT sql FROM duckdb_views() WHERE view_name = 'v'").fetchall()
            assert text.count("read_parquet") == len(files)
            assert text.count("default_value") == (0 if old not in files else len(schema.names))
            counted = connection.execute('SELECT count(value_data."user name"), count(*) FROM v').fetchall()
            assert counted == [(2 if new in files else 0, 2 * len(files))]


@pytest.mark.parametrize(
    "sql",
    [
        'SELECT value_data."user name", value_data.at.x FROM v',
        "SELECT value_data.at.y FROM v WHERE value_data.at.x IS NULL",
        'SELECT value_data.by[\'k\'], value_data."it\'s ""new""" FROM v',
        "SELECT value_data.tags[1].x, raw FROM v",
        "SELECT value_data.tags[1].y, count(*) FROM v GROUP BY ALL",
        "SELECT value_data FROM v WHERE value_data.at.y = 2",
    ],
)
def test_fields_that_a_statement_uses(tmp_path: Path, sql: str) -> None:
    """A view with only these fields gives the same rows, from files of all versions and from the WAL."""
    inner = _column(112, "at", "struct", _column(113, "x", "long"), _column(114, "y", "long"))
    value, *others = TYPED[1:]
    columns = (TYPED[0], msgspec.structs.replace(value, children=(*value.children, inner)), *others)
    rows: list[dict[str, Any] | None] = [
        {"user name": "u", "tags": [{"x": 1}], "by": [("k", 5)], "at": {"x": 1}},
        {"at": {"y": 2}, "tags": [{"y": 3}]},
        {"at": None},
        None,
    ]
    files, hot = [], []
    for i, last in enumerate((0, 102, 105, 113, 114)):
        for j, row in enumerate(rows):
            known = up_to(columns, last)
            found = _typed_rows(range(10 * i + j, 10 * i + j + 1), known, row)
            name = f"{i}-{j}.parquet"
            parquet.write_table(found.cast(pa.schema([*segment_schema(), *arrow_fields(known)])), tmp_path / name)
            files.append(TaskFile(name, 1, cut=bool(j % 2), version=i))
            if last == 114:
                hot.append(found.cast(hot_schema(columns)))
    table = TaskTable("v", "t", files, [Bound(0, 0, 1 << 63)], [], columns, version=4)
    answers = []
    for whole in (True, False):
        with duckdb.connect(config=CONFIG) as connection:  # type: ignore[arg-type]
            used = None if whole else narrowed(columns, check_reading(connection, sql, ["v"]))
            make_view(connection, table, lambda path: f"{tmp_path}/{path}", pa.concat_tables(hot), used)
            answers.append(sorted(connection.execute(sql).fetchall(), key=repr))
            if not whole and "SELECT value_data FROM" not in sql:
                assert used is not None and used != columns
    assert answers[0] == answers[1] and any(any(one is not None for one in row) for row in answers[0])


def test_types_are_named_as_duckdb_names_them() -> None:
    from headwater.query.asking import Engine
    from headwater.query.gate.columns import type_of

    with duckdb.connect(config=CONFIG) as connection:  # type: ignore[arg-type]
        make_view(connection, TaskTable("v", "t", [], [], [], TYPED), str, hot_schema(TYPED).empty_table())
        told = dict(connection.execute("SELECT column_name, column_type FROM (DESCRIBE v)").fetchall())
        for column in TYPED:
            assert connection.execute(f"SELECT typeof(NULL::{type_of(column, Engine.DUCKDB)})").fetchall() == [
                (told[column.name],)
            ]
