"""The compactor: settles topics that are due, merges small segments, and removes what is no longer needed.

It plans by the state, runs the tasks on Spark, and commits the result to the ledger: one command replaces index entries
and enters the files into the journal of the table. A failure before that command leaves only orphans. All work after it
can be repeated. `apply` refuses commands of a stale compactor.

Objects that cannot be read hold up only the streams that need them (`lake/damaged.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from headwater.background import Duty, OnDeath, Supervised, Tasks, each
from headwater.clock import earliest_ms
from headwater.configs.topics import TABLE_RETENTION, TopicConfig
from headwater.errors import HeadwaterError, Retriable
from headwater.lake.backfill import plan_rewrite
from headwater.lake.commands import Swap, facts_by_topic, failures_of, replace_command, settle_command
from headwater.lake.damaged import DamagedInputs
from headwater.lake.decoding import Decoding
from headwater.lake.indexing import cut_topics, indexed
from headwater.lake.isolating import Attempt, Isolation, Isolations, Turn
from headwater.lake.planning import (
    Job,
    Limits,
    Pace,
    TopicPlan,
    Turns,
    due,
    lag_ms,
    lag_of,
    plan_settle,
    table_root,
    writer_of,
)
from headwater.lake.recutting import plan_merges
from headwater.lake.registries import BuiltIn, Registry
from headwater.lake.retiring import outdated
from headwater.lake.tasks import DamagedInput, FileFacts, Task, TaskFacts
from headwater.log.damage import Damage
from headwater.log.housekeeping import deletable_before
from headwater.replica.domains import Domains
from headwater.replica.replica import Replica
from headwater.settings.settings import Lake
from headwater.state.commands.base import TakeLease
from headwater.state.commands.tables import ForgetFiles, NewFile, Retire
from headwater.state.results import Done, Result
from headwater.state.streams.domain import COMPACTION
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream
from headwater.state.streams.tables import TopicTable
from headwater.types import Domain

log = logging.getLogger("headwater.compactor")
FORGET_BATCH = 500
COLLECTED_AT_ONCE = 1_000
"""At most this many segments are deleted before the compactor settles again."""
TABLES = "tables/"
LEASE = Duty("compaction-lease", OnDeath.RESTART, "renews the leases of the domains that are settled here")
LATE_MS = 30_000
"""Settling a topic takes some seconds itself. It is late if it has exceeded its freshness target by this time."""
COMPACTION_DUTY = Duty("compaction", OnDeath.RESTART, "settles topics into tables, merges and deletes segments")


class RunJob(Protocol):
    """Runs tasks somewhere and returns their facts, in order."""

    def __call__(self, tag: str, tasks: Sequence[Task]) -> Awaitable[list[TaskFacts]]: ...


class Compactor:
    """Settles the domains whose compaction lease this process holds."""

    def __init__(
        self,
        domains: Domains,
        run_job: RunJob,
        settings: Lake,
        *,
        slots: int,
        prepare: Callable[[], Awaitable[None]] | None = None,
        registry: Registry | None = None,
    ) -> None:
        """Schemas come from `registry`, by default from that of this cluster."""
        self._cluster = domains.cluster
        self._domains = domains
        self._store = domains.store
        self._run_job = run_job
        self._settings = settings
        self._clock = domains.clock
        self._chance = domains.chance
        self._slots = slots
        self._prepare = prepare
        """Called once, as soon as there are records to settle: Spark takes seconds to start."""
        self._limits = Limits.of(settings)
        self.decoding = Decoding(registry or BuiltIn(domains.cluster), domains.clock)
        self.damage = Damage(domains)
        self._damaged = DamagedInputs(self.damage, domains.store)
        self.isolated = Isolations(self._clock)
        self._jobs = 0
        self._turns: dict[Domain, Turns] = {}
        self._pace = Pace()
        self._looked: dict[uuid.UUID, int] = {}
        """The versions of tables in which there are no files to cut by partition."""
        self._running: set[int] = set()
        self._swept: dict[Domain, float] = {}
        self._duties: list[Supervised] = []
        self._preparing = Tasks()
        self.settled_files = self.settled_rows = 0
        self.merged_files = self.retired_files = 0
        self.deleted_files = self.deleted_orphans = 0
        self.rewritten_files = 0
        self.undecodable_rows = 0
        self.failed_jobs = 0
        self.late: dict[Domain, dict[uuid.UUID, int]] = {}
        """Topics whose tables are too far behind, with the age of the oldest record that waits, in milliseconds."""

    def __repr__(self) -> str:
        return f"<Compactor, {self._jobs} jobs, {self.settled_files} files settled>"

    def start(self) -> None:
        run = self._domains.background.run
        self._duties = [run(LEASE, self._renew), run(COMPACTION_DUTY, self._run)]

    async def close(self) -> None:
        for duty in self._duties:
            await duty.stop()
        await self._preparing.close()

    async def _renew(self) -> None:
        """Renew the leases regularly, because a job may take longer than a lease, and look for late topics."""
        while True:
            await asyncio.sleep(self._settings.lease_ms / 3000)
            for replica in self._domains.values():
                held = replica.state.lease(COMPACTION)
                if replica.epoch and held is not None and held.holder == replica.epoch:
                    with contextlib.suppress(Retriable):
                        await replica.submit([TakeLease(COMPACTION, self._settings.lease_ms)])
                self.judge_lateness(replica)

    async def _run(self) -> None:
        while True:
            busy = await self.round()
            if not busy:
                await asyncio.sleep(self._settings.interval_ms / 1000 * (0.5 + self._chance.fraction()))

    async def round(self) -> bool:
        """One pass over all domains; returns whether there was anything to settle."""
        busy = False
        for replica in self._domains.values():
            try:
                busy = await self._keep(replica) or busy
            except Retriable as error:
                log.info("settling postponed", extra={"domain": replica.domain, "reason": str(error)})
            except HeadwaterError as error:
                log.error("settling failed", extra={"domain": replica.domain, "reason": str(error)})
        return busy

    async def lease(self, replica: Replica[StreamsState]) -> int | None:
        """The number of a domain's compaction lease, if this process holds it or can take it; else None."""
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
        try:
            await self._damaged.recheck(replica.state)
            settled = await self._settle(replica, lease)
            merged = await self._merge(replica, lease)
            rewritten = await self._rewrite(replica, lease)
        finally:  # what needs no job goes on if jobs fail
            await self._retire(replica, lease)
            more = await self._collect(replica, lease)
            await self._sweep(replica)
        return settled or merged or rewritten or more

    # --- settling ------------------------------------------------------------------------------------------

    def plans(self, replica: Replica[StreamsState]) -> list[TopicPlan]:
        """The topics of a domain that can be settled."""
        state, found = replica.state, []
        stops = self._damaged.stops(state) if self.damage else {}
        for topic in self._cluster.state.topics.values():
            if topic.domain != replica.domain or topic.deleting:
                continue
            streams = [state.streams[s] for s in topic.streams if s in state.streams]
            config = TopicConfig.of(topic.configs, self._cluster.state.resources.common)
            table = state.tables.get(topic.id)
            root = table.root if table is not None else table_root(topic.name, topic.id)
            freshness_ms = config.freshness_ms or self._settings.freshness_ms
            found.append(TopicPlan(topic.id, root, streams, freshness_ms, stops))
        return found

    def judge_lateness(self, replica: Replica[StreamsState]) -> None:
        """Note and log which topics of a domain that is settled here are late, and which are no longer."""
        before = self.late.get(replica.domain, {})
        if not self._settles(replica):
            self.late.pop(replica.domain, None)
            return
        now, late = replica.state.now_ms(self._clock.wall_ms()), dict[uuid.UUID, int]()
        for plan in self.plans(replica):
            lag = lag_ms(replica.state, plan.streams, now)
            facts = {"table": plan.root, "seconds": lag / 1000}
            if lag > plan.freshness_ms + LATE_MS:
                late[plan.topic] = lag
                if plan.topic not in before and plan.topic not in self.isolated.alerts:
                    log.warning("settling is late: it does not get enough of the machine", extra=facts)
            elif plan.topic in before:
                log.info("settling is in time again", extra=facts)
        self.late[replica.domain] = late

    def lag(self) -> float:
        """The greatest lag of the topics that are settled here, in their freshness targets."""
        replicas = [replica for replica in self._domains.values() if self._settles(replica)]
        wall_ms = self._clock.wall_ms()
        return max((lag_of(r.state, self.plans(r), r.state.now_ms(wall_ms)) for r in replicas), default=0.0)

    def _settles(self, replica: Replica[StreamsState]) -> bool:
        held = replica.state.lease(COMPACTION)
        return held is not None and held.holder == replica.epoch

    async def _settle(self, replica: Replica[StreamsState], lease: int) -> bool:
        now, state = replica.state.now_ms(self._clock.wall_ms()), replica.state
        self.isolated.keep(self._cluster.state.topics)
        everything = self.plans(replica)
        plans = [p for p in everything if p.topic in state.wanted or due(state, p, now, self._limits)]
        if not plans:
            self._prepare_for(everything)
            return False
        typings = await self.decoding.typings(state, self._cluster.state, [plan.topic for plan in plans])
        plans = [replace(plan, typing=typings.get(plan.topic)) for plan in plans]
        turn = self.isolated.settling.turn(plan.topic for plan in plans)
        plans = turn.plans(plans)
        roots = {plan.topic: plan.root for plan in plans}
        turns = self._turns.setdefault(replica.domain, Turns())
        limits = turn.limits(self._pace.limits(everything, self._slots, self._limits))
        started = self._clock.monotonic()
        job, facts = await self._work(
            replica,
            lease,
            lambda prefix: plan_settle(
                state, plans, store=self._store.url, prefix=prefix, slots=self._slots, limits=limits, turns=turns
            ),
            self.isolated.settling,
            turn,
        )
        self._pace.note(job, limits, self._clock.monotonic() - started)
        by_topic, found = await self._sound(replica, job, facts, roots)
        commands = [settle_command(lease, topic, roots[topic], found) for topic, found in by_topic.items()]
        results = await asyncio.gather(*(replica.submit([command]) for command in commands))
        for command, [result] in zip(commands, results, strict=True):
            if await self._stands(command, roots[command.topic], result):
                self.settled_files += len(command.files)
                self.settled_rows += sum(file.rows for file in command.files)
                self.undecodable_rows += failures_of(command)
        return bool(commands) or found

    def _prepare_for(self, plans: list[TopicPlan]) -> None:
        waiting = any(stream.settled < stream.stable for plan in plans for stream in plan.streams)
        if waiting and self._prepare is not None:
            self._preparing.spawn(self._warm_up(self._prepare), "warm-up")
            self._prepare = None

    async def _warm_up(self, prepare: Callable[[], Awaitable[None]]) -> None:
        try:
            await prepare()
        except HeadwaterError as error:  # the first job will raise it again
            log.warning("preparing for the first job failed", extra={"reason": str(error)})

    async def _merge(self, replica: Replica[StreamsState], lease: int) -> bool:
        state = replica.state
        turn = self.isolated.merging.turn(table.topic for table in state.tables.values() if not table.dropped)
        tables = [table for table in state.tables.values() if table.topic in turn]
        streams: dict[uuid.UUID, list[Stream]] = {}
        for stream in state.streams.values():
            streams.setdefault(stream.topic, []).append(stream)
        typings = await self.decoding.typings(state, self._cluster.state, [table.topic for table in tables])
        job, facts = await self._work(
            replica,
            lease,
            lambda prefix: plan_merges(
                tables,
                lambda topic: streams.get(topic, []),
                store=self._store.url,
                prefix=prefix,
                slots=self._slots,
                limits=self._limits,
                damaged=self._damaged.files(replica.domain) if self.damage else (),
                typed=state.typed,
                typings={topic: one for topic, one in typings.items() if not self.decoding.is_postponed(topic)},
                cut=cut_topics(self._cluster.state),
                looked=self._looked,
            ),
            self.isolated.merging,
            turn,
        )
        roots = {table.topic: table.root for table in tables}
        by_topic, _ = await self._sound(replica, job, facts, roots)
        commands = [
            replace_command(state, lease, topic, job.removed[topic], found, rewrites=topic in job.rewrites)
            for topic, found in by_topic.items()
            if topic not in job.rewrites or await self._decoded(topic, roots[topic], found)
        ]
        results = await asyncio.gather(*(replica.submit([command]) for command in commands))
        for command, [result] in zip(commands, results, strict=True):
            root = state.tables[command.topic].root if command.topic in state.tables else ""
            if await self._stands(command, root, result):
                self.merged_files += len(command.removed)
        return bool(job)

    async def _rewrite(self, replica: Replica[StreamsState], lease: int) -> bool:
        """Decode settled files that are not decoded yet, the newest ones first. Returns whether more may be left."""
        state = replica.state
        tables = [table for table in state.tables.values() if not table.dropped]
        typings = await self.decoding.typings(state, self._cluster.state, [table.topic for table in tables])
        if not typings:
            return False
        turn = self.isolated.rewriting.turn(typings)
        typings = {topic: turn.typing(typing) for topic, typing in typings.items() if topic in turn}
        job, facts = await self._work(
            replica,
            lease,
            lambda prefix: plan_rewrite(
                state,
                typings,
                store=self._store.url,
                prefix=prefix,
                slots=1 if turn.small else self._slots,
                limits=self._limits,
                damaged=self._damaged.files(replica.domain) if self.damage else (),
                postponed=self.decoding.is_postponed,
            ),
            self.isolated.rewriting,
            turn,
        )
        roots = {table.topic: table.root for table in tables}
        by_topic, _ = await self._sound(replica, job, facts, roots)
        changed = False
        for topic, found in by_topic.items():
            for number, fact in zip(job.removed[topic], found, strict=True):
                if not await self._decoded(topic, roots[topic], [fact]):
                    continue
                command = replace_command(state, lease, topic, [number], [fact], rewrites=True)
                [result] = await replica.submit([command])
                if await self._stands(command, roots[topic], result):
                    self.rewritten_files += 1
                    changed = True
        return changed

    async def _decoded(self, topic: uuid.UUID, root: str, facts: Sequence[FileFacts]) -> bool:
        """Whether rewritten files could be decoded. If not they are deleted, and tried again later."""
        if all(fact.typed.version for fact in facts):
            return True
        self.decoding.postpone(topic)
        await self._discard(root, [fact.file for fact in facts if fact.file is not None])
        return False

    async def _work(
        self,
        replica: Replica[StreamsState],
        lease: int,
        plan: Callable[[str], Job],
        isolation: Isolation,
        turn: Turn,
    ) -> tuple[Job, list[TaskFacts]]:
        """Run a job. Its number is part of the names of the files it writes. One that fails divides its topics."""
        self._jobs += 1
        number = self._jobs
        job = indexed(plan(f"{replica.epoch:010d}-{number:08d}-"), self._cluster.state)
        if not job:
            return job, []
        self._running.add(number)
        tag = f"headwater-{replica.domain}-{replica.epoch}-{number}"
        attempt = Attempt(isolation, turn, job, lambda tasks: self._run_job(tag, tasks))
        try:
            facts = await self.decoding.run(replica, lease, job, attempt.run)
            attempt.succeeded(self._limits)
            return job, facts
        except HeadwaterError:
            self.failed_jobs += 1
            await attempt.failed(self._store.url, self._cluster.state)
            raise
        finally:
            self._running.discard(number)

    async def _stands(self, command: Swap, root: str, result: Result) -> bool:
        """Whether the command was applied. If it was refused, its files can never enter a table, and are deleted."""
        if isinstance(result, Done):
            return True
        log.info("a topic changed while it was settled", extra={"topic": str(command.topic), "reason": str(result)})
        await self._discard(root, command.files)
        return False

    async def _discard(self, root: str, files: Sequence[NewFile]) -> None:
        for file in files:
            if root:
                await self._store.delete(f"{root}/{file.name}")

    async def _sound(
        self, replica: Replica[StreamsState], job: Job, facts: list[TaskFacts], roots: Mapping[uuid.UUID, str]
    ) -> tuple[dict[uuid.UUID, list[FileFacts]], bool]:
        """The files of topics whose inputs could all be read, and whether new damage was found.

        Files of the other topics are deleted: a later plan leaves out what cannot be read.
        """
        found = False
        by_topic = facts_by_topic(job.topics, facts)
        damaged: dict[uuid.UUID, list[DamagedInput]] = {}
        for topic, files in by_topic.items():
            inputs = [one for file in files for one in file.damaged]
            if inputs:
                damaged[topic] = inputs
        if damaged:
            await replica.barrier()
        for topic, inputs in damaged.items():
            found = self._damaged.note(replica.state, topic, inputs) or found
            await self._discard(roots[topic], [f.file for f in by_topic.pop(topic) if f.file is not None])
        return by_topic, found

    # --- removing ----------------------------------------------------------------------------------------------

    async def _retire(self, replica: Replica[StreamsState], lease: int) -> None:
        """Remove outdated files from tables whose topics limit the age of rows in tables."""
        state = replica.state
        now = state.clocks.retention_now_ms(earliest_ms(self._clock))
        for topic in list(self._cluster.state.topics.values()):
            table = state.tables.get(topic.id)
            if TABLE_RETENTION not in topic.configs or topic.deleting or table is None or table.dropped:
                continue
            config = TopicConfig.of(topic.configs, self._cluster.state.resources.common)
            files = outdated(table, config.table_retention_ms, now)
            if files:
                [result] = await replica.submit([Retire(lease, topic.id, [file.number for file in files])])
                if isinstance(result, Done):
                    self.retired_files += len(files)

    async def _collect(self, replica: Replica[StreamsState], lease: int) -> bool:
        """Delete segments that no version, index entry, follower or hold needs; returns whether more are left.

        The newest checkpoint knows of each of them that it was removed.
        """
        deleted, covered = 0, await deletable_before(replica)
        for table in list(replica.state.tables.values()):
            if deleted >= COLLECTED_AT_ONCE:
                return True
            if table.dropped and (table.followers or table.dropped_ms >= covered):
                continue  # catalogs first: none may name a deleted file
            ripe = [file for file in replica.state.ripe(table) if table.gone_ms(file) < covered]
            gone = table.dropped and len(ripe) == len(table.files)
            if gone:
                await self._remove_table(table)
            for i in range(0, max(len(ripe), gone), FORGET_BATCH):
                batch = ripe[i : i + FORGET_BATCH]
                await each(self._store.delete, [f"{table.root}/{file.name}" for file in batch])
                await replica.submit([ForgetFiles(lease, table.topic, [file.number for file in batch])])
                self.deleted_files += len(batch)
                deleted += len(batch)
        return False

    async def _remove_table(self, table: TopicTable) -> None:
        """Delete the whole table of a deleted topic, metadata included."""
        async for info in self._store.scan(f"{table.root}/"):
            await self._store.delete(info.path)

    async def _sweep(self, replica: Replica[StreamsState]) -> None:
        """Delete files that no command entered: those of fenced epochs, and of finished jobs of this process."""
        now = self._clock.monotonic()
        if now - self._swept.get(replica.domain, float("-inf")) < self._settings.orphan_interval_ms / 1000:
            return
        await self.sweep(replica)
        self._swept[replica.domain] = now

    async def sweep(self, replica: Replica[StreamsState]) -> None:
        """Do `_sweep` now."""
        await replica.barrier()
        state, oldest = replica.state, min(self._running, default=self._jobs + 1)
        known = {f"{table.root}/{file.name}" for table in state.tables.values() for file in table.files.values()}
        async for info in self._store.scan(TABLES):
            written_by = writer_of(info.path)
            if written_by is None or info.path in known:
                continue
            epoch, job = written_by
            if state.is_fenced(epoch) or (epoch == replica.epoch and job < oldest):
                await self._store.delete(info.path)
                self.deleted_orphans += 1
