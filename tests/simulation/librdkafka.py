"""A model of librdkafka's consumer, version 2.16: what it does with which error at which request, in both protocols.

What matters most is its assignment. A partition is first `pending`. An OffsetFetch moves it to `queried`. The answer
starts it. An OffsetFetch that fails with an error that is not retried leaves its partitions in `queried` for ever, and
while anything is queried no other partition is asked for. Only removing the partitions helps, and a member with queried
partitions does not complete a rebalance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from tests.simulation.clients import TOPIC
from tests.simulation.cluster import Disconnected
from tests.simulation.group_clients import (
    CONSUMER_HEARTBEAT,
    HEARTBEAT_S,
    REBALANCE_MS,
    SESSION_MS,
    GroupClient,
)

QUERY_S = 0.5
BACKOFF_S, BACKOFF_MAX_S = 0.1, 1.0
JOIN_S = 1.0
SOCKET_S = 60.0
SESSION_S = SESSION_MS / 1000
LEAVE_S = 3.0
"""librdkafka's grace on top of time-outs of a session."""

MOVED = {ErrorCode.not_coordinator, ErrorCode.coordinator_not_available}
"""Errors whose general action is a query for the coordinator, and no retry."""
RETRIED = {
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.request_timed_out,
    ErrorCode.kafka_storage_error,
    ErrorCode.not_enough_replicas,
}
"""Errors whose general action is a retry of the same request."""


class Librdkafka(GroupClient):
    """What both protocols share: the coordinator, retries, the assignment, commits."""

    request_s = SOCKET_S

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._querying: asyncio.Task[None] | None = None
        self._pending: dict[int, int | None] = {}
        """Assigned partitions that are not read yet, with their first offset or None if that must be asked for."""
        self._queried: set[int] = set()
        self._version = 0
        self._commits = 0
        self._idle = asyncio.Event()
        """Set while no partition waits and no commit is under way."""

    # --- the coordinator ---------------------------------------------------------------------------------

    def query(self) -> None:
        """Ask for the coordinator, unless that is under way."""
        if self._querying is None or self._querying.done():
            self._querying = self.spawn(self._query())

    def lost(self) -> None:
        """The coordinator is not known any more."""
        self.coordinator = None
        self.query()

    async def _query(self) -> None:
        while True:
            try:
                code, node = await self.find_coordinator()
            except (Disconnected, TimeoutError):
                pass
            else:
                if code is ErrorCode.none:
                    self._moved_to(node)
                    return
                self.coordinator = None
            await asyncio.sleep(QUERY_S)

    def _moved_to(self, node: int) -> None:
        before, self.coordinator = self.coordinator, node
        if before is not None and before != node:
            old = self.connection(before)
            old.broken(old.generation)
        if before != node:
            self.expedite()
        self._serve()

    def expedite(self) -> None:
        """Send the next heartbeat soon. Only the consumer protocol does."""

    async def known(self) -> None:
        """Wait until there is a coordinator."""
        while self.coordinator is None:
            self.query()
            await asyncio.sleep(BACKOFF_S)

    async def backoff(self, attempt: int) -> None:
        """The pause before a retry of a request. It then goes to the coordinator of that time."""
        await asyncio.sleep(min(BACKOFF_S * 2**attempt, BACKOFF_MAX_S) * (0.8 + 0.4 * self.rng.random()))
        await self.known()

    # --- the assignment ------------------------------------------------------------------------------------

    @property
    def assigned(self) -> set[int]:
        return {*self._pending, *self._queried, *self.positions}

    def assign(self, partitions: set[int]) -> None:
        """Add partitions."""
        self._pending.update(dict.fromkeys(partitions))
        self._version += 1
        self._serve()

    def unassign(self, partitions: set[int], *, is_lost: bool = False) -> None:
        """Remove partitions. Unless they are lost, their positions are committed."""
        ends = {p: self.positions.pop(p) for p in partitions if p in self.positions}
        for partition in partitions:
            self._pending.pop(partition, None)
            self._queried.discard(partition)
        self._version += 1
        if ends and not is_lost:
            self.commit(ends)
        self._serve()

    def _serve(self) -> None:
        can_query = self.coordinator is not None and not self._commits and not self._queried
        wanted = []
        for partition, offset in list(self._pending.items()):
            if offset is not None:
                self.positions[partition] = max(offset, 0)
            elif can_query:
                wanted.append(partition)
            else:
                continue
            del self._pending[partition]
        if wanted:
            self._queried.update(wanted)
            self.spawn(self._fetch(wanted, self._version))
        if self._pending or self._queried or self._commits:
            self._idle.clear()
        else:
            self._idle.set()

    async def _fetch(self, partitions: list[int], version: int) -> None:
        attempt = 0
        while True:
            code, found = ErrorCode.none, dict[int, int]()
            again = False
            try:
                code, found = await self.fetch_offsets(partitions, 9)
                again = code in RETRIED
                if code in MOVED or code is ErrorCode.kafka_storage_error:
                    self.query()
            except (Disconnected, TimeoutError):
                again = True
                self.query()
            if not again:
                break
            if version != self._version:
                return  # it is left to the assignment, which has nothing pending: the partitions stay in `queried`
            await self.backoff(attempt)
            attempt += 1
        if code is not ErrorCode.none:
            return  # the answer names no partitions, so all stay in `queried`
        for partition, offset in found.items():
            if partition in self._queried:
                self._queried.discard(partition)
                self._pending[partition] = offset
        self._serve()

    # --- commits -----------------------------------------------------------------------------------------------

    def commit(self, positions: Mapping[int, int]) -> None:
        self._commits += 1
        self._idle.clear()
        self.spawn(self._commit(dict(positions)))

    async def _commit(self, positions: dict[int, int]) -> None:
        epoch, attempt = self.epoch, 0
        while True:
            again = False
            try:
                code = await self.send_commit(positions, epoch, 9)
            except (Disconnected, TimeoutError):
                self.lost()
                again = True
            else:
                if code in MOVED:
                    self.lost()
                    again = True
                elif code in RETRIED or code is ErrorCode.unknown_topic_or_partition:
                    again = True
                elif self.commit_failed(code):
                    again, epoch = True, self.epoch
            if not again:
                break
            await self.backoff(attempt)
            attempt += 1
        self._commits -= 1
        self._serve()

    def commit_failed(self, code: ErrorCode) -> bool:
        """Act on an error of a commit. True if the commit is sent again with the present epoch."""
        raise NotImplementedError


