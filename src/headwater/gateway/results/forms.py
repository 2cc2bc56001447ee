"""Forms of results: JSON, NDJSON, CSV, Arrow and Parquet. Each is written piece by piece, as the batches come.

    writer = writer_of(Form.CSV, about)
    send(writer.begin())
    for batch in batches:
        send(writer.rows(batch))
    send(writer.end())

A result that fails on the way must not look like a whole one. `failed` gives the last bytes of such an answer, in the
forms that have a way to say it.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from headwater.gateway.results.cells import JSON, objects_of, rows_of, texts_of, unique

if TYPE_CHECKING:
    import pyarrow as pa

SLICE_ROWS = 8_192
"""Rows that are written at once as JSON or CSV."""
GROUP_ROWS = 122_880
GROUP_BYTES = 32 << 20
"""A row group of a Parquet file has so many rows, or about so many bytes."""
_QUOTED = ('"', ",", "\n", "\r")


class Form(enum.StrEnum):
    """The form of a result."""

    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"
    ARROW = "arrow"
    PARQUET = "parquet"


MEDIA: Mapping[Form, str] = {
    Form.JSON: "application/json",
    Form.NDJSON: "application/x-ndjson",
    Form.CSV: "text/csv",
    Form.ARROW: "application/vnd.apache.arrow.stream",
    Form.PARQUET: "application/vnd.apache.parquet",
}
"""The media type of each form."""


class Column(msgspec.Struct, frozen=True):
    """A column of a result."""

    name: str
    """The name of the column, as the statement has it. Two columns may have the same."""
    type: str
    """The type of the column, as Arrow names it."""


NOTES = "Headwater-Notes"
"""The header with what the caller should know about a result."""
MAX_HEADER = 4_096
"""Characters of a header. Versions that need more are left out; those of JSON are in the document too."""


def header_text(text: str) -> str:
    """A text as a header has it."""
    return " ".join(text.split()).encode("latin-1", "replace").decode("latin-1")[:MAX_HEADER]


class About(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a query before its first row."""

    query: str
    """The id of the query."""
    engine: str
    """The engine that answers."""
    reason: str
    """Why this engine, in a sentence."""
    versions: dict[str, int]
    """By topic, the version of its table that is shown."""
    columns: list[Column]
    """The columns of the result."""
    notes: list[str] = []
    """What the caller should know about the result, in sentences: such as why values are null."""


class Writer(ABC):
    """Writes a result in one form."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.count = 0
        """Rows that were written."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, {self.count} rows>"

    @abstractmethod
    def begin(self) -> bytes:
        """The bytes before the first row."""

    def parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """A batch in parts for `rows`, so that not too many rows are written at once."""
        for begin in range(0, batch.num_rows, SLICE_ROWS):
            yield batch.slice(begin, SLICE_ROWS)

    def rows(self, batch: pa.RecordBatch) -> bytes:
        """The bytes of some rows. There may be none yet."""
        data = self._rows(batch) if batch.num_rows else b""
        self.count += batch.num_rows
        return data

    @abstractmethod
    def _rows(self, batch: pa.RecordBatch) -> bytes:
        """See `rows`. `count` does not contain them yet."""

    @abstractmethod
    def end(self) -> bytes:
        """The bytes behind the last row of a whole result."""

    def failed(self, problem: bytes) -> bytes:
        """The last bytes of a result that is not whole; `problem` is a JSON document. Empty: the form has no way."""
        return b""


class JsonWriter(Writer):
    """One document: what is known, then `rows`, a list of lists; then `row_count`, or `error` if it is not whole."""

    def __init__(self, schema: pa.Schema, about: About) -> None:
        super().__init__(schema)
        self._about = about

    def begin(self) -> bytes:
        return JSON.encode(self._about)[:-1] + b',"rows":['

    def _rows(self, batch: pa.RecordBatch) -> bytes:
        rows = JSON.encode(rows_of(batch))[1:-1]
        return b"," + rows if self.count else rows

    def end(self) -> bytes:
        return b'],"row_count":%d}\n' % self.count

    def failed(self, problem: bytes) -> bytes:
        return b'],"error":%s}\n' % problem


