"""The rows of the soak of back-fills, and readers that compare them: rows and bytes exactly, typed values or null."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
from duckdb_extensions import import_extension

from harness.storage import Place
from tests.faults.lake_running import LakeRunning
from tests.soak.sql_asking import Failed, asked

TOPIC, PARTITIONS = "orders", 3
"""The partitions that are filled before schemas are switched on."""
BESIDE = PARTITIONS
"""A further partition, which is written all the time."""
CHUNK = 250_000
BAD_EVERY, EMPTY_EVERY, OLD_SHARE = 10_000, 1_000, 10
"""Some values are no JSON, some are missing, and the oldest tenth has a field of its own."""


def value_of(number: int, rows: int) -> bytes | None:
    """The value of a row, by its number."""
    if number % EMPTY_EVERY == 3:
        return None
    if number % BAD_EVERY == 77:
        return b"no JSON %d" % number
    old = b',"old":%d' % number if number * OLD_SHARE < rows else b""
    return b'{"n":%d,"item":{"name":"i%d","tags":["t%d","x"]},"amount":%d.25,"text":"%s"%s}' % (
        number, number, number % 7, number, b"lorem ipsum dolor "[: number % 18], old,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the readers must find in a partition."""

    rows: int
    offsets: int
    keys: int
    values: int
    """Sums of hashes."""
    present: int
    """Values that are not null."""
    bad: int
    old: int


