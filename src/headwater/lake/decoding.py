"""What the compactor knows for typed columns: schemas that records name, and the columns of tables.

A job tells which schemas and columns it lacks. They are fetched and added, and the tasks that lacked them run again.
Nothing of this stops settling: what cannot be decoded now is settled without typed values and decoded later.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from headwater.clock import Clock
from headwater.configs.topics import KEY_SCHEMA, VALUE_SCHEMA, TopicConfig
from headwater.lake.known import KnownSchemas
from headwater.lake.planning import Job
from headwater.lake.registries import Registry
from headwater.lake.tasks import FileFacts, Task, TaskFacts
from headwater.replica.replica import Replica
from headwater.schemas.columns import FLAT, REST, VALUE, merged
from headwater.schemas.plans import plan
from headwater.schemas.shapes import Shape
from headwater.schemas.typing import Typing
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.columns import AddColumns, Column, additions
from headwater.state.results import Done
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored.typed import Columns, TypedTable

log = logging.getLogger("headwater.compactor")
TRIES = 6
"""How often the tasks of a job run again because schemas or columns are missing. Then they run without decoding."""
LOGGED_FIELDS = 20
"""Fields without a column that the log names."""
POSTPONED_SECONDS = 30.0
"""How long settled files that could not be decoded wait before that is tried again."""

RunTasks = Callable[[list[Task]], Awaitable[list[TaskFacts]]]


class Decoding:
    """Schemas and columns for the jobs of a compactor."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._clock = clock
        self._schemas = KnownSchemas(registry, clock)
        self._postponed: dict[uuid.UUID, float] = {}

    def __repr__(self) -> str:
        return f"<Decoding by {self._schemas!r}>"

    @property
    def unreachable(self) -> str:
        """Why the registry does not answer; empty if it does, or was not asked."""
        return self._schemas.unreachable

    async def typings(
        self, state: StreamsState, cluster: ClusterState, topics: Iterable[uuid.UUID]
    ) -> dict[uuid.UUID, Typing]:
        """How rows of topics get typed columns now. Topics without typed columns are missing here."""
        found: dict[uuid.UUID, Typing] = {}
        for name in topics:
            topic = cluster.topics.get(name)
            if topic is None or not (KEY_SCHEMA in topic.configs or VALUE_SCHEMA in topic.configs):
                continue
            config = TopicConfig.of(topic.configs, cluster.resources.common)
            if config.typed:
                await self._schemas.refresh(name, (config.key_schema, config.value_schema))
                found[name] = self._typing(state, name, config)
        self._schemas.forget(cluster.topics)
        return found

    def postpone(self, topic: uuid.UUID) -> None:
        """Do not decode settled files of a topic for a while: it has just failed."""
        self._postponed[topic] = self._clock.monotonic() + POSTPONED_SECONDS

    def is_postponed(self, topic: uuid.UUID) -> bool:
        """Whether settled files of a topic are left as they are for now."""
        return self._clock.monotonic() < self._postponed.get(topic, float("-inf"))

    def _typing(self, state: StreamsState, topic: uuid.UUID, config: TopicConfig) -> Typing:
        columns = state.typed.get(topic, TypedTable()).columns
        known, absent = self._schemas.of(topic)
        return msgspec.structs.replace(
            typing_of(config, columns), schemas=known, absent=absent, cut_off=bool(self.unreachable)
        )

    async def run(self, replica: Replica[StreamsState], lease: int, job: Job, run: RunTasks) -> list[TaskFacts]:
        """Run the tasks of a job, again and again until nothing is missing; returns the facts of all."""
        facts = await self._run(job, run)
        cut_off = False
        for left in range(TRIES, -1, -1):
            missing = [(i, j) for i, task in enumerate(facts) for j, file in enumerate(task.files) if file.typed.wants]
            if not missing:
                return facts
            lacking: dict[uuid.UUID, list[FileFacts]] = {}
            for i, j in missing:
                lacking.setdefault(job.topics[i][j], []).append(facts[i].files[j])
            failed = set[uuid.UUID]()
            for topic, files in lacking.items():
                cut_off = not await self._learn(topic, files) or cut_off
                if not await self._add(replica, lease, topic, files):
                    failed.add(topic)
            again = [
                self._again(
                    replica.state, job.tasks[i], job.topics[i][j], j, cut_off, left == 0 or job.topics[i][j] in failed
                )
                for i, j in missing
            ]
            for (i, j), told in zip(missing, await run(again), strict=True):
                facts[i].files[j] = told.files[0]
        return facts

    async def _run(self, job: Job, run: RunTasks) -> list[TaskFacts]:
        """Run the tasks once, and log what went wrong in decoders."""
        facts = await run(job.tasks)
        for topics, task in zip(job.topics, facts, strict=True):
            for topic, file in zip(topics, task.files, strict=True):
                if file.typed.flaw:
                    log.error("a decoder failed", extra={"topic": str(topic), "reason": file.typed.flaw})
        return facts

    def _again(
        self, state: StreamsState, task: Task, topic: uuid.UUID, number: int, cut_off: bool, plainly: bool
    ) -> Task:
        """The task of one file, with what is known by now; without decoding if that does not help."""
        file = task.files[number]
        assert file.typing is not None
        typing = None if plainly else self._renewed(state, topic, file.typing, cut_off)
        return msgspec.structs.replace(task, files=[msgspec.structs.replace(file, typing=typing)])

    def _renewed(self, state: StreamsState, topic: uuid.UUID, typing: Typing, cut_off: bool) -> Typing:
        columns = state.typed.get(topic, TypedTable()).columns
        known, absent = self._schemas.of(topic)
        return msgspec.structs.replace(
            typing,
            flatten=is_flat(columns.newest, typing.flatten),
            columns=columns.newest,
            version=columns.version,
            last_id=columns.last_id,
            schemas=known,
            absent=absent,
            cut_off=cut_off,
        )

    async def _learn(self, topic: uuid.UUID, files: list[FileFacts]) -> bool:
        """Fetch the schemas that tasks did not know. Returns whether the registry answered."""
        names = dict.fromkeys(name for file in files for name in file.typed.wants.schemas)
        return await self._schemas.learn(topic, names)

    # --- columns -------------------------------------------------------------------------------------------

    async def _add(self, replica: Replica[StreamsState], lease: int, topic: uuid.UUID, files: list[FileFacts]) -> bool:
        """Add the columns that tasks lacked. Returns whether the table has them now."""
        roots = dict.fromkeys(root for file in files for root in file.typed.wants.roots)
        for _ in range(TRIES):
            known = replica.state.typed.get(topic, TypedTable()).columns
            columns, _ = _all_merged(known.newest, known.last_id, roots)
            if columns is known.newest:
                return True
            command = AddColumns(lease, topic, known.version, additions(known.newest, columns))
            [result] = await replica.submit([command])
            if isinstance(result, Done):
                _tell_left_out(topic, columns, roots)
            else:
                log.warning("typed columns were refused", extra={"topic": str(topic), "reason": str(result)})
                if replica.state.typed.get(topic, TypedTable()).columns.version == known.version:
                    return False
        return False


