"""What a task of Spark reads: ranges of offsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from headwater.log.segment.schema import segment_schema
from headwater.log.segment.typed import aligned
from headwater.query.wanted import Wanted
from headwater.spark.options import Options

if TYPE_CHECKING:
    import pyarrow as pa


class Part(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: Mapping[int, tuple[int, int]], kept: Mapping[int, int]) -> None:
        super().__init__(None)
        self.ranges = ranges
        """By partition, the first offset and the one behind the last."""
        self.kept = kept
        """By partition, the offset from which on no row may have been removed meanwhile."""


def read_part(own: Options, columns: pa.Schema, part: Part | None) -> Iterator[pa.RecordBatch]:
    """The rows of a part. Spark gives None if there are no parts.

    The table may have got columns and fields since the columns were planned. Those are left out.
    """
    if part is None:
        return
    wanted = Wanted(
        partitions=list(part.ranges),
        from_offsets={number: first for number, (first, _) in part.ranges.items()},
        until_offsets={number: end for number, (_, end) in part.ranges.items()},
        from_ms=own.from_ms,
        until_ms=own.until_ms,
        version=own.version,
        kept=part.kept,
    )
    with own.connected() as connection:
        for batch in connection.scan_wanted(own.topic, wanted, columns.names).to_batches():
            yield _planned(batch, columns)


def _planned(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Rows in the types that Spark has planned with, if they are typed columns."""
    import pyarrow as pa

    log = set(segment_schema().names)
    if log.issuperset(columns.names):
        return batch
    pairs = zip(batch.columns, columns, strict=True)
    arrays = [array if field.name in log else aligned(array, field.type) for array, field in pairs]
    return pa.RecordBatch.from_arrays(arrays, names=columns.names)
