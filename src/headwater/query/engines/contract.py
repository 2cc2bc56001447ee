"""What an engine is asked, and what it answers with.

A task names exact files and exact runs of the WAL. It has no credentials: an engine's process opens the store by its
URL with credentials of its own. An engine decides nothing about who may read what, and which rows there are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from headwater.lake.tasks import StreamPart
from headwater.query.asking import Engine, Value
from headwater.query.snapshot import Snapshot
from headwater.schemas.typing import Typing
from headwater.state.commands.columns import Column

if TYPE_CHECKING:
    import pyarrow as pa


class TaskFile(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A segment of a table."""

    path: str
    """Below the root of the object store."""
    size: int
    cut: bool
    """Whether the file may have rows that are not part of the snapshot: only rows within the table's `bounds` count."""
    version: int = 0
    """The version of the typed columns that the file has; 0 if it has none, or nobody knows."""


class Bound(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The offsets of a partition that are part of a snapshot: `[start, end)`."""

    partition: int
    start: int
    end: int


class TaskTable(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One table of a statement: a topic at a snapshot."""

    view: str
    """The name by which the statement refers to it. It is safe to be used in SQL between quotes."""
    topic: str
    """The topic's name, for messages."""
    files: list[TaskFile]
    bounds: list[Bound]
    """The partitions of the snapshot. A row of a cut file counts only if it is within one of them."""
    hot: list[StreamPart]
    """Runs of the WAL with rows that are in no file. All that they hold counts, but for aborted records."""
    columns: tuple[Column, ...] = ()
    """The typed columns. A file that was written before a column was added does not have it: its rows have nulls."""
    typing: Typing | None = None
    """How rows of the WAL get their typed columns. None: they have nulls."""
    version: int = 0
    """The version of `columns`. Files of this version have exactly these."""

    @property
    def hot_bytes(self) -> int:
        return sum(run.length for part in self.hot for run in part.runs)


class EngineTask(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A checked statement and the rows that it may read."""

    id: str
    """A name that no other task has; it begins with the query's id. For logs and for names of jobs."""
    sql: str
    """In the engine's dialect, over the views of `tables`."""
    parameters: tuple[Any, ...]
    """The `Value`s of the statement's parameters, in their order."""
    tables: list[TaskTable]
    source: str = ""
    """What the caller wrote, as DuckDB can read it. It is compared with `sql`, and never run. Empty: nothing of it."""
    explain: bool = False
    """Whether the engine's plan is asked for instead of the rows."""
    columns_only: bool = False
    """Whether only the columns of the answer are wanted. No row is read then."""

    @property
    def named(self) -> dict[str, Value]:
        """The parameters by their names: p1, p2, …."""
        return {f"p{i}": value for i, value in enumerate(self.parameters, 1)}


class Answer(Protocol):
    """A statement that an engine works on, with its columns known."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def percent(self) -> float:
        """How much of the work is done, as far as the engine knows."""
        ...

    def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """The rows, once; nothing for a task that wants only columns. The engine waits while the caller does not read.

        Raises `QueryFailed`, `QueryLimit` for a limit of the engine's own (memory, spill), `NoEngine` if the engine's
        process died, `SnapshotGone` if a file or an object is missing. Never fewer rows without an error.
        """
        ...

    async def close(self) -> None:
        """End the work, finished or not, and free what it holds. An engine that does not listen is killed.

        The caller always calls it, once or more, at the latest when it has read everything.
        """
        ...


class Workers(msgspec.Struct, frozen=True, kw_only=True):
    """The processes of an engine, in numbers."""

    busy: int
    idle: int
    starting: int
    waiting: int
    """Queries that wait for a process."""
    deaths: int
    """Processes so far that died, or were killed because they did not give up a query."""


class EngineRunner(Protocol):
    """An engine as the gateway sees it."""

    @property
    def engine(self) -> Engine: ...

    async def run(self, task: EngineTask) -> Answer:
        """Start a task and wait until its columns are known. May wait for a free place.

        Raises what `Answer.batches` raises, and `SchemasMissing` if rows of the WAL name schemas that the task does not
        have. A caller that is cancelled while it waits leaves nothing behind.
        """
        ...

    async def close(self) -> None:
        """End all processes of the engine."""
        ...


def table_of(
    view: str,
    topic: str,
    snapshot: Snapshot,
    columns: tuple[Column, ...] = (),
    typing: Typing | None = None,
    version: int = 0,
) -> TaskTable:
    """A table of a task from a snapshot of its topic. `version` is that of the columns."""
    return TaskTable(
        view=view,
        topic=topic,
        files=[
            TaskFile(file.path, file.size, file.path in snapshot.cut, snapshot.decoded.get(file.path, 0))
            for file in snapshot.files
        ],
        bounds=[Bound(partition, own.start, own.end) for partition, own in snapshot.bounds.items()],
        hot=list(snapshot.hot),
        columns=columns,
        typing=typing if columns and snapshot.hot else None,
        version=version,
    )