class LibrdkafkaClassic(Librdkafka):
    """The classic protocol with an eager assignor."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._rejoin = asyncio.Event()
        self._steady = False
        self._beat_at = 0.0

    async def live(self) -> None:
        self.spawn(self._beats())
        while True:
            await self.known()
            began = self.cluster.world.loop.now
            if await self._join_and_sync():
                await self._rejoin.wait()
                self._steady = False
                self.unassign(self.assigned)
                await self._idle.wait()
            # Joins are intervalled.
            await asyncio.sleep(max(0.0, began + JOIN_S - self.cluster.world.loop.now))

    async def _join_and_sync(self) -> bool:
        joined = await self._answered(self.send_join)
        if joined is None:
            return False
        code = joined["error_code"]
        if code is ErrorCode.member_id_required:
            self.member_id = joined["member_id"]
            joined = await self._answered(self.send_join)
            if joined is None:
                return False
            code = joined["error_code"]
        if code is not ErrorCode.none:
            self._refused(code)
            return False
        self.member_id, self.epoch = joined["member_id"], joined["generation_id"]
        attempt = 0
        while True:
            synced = await self._answered(lambda: self.send_sync(joined, SESSION_S + LEAVE_S))
            if synced is None:
                return False
            if synced["error_code"] not in RETRIED:
                break
            await self.backoff(attempt)
            attempt += 1
        if synced["error_code"] is not ErrorCode.none:
            self._refused(synced["error_code"])
            return False
        self._rejoin.clear()
        self._steady, self._beat_at = True, self.cluster.world.loop.now
        self.assign(set(synced["assignment"]))
        self.was_assigned()
        return True

    async def _answered(self, send: Callable[[], Any]) -> Mapping[str, Any] | None:
        try:
            answer: Mapping[str, Any] = await send()
        except (Disconnected, TimeoutError):
            self.lost()
            return None
        if answer["error_code"] in MOVED:
            self.query()
        return answer

    def _refused(self, code: ErrorCode) -> None:
        if code is ErrorCode.unknown_member_id:
            self.member_id = ""
        elif code is ErrorCode.illegal_generation:
            self.epoch = -1

    def _is_in(self) -> bool:
        return self._steady

    async def _beats(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if not self._steady or self._rejoin.is_set():
                continue
            if self.cluster.world.loop.now > self._beat_at + SESSION_S:
                self.member_id = ""
                self._rejoin.set()
                continue
            if self.coordinator is None:
                continue
            try:
                code = await self.send_heartbeat(SESSION_S)
            except (Disconnected, TimeoutError):
                self.query()
                continue
            if not self._is_in():  # it may have changed meanwhile
                continue
            if code is ErrorCode.none:
                self._beat_at = self.cluster.world.loop.now
            elif code in MOVED:
                self.query()
            elif code in (ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation, ErrorCode.unknown_member_id):
                self._refused(code)
                self._rejoin.set()

    def commit_failed(self, code: ErrorCode) -> bool:
        if code in (ErrorCode.unknown_member_id, ErrorCode.illegal_generation) and self._steady:
            self._refused(code)
            self._rejoin.set()
        return False


class LibrdkafkaConsumer(Librdkafka):
    """The consumer protocol (KIP-848)."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.member_id = f"{self.rng.getrandbits(32):08x}"
        self._acked: dict[Any, frozenset[int]] = {}
        self._target: dict[Any, frozenset[int]] | None = None
        self._next: dict[Any, frozenset[int]] | None = None
        self._is_full = True
        self._is_steady = True
        self._beat = asyncio.Event()

    async def live(self) -> None:
        self.epoch = 0
        while True:
            await self.known()
            await self._heartbeat()
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._beat.wait()
            except TimeoutError:
                pass
            self._beat.clear()

    def expedite(self) -> None:
        self._beat.set()

    async def _heartbeat(self) -> None:
        fields: dict[str, Any] = {"rebalance_timeout": -1}
        is_full = self._is_full or self.epoch == 0
        acks = self._is_steady and self._target is not None
        if is_full:
            fields = {"rebalance_timeout": REBALANCE_MS, "subscribed_topic_names": [TOPIC]}
        owned = self._target if acks else self._acked if is_full else None
        if owned is not None:
            fields["topic_partitions"] = [{"topic_id": t, "partitions": sorted(p)} for t, p in owned.items()]
        fields |= {"group_id": self.truth.name, "member_id": self.member_id, "member_epoch": self.epoch}
        attempt = 0
        while True:
            try:
                answer = await self.ask_coordinator(CONSUMER_HEARTBEAT, 1, SESSION_S, **fields)
            except Disconnected:
                self._is_full = True
                self.lost()
                return
            except TimeoutError:
                again = True  # the same request once more, unchanged
            else:
                code = answer["error_code"]
                again = code in RETRIED
                if not again:
                    break
            await self.backoff(attempt)
            attempt += 1
        if code is ErrorCode.none:
            self._accepted(answer, owned if acks else None)
        elif code in MOVED:
            self._is_full = True
            self.query()
        elif code in (ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch):
            await self._start_over()
        else:
            self.fatal("ConsumerGroupHeartbeat", code)

    async def _start_over(self) -> None:
        while not self._is_steady:
            await asyncio.sleep(BACKOFF_S)  # a rebalance that is under way is completed first
        self.unassign(self.assigned, is_lost=True)
        await self._idle.wait()
        self.epoch, self._acked, self._target, self._next = 0, {}, None, None
        self._is_full = True
        self._beat.set()

    def _accepted(self, answer: Mapping[str, Any], acked: dict[Any, frozenset[int]] | None) -> None:
        self.epoch, self._is_full = answer["member_epoch"], False
        if answer["assignment"] is not None:
            pairs = answer["assignment"]["topic_partitions"]
            told = {pair["topic_id"]: frozenset(pair["partitions"]) for pair in pairs}
            self._next = told if told != (self._acked if self._target is None else self._target) else None
        if self._is_steady and self._target is not None:
            if acked is not None:
                self._acked, self._target = self._target, None
            else:
                self._beat.set()
        if self._next is not None and self._target is None and self._is_steady:
            self._target, self._next = self._next, None
            self._is_steady = False
            self.spawn(self._reconcile(self._target))

    async def _reconcile(self, target: dict[Any, frozenset[int]]) -> None:
        wanted = {partition for partitions in target.values() for partition in partitions}
        gone, new = self.assigned - wanted, wanted - self.assigned
        if gone:
            self.unassign(gone)
            await self._idle.wait()
        if new:
            self.assign(new)
        self._is_steady = True
        self._beat.set()
        if new:
            self.was_assigned()

    def commit_failed(self, code: ErrorCode) -> bool:
        if code is ErrorCode.stale_member_epoch:
            self._beat.set()
            return True
        if code is ErrorCode.unknown_member_id:
            self._beat.set()
        return False
