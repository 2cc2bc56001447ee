"""A service of queries that answers from Arrow tables, for tests of the doors. It parses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pyarrow as pa

from headwater.errors import QueryCancelled, StatementRefused
from headwater.query.asking import Engine, Phase, Progress, Query, Question
from headwater.settings.settings import Gateway, Settings
from tests.support.gateways import gateway, listening

REASON = "The answer is written down here."
NOTED, NOTES = "noted", ("Some values are null.", "Nobody knows why.")
"""A statement whose answer has notes."""


class WrittenQuery:
    """A query whose answer is known. `held` stops it before its second batch, until it is cancelled."""

    def __init__(
        self, name: str, question: Question, batches: list[pa.RecordBatch], error: Exception | None, *, held: bool
    ) -> None:
        self.id = name
        self.asker = question.asker
        self.sql = question.sql
        self.engine = Engine.DUCKDB
        self.reason = REASON
        self.versions: Mapping[str, int] = {"orders": 3}
        self.notes = NOTES if question.sql == NOTED else ()
        self.progress = Progress(phase=Phase.RUNNING, files=2, file_bytes=100, hot_bytes=10)
        self.schema = batches[0].schema
        self.cancelled = asyncio.Event()
        self.reasons: list[str] = []
        self.taken = 0
        self._batches = batches
        self._error = error
        self._held = held

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        for number, batch in enumerate(self._batches):
            if self._held and number:
                await self.cancelled.wait()
            if self.cancelled.is_set():
                raise QueryCancelled(f"the query was cancelled: {self.reasons[-1]}")
            self.taken += 1
            self.progress.rows += batch.num_rows
            yield batch
        if self._error is not None:
            self.progress.phase, self.progress.error = Phase.FAILED, str(self._error)
            raise self._error
        self.progress.phase, self.progress.percent = Phase.DONE, 100.0

    async def cancel(self, reason: str) -> None:
        if self.progress.phase is Phase.RUNNING:
            self.reasons.append(reason)
            self.progress.phase = Phase.CANCELLED
            self.cancelled.set()


class WrittenAnswers:
    """Answers by statement. What is not written down is refused."""

    def __init__(self) -> None:
        self.questions: list[Question] = []
        self.queries: list[WrittenQuery] = []
        self.waiting = asyncio.Event()
        """Set when `wait` was asked, which is never answered."""
        self.left = 0
        """How often the asker of `wait` has left."""
        self._answers: dict[str, tuple[list[pa.RecordBatch], Exception | None, bool]] = {}

    def write(
        self, sql: str, *batches: pa.RecordBatch, error: Exception | None = None, held: bool = False
    ) -> WrittenAnswers:
        """Write an answer down. An error comes behind the batches."""
        self._answers[sql] = (list(batches), error, held)
        return self

    async def ask(self, question: Question) -> Query:
        self.questions.append(question)
        if question.sql == "wait":
            self.waiting.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.left += 1
        if question.sql not in self._answers:
            raise StatementRefused(f"there is no answer to {question.sql!r}")
        batches, error, held = self._answers[question.sql]
        if isinstance(error, Exception) and not batches:
            raise error
        query = WrittenQuery(f"q{len(self.queries)}", question, batches, error, held=held)
        self.queries.append(query)
        return query

    async def describe(self, question: Question) -> pa.Schema:
        return self._answers[question.sql][0][0].schema

    def running(self) -> list[Query]:
        return [*reversed(self.queries)]

    def find(self, name: str) -> Query | None:
        return next((query for query in self.queries if query.id == name), None)


def answering(story: Callable[[str, WrittenAnswers], None]) -> None:
    """Run a story in a thread, with the URL of a gateway that has written answers and the topic `orders`."""

    async def main() -> None:
        async with gateway(Settings(gateway=Gateway(http="127.0.0.1:0"))) as world, listening(world) as server:
            written = WrittenAnswers()
            world.services.asking = written
            await world.topic("orders")
            await asyncio.to_thread(story, server.url, written)

    asyncio.run(main())
