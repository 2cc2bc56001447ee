"""Segments: the Parquet files that hold a topic's settled records, for the log and for both table formats.

A segment holds rows of one or more streams of a topic, sorted by partition and offset. A row group holds rows of one
partition only, so an index entry can name row groups. Columns use plain encodings, because Iceberg's vectorised reader
in Spark accepts no others. Only columns that prune have statistics. The keys of each row group have a bloom filter.
pyarrow folds it to the number of keys that there are, so that small row groups have small filters. Typed columns are
behind those of the log, so the columns that serve records stay next to each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from headwater.errors import Damaged
from headwater.log.segment.bounds import Bounded, bounded, bounds_of
from headwater.log.segment.decode import Sizes, compile_kernels, decode_runs
from headwater.log.segment.digest import MASK, digest
from headwater.log.segment.read import check_footer
from headwater.log.segment.repeats import repeating
from headwater.log.segment.schema import segment_schema
from headwater.log.segment.typed import aligned, leaf_places, typed_schema
from headwater.state.commands.tables import Bounds
from headwater.types import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Piece", "SegmentFacts", "SegmentWriter", "Sink", "Sizes", "compile_kernels", "decode_runs", "read_pieces"]

GROUP_BYTES = 16 << 20
GROUP_ROWS = 100_000
"""A row group is closed before it exceeds these limits. Only a single larger record exceeds `GROUP_BYTES`."""

TYPED_BYTES = 4 * GROUP_BYTES
"""The same with typed columns, which consumers do not read."""

WRITE_BYTES = 1 << 20

PAGE_BYTES = 128 << 10
"""A page is compressed alone. Pages of this size stay in the processor's cache, and zstd makes them smaller than large
ones, because it looks for shorter repetitions in them."""

ERROR = "decode_error"
"""The typed column that says why a row could not be decoded."""

NONE = [-1, -1]

_SETTINGS: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "data_page_size": PAGE_BYTES,
    "use_dictionary": ["partition", "attributes", "producer_id", "producer_epoch"],
    "write_statistics": ["partition", "offset", "timestamp_ms", "timestamp", "key"],
    "write_page_checksum": True,
    "store_schema": False,
    "bloom_filter_options": {"key": {"ndv": GROUP_ROWS, "fpp": 0.01}},
}


class Sink(Protocol):
    """Where a segment's bytes go."""

    def write(self, data: bytes, /) -> object: ...


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """What a segment holds. Without rows, the borders are -1."""

    rows: int
    groups: int
    size: int
    first_partition: int
    last_partition: int
    first_offset: int
    last_offset: int
    min_timestamp: int
    max_timestamp: int
    timestamp_nulls: int
    digest: int
    """See `log/segment/digest.py`."""
    bounds: tuple[Bounds, ...]
    """Bounds of the key and of the indexed columns."""


