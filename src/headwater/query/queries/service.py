"""`Queries`, the service that doors ask: checks, snapshot, engine, and a registry of what runs.

Every record that was acknowledged before a question is in its snapshot: first the ledger is read to its end, then the
snapshots of all topics are taken in one step. A query holds a place until its last row was read, it fails, or it is
cancelled. Ended ones can be looked up for a while.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from headwater.background import Tasks
from headwater.errors import BadInput, Exists, HeadwaterError, NoEngine, QueryFailed, StatementRefused
from headwater.ops.metrics import Metric
from headwater.query.asking import Engine, Limits, Phase, Progress, Query, Question
from headwater.query.engines.contract import EngineRunner, EngineTask, TaskTable, Workers, table_of
from headwater.query.gate.checking import check, describe
from headwater.query.gate.statement import Statement, Topics
from headwater.query.holding import Held, Holding
from headwater.query.queries.counts import BUSY, QueryCounts, collect, outcome_of
from headwater.query.queries.hints import hint_of
from headwater.query.queries.running import Plan, RunningQuery
from headwater.query.queries.shares import Shares
from headwater.query.queries.versions import wanted_of
from headwater.query.snapshot import Snapshot, take
from headwater.query.typed import SchemasMissing
from headwater.query.typings import TRIES, Expected, TopicTyping, Typings, columns_of, schemas_of, shown, shown_version
from headwater.replica.domains import Domains
from headwater.replica.patience import catch_up
from headwater.settings.sql import Sql
from headwater.shares import fits
from headwater.state.cluster.domain import Topic
from headwater.state.commands.columns import Column
from headwater.state.streams.stored.typed import Columns
from headwater.threads import Offload, inline
from headwater.types import Domain

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("headwater.sql")
HISTORY = 200
"""Ended queries that can be looked up."""
CATCH_UP_SECONDS = 5.0
"""How long a question waits for the ledger."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
NO_VERSION = 0
"""The version of columns that no file has: each file is read for what it has."""
LOGGED = 2_000
"""Characters of a statement in the log."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """A table of a statement: what it reads."""

    topic: Topic
    snapshot: Snapshot
    columns: Columns
    version: int | None
    """The version that is asked for; None for the present."""
    typing: TopicTyping | None = None
    """How rows of the WAL are decoded."""
    expected: Expected | None = None
    """The columns of the present; None for an older version."""


@dataclass(frozen=True, slots=True)
class _Planned:
    """A statement, its tables, and the task that an engine gets."""

    statement: Statement
    taken: list[_Taken]
    task: EngineTask


class Queries:
    """The queries of one gateway. `asking.Asking` says how it is used."""

    def __init__(
        self,
        domains: Domains,
        holding: Holding,
        own: Sql,
        engines: Mapping[Engine, EngineRunner],
        offload: Offload = inline,
        typings: Typings | None = None,
    ) -> None:
        """`holding` keeps what queries read. `offload` says where statements are parsed.

        `typings` says how rows of the WAL are decoded; without it, by schemas of the cluster's own registry.
        """
        self._typings = typings or Typings(schemas_of(domains.cluster, domains.clock), offload)
        self._holding = holding
        self._offload = offload
        self._domains = domains
        self._own = own
        self._engines = dict(engines)
        self._running: dict[str, RunningQuery] = {}
        self._ended: deque[RunningQuery] = deque(maxlen=HISTORY)
        self._askers: Counter[str] = Counter()
        self._shares = Shares(own.share)
        self._counts = QueryCounts()
        self._tasks = Tasks()
        self._closed = False

    def __repr__(self) -> str:
        return f"<Queries: {len(self._running)} running>"

    async def ask(self, question: Question) -> Query:
        """Start a query. See `asking.Asking`."""
        query = self._enter(question)
        query.watch()
        try:
            await self._begin(query, await self._planned(query, question))
        except HeadwaterError as error:
            query.fail(error)
            await query.close()
            raise
        except BaseException:
            await query.cancel("the caller has left")
            raise
        return query

    async def describe(self, question: Question) -> pa.Schema:
        """The columns of an answer. See `asking.Asking`."""
        query = self._enter(question)
        query.watch()
        try:
            await self._begin(query, await self._planned(query, question, columns_only=True))
            return query.schema
        except HeadwaterError as error:
            query.fail(error)
            raise
        finally:
            await query.close()

    def running(self) -> list[Query]:
        """Queries that run, and those that have ended a while ago, the newest first."""
        return [*reversed(self._running.values()), *reversed(self._ended)]

    def find(self, name: str) -> Query | None:
        """A query by its id."""
        return self._running.get(name) or next((query for query in self._ended if query.id == name), None)

    def metrics(self, engines: Mapping[Engine, Workers]) -> list[Metric]:
        """Metrics of queries and of the processes of engines."""
        phases = Counter(query.progress.phase for query in self._running.values())
        running = {phase.value: phases[phase] for phase in (Phase.WAITING, Phase.RUNNING)}
        return collect(self._counts, running, engines, self._shares)

    async def close(self) -> None:
        """Cancel everything. Engines are closed by those who have made them."""
        self._closed = True
        for query in list(self._running.values()):
            await query.cancel("the gateway stops")
        await self._tasks.close()

    # --- the registry ------------------------------------------------------------------------------

    def _enter(self, question: Question) -> RunningQuery:
        name = self._named(question)
        try:
            self._check_room(question)
        except NoEngine:
            self._counts.count(question.engine, BUSY, Progress())
            raise
        query = RunningQuery(
            name, question, self._limits(question.limits), self._domains.clock, self._tasks, self._leave
        )
        self._running[name] = query
        self._askers[query.account] += 1
        return query

    def _named(self, question: Question) -> str:
        """The id of a query. One that has ended gives its id up to its own asker, who may have tried again."""
        name = question.id
        if not name:
            return self._domains.chance.uuid().hex
        if not _ID.fullmatch(name):
            raise BadInput("the id of a query has 1 to 64 letters, digits and dashes")
        before = self.find(name)
        if before is not None and (name in self._running or before.asker != question.asker):
            raise Exists(f"there is a query {name} already")
        if before is not None:
            self._ended = deque((query for query in self._ended if query.id != name), maxlen=HISTORY)
        return name

    def _check_room(self, question: Question) -> None:
        if self._closed:
            raise NoEngine("the gateway stops")
        mine, count = self._askers[question.account or question.asker], len(self._running)
        most = self._own.workers + self._own.waiting
        if mine and not fits(mine + 1, min(count + 1, most), self._own.queries_per_user, most):
            raise NoEngine(f"{question.asker} has {mine} queries already: wait for one, or cancel it")
        if count >= most:
            raise NoEngine(f"{count} queries run or wait already: ask again in a moment")

    def _leave(self, query: RunningQuery) -> None:
        if self._running.pop(query.id, None) is None:
            return
        self._askers[query.account] -= 1
        if not self._askers[query.account]:
            del self._askers[query.account]
        self._ended.append(query)
        seen = query.progress
        self._counts.count(query.engine, outcome_of(query.error), seen)
        log.log(
            logging.INFO if seen.phase is Phase.DONE else logging.WARNING,
            "a query has ended",
            extra={
                "query": query.id,
                "asker": query.asker,
                "phase": seen.phase.value,
                "engine": query.engine.value,
                "seconds": round(seen.seconds, 3),
                "rows": seen.rows,
                "result_bytes": seen.result_bytes,
                "files": seen.files,
                "file_bytes": seen.file_bytes,
                "hot_bytes": seen.hot_bytes,
                "reason": seen.error,
            },
        )

    def _limits(self, wanted: Limits | None) -> Limits:
        own = self._own
        if wanted is None:
            return Limits(seconds=own.seconds, rows=own.rows, result_bytes=own.result_bytes)
        if min(wanted.seconds, wanted.rows, wanted.result_bytes) <= 0:
            raise BadInput("a limit of a query must be above 0")
        return Limits(
            seconds=min(own.seconds, wanted.seconds),
            rows=min(own.rows, wanted.rows),
            result_bytes=min(own.result_bytes, wanted.result_bytes),
        )

    # --- from a question to a task -----------------------------------------------------------------

    async def _planned(self, query: RunningQuery, question: Question, *, columns_only: bool = False) -> _Planned:
        """Check the statement, take the snapshot and choose the engine."""
        log.info(
            "a query was asked",
            extra={"query": query.id, "asker": question.asker, "sql": question.sql[:LOGGED]},
        )
        await self._catch_up()
        engine = self._first_choice(question.engine)
        statement = await self._checked(question, engine)
        topics = self._topics(statement)
        for domain in {Domain(topic.domain) for topic in topics}:
            await self._catch_up(domain)
        held = await self._holding.begin()
        query.keep(held.release)
        taken = await self._snapshots(statement, topics, held)
        snapshots = [one.snapshot for one in taken]
        engine, reason, statement = await self._chosen(question, engine, statement, snapshots)
        query.planned(
            Plan(
                engine=engine,
                reason=reason,
                versions={one.topic.name: one.snapshot.version for one in taken},
                files=sum(len(one.files) for one in snapshots),
                file_bytes=sum(one.file_bytes for one in snapshots),
                hot_bytes=sum(one.wal_bytes for one in snapshots),
            )
        )
        taken = [await self._typed(one) for one in taken]
        # An engine must not take a query for an earlier one whose id it has, and which was cancelled.
        name = self._task_name(query) if question.id else query.id
        task = EngineTask(
            id=name,
            sql=statement.sql,
            parameters=question.parameters,
            tables=_tables(statement, taken),
            source=statement.source,
            explain=statement.explain,
            columns_only=columns_only,
        )
        return _Planned(statement, taken, task)

    def _task_name(self, query: RunningQuery) -> str:
        return f"{query.id}-{self._domains.chance.uuid().hex}"

    async def _typed(self, taken: _Taken) -> _Taken:
        """A table, with what is known for decoding its rows of the WAL."""
        state, topic, columns = self._domains.cluster.state, taken.topic, taken.columns
        expected = await self._typings.expected(state, topic, columns) if taken.version is None else None
        typing = await self._typings.of(state, topic, columns, expected) if taken.snapshot.hot else None
        return replace(taken, typing=typing, expected=expected)

    async def _begin(self, query: RunningQuery, planned: _Planned) -> None:
        """Start a query, again if rows of the WAL name schemas that its engine was not given."""
        task, again = planned.task, Counter[str]()
        query.check()
        await query.wait(self._tasks.spawn(self._enter_engine(query), f"sql-share-{query.id}"))
        while True:
            query.check()
            starting = self._tasks.spawn(self._engines[query.engine].run(task), f"sql-{query.id}")
            try:
                await query.begin(starting)
                break
            except QueryFailed as failed:
                hint = hint_of(str(failed), [column for table in task.tables for column in table.columns])
                if not hint:
                    raise
                raise QueryFailed(f"{failed}; {hint}") from failed
            except SchemasMissing as missing:
                views = [table.view for table in planned.statement.tables]
                typing = planned.taken[views.index(missing.table)].typing
                assert typing is not None
                await typing.learn(missing.names)
                again[missing.table] += 1
                if again[missing.table] >= TRIES:
                    typing.give_up()
                tables = _tables(planned.statement, planned.taken)
                task = msgspec.structs.replace(task, id=self._task_name(query), tables=tables)
        typings = [one.typing for one in planned.taken if one.typing is not None]
        query.notes = tuple(dict.fromkeys(note for typing in typings for note in typing.notes))

    async def _enter_engine(self, query: RunningQuery) -> None:
        """Wait while the engine works on as many queries of this asker as one may have at once."""
        share = await self._shares.enter(query.engine, query.account)
        query.keep(share.release)

    async def _catch_up(self, *domains: Domain) -> None:
        """Read the ledger to its end: of the cluster's domain, or of those of streams."""
        if not domains:
            await catch_up(CATCH_UP_SECONDS, self._domains.cluster)
        await catch_up(CATCH_UP_SECONDS, *(self._domains[domain] for domain in domains))

    async def _checked(self, question: Question, engine: Engine) -> Statement:
        names = self._domains.cluster.state.names

        def has(name: str) -> bool:
            topic = names.get(name)
            return topic is not None and bool(topic.ready) and question.readable(name)

        def typed(name: str) -> Sequence[str]:
            topic = names.get(name)
            own = columns_of(self._domains[Domain(topic.domain)].state, topic).newest if topic is not None else ()
            return [column.name for column in own]

        topics = Topics(has=has, names=lambda: [name for name in list(names) if has(name)], typed=typed)
        more = self._own.functions if engine is Engine.DUCKDB else ()
        statement = await self._offload(check, question.sql, engine, topics, question.as_of, more)
        expected = {table.topic: await self._expected(table.topic) for table in statement.tables}
        coming = {name: [column.name for column in own] for name, own in expected.items()}
        if any(coming[name] != typed(name) for name in coming):
            topics = replace(topics, typed=lambda name: coming.get(name) or typed(name))
            statement = await self._offload(check, question.sql, engine, topics, question.as_of, more)
        if statement.parameters != len(question.parameters):
            raise StatementRefused(
                f"the statement has {statement.parameters} parameters, {len(question.parameters)} are given"
            )
        return await self._described(statement)

    async def _expected(self, name: str) -> tuple[Column, ...]:
        """The typed columns of a topic in the present, and those that its newest schemas will add."""
        topic = self._domains.cluster.state.names.get(name)
        if topic is None:
            return ()
        columns = columns_of(self._domains[Domain(topic.domain)].state, topic)
        return (await self._typings.expected(self._domains.cluster.state, topic, columns)).columns

    async def _described(self, statement: Statement) -> Statement:
        """Show a topic's typed columns in its DESCRIBE."""
        table = statement.described
        topic = self._domains.cluster.state.names.get(table.topic) if table is not None else None
        if table is None or topic is None:
            return statement
        domain = Domain(topic.domain)
        await self._catch_up(domain)
        state = self._domains[domain].state
        version = wanted_of(state.tables.get(topic.id), table.as_of).version
        own = await self._expected(topic.name) if version is None else shown(columns_of(state, topic), version)
        return describe(statement, own)

    def _topics(self, statement: Statement) -> list[Topic]:
        names = self._domains.cluster.state.names
        for table in statement.tables:
            if table.topic not in names:
                raise StatementRefused(f'table "{table.topic}" does not exist')  # it was deleted a moment ago
        return [names[table.topic] for table in statement.tables]

    async def _snapshots(self, statement: Statement, topics: Sequence[Topic], held: Held) -> list[_Taken]:
        """A snapshot of every table. Older versions are pinned first; then all are taken in one step."""
        wishes = []
        for table, topic in zip(statement.tables, topics, strict=True):
            wanted = wanted_of(self._domains[Domain(topic.domain)].state.tables.get(topic.id), table.as_of)
            wishes.append(wanted)
            if wanted.version is not None:
                await held.pin(topic.id, wanted.version)
        taken = []
        for topic, wanted in zip(topics, wishes, strict=True):
            state = self._domains[Domain(topic.domain)].state
            streams = [state.streams[number] for number in topic.streams[: topic.ready] if number in state.streams]
            if not streams:
                raise StatementRefused(f'table "{topic.name}" does not exist')  # it was deleted a moment ago
            snapshot = take(state, topic.id, streams, wanted)
            taken.append(_Taken(topic, snapshot, columns_of(state, topic), wanted.version))
        return taken

    # --- engines -----------------------------------------------------------------------------------

    def _first_choice(self, wanted: Engine) -> Engine:
        if wanted is not Engine.AUTO:
            if wanted not in self._engines:
                raise StatementRefused(f"this gateway has no engine {wanted.value!r}")
            return wanted
        for engine in (Engine.DUCKDB, Engine.SPARK):
            if engine in self._engines:
                return engine
        raise NoEngine("this gateway has no engine for queries")

    async def _chosen(
        self, question: Question, first: Engine, statement: Statement, snapshots: Sequence[Snapshot]
    ) -> tuple[Engine, str, Statement]:
        """The engine, why, and the statement in its dialect."""
        if question.engine is not Engine.AUTO:
            return first, "The caller has chosen it.", statement
        if first is not Engine.DUCKDB:
            return first, "It is the only engine here.", statement
        size, most = sum(one.file_bytes + one.wal_bytes for one in snapshots), self._own.spark_bytes
        if not most or size < most or Engine.SPARK not in self._engines:
            return first, f"DuckDB answers fastest, and {size} bytes are not too many for it.", statement
        try:
            other = await self._checked(question, Engine.SPARK)
        except StatementRefused as error:
            return first, f"There are {size} bytes, but Spark would refuse the statement: {error}", statement
        return Engine.SPARK, f"There are {size} bytes; from {most} on (sql.spark_bytes) Spark answers.", other


def _tables(statement: Statement, taken: Sequence[_Taken]) -> list[TaskTable]:
    """The tables of a task, and how their rows of the WAL are decoded."""
    found = []
    for table, one in zip(statement.tables, taken, strict=True):
        version = shown_version(one.columns, one.version)
        columns, typing = one.columns.of(version), one.typing.typing if one.typing is not None else None
        if one.expected is not None and one.expected.columns != columns:
            columns, version = one.expected.columns, NO_VERSION
        found.append(table_of(table.view, one.topic.name, one.snapshot, columns, typing, version))
    return found
