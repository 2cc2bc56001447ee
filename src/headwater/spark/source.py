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
from headwater.query.wanted import Wanted
from headwater.spark.options import Options, checked, options_of
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
        """The columns of the topic's tables, the typed ones too. Raises `NotFound` if there is no such topic."""
        return from_arrow_schema(_columns(options_of(self.options)))

    def reader(self, schema: StructType) -> DataSourceReader:
        own = options_of(self.options, streaming=False)
        return TopicReader(own, _chosen(own, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        own = options_of(self.options, streaming=True)
        return TopicStream(own, _chosen(own, schema))


def _columns(own: Options) -> pa.Schema:
    """The columns that a topic has now, or at the version of the options."""
    with own.connected() as connection:
        return connection.scan_wanted(own.topic, Wanted(version=own.version), None).schema


def _chosen(own: Options, schema: StructType) -> pa.Schema:
    """The columns that Spark wants. The gateway is asked only for typed ones."""
    wanted, known = to_arrow_schema(schema), schema_of()
    return checked(wanted, known if set(wanted.names) <= set(known.names) else _columns(own))


class TopicReader(DataSourceReader):
    """Reads the rows of one moment."""

    def __init__(self, own: Options, columns: pa.Schema) -> None:
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
