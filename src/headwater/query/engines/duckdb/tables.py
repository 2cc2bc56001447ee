"""Tables of a task as views of a DuckDB connection: exact files, those of them that are cut, and rows of the WAL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from headwater.log.segment.schema import FIELD_ID, segment_schema
from headwater.query.asking import Engine
from headwater.query.engines.contract import Bound, TaskFile, TaskTable
from headwater.query.engines.duckdb.narrowing import anchored
from headwater.query.gate.columns import log_types, type_of
from headwater.state.commands.columns import Column

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

_FILES = "read_parquet([{}], hive_partitioning = false, union_by_name = false, filename = false{})"
HOT, BOUNDS = "_hot", "_bounds"
"""What names of relations beside a view end with."""


def make_view(
    connection: DuckDBPyConnection,
    table: TaskTable,
    place: Callable[[str], str],
    hot: pa.Table | None,
    used: Sequence[Column] | None = None,
) -> None:
    """Create the view of a table. `place` gives the path or URL of a file.

    `hot` has the rows of the WAL. None: they are in a table of DuckDB's own, which `hold_hot` has made. `used` are the
    typed columns with the fields that the view shall have; None: all of them.
    """
    shown = table.columns if used is None else used
    columns = _selected(table.columns, shown)
    parts = []
    for cut in (False, True):
        limits = ""
        files = [file for file in table.files if file.cut is cut]
        if cut and files:
            connection.register(table.view + BOUNDS, _bounds(table.bounds))
            limits = (
                f" SEMI JOIN {quoted(table.view + BOUNDS)} AS b ON f.partition = b.own"
                ' AND f."offset" >= b.first AND f."offset" < b.behind'
            )
        sources = _sources(connection, table, shown, files, place)
        parts += [f"SELECT {columns} FROM {source} AS f{limits}" for source in sources]
    if hot is None or hot.num_rows or not parts:
        if hot is not None:
            connection.register(table.view + HOT, hot)
        parts.append(f"SELECT {columns} FROM {quoted(table.view + HOT)} AS f")
    connection.execute(f"CREATE TEMP VIEW {quoted(table.view)} AS {' UNION ALL '.join(parts)}")


def hold_hot(connection: DuckDBPyConnection, table: TaskTable, pieces: Sequence[pa.Table]) -> None:
    """Put rows of the WAL into a table of DuckDB's own, which it may spill. May be called several times."""
    name = quoted(table.view + HOT)
    for i, piece in enumerate(pieces):
        source = f"{table.view}_piece{i}"
        connection.register(source, piece)
        connection.execute(f"CREATE TEMP TABLE IF NOT EXISTS {name} AS SELECT * FROM {quoted(source)} LIMIT 0")
        connection.execute(f"INSERT INTO {name} SELECT * FROM {quoted(source)}")
        connection.unregister(source)


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def _selected(columns: Sequence[Column], shown: Sequence[Column]) -> str:
    """What a part of a view selects of `f`: the columns of the log, and the shown fields of typed columns."""
    log = [f"f.{quoted(name)}" for name in segment_schema().names]
    typed = [
        f"{_fields(f'f.{quoted(column.name)}', column, part)} AS {quoted(column.name)}"
        for column, part in zip(columns, shown, strict=True)
    ]
    return ", ".join([*log, *typed])


def _fields(source: str, column: Column, part: Column) -> str:
    """A column with those fields that `part` has. Where the column is null, its fields are."""
    if part == column:
        return source
    own = {child.name: child for child in column.children}
    inner = [(child.name, _fields(f"{source}.{quoted(child.name)}", own[child.name], child)) for child in part.children]
    return f"{{{', '.join(f'{_text(name)}: {value}' for name, value in inner)}}}"


def _sources(
    connection: DuckDBPyConnection,
    table: TaskTable,
    shown: Sequence[Column],
    files: Sequence[TaskFile],
    place: Callable[[str], str],
) -> Iterator[str]:
    """Files as tables of SQL with all columns of a table, of typed ones at least the shown fields.

    Files that have exactly the typed columns are read as they are: DuckDB then reads single fields of a column. With
    `schema` it reads all fields of it, which takes many times as long.
    """
    if not table.columns:
        if files:
            yield _files([place(file.path) for file in files], "")
        return
    exact = [place(file.path) for file in files if file.version == table.version != 0]
    others = [place(file.path) for file in files if file.version != table.version or not table.version]
    if exact and _has(connection, _files(exact[:1], ""), table.columns):
        yield _files(exact, "")
    else:
        others = exact + others
    if others:
        yield _files(others, _shape([anchored(*pair) for pair in zip(table.columns, shown, strict=True)]))


def _has(connection: DuckDBPyConnection, source: str, columns: Sequence[Column]) -> bool:
    """Whether a file has typed columns with the very types that they have in SQL."""
    found = {row[0]: row[1] for row in connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()}
    kinds = ", ".join(f"typeof(NULL::{type_of(column, Engine.DUCKDB)})" for column in columns)
    wanted = connection.execute(f"SELECT {kinds}").fetchone()
    return wanted == tuple(found.get(column.name) for column in columns)


def _files(paths: Sequence[str], shape: str) -> str:
    return _FILES.format(", ".join(_text(path) for path in paths), shape)


def _shape(columns: Sequence[Column]) -> str:
    """The columns of files by their ids. What a file lacks is null, fields inside of columns too."""
    schema = segment_schema()
    wanted = [
        (int(schema.field(name).metadata[FIELD_ID]), name, kind) for name, kind in log_types(Engine.DUCKDB).items()
    ]
    wanted += [(column.id, column.name, type_of(column, Engine.DUCKDB)) for column in columns]
    shown = [
        f"{number}: {{name: {_text(name)}, type: {_text(kind)}, default_value: NULL}}" for number, name, kind in wanted
    ]
    return f", schema = MAP {{{', '.join(shown)}}}"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _bounds(bounds: Sequence[Bound]) -> pa.Table:
    import pyarrow as pa

    last = (1 << 63) - 1
    return pa.table(
        {
            "own": pa.array([bound.partition for bound in bounds], pa.int32()),
            "first": pa.array([min(bound.start, last) for bound in bounds], pa.int64()),
            "behind": pa.array([min(bound.end, last) for bound in bounds], pa.int64()),
        }
    )
