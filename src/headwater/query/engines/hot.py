"""Rows that are in the WAL, for the processes of engines: decoded by the loops that settling uses, and kept.

A piece is a few runs of a stream, about a megabyte. Pieces of the next query are mostly those of the last one, so they
are kept up to a limit, those that were used longest ago go first. Typed columns are kept with the rows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from headwater.lake.tasks import StreamPart, WalRun
from headwater.log.wal.runs import load_runs
from headwater.objects import ObjectStore
from headwater.query.scan import decoded, grouped, part_of, schema_of
from headwater.query.typed import HotTyper, SchemasMissing
from headwater.schemas.conform import arrow_fields
from headwater.schemas.typing import Typing
from headwater.state.commands.columns import Column

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_BYTES = 1 << 20
"""A piece ends with the run that brings it to this many bytes in the WAL."""
PIECE_RUNS = 512
RUN_BYTES = 256
"""What a run counts beside its rows: a piece may have none."""

_Key: TypeAlias = tuple[int, int, int, tuple[WalRun, ...], tuple[tuple[int, int, int], ...], bytes]


class HotRows:
    """Decodes runs of the WAL, and keeps what it has decoded."""

    def __init__(self, store: ObjectStore, kept_bytes: int) -> None:
        self._store = store
        self._limit = kept_bytes
        self._kept: OrderedDict[_Key, pa.Table] = OrderedDict()
        self._size = 0
        self.decoded = 0
        """Pieces that were decoded, not found."""

    def __repr__(self) -> str:
        return f"<HotRows: {len(self._kept)} pieces, {self._size} bytes>"

    async def pieces(
        self, parts: Iterable[StreamPart], columns: Sequence[Column] = (), typing: Typing | None = None, view: str = ""
    ) -> AsyncIterator[pa.Table]:
        """The rows of parts in the columns of `hot_schema(columns)`, piece by piece, in no particular order.

        `typing` says how the typed columns are made, which are then those of `columns`; without it they are null.
        Raises `SnapshotGone` for a missing object and `Damaged` for what cannot be read; never fewer rows. Behind
        the last piece it raises `SchemasMissing`, for the table `view`, if rows name schemas that `typing` lacks.
        """
        typer = HotTyper(typing) if typing is not None else None
        token = typer.token if typer is not None else b""
        missing: list[tuple[_Key, StreamPart]] = []
        for part in parts:
            for piece in _cut(part):
                key = _key(piece, token)
                found = self._kept.get(key)
                if found is None:
                    missing.append((key, piece))
                    continue
                self._kept.move_to_end(key)
                yield _whole(found, columns)
        async for table in self._decode(missing, typer):
            yield _whole(table, columns)
        if typer is not None and typer.missing:
            raise SchemasMissing(typer.missing, view)

    async def _decode(
        self, missing: Sequence[tuple[_Key, StreamPart]], typer: HotTyper | None
    ) -> AsyncIterator[pa.Table]:
        import pyarrow as pa

        schema = pa.schema([*schema_of(), *(typer.fields if typer is not None else ())])
        begun: dict[int, list[pa.RecordBatch]] = {}
        left = [len(piece.runs) for _, piece in missing]
        for group in grouped([piece for _, piece in missing]):
            loaded = await load_runs(self._store, [run for _, part in group for run in part.runs])
            for i, part in group:
                rows = begun.setdefault(i, [])
                found = decoded(part, loaded)
                rows += found if typer is None else map(typer.typed, found)
                left[i] -= len(part.runs)
                if not left[i]:
                    del begun[i]
                    table = pa.Table.from_batches(rows).cast(schema) if rows else schema.empty_table()
                    self.decoded += 1
                    if typer is None or not typer.missing:
                        self._keep(missing[i][0], table)
                    yield table

    def _keep(self, key: _Key, table: pa.Table) -> None:
        size = _size(key, table)
        if size > self._limit or key in self._kept:
            return
        self._kept[key] = table
        self._size += size
        while self._size > self._limit:
            self._size -= _size(*self._kept.popitem(last=False))


def hot_schema(columns: Sequence[Column]) -> pa.Schema:
    """The columns of rows: those of the log, and typed ones."""
    import pyarrow as pa

    return pa.schema([*schema_of(), *arrow_fields(columns)])


def _whole(table: pa.Table, columns: Sequence[Column]) -> pa.Table:
    """Rows with typed columns; with nulls in them unless they have them already."""
    import pyarrow as pa

    schema = hot_schema(columns)
    if table.num_columns == len(schema):
        return table
    nulls = [pa.nulls(table.num_rows, field.type) for field in list(schema)[table.num_columns :]]
    return pa.Table.from_arrays([*table.columns, *nulls], schema=schema)


def _size(key: _Key, table: pa.Table) -> int:
    runs: tuple[WalRun, ...] = key[3]
    return int(table.nbytes) + RUN_BYTES * len(runs)


def _cut(part: StreamPart) -> Iterator[StreamPart]:
    runs: list[WalRun] = []
    size = 0
    for run in part.runs:
        runs.append(run)
        size += run.length
        if size >= PIECE_BYTES or len(runs) >= PIECE_RUNS:
            yield part_of(part, runs)
            runs, size = [], 0
    if runs:
        yield part_of(part, runs)


def _key(piece: StreamPart, token: bytes) -> _Key:
    return piece.stream, piece.start, piece.end, tuple(piece.runs), tuple(piece.aborted), token
