"""What a query is, for those who ask and for those who answer.

Doors (HTTP, Flight SQL, the command line, Python) build a `Question`, hand it to `Asking.ask`, and read the batches of
the `Query` that they get. They know no engine. Engines know no door.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

Value = str | int | float | bool | bytes | None
"""What a parameter of a statement may be."""


class Engine(enum.StrEnum):
    """Who may answer."""

    AUTO = "auto"
    DUCKDB = "duckdb"
    SPARK = "spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOf:
    """The state of a table that is asked for. At most one of the first three is given; none: the present."""

    version: int | None = None
    """A version of the topic's table."""
    at_ms: int | None = None
    """What the table showed at a time: its newest version that was committed at or before it."""
    tag: str | None = None
    """An hour's tag, such as `2026-11-17T22`."""
    offsets: Mapping[int, int] = field(default_factory=dict)
    """By partition, the offset behind the last one. Partitions that are not named end where the rest says."""


PRESENT = AsOf()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a query is cut off with `QueryLimit`. Never beyond those of the settings."""

    seconds: float
    rows: int
    """Rows of the answer."""
    result_bytes: int
    """Bytes of the answer, as Arrow batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A statement, who asks it, and how."""

    sql: str
    asker: str
    """The principal, as `User:NAME`, for the log of queries, and for those who may see and cancel them."""
    account: str = ""
    """What limits count by, if that is not the asker: the address of one who has not logged in."""
    readable: Callable[[str], bool]
    """Whether the asker may READ a topic. Topics that it may not read do not exist for it."""
    parameters: tuple[Value, ...] = ()
    """The values of `?` in the statement, in their order."""
    engine: Engine = Engine.AUTO
    as_of: AsOf = PRESENT
    """For tables that the statement itself does not pin."""
    limits: Limits | None = None
    """Tighter limits than those of the settings."""
    id: str = ""
    """The query's id, if the asker has chosen one: up to 64 letters, digits and dashes. No other query may have it."""


class Phase(enum.StrEnum):
    """How far a query is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(slots=True, kw_only=True)
class Progress:
    """What is known about a query while it runs and for a while afterwards."""

    phase: Phase = Phase.WAITING
    percent: float = 0.0
    rows: int = 0
    """Rows that the caller has got."""
    result_bytes: int = 0
    files: int = 0
    """Files of the snapshot."""
    file_bytes: int = 0
    hot_bytes: int = 0
    """Bytes of the WAL that the snapshot reads."""
    seconds: float = 0.0
    error: str = ""


class Query(Protocol):
    """A query that runs."""

    @property
    def id(self) -> str:
        """A random name, or the one that the asker has chosen. By it the query is found and cancelled."""
        ...

    @property
    def asker(self) -> str: ...

    @property
    def sql(self) -> str:
        """The statement as it was asked."""
        ...

    @property
    def engine(self) -> Engine:
        """Who answers."""
        ...

    @property
    def reason(self) -> str:
        """Why this engine, in a sentence."""
        ...

    @property
    def versions(self) -> Mapping[str, int]:
        """By topic, the table's version that is shown."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What the caller should know about the answer, in sentences: such as why values are null."""
        ...

    @property
    def progress(self) -> Progress: ...

    @property
    def schema(self) -> pa.Schema:
        """The columns of the answer. They are known before the first row."""
        ...

    def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """The rows, once. The engine waits while the caller does not read. Raises what ended the query early.

        Closing the iterator cancels the query.
        """
        ...

    async def cancel(self, reason: str) -> None:
        """End the query; readers of its rows get `QueryCancelled`. Nothing happens if it is over."""
        ...


class Asking(Protocol):
    """The service that doors use. A gateway has one."""

    async def ask(self, question: Question) -> Query:
        """Check the statement, take the snapshot, start the query, and wait until its columns are known.

        Every record that was acknowledged before the call is in the snapshot. Raises `StatementRefused`, `QueryFailed`,
        `QueryLimit` or `NoEngine`.
        """
        ...

    async def describe(self, question: Question) -> pa.Schema:
        """The columns of the answer, without running the statement; for prepared statements."""
        ...

    def running(self) -> list[Query]:
        """Queries that run or ended a while ago, the newest first. Doors show an asker its own ones only."""
        ...

    def find(self, name: str) -> Query | None:
        """A query by its id."""
        ...
