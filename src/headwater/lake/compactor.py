"""The compactor: settles topics whose turn has come, merges small segments, and removes what nobody needs.

It decides on the state, lets Spark do the work, and puts the result into the ledger: one command swaps the index and
enters the files into the table's journal. Everything before that command leaves only orphans, everything after it
can be repeated. Stale compactors are refused by `apply`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from headwater.clock import Chance, Clock
from headwater.config import Lake
from headwater.errors import HeadwaterError, Retriable
from headwater.lake.planning import DATA, Job, Limits, TopicPlan, due, plan_merge, plan_settle, table_root
from headwater.lake.retiring import outdated
from headwater.lake.tasks import FileFacts, Task, TaskFacts
from headwater.log.several import each
from headwater.metadata.cluster import ClusterState
from headwater.metadata.commands import ForgetFiles, Merge, NewFile, Retire, SegmentRun, Settle, TakeLease
from headwater.metadata.replica import Replica
from headwater.metadata.results import Done, Result
from headwater.metadata.settling import COMPACTION
from headwater.metadata.streams import Stream, StreamsState
from headwater.metadata.tables import TopicTable
from headwater.metadata.topic_configs import TABLE_RETENTION, TopicConfig
from headwater.objects import ObjectStore
from headwater.types import Domain

log = logging.getLogger("headwater.compactor")
FORGET_BATCH = 500
COLLECTED_AT_ONCE = 1_000
"""Segments that are deleted before settling has its turn again."""
TABLES = "tables/"


class RunJob(Protocol):
    """Runs tasks somewhere and answers with their facts, in order."""

    def __call__(self, tag: str, tasks: Sequence[Task]) -> Awaitable[list[TaskFacts]]: ...


class Compactor:
    """Settles the domains whose compaction lease this process holds."""

    def __init__(
        self,
        cluster: Replica[ClusterState],
        domains: Mapping[Domain, Replica[StreamsState]],
        store: ObjectStore,
        run_job: RunJob,
        settings: Lake,
        clock: Clock,
        chance: Chance,
        *,
        slots: int,
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._cluster = cluster
        self._domains = domains
        self._store = store
        self._run_job = run_job
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._slots = slots
        self._prepare = prepare
        """Called once, as soon as there is something that will have to be settled: Spark takes seconds to start."""
        self._limits = Limits(
            file_bytes=settings.file_bytes,
            job_bytes=settings.job_bytes,
            merge_files=settings.merge_files,
            small_file_bytes=settings.small_file_bytes,
        )
        self._jobs = 0
        self._running: set[int] = set()
        self._swept: dict[Domain, float] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.settled_files = 0
        self.settled_rows = 0
        self.merged_files = 0
        self.retired_files = 0
        self.deleted_files = 0
        self.deleted_orphans = 0
        self.failed_jobs = 0

    def __repr__(self) -> str:
        return f"<Compactor, {self._jobs} jobs, {self.settled_files} files settled>"

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._renew(), name="compaction-lease"),
            asyncio.create_task(self._run(), name="compaction"),
        ]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _renew(self) -> None:
        """Jobs may take longer than a lease."""
        while True:
            await asyncio.sleep(self._settings.lease_ms / 3000)
            for replica in self._domains.values():
                held = replica.state.lease(COMPACTION)
                if replica.epoch and held is not None and held.holder == replica.epoch:
                    with contextlib.suppress(Retriable):
                        await replica.submit([TakeLease(COMPACTION, self._settings.lease_ms)])

    async def _run(self) -> None:
        while True:
            busy = await self.round()
            if not busy:
                await asyncio.sleep(self._settings.interval_ms / 1000 * (0.5 + self._chance.fraction()))

    async def round(self) -> bool:
        """One pass over all domains; says whether there was anything to settle."""
        busy = False
        for replica in self._domains.values():
            try:
                busy = await self._keep(replica) or busy
            except Retriable as error:
                log.info("settling put off", extra={"domain": replica.domain, "reason": str(error)})
            except HeadwaterError as error:
                log.error("settling failed", extra={"domain": replica.domain, "reason": str(error)})
        return busy

    async def lease(self, replica: Replica[StreamsState]) -> int | None:
        """The number of a domain's compaction lease, if this process holds it or can have it."""
        if not replica.epoch:
            return None
        held, now = replica.state.lease(COMPACTION), replica.state.clock_ms
        if held is not None and held.holder == replica.epoch:
            return held.number
        if held is not None and held.expires_ms > now:
            return None
        [result] = await replica.submit([TakeLease(COMPACTION, self._settings.lease_ms)])
        return result.value if isinstance(result, Done) else None

    async def _keep(self, replica: Replica[StreamsState]) -> bool:
        lease = await self.lease(replica)
        if lease is None:
            return False
        settled = await self._settle(replica, lease)
        merged = await self._merge(replica, lease)
        await self._retire(replica, lease)
        more = await self._collect(replica, lease)
        await self._sweep(replica)
        return settled or merged or more

    # --- settling ------------------------------------------------------------------------------------------

    def plans(self, replica: Replica[StreamsState]) -> list[TopicPlan]:
        """Every topic of a domain that can be settled."""
        state, found = replica.state, []
        for topic in self._cluster.state.topics.values():
            if topic.domain != replica.domain or topic.deleting:
                continue
            streams = [state.streams[s] for s in topic.streams if s in state.streams]
            config = TopicConfig.of(topic.configs)
            table = state.tables.get(topic.id)
            root = table.root if table is not None else table_root(topic.name, topic.id)
            found.append(TopicPlan(topic.id, root, streams, config.freshness_ms or self._settings.freshness_ms))
        return found

    async def _settle(self, replica: Replica[StreamsState], lease: int) -> bool:
        now, state = state_clock(replica, self._clock), replica.state
        everything = self.plans(replica)
        plans = [p for p in everything if p.topic in state.wanted or due(state, p, now, self._limits)]
        if not plans:
            self._prepare_for(everything)
            return False
        roots = {plan.topic: plan.root for plan in plans}
        job, facts = await self._work(
            replica,
            lambda prefix: plan_settle(
                state, plans, store=self._store.url, prefix=prefix, slots=self._slots, limits=self._limits
            ),
        )
        by_topic = _by_topic(job, facts)
        commands = [Settle(lease, topic, roots[topic], *_files_and_runs(found)) for topic, found in by_topic.items()]
        results = await asyncio.gather(*(replica.submit([command]) for command in commands))
        for command, [result] in zip(commands, results, strict=True):
            if await self._stands(command, roots[command.topic], result):
                self.settled_files += len(command.files)
                self.settled_rows += sum(file.rows for file in command.files)
        return bool(commands)

    def _prepare_for(self, plans: list[TopicPlan]) -> None:
        waiting = any(stream.settled < stream.end for plan in plans for stream in plan.streams)
        if waiting and self._prepare is not None:
            self._tasks.append(asyncio.ensure_future(self._prepare()))
            self._prepare = None

    async def _merge(self, replica: Replica[StreamsState], lease: int) -> bool:
        state = replica.state
        tables = [table for table in state.tables.values() if not table.dropped]
        streams: dict[uuid.UUID, list[Stream]] = {}
        for stream in state.streams.values():
            streams.setdefault(stream.topic, []).append(stream)
        job, facts = await self._work(
            replica,
            lambda prefix: plan_merge(
                tables,
                lambda topic: streams.get(topic, []),
                store=self._store.url,
                prefix=prefix,
                slots=self._slots,
                limits=self._limits,
            ),
        )
        by_topic = _by_topic(job, facts)
        commands = [
            Merge(lease, topic, job.removed[topic], *_files_and_runs(found)) for topic, found in by_topic.items()
        ]
        results = await asyncio.gather(*(replica.submit([command]) for command in commands))
        for command, [result] in zip(commands, results, strict=True):
            root = state.tables[command.topic].root if command.topic in state.tables else ""
            if await self._stands(command, root, result):
                self.merged_files += len(command.removed)
        return bool(job)

    async def _work(self, replica: Replica[StreamsState], plan: Callable[[str], Job]) -> tuple[Job, list[TaskFacts]]:
        """Run a job. Its number is part of the names of the files it writes."""
        self._jobs += 1
        number = self._jobs
        job = plan(f"{replica.epoch:010d}-{number:08d}-")
        if not job:
            return job, []
        self._running.add(number)
        try:
            return job, await self._run_job(f"headwater-{replica.domain}-{replica.epoch}-{number}", job.tasks)
        except HeadwaterError:
            self.failed_jobs += 1
            raise
        finally:
            self._running.discard(number)

    async def _stands(self, command: Settle | Merge, root: str, result: Result) -> bool:
        """Whether the ledger took a command. If not, its files belong to nobody, now and for ever."""
        if isinstance(result, Done):
            return True
        log.info("a settled topic changed meanwhile", extra={"topic": str(command.topic), "reason": str(result)})
        for file in command.files:
            if root:
                await self._store.delete(f"{root}/{file.name}")
        return False

    # --- removing ----------------------------------------------------------------------------------------------

    async def _retire(self, replica: Replica[StreamsState], lease: int) -> None:
        """Take files out of tables whose topics say how long their tables keep rows."""
        now, state = state_clock(replica, self._clock), replica.state
        for topic in list(self._cluster.state.topics.values()):
            table = state.tables.get(topic.id)
            if TABLE_RETENTION not in topic.configs or topic.deleting or table is None or table.dropped:
                continue
            files = outdated(table, TopicConfig.of(topic.configs).table_retention_ms, now)
            if files:
                [result] = await replica.submit([Retire(lease, topic.id, [file.number for file in files])])
                if isinstance(result, Done):
                    self.retired_files += len(files)

    async def _collect(self, replica: Replica[StreamsState], lease: int) -> bool:
        """Delete segments that no version, index entry or follower needs, and forget them. Tells if more are left."""
        deleted = 0
        for table in list(replica.state.tables.values()):
            if deleted >= COLLECTED_AT_ONCE:
                return True
            if table.dropped and table.followers:
                continue  # catalogs first: none must name a file that is gone
            ripe = table.ripe()
            if table.dropped:
                await self._remove_table(table)
            for i in range(0, max(len(ripe), table.dropped), FORGET_BATCH):
                batch = ripe[i : i + FORGET_BATCH]
                await each(self._store.delete, [f"{table.root}/{file.name}" for file in batch])
                await replica.submit([ForgetFiles(lease, table.topic, [file.number for file in batch])])
                self.deleted_files += len(batch)
                deleted += len(batch)
        return False

    async def _remove_table(self, table: TopicTable) -> None:
        """A deleted topic's table goes as a whole, metadata and all."""
        async for info in self._store.scan(f"{table.root}/"):
            await self._store.delete(info.path)

    async def _sweep(self, replica: Replica[StreamsState]) -> None:
        """Delete files of attempts that never counted: of fenced epochs, and of our own jobs that are over."""
        now = self._clock.monotonic()
        if now - self._swept.get(replica.domain, float("-inf")) < self._settings.orphan_interval_ms / 1000:
            return
        await self.sweep(replica)
        self._swept[replica.domain] = now

    async def sweep(self, replica: Replica[StreamsState]) -> None:
        """See `_sweep`; right now."""
        await replica.barrier()
        state, oldest = replica.state, min(self._running, default=self._jobs + 1)
        known = {f"{table.root}/{file.name}" for table in state.tables.values() for file in table.files.values()}
        async for info in self._store.scan(TABLES):
            written_by = _writer_of(info.path)
            if written_by is None or info.path in known:
                continue
            epoch, job = written_by
            if state.is_fenced(epoch) or (epoch == replica.epoch and job < oldest):
                await self._store.delete(info.path)
                self.deleted_orphans += 1


