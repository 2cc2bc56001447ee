"""One query: its place in the registry, its limits, its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.background import Tasks
from headwater.clock import Clock
from headwater.errors import BadInput, HeadwaterError, QueryCancelled, QueryLimit
from headwater.query.asking import Engine, Limits, Phase, Progress, Question
from headwater.query.engines.contract import Answer

if TYPE_CHECKING:
    import pyarrow as pa

MAX_ERROR = 500
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What was decided about a query before it runs."""

    engine: Engine
    reason: str
    versions: Mapping[str, int]
    files: int
    file_bytes: int
    hot_bytes: int


class RunningQuery:
    """A query from the question to the last row. `asking.Query` says how it is used."""

    def __init__(
        self,
        name: str,
        question: Question,
        limits: Limits,
        clock: Clock,
        tasks: Tasks,
        on_end: Callable[[RunningQuery], None],
    ) -> None:
        self.id = name
        self.asker = question.asker
        self.account = question.account or question.asker
        """What limits count by."""
        self.sql = question.sql
        self.engine = question.engine
        self.reason = ""
        self.versions: Mapping[str, int] = {}
        self.notes: tuple[str, ...] = ()
        self._progress = Progress()
        self._limits = limits
        self._clock = clock
        self._tasks = tasks
        self._on_end = on_end
        self._began = clock.monotonic()
        self._answer: Answer | None = None
        self._schema: pa.Schema | None = None
        self._error: HeadwaterError | None = None
        self._taken = False
        self._timer: asyncio.TimerHandle | None = None
        self._starting: asyncio.Task[Any] | None = None
        self._releases: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<RunningQuery {self.id} of {self.asker}, {self._progress.phase}>"

    @property
    def progress(self) -> Progress:
        if not self.over:
            self._progress.seconds = self._clock.monotonic() - self._began
        if self._answer is not None:
            self._progress.percent = max(self._progress.percent, self._answer.percent)
        return self._progress

    @property
    def schema(self) -> pa.Schema:
        assert self._schema is not None
        return self._schema

    @property
    def over(self) -> bool:
        """Whether the query has ended, one way or the other."""
        return self._progress.phase in (Phase.DONE, Phase.FAILED, Phase.CANCELLED)

    @property
    def error(self) -> HeadwaterError | None:
        """What has ended the query early."""
        return self._error

    def watch(self) -> None:
        """Start to count the time."""
        self._timer = asyncio.get_running_loop().call_later(self._limits.seconds, self._too_late)

    def keep(self, release: Callable[[], None]) -> None:
        """Call `release` when the query has ended, and its engine is done with it."""
        self._releases.append(release)
        if self.over:
            release()

    def check(self) -> None:
        """Raise if the query has ended before it has begun."""
        if self._error is not None:
            raise self._error

    def planned(self, plan: Plan) -> None:
        """Note what was decided."""
        self.engine, self.reason, self.versions = plan.engine, plan.reason, plan.versions
        own = self._progress
        own.files, own.file_bytes, own.hot_bytes = plan.files, plan.file_bytes, plan.hot_bytes

    async def wait(self, starting: asyncio.Task[_T]) -> _T:
        """Wait for a step before the first row. The query may be cancelled meanwhile."""
        self._starting = starting
        try:
            return await starting
        except asyncio.CancelledError:
            if self._error is None:
                raise
            raise self._error from None
        finally:
            self._starting = None

    async def begin(self, starting: asyncio.Task[Answer]) -> None:
        """Wait until the engine knows the columns."""
        answer = await self.wait(starting)
        if self._error is not None:
            await answer.close()
            raise self._error
        self._answer, self._schema = answer, answer.schema
        self._progress.phase = Phase.RUNNING

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """The rows. See `asking.Query`."""
        if self._taken:
            raise BadInput("the rows of a query are read once")
        self._taken = True
        try:
            async for batch in self._rows():
                self._count(batch)
                yield batch
        except HeadwaterError as error:
            self.fail(self._error or error)
        except (GeneratorExit, asyncio.CancelledError):
            self.fail(QueryCancelled("the caller has left"))
            raise
        finally:
            await self.close()
        if self._error is not None:
            raise self._error

    async def _rows(self) -> AsyncIterator[pa.RecordBatch]:
        if self._answer is None:
            return
        async for batch in self._answer.batches():
            if self.over:
                return  # it was cancelled, or took too long
            yield batch

    def _count(self, batch: pa.RecordBatch) -> None:
        own, limits = self._progress, self._limits
        if own.rows + batch.num_rows > limits.rows:
            raise QueryLimit(f"the answer has more than {limits.rows} rows: aggregate, use LIMIT, or raise sql.rows")
        if own.result_bytes + batch.nbytes > limits.result_bytes:
            raise QueryLimit(
                f"the answer has more than {limits.result_bytes} bytes: select less, or raise sql.result_bytes"
            )
        own.rows += batch.num_rows
        own.result_bytes += batch.nbytes

    async def cancel(self, reason: str) -> None:
        """End the query; readers get `QueryCancelled`."""
        if not self.over:
            await self._stop(QueryCancelled(f"the query was cancelled: {reason}"))

    def _too_late(self) -> None:
        if not self.over:
            seconds = self._limits.seconds
            error = QueryLimit(f"the query took longer than {seconds:g} s: ask for less, or raise sql.seconds")
            self._tasks.spawn(self._stop(error), f"sql-stop-{self.id}")

    async def _stop(self, error: HeadwaterError) -> None:
        self._error = self._error or error
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        self.fail(error)
        await self.close()

    def fail(self, error: HeadwaterError) -> None:
        """Note the error that has ended the query. The first one counts."""
        self._error = self._error or error
        if not self.over:
            self._end(Phase.CANCELLED if isinstance(self._error, QueryCancelled) else Phase.FAILED)

    async def close(self) -> None:
        """Free what the query holds. If nothing has failed, it is done."""
        if self._timer is not None:
            self._timer.cancel()
        try:
            with contextlib.suppress(HeadwaterError):
                if self._answer is not None:
                    await self._answer.close()
        finally:
            for release in self._releases:
                release()
        if not self.over:
            self._end(Phase.DONE)

    def _end(self, phase: Phase) -> None:
        own = self.progress
        own.phase = phase
        own.error = "" if self._error is None else str(self._error)[:MAX_ERROR]
        if phase is Phase.DONE:
            own.percent = 100.0
        self._on_end(self)
