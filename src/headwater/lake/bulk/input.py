"""Files of Parquet or Arrow as records that can be appended: which column is what, in pieces of bounded size.

The content decides the format, not the name. Columns keep their bytes; only what is needed is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.errors import BadInput
from headwater.log.segment.rows import plain_schema

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_ROWS = 64 << 10
PIECE_BYTES = 16 << 20
"""A piece of the input exceeds neither limit, unless a single row is larger."""
PARQUET, ARROW_FILE = b"PAR1", b"ARROW1"
HEADERS = "headers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Which columns make a record. None: the column with the field's name, if the file has it. Empty: no column."""

    key: str | None = None
    value: str | None = None
    timestamp: str | None = None
    json_values: bool = False
    """The value is a JSON object of all columns that have no other role."""


@dataclass(frozen=True, slots=True)
class Records:
    """Some rows of a file as records, in the columns of `plain_schema`. Timestamps may be null."""

    file: Path
    first_row: int
    batch: pa.RecordBatch

    def flaw(self, row: int, problem: str) -> BadInput:
        """The error for one of the rows."""
        return BadInput(f"{self.file}, row {self.first_row + row}: {problem}")


class InputFile:
    """One file, and how its columns become records."""

    def __init__(self, path: Path, shape: Shape) -> None:
        self.path = path
        self._json = shape.json_values
        with self._opened() as source:
            self.rows = source.rows
            """None if it takes a read of the whole file to know."""
            self._plan(source.schema, shape)

    def __repr__(self) -> str:
        return f"<InputFile {self.path}: key {self._key}, value {self._value or self._others}>"

    def records(self) -> Iterator[Records]:
        """All rows, from the first one on. May be called again."""
        row = 0
        with self._opened() as source:
            pieces = source.pieces(self._needed)
            while (batch := self._reading(lambda: next(pieces, None))) is not None:
                yield Records(self.path, row, self._reading(partial(self._convert, batch)))
                row += batch.num_rows

    def _opened(self) -> _Source:
        return self._reading(lambda: _Source(self.path))  # type: ignore[no-any-return]

    def _reading(self, work: Callable[[], Any]) -> Any:
        """Turn every error that the bytes of the file cause into `BadInput` with the name of the file."""
        import pyarrow as pa

        try:
            return work()
        except (pa.ArrowException, OSError, ValueError, OverflowError, msgspec.MsgspecError) as error:
            raise BadInput(f"{self.path} cannot be read: {error}") from error

    # --- columns -------------------------------------------------------------------------------------------

    def _plan(self, schema: pa.Schema, shape: Shape) -> None:
        twice = [name for name in schema.names if schema.names.count(name) > 1]
        if twice:
            raise BadInput(f"{self.path} has several columns {twice[0]!r}")
        self._key = self._column(schema, shape.key, "key", _is_bytes, "binary or string")
        self._time = self._column(schema, shape.timestamp, "timestamp", _is_time, "a timestamp, or int64 milliseconds")
        self._value = None
        if not self._json:
            self._value = self._column(schema, shape.value, "value", _is_bytes, "binary or string")
            if self._value is None:
                raise BadInput(f"{self.path} has no column 'value'; name another, or ask for JSON values")
        kind = schema.field(HEADERS).type if HEADERS in schema.names else None
        free = HEADERS not in (self._key, self._value, self._time)
        self._headers = HEADERS if kind is not None and free and (_is_headers(kind) or not self._json) else None
        if self._headers is not None and not _is_headers(kind):
            raise BadInput(f"{self.path}: column 'headers' is {kind}, not a list of structs of key and value")
        used = (self._key, self._value, self._time, self._headers)
        self._others = [name for name in schema.names if name not in used] if self._json else []
        if self._json and not self._others:
            raise BadInput(f"{self.path} has no columns that JSON values could be made of")
        self._needed = [name for name in schema.names if name in used or name in self._others]

    def _column(
        self, schema: pa.Schema, asked: str | None, usual: str, fits: Callable[[Any], bool], wanted: str
    ) -> str | None:
        name = usual if asked is None else asked
        if not name or (asked is None and name not in schema.names):
            return None
        if name not in schema.names:
            raise BadInput(f"{self.path} has no column {name!r}; it has {', '.join(schema.names[:50])}")
        kind = schema.field(name).type
        if not fits(kind):
            raise BadInput(f"{self.path}: column {name!r} is {kind}; a {usual} is {wanted}")
        return name

    # --- rows ----------------------------------------------------------------------------------------------

    def _convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        rows, schema = batch.num_rows, plain_schema()

        def blobs(name: str | None) -> pa.Array:
            return batch.column(name).cast(pa.binary()) if name is not None else pa.nulls(rows, pa.binary())

        values = self._as_json(batch) if self._json else blobs(self._value)
        times = pa.nulls(rows, pa.int64()) if self._time is None else _milliseconds(batch.column(self._time))
        headers = batch.column(self._headers) if self._headers is not None else None
        arrays = [blobs(self._key), values, times, _headers(headers, rows, schema.field(HEADERS).type)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _as_json(self, batch: pa.RecordBatch) -> pa.Array:
        import pyarrow as pa

        encode = msgspec.json.Encoder(enc_hook=_odd).encode
        return pa.array([encode(row) for row in batch.select(self._others).to_pylist()], pa.binary())


class _Source:
    """An open file of one of the formats."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa
        from pyarrow import ipc, parquet

        self.rows: int | None = None
        self._parquet: Any = None
        self._file = pa.memory_map(str(path))
        try:
            start = bytes(self._file.read(8))
            self._file.seek(0)
            if start.startswith(PARQUET):
                self._parquet = parquet.ParquetFile(self._file, pre_buffer=False)
                self.schema, self.rows = self._parquet.schema_arrow, self._parquet.metadata.num_rows
            elif start.startswith(ARROW_FILE):
                self._batches: Any = ipc.open_file(self._file)
                self.schema = self._batches.schema
            else:
                self._batches = ipc.open_stream(self._file)
                self.schema = self._batches.schema
        except pa.ArrowException as error:
            self._file.close()
            raise BadInput(f"{path} is neither Parquet nor Arrow, or is damaged: {error}") from error

    def __enter__(self) -> _Source:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def pieces(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Rows in pieces of bounded size."""
        if self._parquet is not None:
            yield from self._row_groups(columns)
        elif hasattr(self._batches, "num_record_batches"):
            for i in range(self._batches.num_record_batches):
                yield from _cut(self._batches.get_batch(i).select(columns))
        else:
            for batch in self._batches:
                yield from _cut(batch.select(columns))

    def _row_groups(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        # pyarrow takes a name with a dot for a nested column.
        wanted = None if any("." in name for name in columns) else columns
        for group in range(self._parquet.num_row_groups):
            facts = self._parquet.metadata.row_group(group)
            rows = _rows_of_a_piece(facts.num_rows, facts.total_byte_size)
            for batch in self._parquet.iter_batches(rows, row_groups=[group], columns=wanted, use_threads=False):
                yield from _cut(batch.select(columns))


def _rows_of_a_piece(rows: int, size: int) -> int:
    return max(1, min(PIECE_ROWS, rows * PIECE_BYTES // max(size, 1)))


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in pieces of bounded size; no pieces if it is empty."""
    step = _rows_of_a_piece(batch.num_rows, batch.nbytes)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _is_bytes(kind: pa.DataType) -> bool:
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    strings = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    blobs = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return bool(strings or blobs or types.is_fixed_size_binary(kind))


def _is_time(kind: pa.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_timestamp(kind) or types.is_int64(kind))


def _is_headers(kind: pa.DataType) -> bool:
    from pyarrow import types

    if not (types.is_list(kind) or types.is_large_list(kind)) or not types.is_struct(kind.value_type):
        return False
    fields = {field.name: field.type for field in kind.value_type}
    if fields.keys() != {"key", "value"} or not _is_bytes(fields["value"]):
        return False
    return bool(types.is_string(fields["key"]) or types.is_large_string(fields["key"]))


def _milliseconds(times: pa.Array) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_timestamp(times.type):
        return times.cast(pa.timestamp("ms", times.type.tz), safe=False).cast(pa.int64())
    return times


def _headers(lists: pa.Array | None, rows: int, kind: pa.DataType) -> pa.Array:
    """Lists of key and value in the types of a segment; a row without a list has an empty one."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import compute

    if lists is None:
        empty = pa.array([], kind.value_type)
        return pa.ListArray.from_arrays(pa.array(np.zeros(rows + 1, dtype=np.int32)), empty, type=kind)
    lengths = compute.fill_null(compute.list_value_length(lists), 0).to_numpy()
    borders = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    pairs = lists.flatten()
    names = [field.name for field in pairs.type]
    columns = dict(zip(names, pairs.flatten(), strict=True))
    if pairs.null_count or columns["key"].null_count:
        raise ValueError("a header without a key")
    fields = [columns["key"].cast(pa.string()), columns["value"].cast(pa.binary())]
    made = pa.StructArray.from_arrays(fields, fields=list(kind.value_type))
    return pa.ListArray.from_arrays(pa.array(borders), made, type=kind)


def _odd(value: Any) -> str:
    """The JSON form of types that JSON does not have."""
    return str(value.isoformat()) if hasattr(value, "isoformat") else str(value)
