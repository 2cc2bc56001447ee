"""The result of a query, as Arrow, pandas, Polars or plain rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

from headwater.errors import BadInput, ConfigError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

Parameter: TypeAlias = str | int | float | bool | bytes | None
"""A value of `?` in a statement."""


@dataclass(frozen=True, slots=True)
class QueryInfo:
    """What is known of a query."""

    id: str
    """The id, by which the query is found and cancelled."""
    engine: str
    """The engine that answers."""
    reason: str
    """Why this engine, in a sentence."""
    versions: Mapping[str, int]
    """By topic, the version of its table that is shown. Records that were not settled are shown too."""
    notes: str = ""
    """What the caller should know about the result, such as why values are null; empty if there is nothing."""


class Answering(Protocol):
    """An answer that is being read."""

    @property
    def info(self) -> QueryInfo: ...

    @property
    def schema(self) -> pa.Schema: ...

    def batches(self) -> Iterator[pa.RecordBatch]: ...

    def cancel(self) -> None: ...

    def close(self) -> None: ...


class Result:
    """The result of a query. It is read once: `batches()` gives it piece by piece, the others read and keep all of it.

    Usable as `with cluster.sql(…) as result`. A result that is closed before its end cancels the query.
    """

    def __init__(self, answer: Answering) -> None:
        self._answer = answer
        self._table: pa.Table | None = None
        self._begun = False

    def __repr__(self) -> str:
        return f"<Result of query {self.query_id} on {self.engine}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def query_id(self) -> str:
        """The id of the query."""
        return self._answer.info.id

    @property
    def engine(self) -> str:
        """The engine that answered."""
        return self._answer.info.engine

    @property
    def reason(self) -> str:
        """Why this engine, in a sentence."""
        return self._answer.info.reason

    @property
    def versions(self) -> Mapping[str, int]:
        """By topic, the version of its table that is shown. Records that were not settled are shown too."""
        return self._answer.info.versions

    @property
    def notes(self) -> str:
        """What the caller should know about the result, such as why values are null; empty if there is nothing."""
        return self._answer.info.notes

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types."""
        return self._answer.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow record batches, one after the other. Only a few of them are in memory. Once."""
        if self._table is not None:
            yield from self._table.to_batches()
            return
        if self._begun:
            raise BadInput("a result is read once: use `arrow()`, which keeps it, or ask again")
        self._begun = True
        try:
            yield from self._answer.batches()
        finally:
            self._answer.close()

    def arrow(self) -> pa.Table:
        """All rows as an Arrow table in memory."""
        import pyarrow as pa

        if self._table is None:
            self._table = pa.Table.from_batches(list(self.batches()), schema=self.schema)
        return self._table

    def pandas(self, **options: Any) -> pd.DataFrame:
        """All rows as a pandas data frame. The options are those of `pyarrow.Table.to_pandas`."""
        return self.arrow().to_pandas(**options)

    def polars(self) -> pl.DataFrame:
        """All rows as a Polars data frame."""
        try:
            import polars as pl
        except ImportError as error:
            raise ConfigError("this needs Polars: pip install polars") from error
        frame = pl.from_arrow(self.arrow())
        assert isinstance(frame, pl.DataFrame)
        return frame

    def rows(self) -> list[tuple[Any, ...]]:
        """All rows as tuples of Python's own types."""
        table = self.arrow()
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True)) if table.num_columns else []

    def cancel(self) -> None:
        """Cancel the query. Who reads its rows gets `QueryCancelled`. Nothing happens if it is over."""
        self._answer.cancel()

    def close(self) -> None:
        """Forget what was not read. A query that still runs is cancelled."""
        self._answer.close()