def state_clock(replica: Replica[StreamsState], clock: Clock) -> int:
    """The time by which a topic's turn is judged: objects carry their writers' clocks."""
    return max(replica.state.clock_ms, clock.wall_ms())


def _by_topic(job: Job, facts: list[TaskFacts]) -> dict[uuid.UUID, list[FileFacts]]:
    found: dict[uuid.UUID, list[FileFacts]] = {}
    for topics, task in zip(job.topics, facts, strict=True):
        for topic, file in zip(topics, task.files, strict=True):
            found.setdefault(topic, []).append(file)
    return found


def _files_and_runs(facts: list[FileFacts]) -> tuple[list[NewFile], list[SegmentRun]]:
    """The files of a topic and where its streams lie in them, each stream's runs in the order of their offsets."""
    files: list[NewFile] = []
    runs: list[SegmentRun] = []
    for fact in facts:
        number = -1
        if fact.file is not None:
            number = len(files)
            files.append(fact.file)
        for run in fact.runs:
            held = number if run.groups else -1
            runs.append(SegmentRun(run.stream, run.start, run.end, held, run.first_group, run.groups))
    runs.sort(key=lambda run: (run.stream, run.start))
    return files, runs


def _writer_of(path: str) -> tuple[int, int] | None:
    """Epoch and job in the name of a data file, if it is one of ours."""
    directory, _, name = path.rpartition("/")
    epoch, job, *rest = (*name.split("-", 2), "", "")[:4]
    if not directory.endswith("/" + DATA.rstrip("/")) or not epoch.isdecimal() or not job.isdecimal() or not rest[0]:
        return None
    return int(epoch), int(job)
