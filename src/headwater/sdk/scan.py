"""A scan of a topic: its rows at one moment, as Arrow, pandas, Polars or Spark data."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from headwater.errors import ConfigError
from headwater.query.scan import SnapshotGone, schema_of

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

ATTEMPTS = 3
"""How often a whole scan is tried if files are deleted while they are read."""

Batches: TypeAlias = Callable[[], "Iterator[pa.RecordBatch]"]
"""Begins to read: takes a new snapshot and returns its rows."""


class _Spark(Protocol):
    """What is needed of a Spark session."""

    def createDataFrame(self, data: Any) -> Any: ...


class Scan:
    """The rows of a topic. Each method reads anew, as of the moment at which it is called.

    The columns are those of the topic's tables (`docs/tables.md`). Rows come in no particular order; `partition` and
    `offset` say theirs. Records that are not settled yet are included, those of aborted transactions are not, and a
    partition ends where its oldest open transaction begins.
    """

    def __init__(self, begin: Batches, columns: Sequence[str] | None, what: str) -> None:
        self._begin = begin
        self._columns = columns
        self._what = what
        schema_of(columns)

    def __repr__(self) -> str:
        return f"<Scan of {self._what}>"

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types."""
        return schema_of(self._columns)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow record batches, one after the other. Only a few of them are in memory.

        Raises a `Retriable` error if a file is deleted while it is read. Then begin again.
        """
        return self._begin()

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as an Arrow reader, which other libraries can take over without a copy."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema, self._begin())

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table in memory."""
        import pyarrow as pa

        for _ in range(ATTEMPTS - 1):
            with contextlib.suppress(SnapshotGone):
                return pa.Table.from_batches(list(self._begin()), schema=self.schema)
        return pa.Table.from_batches(list(self._begin()), schema=self.schema)

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """All rows as a pandas data frame. The options are those of `pyarrow.Table.to_pandas`."""
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> pl.DataFrame:
        """All rows as a Polars data frame."""
        try:
            import polars as pl
        except ImportError as error:
            raise ConfigError("this needs Polars: pip install polars") from error
        frame = pl.from_arrow(self.to_arrow())
        assert isinstance(frame, pl.DataFrame)
        return frame

    def to_spark(self, spark: _Spark) -> Any:
        """All rows as a data frame of a Spark session. They pass through the memory of this process."""
        return spark.createDataFrame(self.to_arrow())