class _CountingFile:
    """A sink with the interface that pyarrow needs. Closing it leaves the sink open."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.size = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        self._sink.write(data)
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class SegmentWriter:
    """Writes one segment, row group by row group, holding no more than one row group."""

    def __init__(self, sink: Sink, typed: Sequence[pa.Field] = (), index: Iterable[int] = ()) -> None:
        """`typed` are the typed columns, which the batches have behind those of the log.

        Those that `index` names by their field ids get statistics and bloom filters.
        """
        import pyarrow as pa

        self._file = _CountingFile(sink)
        self._typed = list(typed)
        self._errors = any(field.name == ERROR for field in typed)
        # A row group is dozens of small writes. The buffer gathers them, so that Python is not called for each.
        self._gathering = pa.BufferedOutputStream(pa.PythonFile(self._file, mode="w"), WRITE_BYTES)
        self._bounded = bounded(typed, index)
        self._unordered: set[int] = set()
        self._written: list[Any] = []
        self._parquet: Any = None
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = self._pending_typed = 0
        self._digest = 0
        self._groups = self._groups_before_part = self._rows = self._nulls = 0
        self._last = (-1, -1)
        self.newest = -1
        """The largest timestamp since the last `end_part`, or -1."""
        self.failures = 0
        """Rows that could not be decoded: those with an error in their typed columns."""
        self._partitions: list[int] = []
        self._offsets: list[int] = []
        self._timestamps: list[int] = []

    def __repr__(self) -> str:
        return f"<SegmentWriter {self._rows} rows, {self._groups} row groups, up to {self._last}>"

    def add(self, partition: int, batch: pa.RecordBatch) -> None:
        """Add rows of one partition, sorted by offset. They must come after all rows added before."""
        for start in range(0, batch.num_rows, GROUP_ROWS):
            self._add(partition, batch.slice(start, GROUP_ROWS))

    def _add(self, partition: int, batch: pa.RecordBatch) -> None:
        rows = batch.num_rows
        size, whole = _sizes(batch) if self._typed else (batch.nbytes, 0)
        offsets = batch.column("offset")
        first, last = offsets[0].as_py(), offsets[rows - 1].as_py()
        if (partition, first) <= self._last:
            raise Damaged(f"partition {partition}, offset {first} does not come after {self._last} in a segment")
        if self._pending and (
            partition != self._last[0]
            or self._pending_rows + rows > GROUP_ROWS
            or self._pending_bytes + size > GROUP_BYTES
            or self._pending_typed + whole > TYPED_BYTES
        ):
            self._flush()
        self._note(partition, first, last, batch)
        self._pending.append(batch)
        self._pending_rows += rows
        self._pending_bytes += size
        self._pending_typed += whole

    def _note(self, partition: int, first: int, last: int, batch: pa.RecordBatch) -> None:
        """Add a batch to the facts of the segment."""
        from pyarrow import compute

        times = compute.min_max(batch.column("timestamp_ms")).as_py()
        self._partitions = [min([partition, *self._partitions]), partition]
        self._offsets = [min([first, *self._offsets]), max([last, *self._offsets])]
        self._timestamps = [min([times["min"], *self._timestamps]), max([times["max"], *self._timestamps])]
        self.newest = max(self.newest, times["max"])
        self._nulls += batch.column("timestamp").null_count
        self._rows += batch.num_rows
        self._digest = self._digest + digest(batch) & MASK
        self._last = (partition, last)
        if self._errors:
            self.failures += batch.num_rows - batch.column(ERROR).null_count
        self._unordered.update(one.column for one in self._bounded if one.has_nan(batch))

    def _flush(self) -> None:
        """Write the pending rows as a row group."""
        import pyarrow as pa

        if not self._pending:
            return
        self._opened().write_table(pa.Table.from_batches(self._pending), row_group_size=self._pending_rows)
        self._groups += 1
        self._pending, self._pending_rows, self._pending_bytes, self._pending_typed = [], 0, 0, 0

    def _opened(self) -> Any:
        """The file's writer. It begins with the first row group, whose rows say which texts repeat."""
        from pyarrow import parquet

        if self._parquet is None:
            texts = repeating(self._pending, self._typed)
            settings = _settings(self._typed, self._bounded, texts)
            self._parquet = parquet.ParquetWriter(
                self._gathering, typed_schema(self._typed), metadata_collector=self._written, **settings
            )
        return self._parquet

    def end_part(self) -> tuple[int, int]:
        """Close the row group; returns (first, number) of the row groups since the last call."""
        self._flush()
        self.newest = -1
        first, self._groups_before_part = self._groups_before_part, self._groups
        return first, self._groups - first

    def close(self) -> SegmentFacts:
        """Write the footer; returns what the segment holds. The sink stays open."""
        self._flush()
        self._opened().close()
        self._gathering.close()
        bounds = bounds_of(self._written[0], self._bounded, self._unordered) if self._groups else ()
        partitions, offsets, times = (self._partitions or NONE), (self._offsets or NONE), (self._timestamps or NONE)
        return SegmentFacts(
            self._rows, self._groups, self._file.size, partitions[0], partitions[1], offsets[0], offsets[1],
            times[0], times[1], self._nulls, self._digest, bounds,
        )  # fmt: skip