class Rows:
    """So many rows, a third in each partition; those of a partition follow one another."""

    def __init__(self, rows: int) -> None:
        self.share = -(-rows // PARTITIONS)
        self.rows = self.share * PARTITIONS

    def files(self, partition: int, directory: Path) -> Iterator[Path]:
        """Parquet files for bulk appends to a partition, one at a time."""
        import pyarrow as pa
        from pyarrow import parquet

        directory.mkdir(exist_ok=True)
        first = partition * self.share
        for start in range(first, first + self.share, CHUNK):
            numbers = range(start, min(start + CHUNK, first + self.share))
            columns = {
                "key": pa.array([b"%012d" % number for number in numbers], pa.binary()),
                "value": pa.array([value_of(number, self.rows) for number in numbers], pa.binary()),
            }
            path = directory / f"{partition}-{start:012d}.parquet"
            parquet.write_table(pa.table(columns), path)
            yield path

    def wanted(self, partition: int, files: list[Path]) -> Wanted:
        """Counted without Headwater: of the files that are appended, and by the rules of the rows."""
        hashes = "CAST(sum(hash(key)) AS VARCHAR), CAST(sum(hash(value)) AS VARCHAR), count(value)"
        with duckdb.connect() as connection:
            source = f"read_parquet({[str(path) for path in files]})"
            row = connection.execute(f"SELECT {hashes} FROM {source}").fetchone()
        assert row is not None
        numbers = range(partition * self.share, (partition + 1) * self.share)
        bad = [number for number in range(_next(numbers.start, BAD_EVERY, 77), numbers.stop, BAD_EVERY)]
        filled = sum(1 for number in numbers if number * OLD_SHARE < self.rows and _is_json(number))
        return Wanted(
            self.share, self.share * (self.share - 1) // 2, int(row[0]), int(row[1]), row[2], len(bad), filled
        )


def _is_json(number: int) -> bool:
    return number % EMPTY_EVERY != 3 and number % BAD_EVERY != 77


def _next(start: int, every: int, rest: int) -> int:
    """The first number from `start` on with this rest."""
    return start + (rest - start) % every


# --- readers ------------------------------------------------------------------------------------------------

_RAW = (
    'partition, count(*), CAST(sum("offset") AS VARCHAR), CAST(sum(hash({key})) AS VARCHAR), '
    "CAST(sum(hash({value})) AS VARCHAR), count(value)"
)
_NUMBER = "CAST({text} AS BIGINT)"
_TYPED = (
    ", count(value_data), count(decode_error), "
    "count(*) FILTER (WHERE value_data IS NOT NULL AND (value_data.n IS DISTINCT FROM {number} "
    "OR value_data.item.name IS DISTINCT FROM concat('i', {number}) OR len(value_data.item.tags) IS DISTINCT FROM 2 "
    "OR value_data.amount IS DISTINCT FROM {number} + 0.25::DOUBLE "
    "OR length(value_data.text) IS DISTINCT FROM {number} % 18)), "
    "count(*) FILTER (WHERE decode_error IS NOT NULL AND {number} % 10000 <> 77)"
)
_OLD = ", count(value_data.old), count(*) FILTER (WHERE value_data.old <> {number})"
_REST = " FROM {source} WHERE partition < 3 GROUP BY partition ORDER BY partition"


@dataclass(frozen=True, slots=True)
class Found:
    """What a reader found in a partition."""

    partition: int
    rows: int
    offsets: int
    keys: int
    values: int
    present: int
    typed: int = 0
    errors: int = 0
    wrong: int = 0
    wrong_errors: int = 0
    old: int = 0
    wrong_old: int = 0

    def same_log(self, wanted: Wanted) -> bool:
        """Whether rows and bytes are exactly those that were appended."""
        mine = (self.rows, self.offsets, self.keys, self.values, self.present)
        return mine == (wanted.rows, wanted.offsets, wanted.keys, wanted.values, wanted.present)

    def decoded(self, wanted: Wanted) -> bool:
        """Whether every row has its typed values, or says why not."""
        return (self.typed, self.errors, self.old) == (wanted.present - wanted.bad, wanted.bad, wanted.old)


def statement(source: str, text_of_key: str, parts: int) -> str:
    """A statement over the log's columns (1), typed ones too (2), and the field of the oldest rows too (3)."""
    number = _NUMBER.format(text=text_of_key)
    chosen = "".join((_RAW, _TYPED, _OLD)[:parts]).format(key="key", value="value", number=number)
    return f"SELECT {chosen}{_REST.format(source=source)}"


def found_of(rows: list[Any]) -> list[Found]:
    return [Found(*(int(number) for number in row)) for row in rows]


Read = Callable[[int], list[Found]]
"""Reads with so many parts of the statement. Raises `NoColumn` if the table has no such column yet."""


class NoColumn(Exception):
    """The table lacks a column that the statement names."""


class Reader:
    """A reader that begins without typed columns and takes them as soon as the table has them."""

    def __init__(self, name: str, read: Read) -> None:
        self.name = name
        self._read = read
        self._parts = 1
        self.answers = 0

    def __repr__(self) -> str:
        return f"<Reader {self.name}, {self.answers} answers with {self._parts} parts>"

    def ask(self) -> list[Found]:
        """An answer with as many parts as the table has columns for. A column that was there once stays."""
        for parts in range(3, self._parts - 1, -1):
            try:
                answer = self._read(parts)
            except NoColumn:
                if parts == self._parts and parts > 1:
                    raise AssertionError(f"{self.name}: a typed column is gone") from None
                continue
            self._parts = parts
            self.answers += 1
            return answer
        raise AssertionError(f"{self.name}: no answer")


def readers(server: LakeRunning, place: Place) -> list[Reader]:
    """A gateway, DuckDB by path on both formats, pyiceberg, delta-rs."""
    return [
        Reader("SQL", lambda parts: _sql(server, parts)),
        Reader("DuckDB, Delta", lambda parts: _duckdb(f"delta_scan('{place.root}')", ("delta",), parts)),
        Reader("pyiceberg", lambda parts: _pyiceberg(place, parts)),
        Reader("DuckDB, Iceberg", lambda parts: _duckdb_iceberg(place, parts)),
        Reader("delta-rs", lambda parts: _delta_rs(place, parts)),
    ]


def _sql(server: LakeRunning, parts: int) -> list[Found]:
    try:
        return found_of(asked(server, statement(TOPIC, "key", parts), "duckdb"))
    except Failed as error:
        if parts > 1 and "Binder Error" in str(error):
            raise NoColumn(str(error)) from error
        raise


def _duckdb(source: str, extensions: tuple[str, ...], parts: int, more: Mapping[str, Any] | None = None) -> list[Found]:
    with duckdb.connect(config={"threads": 1}) as connection:
        for name in extensions:
            import_extension(name)
            connection.execute(f"LOAD {name}")
        for name, relation in (more or {}).items():
            connection.register(name, relation)
        try:
            return found_of(connection.execute(statement(source, "decode(key)", parts)).fetchall())
        except duckdb.BinderException as error:
            raise NoColumn(str(error)) from error


def _table(place: Place) -> Any:
    from pyiceberg.catalog.rest import RestCatalog

    return RestCatalog("headwater", uri=place.catalog).load_table(("topics", place.topic))


def _duckdb_iceberg(place: Place, parts: int) -> list[Found]:
    return _duckdb(f"iceberg_scan('{_table(place).metadata_location}')", ("avro", "iceberg"), parts)


_NAMES = ("partition", "offset", "key", "value")


def _pyiceberg(place: Place, parts: int) -> list[Found]:
    table = _table(place)
    known = {field.name for field in table.schema().fields}
    if parts > 1 and "value_data" not in known:
        raise NoColumn("value_data")
    chosen = (*_NAMES, "value_data", "decode_error") if parts > 1 else _NAMES
    batches = table.scan(selected_fields=chosen).to_arrow_batch_reader()
    return _duckdb("batches", (), parts, {"batches": batches})


def _delta_rs(place: Place, parts: int) -> list[Found]:
    from deltalake import DeltaTable

    return _duckdb("dataset", (), parts, {"dataset": DeltaTable(place.root).to_pyarrow_dataset()})


def text(found: list[Found]) -> str:
    return json.dumps([[one.partition, one.rows, one.typed, one.errors, one.wrong] for one in found])
