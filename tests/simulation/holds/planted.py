"""Defects of holds, put in on purpose. The scene must find each of them, or it proves nothing.

Each is a context in which the defect is there.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from headwater.lake.compactor import Compactor
from headwater.query.holding import Holding
from headwater.replica.replica import Replica
from headwater.state.commands.holds import TakeHold
from headwater.state.streams import holds
from headwater.state.streams.domain import StreamsDomain
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored.holds import Holds
from headwater.state.streams.tables import DataFile, TopicTable
from headwater.types import Domain, Epoch, WalId

Defect = Callable[[], contextlib.AbstractContextManager[Any]]
SHORT_MS = 2_000


@contextlib.contextmanager
def _all(*patches: contextlib.AbstractContextManager[Any]) -> Any:
    with contextlib.ExitStack() as stack:
        for one in patches:
            stack.enter_context(one)
        yield


def _renewal_moves_past_a_query() -> contextlib.AbstractContextManager[Any]:
    def needed_since(self: Holding, domain: Domain, epoch: Epoch, now_ms: int) -> int:
        return now_ms

    return patch.object(Holding, "_needed_since", needed_since)


def _renewal_forgets_the_oldest() -> contextlib.AbstractContextManager[Any]:
    """The hold moves to the newest query that runs, not to the oldest."""

    def needed_since(self: Holding, domain: Domain, epoch: Epoch, now_ms: int) -> int:
        begun = [held.begun[domain][1] for held in self._running if held.begun[domain][0] == epoch]
        return max(begun, default=now_ms)

    return patch.object(Holding, "_needed_since", needed_since)


def _later_than() -> contextlib.AbstractContextManager[Any]:
    """What was removed at the time of the hold is not kept."""

    def keeps(self: Holds, removed_ms: int) -> bool:
        return self.oldest_ms is not None and removed_ms > self.oldest_ms

    def ripe_objects(self: StreamsDomain, before_ms: int) -> list[WalId]:
        return [found for found, died in self.objects.dead() if died <= before_ms and not self.held.keeps(died)]

    return _all(patch.object(Holds, "keeps", keeps), patch.object(StreamsDomain, "ripe_objects", ripe_objects))


def _dropped_by_a_clock() -> contextlib.AbstractContextManager[Any]:
    """A hold that was not moved for a while does not count."""
    right, objects = StreamsDomain.ripe, StreamsDomain.ripe_objects

    def fresh(self: StreamsDomain) -> contextlib.AbstractContextManager[Any]:
        kept = Holds()
        for epoch, hold in self.held:
            if hold.since_ms > self.clock_ms - SHORT_MS:
                kept.take(epoch, hold.since_ms).versions.update(hold.versions)
        return patch.object(self, "held", kept)

    def ripe(self: StreamsDomain, table: TopicTable) -> list[DataFile]:
        with fresh(self):
            return right(self, table)

    def ripe_objects(self: StreamsDomain, before_ms: int) -> list[WalId]:
        with fresh(self):
            return objects(self, before_ms)

    return _all(patch.object(StreamsDomain, "ripe", ripe), patch.object(StreamsDomain, "ripe_objects", ripe_objects))


def _topic_deletion_ignores_it() -> contextlib.AbstractContextManager[Any]:
    right = StreamsDomain.ripe

    def ripe(self: StreamsDomain, table: TopicTable) -> list[DataFile]:
        return table.ripe() if table.dropped else right(self, table)

    return patch.object(StreamsDomain, "ripe", ripe)


def _topic_deletion_takes_the_directory() -> contextlib.AbstractContextManager[Any]:
    """The directory of a deleted topic goes as a whole, whatever is still held in it."""
    right = Compactor._collect

    async def collect(self: Compactor, replica: Replica[StreamsState], lease: int) -> bool:
        for table in list(replica.state.tables.values()):
            if table.dropped:
                await self._remove_table(table)
        return await right(self, replica, lease)

    return patch.object(Compactor, "_collect", collect)


def _wal_is_not_held() -> contextlib.AbstractContextManager[Any]:
    def ripe_objects(self: StreamsDomain, before_ms: int) -> list[WalId]:
        return [found for found, died in self.objects.dead() if died <= before_ms]

    return patch.object(StreamsDomain, "ripe_objects", ripe_objects)


def _not_awaited() -> contextlib.AbstractContextManager[Any]:
    """A query begins before its hold is in the ledger."""

    async def begin(self: Holding, replica: Replica[StreamsState]) -> None:
        replica.enqueue([TakeHold()]).add_done_callback(lambda done: done.cancelled() or done.exception())

    def is_bare(self: Holding, replica: Replica[StreamsState]) -> bool:
        bare = replica.state.held.get(replica.epoch) is None and replica not in asked.get(replica.epoch, set())
        asked.setdefault(replica.epoch, set()).add(replica)
        return bare

    def has(self: Holding, domain: Domain, epoch: Epoch) -> bool:
        return True

    asked: dict[int, set[Any]] = {}
    return _all(
        patch.object(Holding, "_take", begin),
        patch.object(Holding, "_is_bare", is_bare),
        patch.object(Holding, "has", has),
    )


def _any_version_is_held() -> contextlib.AbstractContextManager[Any]:
    """A version is taken for whole if the state knows its files, though a deleter may be at work on them."""
    right = holds.is_whole

    def is_whole(state: StreamsDomain, table: TopicTable, version: int) -> bool:
        with patch.object(state, "held", _Everything(state.held)):
            return right(state, table, version)

    return patch.object(holds, "is_whole", is_whole)


class _Everything(Holds):
    """Says that it is older than all removals."""

    def __init__(self, right: Holds) -> None:
        super().__init__()
        for epoch, hold in right:
            self.take(epoch, 0).versions.update(hold.versions)
        self.take(0, 0)


def _versions_are_not_held() -> contextlib.AbstractContextManager[Any]:
    return patch.object(Holds, "versions", lambda self, topic: [])


def _outlives_its_fence() -> contextlib.AbstractContextManager[Any]:
    def fenced(state: StreamsDomain, epoch: int) -> None:
        """Nothing ends."""

    parts = tuple(
        dataclasses.replace(part, fenced=fenced) if part is holds.PART else part for part in StreamsState.PARTS
    )
    return patch.object(StreamsState, "PARTS", parts)


PLANTED: dict[str, Defect] = {
    "a renewal moves past a running query": _renewal_moves_past_a_query,
    "a renewal moves to the newest query": _renewal_forgets_the_oldest,
    "compared with > instead of >=": _later_than,
    "a hold is dropped by a clock": _dropped_by_a_clock,
    "topic deletion ignores holds": _topic_deletion_ignores_it,
    "topic deletion takes the whole directory": _topic_deletion_takes_the_directory,
    "WAL objects are not held": _wal_is_not_held,
    "a query begins before its hold is applied": _not_awaited,
    "a version is held whose files may be going": _any_version_is_held,
    "versions are not held": _versions_are_not_held,
    "a hold outlives its fence": _outlives_its_fence,
}
