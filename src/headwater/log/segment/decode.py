"""From WAL runs to rows: Kafka batches as producers sent them become Arrow record batches of a segment.

The compiled loops are in `log/kernels/decode.py`. This module has the columns that they fill, and decompresses batches.
Memory is bounded by the size of a piece, whatever the size of the runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from headwater.errors import BadInput, Damaged
from headwater.log.segment.schema import segment_schema
from headwater.types import Buffer
from headwater.wire.codecs import decompress

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    Array: TypeAlias = npt.NDArray[Any]

Run: TypeAlias = tuple[Buffer, int, int]
"""Bytes of a WAL object, the offset of the first record in them, and the log-append time or -1."""

AbortedRange: TypeAlias = tuple[int, int, int]
"""An aborted transaction: producer id, offset of the first record, offset of the marker."""

JOINED_BYTES = 1 << 20
"""Small runs are joined up to this size, so that a run with a single record costs little."""

_SMALLEST = 1 << 10
_GROWING = 7
"""Columns that grow on their own; `log/kernels/decode.py` numbers them."""
_NUMBERS = 64


class Sizes:
    """The fill of the columns of the last piece. A similar piece with that much room does not have to grow."""

    def __init__(self) -> None:
        self.columns = [_SMALLEST] * _GROWING

    def note(self, used: list[int], limit: int) -> None:
        """Expect a sixteenth more for the next piece."""
        self.columns = [min(max(_SMALLEST, count + (count >> 4)), limit) for count in used]


def decode_runs(
    partition: int,
    runs: Iterable[Run],
    first_offset: int,
    opened_limit: int,
    sizes: Sizes | None = None,
    aborted: Sequence[AbortedRange] = (),
) -> Iterator[pa.RecordBatch]:
    """The rows of runs that rise by offset, from `first_offset` on, in pieces of bounded size.

    Records of `aborted` transactions are left out. The transactions of one producer must not overlap. A compressed
    batch may decompress to at most `opened_limit` bytes. An invalid run raises `Damaged`. Callers that decode
    similar rows several times pass the same `sizes` to each call.
    """
    return _Decoder(partition, first_offset, opened_limit, sizes or Sizes(), aborted).decode(runs)


def compile_kernels() -> None:
    """Compile the loops, or load them if they are in numba's cache. Takes seconds the first time."""
    for _ in decode_runs(0, [(b"", 0, -1)], 0, 0):
        pass
    from headwater.log.kernels import decode as kernels

    columns = _Columns(0, [1] * _GROWING)
    kernels.fill_records(_readonly(b""), columns.places, columns.state)


def _readonly(data: Buffer) -> Array:
    """Bytes as a read-only array: the compiled loops accept only this one type."""
    import numpy as np

    array = np.frombuffer(data, dtype=np.uint8)
    array.flags.writeable = False
    return array


