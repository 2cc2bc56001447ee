"""The data source of Spark: a topic as rows, in input partitions that executors read side by side.

Planning takes the offsets at which every partition ends. Executors read up to those, whatever is appended meanwhile. So
all of them see the same moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from headwater.query.scan import schema_of
from headwater.spark.options import Options, checked_columns, options_of
from headwater.spark.parts import Part, read_part
from headwater.spark.streaming import TopicStream

if TYPE_CHECKING:
    import pyarrow as pa


class HeadwaterSource(DataSource):
    """The format `headwater`."""

    @classmethod
    def name(cls) -> str:
        return "headwater"

    def schema(self) -> StructType:
        """The columns of the topic's tables. Raises `NotFound` if there is no such topic."""
        own = options_of(self.options)
        with own.connected() as connection:
            connection.describe(own.topic)
        return from_arrow_schema(schema_of())

    def reader(self, schema: StructType) -> DataSourceReader:
        return TopicReader(options_of(self.options, streaming=False), _columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return TopicStream(options_of(self.options, streaming=True), _columns(schema))


def _columns(schema: StructType) -> list[str]:
    return checked_columns(schema.names, [field.type for field in to_arrow_schema(schema)])


class TopicReader(DataSourceReader):
    """Reads the rows of one moment."""

    def __init__(self, own: Options, columns: Sequence[str]) -> None:
        self._own = own
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """The parts, by the offsets that the topic has now."""
        with self._own.connected() as connection:
            plan = connection.plan(self._own.topic, self._own.wanted, self._own.split_bytes)
        known = {} if self._own.version is not None else plan.kept
        return [Part(ranges, {number: known[number] for number in ranges if number in known}) for ranges in plan.parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part, as Arrow batches."""
        assert partition is None or isinstance(partition, Part)
        return read_part(self._own, self._columns, partition)
