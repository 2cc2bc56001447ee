"""Periodic work, once per domain: retention, garbage collection, checkpoints.

The process that holds the housekeeping lease of a domain does the work. Every step may be repeated, and may be
interrupted half way.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Awaitable, Callable

from headwater.background import Duty, OnDeath, Supervised, each
from headwater.clock import earliest_ms
from headwater.configs.topics import TopicConfig
from headwater.errors import Conflict, HeadwaterError, NotFound, Retriable
from headwater.log.retention import cut_of
from headwater.log.wal import format as wal
from headwater.replica.domains import Domains
from headwater.replica.levels import follow_level
from headwater.replica.links import Linking
from headwater.replica.replica import Replica
from headwater.replica.topics import Topics
from headwater.settings.settings import Housekeeping as HousekeepingSettings
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.base import TakeLease
from headwater.state.commands.streams import (
    DropStreams,
    ExpireProducers,
    ForgetObjects,
    TrimStreams,
)
from headwater.state.commands.tables import Release
from headwater.state.commands.transactions import ForgetTransactions
from headwater.state.results import Done
from headwater.state.streams.domain import HOUSEKEEPING
from headwater.state.streams.state import StreamsState
from headwater.types import Domain

log = logging.getLogger("headwater.housekeeping")
BATCH = 1_000
WAITING_MS = 600_000
"""Deletions wait no longer than that for a checkpoint."""
WAITING_SHARE = 10
"""Nor do they wait if the WAL objects, or the segments, to be deleted take one part in so many of all."""
KEEPING = Duty("housekeeping", OnDeath.RESTART, "retention, garbage collection, checkpoints, topics half created")


async def deletable_before(replica: Replica[StreamsState]) -> int:
    """The ledger time before which something must have died so that it may be deleted: that of the newest checkpoint.

    The ledger is asked only if something died since the newest checkpoint that this replica knows.
    """
    state = replica.state
    if state.removed_between(replica.covered_ms, state.clock_ms + 1):
        await replica.look_for_checkpoint()
    return replica.covered_ms


class Housekeeper:
    """Does the housekeeping of each domain whose lease this process holds."""

    def __init__(
        self,
        domains: Domains,
        topics: Topics,
        settings: HousekeepingSettings,
        checkpoint: Callable[[Domain], Awaitable[None]],
        id_expiry_ms: int,
    ) -> None:
        self._cluster = domains.cluster
        self._domains = domains
        self._store = domains.store
        self._topics = topics
        self._linking = Linking(domains.cluster, domains, topics, domains.chance)
        self._settings = settings
        self._clock = domains.clock
        self._chance = domains.chance
        self._checkpoint = checkpoint
        self._id_expiry_ms = id_expiry_ms
        self._duty: Supervised | None = None
        self._checkpointed: dict[Domain, tuple[int, int]] = {}
        self._swept: dict[Domain, tuple[float, int]] = {}
        self.deleted_objects = 0
        self.deleted_orphans = 0
        self.trimmed_streams = 0
        self.released_reservations = 0
        self.forgotten_ids = 0
        self._spared: dict[Domain, set[str]] = {}
        """Topics with records that stay only because they arrived a short time ago."""
        self.waiting_streams: dict[Domain, int] = {}
        """Streams whose retention waits until their records are settled."""

    def start(self) -> None:
        self._duty = self._domains.background.run(KEEPING, self._run)

    async def close(self) -> None:
        if self._duty is not None:
            await self._duty.stop()

    async def _run(self) -> None:
        interval = self._settings.interval_ms / 1000
        while True:
            await asyncio.sleep(interval * (0.5 + self._chance.fraction()))
            await self.round()

    async def round(self) -> None:
        """One pass over all domains."""
        await self._attempt("cluster", self._keep_cluster())
        for replica in self._domains.values():
            await self._attempt(f"domain {replica.domain}", self._keep(replica))

    async def _attempt(self, what: str, work: Awaitable[None]) -> None:
        try:
            await work
        except Retriable as error:
            log.info("housekeeping postponed", extra={"what": what, "reason": str(error)})
        except (HeadwaterError, OSError) as error:
            log.error("housekeeping failed", extra={"what": what, "reason": str(error)})

    async def _lease(self, replica: Replica[ClusterState] | Replica[StreamsState]) -> int | None:
        """The number of the lease, if this process holds it or can take it; else None."""
        state = replica.state
        if not replica.epoch:
            return None
        held = state.lease(HOUSEKEEPING)
        now = state.clock_ms
        if held is not None and held.holder != replica.epoch and held.expires_ms > now:
            return None
        fresh = held is not None and held.expires_ms - now > self._settings.lease_ms // 2
        if held is not None and fresh and held.holder == replica.epoch:
            return held.number
        [result] = await replica.submit([TakeLease(HOUSEKEEPING, self._settings.lease_ms)])
        return result.value if isinstance(result, Done) else None

    async def _keep_cluster(self) -> None:
        if await self._lease(self._cluster) is None:
            return
        for topic in self._topics.pending():
            with contextlib.suppress(NotFound):  # deleted meanwhile
                await self._topics.carry_through(topic)
        await self._write_checkpoint(self._cluster, bool(self._cluster.state.topics))

    async def _keep(self, replica: Replica[StreamsState]) -> None:
        lease = await self._lease(replica)
        if lease is None:
            return
        await follow_level(self._cluster.state, replica)
        await self._drop_forgotten(replica)
        await self._topics.configure(replica)
        await self._carry_links(replica)
        await self._release_expired(replica)
        await self._retain(replica)
        await self._expire_producers(replica)
        await self._forget_transactions(replica)
        await self._write_checkpoint(replica, bool(replica.state.streams), await self._deletions_wait(replica))
        await self._collect(replica, lease)
        await self._sweep(replica)

    async def _carry_links(self, replica: Replica[StreamsState]) -> None:
        """Let streams take over the generation of their linked topic: a process may have died between the steps."""
        for linked in list(self._linking.behind(replica)):
            with contextlib.suppress(Conflict, NotFound):  # the topic has told why, or was deleted meanwhile
                await self._linking.carry_through(linked)

    async def _drop_forgotten(self, replica: Replica[StreamsState]) -> None:
        """Drop streams whose topic does not exist. A topic that is deleted while it is created can leave them."""
        topics = self._cluster.state.topics
        strange = [stream for stream in replica.state.streams.values() if stream.topic not in topics]
        if not strange:
            return
        await self._cluster.barrier()  # a topic is committed before its streams: one still unknown is deleted
        gone = [int(stream.id) for stream in strange if stream.topic not in self._cluster.state.topics]
        for i in range(0, len(gone), BATCH):
            await replica.submit([DropStreams(tuple(gone[i : i + BATCH]))])

    async def _release_expired(self, replica: Replica[StreamsState]) -> None:
        """Release expired reservations of bulk appends, so that readers continue. The ledger's time decides."""
        now = replica.state.now_ms(self._clock.wall_ms())
        expired = [Release(found.number) for found in replica.state.reservations.values() if found.expired(now)]
        if expired:
            results = await replica.submit(expired[:BATCH])
            released = sum(isinstance(result, Done) for result in results)
            self.released_reservations += released
            if released:
                log.warning("bulk appends have expired", extra={"domain": replica.domain, "number": released})

    async def _retain(self, replica: Replica[StreamsState]) -> None:
        state, topics, common = replica.state, self._cluster.state.topics, self._cluster.state.resources.common
        configs: dict[uuid.UUID, TopicConfig] = {}
        starts, waiting, spared = [], 0, set[str]()
        now = state.clocks.retention_now_ms(earliest_ms(self._clock))
        for i, stream in enumerate(list(state.streams.values())):
            topic = topics.get(stream.topic)
            if topic is not None and len(stream.index):
                config = configs.get(topic.id)
                if config is None:
                    config = configs[topic.id] = TopicConfig.of(topic.configs, common)
                cut = cut_of(state, stream, config, now, self._settings.arrival_grace_ms)
                start = cut.start
                if cut.spared:
                    spared.add(topic.name)
                if state.settles and start > stream.settled:
                    waiting += 1  # otherwise these records would miss the table
                    start = stream.settled
                if start > stream.log_start:
                    starts.append((int(stream.id), start))
            if i % BATCH == BATCH - 1:
                await asyncio.sleep(0)
        for i in range(0, len(starts), BATCH):
            await replica.submit([TrimStreams(starts[i : i + BATCH])])
        self.trimmed_streams += len(starts)
        self.waiting_streams[replica.domain] = waiting
        for name in spared - self._spared.get(replica.domain, set()):
            log.warning(
                "records that arrive are older than their topic keeps records: they stay for a while and are then "
                "removed. To keep them, set retention.ms of the topic to a longer time",
                extra={"topic": name, "minutes": self._settings.arrival_grace_ms / 60_000},
            )
        self._spared[replica.domain] = spared
        if waiting:
            log.warning("retention waits for settling", extra={"domain": replica.domain, "streams": waiting})

    async def _expire_producers(self, replica: Replica[StreamsState]) -> None:
        state = replica.state
        before = state.clock_ms - self._settings.producer_expiry_ms
        if any(s.producers is not None and s.producers.oldest_ms < before for s in state.streams.values()):
            await replica.submit([ExpireProducers(before)])

    async def _forget_transactions(self, replica: Replica[StreamsState]) -> None:
        """Forget transactional ids that nobody has used for long. Those with an open transaction stay."""
        state = replica.state
        before = state.clock_ms - self._id_expiry_ms
        idle = any(not found.open and found.changed_ms < before for found in state.transactions)
        if idle:
            [result] = await replica.submit([ForgetTransactions(before)])
            self.forgotten_ids += result.value if isinstance(result, Done) else 0

    async def _collect(self, replica: Replica[StreamsState], lease: int) -> None:
        """Delete unreferenced objects from the store, then remove them from the state.

        In the other order a crash in between would leave objects that are never deleted. The newest checkpoint knows
        of each of these objects that nothing refers to it any more.
        """
        state = replica.state
        old = state.clock_ms - self._settings.dead_object_grace_ms
        ripe = state.ripe_objects(min(old, replica.covered_ms - 1))
        for i in range(0, len(ripe), BATCH):
            known = [found for found in map(state.objects.get, ripe[i : i + BATCH]) if found is not None]
            paths = [wal.path_of(found.zone, replica.domain, found.created_ms, found.id) for found in known]
            await each(self._store.delete, paths)
            gone = [(found.id.epoch, found.id.sequence) for found in known]
            await replica.submit([ForgetObjects(lease, gone)])
            self.deleted_objects += len(gone)

    async def _sweep(self, replica: Replica[StreamsState]) -> None:
        """Delete objects that fenced epochs stored and no record names. Objects of a live epoch may still be named."""
        now = self._clock.monotonic()
        fenced = sum(1 for _ in replica.state.fenced_epochs())
        last, seen = self._swept.get(replica.domain, (float("-inf"), 0))
        if seen == fenced and now - last < self._settings.orphan_interval_ms / 1000:
            return
        await replica.barrier()
        state = replica.state
        marker = f"/domain={replica.domain}/"
        async for info in self._store.scan(wal.ROOT):
            object_id = wal.id_of_path(info.path)
            if object_id is None or marker not in info.path or not state.is_fenced(object_id.epoch):
                continue
            if state.objects.get(object_id) is None:
                await self._store.delete(info.path)
                self.deleted_orphans += 1
        self._swept[replica.domain] = (now, fenced)

    async def _deletions_wait(self, replica: Replica[StreamsState]) -> bool:
        """Whether deletions have waited for a checkpoint for long, or what waits takes much of the space."""
        state, objects, now = replica.state, replica.state.objects, replica.state.clock_ms
        covered, old = await deletable_before(replica), now - self._settings.dead_object_grace_ms
        dead = sum(objects.size(found) for found, died in objects.dead() if covered <= died <= old)
        if dead * WAITING_SHARE > objects.bytes:
            return True
        removed = sum(table.removed_bytes(covered) for table in state.tables.values())
        if removed * WAITING_SHARE > sum(table.bytes for table in state.tables.values()):
            return True
        return state.removed_between(covered, now - WAITING_MS)

    async def _write_checkpoint(
        self, replica: Replica[ClusterState] | Replica[StreamsState], used: bool, due: bool = False
    ) -> None:
        """Write a checkpoint if it is due, if enough was applied since the last one, if one of those that there are is
        damaged, or if there is none and the cluster is `used`.

        A ledger with a limit on its size needs checkpoints in time, so each round retries one that failed, even if no
        records are added any more.
        """
        size, count = replica.bytes_applied, replica.records_applied
        size_before, count_before = self._checkpointed.get(replica.domain, (0, 0))
        limit = replica.checkpoint_records
        await replica.look_at_checkpoints()
        due = due or size - size_before >= self._settings.checkpoint_bytes
        due = due or bool(limit and count - count_before >= limit) or bool(replica.bad_checkpoints)
        if due or (used and replica.covered_ms < 0 and await replica.look_for_checkpoint() < 0):
            await self._checkpoint(replica.domain)
            self._checkpointed[replica.domain] = (size, count)
            await replica.look_for_checkpoint()