class _Columns:
    """The columns of one piece, as arrays that grow."""

    def __init__(self, partition: int, sizes: list[int]) -> None:
        import numpy as np

        from headwater.log.kernels import decode as kernels

        self._partition = partition
        self.state = np.zeros(kernels.STATE_NUMBERS, dtype=np.int64)
        rows = _rounded(sizes[kernels.ROW_COLUMN])
        self.longs = np.empty((4, rows), dtype=np.int64)
        self.ints = np.empty((3, rows), dtype=np.int32)
        self.borders = np.zeros((4, rows + kernels.SPARE), dtype=np.int32)
        self.flags = np.empty((4, rows), dtype=np.uint8)
        self.bytes = [np.empty(size, dtype=np.uint8) for size in sizes[kernels.KEY_COLUMN : kernels.HEADER_COLUMN]]
        headers = _rounded(sizes[kernels.HEADER_COLUMN])
        self.header_borders = np.zeros((2, headers + kernels.SPARE), dtype=np.int32)
        self.header_flags = np.empty(headers, dtype=np.uint8)
        self.places = np.zeros(kernels.PLACE_NUMBERS, dtype=np.int64)
        """Where the arrays are, for the compiled loops."""
        self._note_places()

    def _note_places(self) -> None:
        from headwater.log.kernels import decode as kernels

        rows: list[Array] = [self.longs, self.ints, self.borders, self.flags]
        arrays = [*rows, *self.bytes, self.header_borders, self.header_flags]
        rooms = (self.ints.shape[1], *map(len, self.bytes), len(self.header_flags))
        self.places[: kernels.ROOMS] = [array.ctypes.data for array in arrays]
        self.places[kernels.ROOMS :] = rooms

    def grow(self) -> None:
        """Make room in the column that the loops have noted in `state`."""
        from headwater.log.kernels import decode as kernels

        column, wanted = int(self.state[kernels.COLUMN]), int(self.state[kernels.WANTED])
        if column == kernels.ROW_COLUMN:
            rows = _rounded(min(2 * wanted, kernels.MAX_ROWS))
            self.longs, self.ints = _widened(self.longs, rows), _widened(self.ints, rows)
            self.borders, self.flags = _widened(self.borders, rows + kernels.SPARE), _widened(self.flags, rows)
        elif column == kernels.HEADER_COLUMN:
            headers = _rounded(_roomy(wanted, kernels.MAX_PIECE_BYTES // kernels.HEADER_BYTES))
            self.header_borders = _widened(self.header_borders, headers + kernels.SPARE)
            self.header_flags = _widened(self.header_flags, headers)
        else:
            i = column - kernels.KEY_COLUMN
            self.bytes[i] = _widened(self.bytes[i], _roomy(wanted, kernels.MAX_PIECE_BYTES))
        self._note_places()

    def used(self) -> list[int]:
        """How much of each column is filled, in the order of `Sizes`."""
        from headwater.log.kernels import decode as kernels

        return [int(number) for number in self.state[: kernels.HEADERS + 1]]

    def batch(self) -> pa.RecordBatch:
        """The rows, without a copy: the arrays must not be written afterwards."""
        import numpy as np
        import pyarrow as pa

        from headwater.log.kernels import decode as kernels

        state, schema = self.state, segment_schema()
        rows = int(state[kernels.ROWS])

        def fixed(name: str, numbers: Array, valid: pa.Buffer | None = None, nulls: int = 0) -> pa.Array:
            return pa.Array.from_buffers(schema.field(name).type, rows, [valid, pa.py_buffer(numbers[:rows])], nulls)

        def blobs(kind: pa.DataType, count: int, which: int, borders: Array, nulls: int, valid: Any) -> pa.Array:
            data = pa.py_buffer(self.bytes[which][: borders[count]])
            return pa.Array.from_buffers(kind, count, [valid, pa.py_buffer(borders[: count + 1]), data], nulls)

        null_times, null_keys, null_values, null_headers, null_contents = (
            int(n) for n in state[kernels.NULL_TIMES : kernels.PIECE_NUMBERS]
        )
        raw_flags = 1 - self.flags[3, :rows] if rows > null_headers > 0 else None
        raw_valid = _bits(raw_flags, rows, rows - null_headers) if raw_flags is not None else None
        if null_headers == 0:
            raw_valid = pa.py_buffer(np.zeros(rows + 7 >> 3, dtype=np.uint8))
        return pa.RecordBatch.from_arrays(
            [
                pa.array(np.full(rows, self._partition, dtype=np.int32)),
                fixed("offset", self.longs[0]),
                fixed("timestamp_ms", self.longs[1]),
                fixed("timestamp", self.longs[2], _bits(self.flags[0], rows, null_times), null_times),
                blobs(pa.binary(), rows, 0, self.borders[0], null_keys, _bits(self.flags[1], rows, null_keys)),
                blobs(pa.binary(), rows, 1, self.borders[1], null_values, _bits(self.flags[2], rows, null_values)),
                self._headers(schema.field("headers").type, rows, null_headers, null_contents, blobs),
                blobs(pa.binary(), rows, 2, self.borders[3], rows - null_headers, raw_valid),
                fixed("attributes", self.ints[0]),
                fixed("producer_id", self.longs[3]),
                fixed("producer_epoch", self.ints[1]),
                fixed("sequence", self.ints[2]),
            ],
            schema=schema,
        )

    def _headers(self, kind: pa.DataType, rows: int, nulls: int, null_contents: int, blobs: Any) -> pa.Array:
        import pyarrow as pa

        element = kind.value_type
        count = int(self.borders[2, rows])
        names = blobs(pa.string(), count, 3, self.header_borders[0], 0, None)
        valid = _bits(self.header_flags, count, null_contents)
        contents = blobs(pa.binary(), count, 4, self.header_borders[1], null_contents, valid)
        pairs = pa.Array.from_buffers(element, count, [None], 0, children=[names, contents])
        borders = pa.py_buffer(self.borders[2][: rows + 1])
        return pa.Array.from_buffers(kind, rows, [_bits(self.flags[3], rows, nulls), borders], nulls, children=[pairs])


def _bits(flags: Array, count: int, nulls: int) -> pa.Buffer | None:
    """A validity bitmap, or None if nothing is null."""
    import numpy as np
    import pyarrow as pa

    return pa.py_buffer(np.packbits(flags[:count], bitorder="little")) if nulls else None


def _rounded(count: int) -> int:
    """A number of rows that keeps every column of a two-dimensional array aligned."""
    return -(-max(count, 1) // _NUMBERS) * _NUMBERS


def _roomy(wanted: int, limit: int) -> int:
    """Twice what is needed, but at most `limit`. Only a single large record may exceed the limit."""
    return max(wanted, min(2 * wanted, limit))


def _widened(array: Array, width: int) -> Array:
    """The array with a longer last dimension."""
    import numpy as np

    wider = np.zeros((*array.shape[:-1], width), dtype=array.dtype)
    wider[..., : array.shape[-1]] = array
    return wider


class _Decoder:
    """The state of one `decode_runs`."""

    def __init__(
        self, partition: int, first_offset: int, opened_limit: int, sizes: Sizes, aborted: Sequence[AbortedRange]
    ) -> None:
        import numpy as np

        from headwater.log.kernels import decode as segment_kernels

        self._kernels = segment_kernels
        self._partition = partition
        self._opened_limit = opened_limit
        self._sizes = sizes
        self._aborted = np.array(sorted(aborted), dtype=np.int64).reshape(-1, segment_kernels.ABORTED_NUMBERS)
        self._columns = _Columns(partition, sizes.columns)
        self._columns.state[segment_kernels.FIRST_OFFSET] = first_offset

    def decode(self, runs: Iterable[Run]) -> Iterator[pa.RecordBatch]:
        for group in _joined(runs):
            yield from self._group(group)
        if self._columns.state[self._kernels.ROWS]:
            yield self._piece()

    def _group(self, runs: list[Run]) -> Iterator[pa.RecordBatch]:
        """Decode all batches of some runs. Compressed batches are decompressed one at a time."""
        import numpy as np

        kernels, state = self._kernels, self._columns.state
        joined = runs[0][0] if len(runs) == 1 else b"".join(run[0] for run in runs)
        data = _readonly(joined)
        ends = np.cumsum([len(run[0]) for run in runs])
        table = np.array([(end, run[1], run[2]) for end, run in zip(ends, runs, strict=True)], dtype=np.int64)
        if runs[0][1] < state[kernels.OFFSET]:
            raise Damaged(f"a run that starts at offset {runs[0][1]} comes before {state[kernels.OFFSET]}")
        state[kernels.RUN], state[kernels.AT], state[kernels.OFFSET] = 0, 0, runs[0][1]
        while (status := self._fill_batches(data, table)) != kernels.DONE:
            if status != kernels.OPEN:
                yield from self._settle(status)
                continue
            opened = self._opened(data)
            while (status := self._fill_records(opened)) != kernels.DONE:
                yield from self._settle(status)

    def _fill_batches(self, data: Array, table: Array) -> int:
        columns = self._columns
        return int(self._kernels.fill_batches(data, table, self._aborted, columns.places, columns.state))

    def _fill_records(self, opened: Array) -> int:
        return int(self._kernels.fill_records(opened, self._columns.places, self._columns.state))

    def _settle(self, status: int) -> Iterator[pa.RecordBatch]:
        """Handle the reason why the loops stopped: a full column grows, a full piece is returned, a flaw is raised."""
        kernels, columns = self._kernels, self._columns
        if status == kernels.GROW:
            columns.grow()
            return
        if status != kernels.FULL:
            offset = int(columns.state[kernels.OFFSET])
            raise Damaged(f"partition {self._partition} before offset {offset}: {kernels.FLAWS[status]}")
        yield self._piece()
        self._columns = _Columns(self._partition, self._sizes.columns)
        self._columns.state[kernels.PIECE_NUMBERS :] = columns.state[kernels.PIECE_NUMBERS :]

    def _piece(self) -> pa.RecordBatch:
        self._sizes.note(self._columns.used(), self._kernels.MAX_PIECE_BYTES)
        return self._columns.batch()

    def _opened(self, data: Array) -> Array:
        """The decompressed records of the batch in `state`. The positions in `state` then refer to these bytes."""
        kernels, state = self._kernels, self._columns.state
        packed = data[int(state[kernels.POSITION]) : int(state[kernels.END])].data
        try:
            opened = _readonly(decompress(int(state[kernels.CODEC]), packed, self._opened_limit))
        except BadInput as error:
            offset = int(state[kernels.BASE])
            raise Damaged(f"partition {self._partition}, the batch at offset {offset}: {error}") from error
        state[kernels.POSITION], state[kernels.END] = 0, len(opened)
        return opened


def _joined(runs: Iterable[Run]) -> Iterator[list[Run]]:
    """Runs in groups of at least `JOINED_BYTES`; the last group may be smaller."""
    group: list[Run] = []
    size = 0
    for run in runs:
        group.append(run)
        size += len(run[0])
        if size >= JOINED_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
