"""A topic as a stream of Spark: batches by offsets, which Spark keeps in the checkpoint of the query.

The offsets of a batch are in the checkpoint before it is read, and the same offsets give the same rows. So a batch that
is repeated after a crash is the same batch, and a sink that knows batches by their number writes each row once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from headwater.errors import BadInput
from headwater.query.wanted import Wanted
from headwater.sdk.connection import TopicInfo
from headwater.spark.options import Options
from headwater.spark.parts import Part, read_part
from headwater.spark.places import Places, limited

if TYPE_CHECKING:
    import pyarrow as pa

LOST = "With the option failOnDataLoss=false the stream goes on with what is left."


class TopicStream(DataSourceStreamReader):
    """Plans the batches of a stream. Spark keeps one while a query runs, and calls its methods one after the other."""

    def __init__(self, own: Options, columns: pa.Schema) -> None:
        self._own = own
        self._columns = columns
        self._at: Places | None = None
        """The end of the last batch that Spark has planned; None before the first one."""
        self._begin: Places | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins."""
        return self._first(self._look()).document()

    def latestOffset(self) -> dict[str, Any]:
        """Where the next batch ends: the end of the topic, or less if a batch has a limit.

        The first batch of a stream that begins at the end is empty. That brings its beginning into the checkpoint.
        Otherwise a crash in the first batch would move the beginning to a later end.
        """
        info = self._look()
        ends = self._chosen({line.partition: line.stable for line in info.partitions})
        at = self._at
        if at is None:
            at = self._first(info)
            if self._own.from_end:
                return at.document()
        start = self._checked(at, info)
        return Places(info.id, limited(start.offsets, ends, self._own.max_rows)).document()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The parts of a batch. Spark also calls this to tell where a query goes on: then both are the same."""
        first, last = Places.of(start), Places.of(end)
        self._at = last
        if first == last:
            return []
        info = self._look()
        if last.topic != info.id:
            raise BadInput(
                f"the topic {info.name!r} was deleted and created again while a batch was planned: try again"
            )
        first = self._checked(first, info)
        stable = {line.partition: line.stable for line in info.partitions}
        ranges = {
            number: (first.offsets.get(number, 0), until)
            for number, until in last.offsets.items()
            if first.offsets.get(number, 0) < until
        }
        if not ranges:
            return []
        begins = {number: begin for number, (begin, _) in ranges.items()}
        kept = begins if self._own.fail_on_loss else {}
        for number, (_, until) in ranges.items():
            if self._own.fail_on_loss and stable.get(number, 0) < until:
                raise BadInput(f"partition {number} of {info.name!r} ends before offset {until}. {LOST}")
        wanted = Wanted(
            partitions=list(ranges),
            from_offsets=begins,
            until_offsets={number: until for number, (_, until) in ranges.items()},
            kept=kept,
        )
        with self._own.connected() as connection:
            plan = connection.plan(self._own.topic, wanted, self._own.split_bytes)
        return [Part(part, {number: kept[number] for number in part if number in kept}) for part in plan.parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part, as Arrow batches."""
        assert partition is None or isinstance(partition, Part)
        return read_part(self._own, self._columns, partition)

    # --- places ----------------------------------------------------------------------------------------

    def _look(self) -> TopicInfo:
        with self._own.connected() as connection:
            return connection.describe(self._own.topic)

    def _chosen(self, offsets: Mapping[int, int]) -> dict[int, int]:
        """The partitions that the options choose. Raises `BadInput` for one that does not exist."""
        for number in (*(self._own.partitions or ()), *self._own.start.by_partition):
            if number not in offsets:
                raise BadInput(f"the topic has no partition {number}: it has 0 to {len(offsets) - 1}")
        chosen = offsets if self._own.partitions is None else self._own.partitions
        return {number: offsets[number] for number in chosen}

    def _first(self, info: TopicInfo) -> Places:
        """Where a query begins that has no checkpoint. It is the same however often it is asked for."""
        if self._begin is None:
            stable = self._chosen({line.partition: line.stable for line in info.partitions})
            start = self._own.start
            begin = {
                number: end if self._own.from_end else min(start.of(number), end) for number, end in stable.items()
            }
            if not self._own.from_end and begin and not start.by_partition and not start.alone:
                begin = self._left(begin)
            self._begin = Places(info.id, begin)
        return self._begin

    def _left(self, begin: Mapping[int, int]) -> dict[int, int]:
        """The earliest offsets that retention has left."""
        with self._own.connected() as connection:
            wanted = Wanted(partitions=list(begin))
            kept = connection.plan(self._own.topic, wanted, self._own.split_bytes).kept
        return {number: kept.get(number, offset) for number, offset in begin.items()}

    def _checked(self, at: Places, info: TopicInfo) -> Places:
        """The place in the topic that there is now."""
        if at.topic == info.id:
            return at
        if self._own.fail_on_loss:
            raise BadInput(f"the topic {info.name!r} was deleted and created again since the last batch. {LOST}")
        return Places(info.id, {})
