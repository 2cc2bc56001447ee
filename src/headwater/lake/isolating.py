"""Which topics share a job, after a job has failed: the topic that makes jobs fail is found, and others go on.

A job that fails or takes too long may be a fault of the machine or of one topic. It is the topics' if a job without
files succeeds right after it. Then the topics of the job are divided, and each half has jobs of its own, until one
topic is alone. That topic gets smaller and smaller jobs, down to one run of records or one file. If this still fails,
its rows are settled without being decoded: they are bad rows with the reason, which go to the dead-letter topic. If
even that fails the topic waits, longer each time. Halves and single topics take turns with all other topics.

If the object store fails, the tasks say so. Then the job is repeated as it is. After `PATIENCE` such jobs the topics
are divided, too: there may be one object that the store does not give. Rows are never left undecoded for that.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from headwater.clock import Clock
from headwater.errors import HeadwaterError, OutcomeUnknown, StoreUnavailable
from headwater.lake.decoding import RunTasks
from headwater.lake.planning import Job, Limits, TopicPlan
from headwater.lake.tasks import VERSION, FileTask, Task, TaskFacts
from headwater.schemas.typing import Typing
from headwater.state.cluster.state import ClusterState

log = logging.getLogger("headwater.compactor")
WAIT_SECONDS, MOST_SECONDS = 60.0, 3_600.0
"""How long a topic waits for which nothing helps: at first, and at most."""
SMALLER = 8
"""A topic whose job failed gets one of this part of the bytes."""
PATIENCE = 3
"""So many jobs in a row may fail by the object store before their topics are divided."""
MAX_REASON = 500
LOGGED_RANGES = 10
_NO_TOPICS: frozenset[uuid.UUID] = frozenset()


@dataclass(slots=True)
class Alone:
    """A topic that has jobs of its own, because others failed."""

    room: int = 0
    """About the bytes of a job: it has one run at least. 0: as many as any job."""
    refused: str = ""
    """Why its rows are not decoded; empty if they are."""
    failures: int = 0
    """Jobs that failed since one succeeded."""
    waits: int = 0
    until: float = float("-inf")
    where: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """The topics that may be in the next job."""

    topics: Collection[uuid.UUID]
    group: frozenset[uuid.UUID] | None = None
    alone: Alone | None = None

    def __contains__(self, topic: uuid.UUID) -> bool:
        return topic in self.topics

    @property
    def small(self) -> bool:
        """Whether the job should have as little as possible."""
        return self.alone is not None and self.alone.room > 0

    def limits(self, limits: Limits) -> Limits:
        """The limits of the job."""
        return replace(limits, job_bytes=self.alone.room) if self.alone is not None and self.alone.room else limits

    def typing(self, typing: Typing) -> Typing:
        """How rows of the job get typed columns."""
        refused = self.alone.refused if self.alone is not None else ""
        return msgspec.structs.replace(typing, refused=refused) if refused else typing

    def plans(self, plans: Iterable[TopicPlan]) -> list[TopicPlan]:
        """The plans of its topics."""
        own = [plan for plan in plans if plan.topic in self.topics]
        return [replace(p, typing=self.typing(p.typing)) if p.typing is not None else p for p in own]


@dataclass(slots=True)
class Isolation:
    """What is known of jobs of one kind that failed."""

    clock: Clock
    kind: str
    """What the jobs do, for the log."""
    _groups: list[frozenset[uuid.UUID]] = field(default_factory=list)
    _alone: dict[uuid.UUID, Alone] = field(default_factory=dict)
    _turns: int = 0
    _outages: int = 0
    """Jobs that failed by the object store since one succeeded."""

    def __repr__(self) -> str:
        return f"<Isolation of {self.kind}: {len(self._groups)} groups, {len(self._alone)} topics alone>"

    @property
    def alerts(self) -> dict[uuid.UUID, str]:
        """The topics whose jobs fail, and why."""
        found = {topic: one for topic, one in self._alone.items() if one.failures}
        return {topic: f"{self.kind} {one.where} fails: {one.reason}" for topic, one in found.items()}

    def turn(self, topics: Iterable[uuid.UUID]) -> Turn:
        """Which of these topics may be in the next job."""
        wanted = frozenset(topics)
        if not self._groups and not self._alone:
            return Turn(wanted)
        now = self.clock.monotonic()
        suspects = wanted & _NO_TOPICS.union(*self._groups, self._alone)
        turns = [Turn(wanted - suspects)] if wanted - suspects else []
        turns += [Turn(wanted & group, group) for group in self._groups if wanted & group]
        turns += [
            Turn(frozenset([topic]), None, one)
            for topic, one in self._alone.items()
            if topic in wanted and one.until <= now
        ]
        self._turns += 1
        return turns[self._turns % len(turns)] if turns else Turn(_NO_TOPICS)

    def keep(self, topics: Collection[uuid.UUID]) -> None:
        """Forget topics that are not among these."""
        if self._groups or self._alone:
            self._alone = {topic: one for topic, one in self._alone.items() if topic in topics}
            self._groups = [left for group in self._groups if (left := group & frozenset(topics))]

    def succeeded(self, turn: Turn, job: Job, limits: Limits) -> None:
        """A job of a turn has succeeded."""
        self._outages = 0
        done = _topics(job)
        if turn.group is not None:
            self._replace(turn.group, [turn.group - done])
        for topic in done if turn.alone is not None else ():
            one = self._alone.get(topic)
            if one is None:
                continue
            if one.failures:
                log.info(f"{self.kind} goes on", extra={"topic": one.where, "not_decoded": bool(one.refused)})
            one.room *= SMALLER
            one.failures = one.waits = 0
            if one.refused or not one.room or one.room >= limits.job_bytes:
                del self._alone[topic]

    def failed(self, turn: Turn, job: Job, reason: str, names: dict[uuid.UUID, str], *, by_store: bool = False) -> None:
        """A job of a turn has failed, though the machine runs jobs. `by_store`: the object store failed."""
        self._outages += by_store
        if by_store and self._outages < PATIENCE:
            return
        topics = sorted(_topics(job), key=str)
        reason = reason[:MAX_REASON]
        if len(topics) > 1:
            halves = [frozenset(topics[: len(topics) // 2]), frozenset(topics[len(topics) // 2 :])]
            left = [turn.group - frozenset(topics)] if turn.group is not None else []
            self._replace(turn.group, [*left, *halves])
            log.warning(f"{self.kind} failed for some topics; they are tried apart", extra={"reason": reason,
                        "topics": [names.get(topic, str(topic)) for topic in topics][:LOGGED_RANGES]})  # fmt: skip
            return
        [topic] = topics
        if turn.group is not None:
            self._replace(turn.group, [turn.group - {topic}])
        one = self._alone.setdefault(topic, Alone())
        one.failures += 1
        one.reason, one.where = reason, _where(job, names.get(topic, str(topic)))
        pieces, size = _size(job)
        smaller = max(size // SMALLER, 1)
        if pieces > 1 and (not one.room or smaller < one.room):
            one.room = smaller
        elif not by_store and not one.refused and _is_decoded(job):
            one.room, one.refused = 1, f"{self.kind} with decoding fails: {reason}"
        else:
            one.room, one.refused = 1, ""
            one.until = self.clock.monotonic() + min(WAIT_SECONDS * 2**one.waits, MOST_SECONDS)
            one.waits = 0 if by_store else min(one.waits + 1, 10)
        log.error(f"{self.kind} fails because of one topic; others go on",
                  extra={"topic": one.where, "reason": reason, "attempts": one.failures})  # fmt: skip

    def _replace(self, group: frozenset[uuid.UUID] | None, parts: Sequence[frozenset[uuid.UUID]]) -> None:
        """Put parts in the place of a group. One that has only one topic is that topic alone."""
        self._groups = [one for one in self._groups if one != group] + [part for part in parts if len(part) > 1]
        for part in parts:
            if len(part) == 1:
                self._alone.setdefault(next(iter(part)), Alone())


class Isolations:
    """What is known of jobs that failed, by what they do. A topic that cannot be merged still settles."""

    def __init__(self, clock: Clock) -> None:
        self.settling = Isolation(clock, "settling")
        self.merging = Isolation(clock, "merging")
        self.rewriting = Isolation(clock, "decoding of settled files")

    def __repr__(self) -> str:
        return f"<Isolations: {self.settling!r}, {self.merging!r}, {self.rewriting!r}>"

    @property
    def alerts(self) -> dict[uuid.UUID, str]:
        """The topics whose jobs fail, and why."""
        return {**self.rewriting.alerts, **self.merging.alerts, **self.settling.alerts}

    def keep(self, topics: Collection[uuid.UUID]) -> None:
        """Forget topics that are not among these."""
        for one in (self.settling, self.merging, self.rewriting):
            one.keep(topics)


class Attempt:
    """One run of a job."""

    def __init__(self, isolation: Isolation, turn: Turn, job: Job, run: RunTasks) -> None:
        self._isolation = isolation
        self._turn = turn
        self._job = job
        self._run = run
        self._reason: str | None = None
        self._by_store = False

    def __repr__(self) -> str:
        return f"<Attempt of {self._isolation!r}>"

    async def run(self, tasks: list[Task]) -> list[TaskFacts]:
        """Run tasks of the job."""
        try:
            facts = await self._run(tasks)
            for unavailable in (fact.unavailable for fact in facts if fact.unavailable):
                raise StoreUnavailable(unavailable)
        except HeadwaterError as error:
            self._reason, self._by_store = str(error), isinstance(error, StoreUnavailable | OutcomeUnknown)
            raise
        return facts

    def succeeded(self, limits: Limits) -> None:
        """Note that the job has succeeded."""
        self._isolation.succeeded(self._turn, self._job, limits)

    async def failed(self, store: str, cluster: ClusterState) -> None:
        """Note that the job has failed: its tasks are at fault if a task without files succeeds now."""
        if self._reason is None:
            return
        try:
            await self._run([Task(VERSION, store, [])])
        except HeadwaterError:
            return
        names = {topic.id: topic.name for topic in cluster.topics.values()}
        self._isolation.failed(self._turn, self._job, self._reason, names, by_store=self._by_store)


def _files(job: Job) -> list[FileTask]:
    return [file for task in job.tasks for file in task.files]


def _topics(job: Job) -> frozenset[uuid.UUID]:
    return frozenset(topic for topics in job.topics for topic in topics)


def _is_decoded(job: Job) -> bool:
    return any(file.typing is not None for file in _files(job))


def _size(job: Job) -> tuple[int, int]:
    """How many runs or files a job reads, and the bytes of the runs."""
    files = _files(job)
    pieces = sum(len(part.runs) for file in files for part in file.parts) + sum(len(file.sources) for file in files)
    return pieces, sum(file.wal_bytes for file in files)


def _where(job: Job, name: str) -> str:
    """The partitions and offsets of a job of one topic."""
    parts = [part for file in _files(job) for part in file.parts]
    told = [f"{name}-{part.partition}, offsets {part.start} to {part.end - 1}" for part in parts[:LOGGED_RANGES]]
    return "; ".join(told) + (" and more" if len(parts) > LOGGED_RANGES else "") if told else name