class NdjsonWriter(Writer):
    """A line for each row, an object by the names of the columns. A result that is not whole ends with `error`."""

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(schema)
        self._names = unique(schema.names)

    def begin(self) -> bytes:
        return b""

    def _rows(self, batch: pa.RecordBatch) -> bytes:
        return JSON.encode_lines(objects_of(batch, self._names))

    def end(self) -> bytes:
        return b""

    def failed(self, problem: bytes) -> bytes:
        return b'{"error":%s}\n' % problem


class CsvWriter(Writer):
    """Values separated by commas, with a line of names first. Null is empty, an empty text is `""`."""

    def begin(self) -> bytes:
        return _line([_quoted(name) for name in self._schema.names])

    def _rows(self, batch: pa.RecordBatch) -> bytes:
        columns = [[_quoted(text) for text in texts_of(column)] for column in batch.columns]
        return b"".join(_line(row) for row in zip(*columns, strict=True))

    def end(self) -> bytes:
        return b""


def _line(cells: Iterable[str]) -> bytes:
    return (",".join(cells) + "\n").encode("utf-8", "surrogatepass")


def _quoted(text: str | None) -> str:
    if text is None:
        return ""
    if not text or any(char in text for char in _QUOTED):
        return '"' + text.replace('"', '""') + '"'
    return text


class ArrowWriter(Writer):
    """Arrow's stream format. A result that is not whole has no end."""

    def __init__(self, schema: pa.Schema) -> None:
        import pyarrow as pa

        super().__init__(schema)
        self._pieces = Pieces()
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._pieces, mode="w"), schema)

    def begin(self) -> bytes:
        return self._pieces.taken()

    def parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield batch

    def _rows(self, batch: pa.RecordBatch) -> bytes:
        self._writer.write_batch(batch)
        return self._pieces.taken()

    def end(self) -> bytes:
        self._writer.close()
        return self._pieces.taken()


class ParquetWriter(Writer):
    """A Parquet file. A result that is not whole has no footer, without which no reader takes it."""

    def __init__(self, schema: pa.Schema) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        named = pa.schema([f.with_name(name) for f, name in zip(schema, unique(schema.names), strict=True)])
        super().__init__(named)
        self._pieces = Pieces()
        self._writer = parquet.ParquetWriter(pa.PythonFile(self._pieces, mode="w"), named, compression="zstd")
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = 0

    def begin(self) -> bytes:
        return self._pieces.taken()

    def parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield batch

    def _rows(self, batch: pa.RecordBatch) -> bytes:
        import pyarrow as pa

        self._held.append(pa.RecordBatch.from_arrays(batch.columns, schema=self._schema))
        self._held_rows += batch.num_rows
        self._held_bytes += batch.nbytes
        if self._held_rows >= GROUP_ROWS or self._held_bytes >= GROUP_BYTES:
            self._group()
        return self._pieces.taken()

    def _group(self) -> None:
        import pyarrow as pa

        if self._held_rows:
            self._writer.write_table(pa.Table.from_batches(self._held, self._schema), row_group_size=GROUP_ROWS)
        self._held, self._held_rows, self._held_bytes = [], 0, 0

    def end(self) -> bytes:
        self._group()
        self._writer.close()
        return self._pieces.taken()


class Pieces:
    """A file for Arrow's writers: what was written and not taken yet."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._at = 0

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        """How many bytes were written so far."""
        return self._at

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Nothing is open."""

    def taken(self) -> bytes:
        """The bytes since the last call."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        return data


def columns_of(schema: pa.Schema) -> list[Column]:
    """The columns of a result, as they are shown."""
    return [Column(field.name, str(field.type)) for field in schema]


def writer_of(form: Form, schema: pa.Schema, about: About) -> Writer:
    """A writer of a form."""
    if form is Form.JSON:
        return JsonWriter(schema, about)
    kinds: Mapping[Form, type[Writer]] = {
        Form.NDJSON: NdjsonWriter,
        Form.CSV: CsvWriter,
        Form.ARROW: ArrowWriter,
        Form.PARQUET: ParquetWriter,
    }
    return kinds[form](schema)