def _settings(typed: Sequence[pa.Field], index: Iterable[Bounded], texts: Sequence[str]) -> dict[str, Any]:
    """The settings of the file's writer. `texts` get dictionaries."""
    if not typed:
        return _SETTINGS
    filters = _SETTINGS["bloom_filter_options"]
    return {
        **_SETTINGS,
        "use_dictionary": [*_SETTINGS["use_dictionary"], *texts],
        "write_statistics": [*_SETTINGS["write_statistics"], *(one.path for one in index)],
        "bloom_filter_options": {**filters, **{one.path: filters["key"] for one in index if one.has_filter}},
    }


def _sizes(batch: pa.RecordBatch) -> tuple[int, int]:
    """The bytes of the log's columns, and of all."""
    log = len(segment_schema())
    own = sum(batch.column(i).nbytes for i in range(log))
    return own, own + sum(batch.column(i).nbytes for i in range(log, batch.num_columns))


class Piece:
    """One row group of a segment in memory, with all its columns."""

    def __init__(self, file: Any, group: int, partition: int, first_offset: int) -> None:
        self._file = file
        self._group = group
        self.partition = partition
        self.first_offset = first_offset

    def __repr__(self) -> str:
        return f"<Piece: row group {self._group}, partition {self.partition} from offset {self.first_offset}>"

    def check_typed(self) -> None:
        """Decode the typed columns, so that damage of them is found."""
        import pyarrow as pa

        try:
            places = leaf_places(self._file.schema_arrow)
            log = segment_schema().names
            chosen = [leaf for name, leaves in places.items() if name not in log for leaf in leaves]
            if chosen:
                self._file.reader.read_row_group(self._group, column_indices=chosen, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise Damaged(f"typed columns of row group {self._group} cannot be read: {error}") from error

    def batches(self, typed: Sequence[pa.Field] = ()) -> Iterator[pa.RecordBatch]:
        """The rows of the row group: columns of the log, then typed ones as far as it has them."""
        import pyarrow as pa

        log, schema = segment_schema(), typed_schema(typed)
        try:
            places = leaf_places(self._file.schema_arrow)
            known = set(places)
            if not known.issuperset(log.names):
                raise Damaged(f"row group {self._group} has other columns than a segment")
            wanted = [*log.names, *(field.name for field in typed if field.name in known)]
            chosen = [leaf for name in wanted for leaf in places[name]]
            # By number: pyarrow takes "value.x" for a part of "value", even if it is a column of its own.
            table = self._file.reader.read_row_group(self._group, column_indices=chosen, use_threads=False)
            if not table.select(log.names).schema.equals(log):
                raise Damaged(f"row group {self._group} has other columns than a segment")
            for batch in table.to_batches():
                extra = [
                    aligned(batch.column(field.name), field.type)
                    if field.name in known
                    else pa.nulls(batch.num_rows, field.type)
                    for field in typed
                ]
                yield pa.RecordBatch.from_arrays([*(batch.column(name) for name in log.names), *extra], schema=schema)
        except (pa.ArrowException, OSError) as error:
            raise Damaged(f"row group {self._group} of a segment cannot be read: {error}") from error


def read_pieces(data: Buffer, checksum: int) -> list[Piece]:
    """The row groups of a whole segment, in its order. Page and footer checksums are verified."""
    import pyarrow as pa
    from pyarrow import parquet

    check_footer(data, checksum)
    try:
        file = parquet.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    except (pa.ArrowException, OSError) as error:
        raise Damaged(f"a segment's footer cannot be read: {error}") from error
    return [Piece(file, i, *_first_row(group)) for i, group in enumerate(groups)]


def _first_row(group: Any) -> tuple[int, int]:
    """Partition and first offset of a row group, from its statistics."""
    partition, offset = group.column(0).statistics, group.column(1).statistics
    if partition is None or offset is None or partition.min != partition.max:
        raise Damaged("a row group without statistics, or of several partitions")
    return partition.min, offset.min
