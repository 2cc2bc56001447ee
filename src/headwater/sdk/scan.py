"""A scan of a topic: its rows at one moment, as Arrow, pandas, Polars or Spark data."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from headwater.errors import ConfigError, SnapshotGone
from headwater.extras import need

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

ATTEMPTS = 3
"""How often a whole scan is tried if files are deleted while they are read."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a snapshot."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


Begin: TypeAlias = Callable[[], Rows]
"""Begins to read: takes a new snapshot and returns its rows."""


class _Spark(Protocol):
    """What is needed of a Spark session."""

    def createDataFrame(self, data: Any) -> Any: ...


class Scan:
    """The rows of a topic. Each method reads anew, as of the moment at which it is called.

    The columns are those of the topic's tables (`docs/guides/tables.md`), the typed ones too (`docs/guides/typed.md`).
    A table gets more columns with time. Rows come in no particular order; `partition` and `offset` say theirs. Records
    that are not settled yet are included, those of aborted transactions are not, and a partition ends where its oldest
    open transaction begins.
    """

    def __init__(self, begin: Begin, look: Callable[[], pa.Schema], what: str) -> None:
        """`look` gets the columns without rows."""
        need("arrow")
        self._begin = begin
        self._look = look
        self._what = what

    def __repr__(self) -> str:
        return f"<Scan of {self._what}>"

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types, as they are now."""
        return self._look()

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow record batches, one after the other. Only a few of them are in memory.

        Raises a `Retriable` error if a file is deleted while it is read. Then begin again.
        """
        yield from self._begin().batches

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as an Arrow reader, which other libraries can take over without a copy."""
        import pyarrow as pa

        rows = self._begin()
        return pa.RecordBatchReader.from_batches(rows.schema, rows.batches)

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table in memory."""
        for _ in range(ATTEMPTS - 1):
            with contextlib.suppress(SnapshotGone):
                return self._read()
        return self._read()

    def _read(self) -> pa.Table:
        import pyarrow as pa

        rows = self._begin()
        return pa.Table.from_batches(list(rows.batches), schema=rows.schema)

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