def _tell_left_out(topic: uuid.UUID, columns: tuple[Column, ...], roots: Iterable[Shape]) -> None:
    """Log which fields have no column, because the table has too many."""
    left = dict.fromkeys(name for root in roots for name in plan(columns, root).left_out)
    if left:
        told = {"topic": str(topic), "count": len(left), "fields": list(left)[:LOGGED_FIELDS]}
        log.warning(f"fields have no column of their own and go into {REST} as JSON", extra=told)


def typing_of(config: TopicConfig, columns: Columns) -> Typing:
    """How rows of a topic get the typed columns of its table, as far as no schemas are needed."""
    return Typing(
        key=config.key_schema,
        value=config.value_schema,
        flatten=is_flat(columns.newest, config.flatten),
        separate=config.separate_types,
        columns=columns.newest,
        version=columns.version,
        last_id=columns.last_id,
    )


def is_flat(columns: Iterable[Column], wanted: bool) -> bool:
    """Whether a value's fields are columns of the table. What the columns are decides, if there are any of values."""
    for column in columns:
        if column.source.startswith(FLAT):
            return True
        if column.name == VALUE:
            return False
    return wanted


def _all_merged(columns: tuple[Column, ...], last_id: int, roots: Iterable[Shape]) -> tuple[tuple[Column, ...], int]:
    for root in roots:
        columns, last_id = merged(columns, last_id, root)
    return columns, last_id
