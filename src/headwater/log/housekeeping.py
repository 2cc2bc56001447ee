"""What somebody has to do from time to time, once per domain: retention, garbage collection, checkpoints.

Whoever holds a domain's housekeeping lease does it. All of it is safe to repeat and safe to lose half way.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping

from headwater.clock import Chance, Clock
from headwater.config import Housekeeping as HousekeepingSettings
from headwater.errors import HeadwaterError, Retriable
from headwater.log import wal
from headwater.log.retention import new_log_start
from headwater.log.several import each
from headwater.metadata.cluster import ClusterState
from headwater.metadata.commands import DropStreams, ExpireProducers, ForgetObjects, Release, TakeLease, TrimStreams
from headwater.metadata.index import IndexEntry
from headwater.metadata.replica import Replica
from headwater.metadata.results import Done
from headwater.metadata.streams import HOUSEKEEPING, Stream, StreamsState
from headwater.metadata.topic_configs import TopicConfig
from headwater.metadata.topics import Topics, TopicUnknown
from headwater.objects import ObjectStore
from headwater.types import Domain

log = logging.getLogger("headwater.housekeeping")
BATCH = 1_000


class Housekeeper:
    """Keeps the domains of a process in order, as far as it holds their leases."""

    def __init__(
        self,
        cluster: Replica[ClusterState],
        domains: Mapping[Domain, Replica[StreamsState]],
        store: ObjectStore,
        topics: Topics,
        settings: HousekeepingSettings,
        clock: Clock,
        chance: Chance,
        checkpoint: Callable[[Domain], Awaitable[None]],
    ) -> None:
        self._cluster = cluster
        self._domains = domains
        self._store = store
        self._topics = topics
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._checkpoint = checkpoint
        self._task: asyncio.Task[None] | None = None
        self._checkpointed: dict[Domain, tuple[int, int]] = {}
        self._swept: dict[Domain, tuple[float, int]] = {}
        self.deleted_objects = 0
        self.deleted_orphans = 0
        self.trimmed_streams = 0
        self.released_reservations = 0
        self.waiting_streams: dict[Domain, int] = {}
        """Streams whose retention waits until their records are settled."""

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="housekeeping")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

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
            log.info("housekeeping put off", extra={"what": what, "reason": str(error)})
        except HeadwaterError as error:
            log.error("housekeeping failed", extra={"what": what, "reason": str(error)})

    async def _lease(self, replica: Replica[ClusterState] | Replica[StreamsState]) -> int | None:
        """The number of the lease, if this process holds it or can have it."""
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
            with contextlib.suppress(TopicUnknown):  # deleted meanwhile
                await self._topics.carry_through(topic)
        await self._write_checkpoint(self._cluster)

    async def _keep(self, replica: Replica[StreamsState]) -> None:
        lease = await self._lease(replica)
        if lease is None:
            return
        await self._drop_forgotten(replica)
        await self._release_expired(replica)
        await self._retain(replica)
        await self._expire_producers(replica)
        await self._collect(replica, lease)
        await self._sweep(replica)
        await self._write_checkpoint(replica)

    async def _drop_forgotten(self, replica: Replica[StreamsState]) -> None:
        """Drop streams of topics that are gone: a topic deleted while it was being created can leave them."""
        topics = self._cluster.state.topics
        strange = [stream for stream in replica.state.streams.values() if stream.topic not in topics]
        if not strange:
            return
        await self._cluster.barrier()  # a topic is entered before its streams: what is unknown now is gone
        gone = [int(stream.id) for stream in strange if stream.topic not in self._cluster.state.topics]
        for i in range(0, len(gone), BATCH):
            await replica.submit([DropStreams(tuple(gone[i : i + BATCH]))])

    async def _release_expired(self, replica: Replica[StreamsState]) -> None:
        """Let readers go on where a bulk append did not come in time. The ledger's own time decides."""
        now = max(replica.state.clock_ms, self._clock.wall_ms())
        expired = [Release(found.number) for found in replica.state.reservations.values() if found.expired(now)]
        if expired:
            results = await replica.submit(expired[:BATCH])
            released = sum(isinstance(result, Done) for result in results)
            self.released_reservations += released
            if released:
                log.warning("bulk appends did not come in time", extra={"domain": replica.domain, "number": released})

    async def _retain(self, replica: Replica[StreamsState]) -> None:
        state, topics = replica.state, self._cluster.state.topics

        starts, waiting = [], 0
        for i, stream in enumerate(list(state.streams.values())):
            topic = topics.get(stream.topic)
            if topic is not None and len(stream.index):
                written_ms = functools.partial(_written_ms, state, stream)
                start = new_log_start(stream, TopicConfig.of(topic.configs), state.clock_ms, written_ms)
                if state.settles and start > stream.settled:
                    waiting += 1  # the table would never get what goes now
                    start = stream.settled
                if start > stream.log_start:
                    starts.append((int(stream.id), start))
            if i % BATCH == BATCH - 1:
                await asyncio.sleep(0)
        for i in range(0, len(starts), BATCH):
            await replica.submit([TrimStreams(starts[i : i + BATCH])])
        self.trimmed_streams += len(starts)
        self.waiting_streams[replica.domain] = waiting
        if waiting:
            log.warning("retention waits for settling", extra={"domain": replica.domain, "streams": waiting})

    async def _expire_producers(self, replica: Replica[StreamsState]) -> None:
        state = replica.state
        before = state.clock_ms - self._settings.producer_expiry_ms
        if any(s.producers is not None and s.producers.oldest_ms < before for s in state.streams.values()):
            await replica.submit([ExpireProducers(before)])

    async def _collect(self, replica: Replica[StreamsState], lease: int) -> None:
        """Delete objects that nothing refers to any more, then forget them: in this order, or they would leak."""
        state = replica.state
        old = state.clock_ms - self._settings.dead_object_grace_ms
        ripe = [object_id for object_id, died in state.objects.dead() if died <= old]
        for i in range(0, len(ripe), BATCH):
            known = [found for found in map(state.objects.get, ripe[i : i + BATCH]) if found is not None]
            paths = [wal.path_of(found.zone, replica.domain, found.created_ms, found.id) for found in known]
            await each(self._store.delete, paths)
            gone = [(found.id.epoch, found.id.sequence) for found in known]
            await replica.submit([ForgetObjects(lease, gone)])
            self.deleted_objects += len(gone)

    async def _sweep(self, replica: Replica[StreamsState]) -> None:
        """Delete what fenced epochs stored but never entered. A live epoch's objects may still be entered."""
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

    async def _write_checkpoint(self, replica: Replica[ClusterState] | Replica[StreamsState]) -> None:
        """A ledger with a limit must be cut in time: what failed is tried again, also if nothing new can be added."""
        size, count = replica.bytes_applied, replica.records_applied
        size_before, count_before = self._checkpointed.get(replica.domain, (0, 0))
        limit = replica.checkpoint_records
        if size - size_before >= self._settings.checkpoint_bytes or (limit and count - count_before >= limit):
            await self._checkpoint(replica.domain)
            self._checkpointed[replica.domain] = (size, count)


def _written_ms(state: StreamsState, stream: Stream, entry: IndexEntry) -> int:
    """When an entry's records were written, to the accuracy of the object or file that holds them."""
    table = state.tables.get(stream.topic)
    if entry.file and table is not None:
        return table.files[entry.file].created_ms
    known = state.objects.get(entry.object)
    return known.created_ms if known is not None else 0
