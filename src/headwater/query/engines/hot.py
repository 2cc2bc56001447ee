"""Rows that are in the WAL, for the processes of engines: decoded by the loops that settling uses, and kept.

A piece is a few runs of a stream, about a megabyte. Pieces of the next query are mostly those of the last one, so they
are kept up to a limit, those that were used longest ago go first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from headwater.lake.tasks import StreamPart, WalRun
from headwater.log.wal.runs import load_runs
from headwater.objects import ObjectStore
from headwater.query.scan import decoded, grouped, part_of, schema_of

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_BYTES = 1 << 20
"""A piece ends with the run that brings it to this many bytes in the WAL."""
PIECE_RUNS = 512
RUN_BYTES = 256
"""What a run counts beside its rows: a piece may have none."""

_Key: TypeAlias = tuple[int, int, int, tuple[WalRun, ...], tuple[tuple[int, int, int], ...]]


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

    async def pieces(self, parts: Iterable[StreamPart]) -> AsyncIterator[pa.Table]:
        """The rows of parts in the columns of `schema_of()`, piece by piece, in no particular order.

        Raises `SnapshotGone` for a missing object and `CorruptObject` for what cannot be read; never fewer rows.
        """
        missing: list[tuple[_Key, StreamPart]] = []
        for part in parts:
            for piece in _cut(part):
                key = _key(piece)
                found = self._kept.get(key)
                if found is None:
                    missing.append((key, piece))
                    continue
                self._kept.move_to_end(key)
                yield found
        async for table in self._decode(missing):
            yield table

    async def _decode(self, missing: Sequence[tuple[_Key, StreamPart]]) -> AsyncIterator[pa.Table]:
        import pyarrow as pa

        schema = schema_of()
        begun: dict[int, list[pa.RecordBatch]] = {}
        left = [len(piece.runs) for _, piece in missing]
        for group in grouped([piece for _, piece in missing]):
            loaded = await load_runs(self._store, [run for _, part in group for run in part.runs])
            for i, part in group:
                rows = begun.setdefault(i, [])
                rows += decoded(part, loaded)
                left[i] -= len(part.runs)
                if not left[i]:
                    del begun[i]
                    table = pa.Table.from_batches(rows).cast(schema) if rows else schema.empty_table()
                    self.decoded += 1
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


def _key(piece: StreamPart) -> _Key:
    return piece.stream, piece.start, piece.end, tuple(piece.runs), tuple(piece.aborted)
