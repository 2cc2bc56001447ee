"""A model of the Java consumer, both protocols: what it does with which error at which request.

Errors that the Java client does not expect reach the application as an exception that it cannot retry. A model that
gets one fails the run.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
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

BACKOFF_S = 0.1
MOVED = {ErrorCode.not_coordinator, ErrorCode.coordinator_not_available}
"""Errors after which the client looks for the coordinator, and retries."""


class Java(GroupClient):
    """What both protocols share: the coordinator, offsets, commits."""

    request_s = 30.0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._committing: asyncio.Task[None] | None = None

    async def known(self) -> None:
        """Find the coordinator, for as long as that takes."""
        while self.coordinator is None:
            try:
                code, node = await self.find_coordinator()
            except (Disconnected, TimeoutError):
                code, node = ErrorCode.coordinator_not_available, -1
            if code is ErrorCode.none:
                self.coordinator = node
            elif code not in MOVED:
                self.fatal("FindCoordinator", code)
            else:
                await asyncio.sleep(BACKOFF_S)

    async def moved(self, send: Callable[[], Awaitable[Any]]) -> Any:
        """Send a request. Without a connection the coordinator is unknown, and the answer None."""
        try:
            return await send()
        except (Disconnected, TimeoutError):
            self.coordinator = None
            return None

    def check_moved(self, code: ErrorCode) -> bool:
        """Whether an error says that the coordinator is elsewhere."""
        if code in MOVED:
            self.coordinator = None
        return code in MOVED

    async def begin(self, partitions: set[int], is_current: Callable[[], bool]) -> None:
        """Fetch the committed offsets of partitions, until that succeeds or they are assigned no longer."""
        while partitions and is_current():
            await self.known()
            answer = await self.moved(lambda: self.fetch_offsets(sorted(partitions), 9))
            if answer is not None and is_current():
                code, found = answer
                if code is ErrorCode.none:
                    self.positions.update({p: max(offset, 0) for p, offset in found.items()})
                    return
                if not self.check_moved(code) and not self.fetch_retries(code):
                    self.fatal("OffsetFetch", code)
            await asyncio.sleep(BACKOFF_S)

    def fetch_retries(self, code: ErrorCode) -> bool:
        """Whether the client retries an OffsetFetch that failed with this code."""
        return code in (ErrorCode.coordinator_load_in_progress, ErrorCode.unstable_offset_commit)

    def commit(self, positions: Mapping[int, int]) -> None:
        if self._committing is None or self._committing.done():
            self._committing = self.spawn(self._commit(dict(positions)))

    async def _commit(self, positions: dict[int, int]) -> None:
        """An automatic commit. It fails with a warning; the next one comes after the interval."""
        await self.known()
        code = await self.moved(lambda: self.send_commit(positions, self.epoch, 9))
        if code is None or self.check_moved(code):
            return
        self.commit_failed(code)

    def commit_failed(self, code: ErrorCode) -> None:
        """Act on an error of a commit."""
        raise NotImplementedError


class JavaClassic(Java):
    """The classic protocol with an eager assignor."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._rejoin = asyncio.Event()
        self._generation = 0

    async def live(self) -> None:
        while True:
            await self.known()
            assigned = await self._join_and_sync()
            if assigned is None:
                await asyncio.sleep(BACKOFF_S)
                continue
            self._rejoin.clear()
            self._generation += 1
            now = self._generation

            def is_current(now: int = now) -> bool:
                return self._generation == now

            beats = self.spawn(self._beats())
            self.spawn(self.begin(assigned, is_current))
            self.was_assigned()
            await self._rejoin.wait()
            beats.cancel()
            self._generation += 1
            if self.positions and self.coordinator is not None:
                await self._commit(dict(self.positions))
            self.positions.clear()

    async def _join_and_sync(self) -> set[int] | None:
        joined = await self.moved(self.send_join)
        if joined is None:
            return None
        code = joined["error_code"]
        if code is ErrorCode.member_id_required:
            self.member_id = joined["member_id"]
            return None
        if code is not ErrorCode.none:
            known = (ErrorCode.coordinator_load_in_progress, ErrorCode.rebalance_in_progress)
            self._refused("JoinGroup", code, known)
            return None
        self.member_id, self.epoch = joined["member_id"], joined["generation_id"]
        synced = await self.moved(lambda: self.send_sync(joined, self.request_s))
        if synced is None:
            return None
        if synced["error_code"] is not ErrorCode.none:
            known = (ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation)
            self._refused("SyncGroup", synced["error_code"], known)
            return None
        return set(synced["assignment"])

    def _refused(self, request: str, code: ErrorCode, known: tuple[ErrorCode, ...]) -> None:
        if self.check_moved(code) or code in known:
            return
        if code is not ErrorCode.unknown_member_id:
            self.fatal(request, code)
        self.member_id, self.epoch = "", -1

    async def _beats(self) -> None:
        heard = self.cluster.world.loop.now
        while not self._rejoin.is_set():
            await asyncio.sleep(HEARTBEAT_S)
            if self.cluster.world.loop.now > heard + SESSION_MS / 1000:
                self.coordinator, heard = None, self.cluster.world.loop.now
            await self.known()
            code = await self.moved(lambda: self.send_heartbeat(self.request_s))
            if code is None or self.check_moved(code):
                continue
            heard = self.cluster.world.loop.now
            if code is not ErrorCode.none:
                self._refused("Heartbeat", code, (ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation))
                self._rejoin.set()

    def commit_failed(self, code: ErrorCode) -> None:
        if code in (ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation):
            self._rejoin.set()
        elif code is ErrorCode.unknown_member_id:
            self.member_id = ""
            self._rejoin.set()
        elif code not in (
            ErrorCode.none,
            ErrorCode.coordinator_load_in_progress,
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.request_timed_out,
        ):
            self.fatal("OffsetCommit", code)


class JavaConsumer(Java):
    """The consumer protocol (KIP-848). Heartbeats have only the fields that changed, and all after a failure."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.member_id = f"{self.rng.getrandbits(32):08x}"
        self._owned: dict[Any, frozenset[int]] = {}
        self._sent: dict[Any, frozenset[int]] | None = None
        """What the last heartbeat said that the member owns. None: the next one has all fields."""
        self._life = 0

    def fetch_identity(self) -> dict[str, Any]:
        return {"member_id": self.member_id, "member_epoch": self.epoch}

    def fetch_retries(self, code: ErrorCode) -> bool:
        # A member that is fenced meanwhile gives up: it gets its partitions, and asks again, after it has joined.
        fenced = (ErrorCode.stale_member_epoch, ErrorCode.unknown_member_id)
        return super().fetch_retries(code) or code in fenced

    async def live(self) -> None:
        self.epoch = 0
        while True:
            await self.known()
            await self._heartbeat()
            if self._sent == self._owned:
                await asyncio.sleep(HEARTBEAT_S)
            else:
                await asyncio.sleep(BACKOFF_S)

    async def _heartbeat(self) -> None:
        fields: dict[str, Any] = {"rebalance_timeout": -1}
        if self._sent is None or self.epoch == 0:
            fields = {"rebalance_timeout": REBALANCE_MS, "subscribed_topic_names": [TOPIC]}
        owned = dict(self._owned)
        if self._sent != owned:
            fields["topic_partitions"] = [{"topic_id": t, "partitions": sorted(p)} for t, p in owned.items()]
        fields |= {"group_id": self.truth.name, "member_id": self.member_id, "member_epoch": self.epoch}
        answer = await self.moved(lambda: self.ask_coordinator(CONSUMER_HEARTBEAT, 1, self.request_s, **fields))
        code = ErrorCode.not_coordinator if answer is None else answer["error_code"]
        if code is ErrorCode.none:
            self._sent = owned
            self._accepted(answer)
            return
        self._sent = None
        if self.check_moved(code) or code is ErrorCode.coordinator_load_in_progress:
            return
        if code not in (ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch):
            self.fatal("ConsumerGroupHeartbeat", code)
        self._life += 1
        self.epoch, self._owned = 0, {}
        self.positions.clear()

    def _accepted(self, answer: Mapping[str, Any]) -> None:
        self.epoch = answer["member_epoch"]
        if answer["assignment"] is None:
            return
        told = {pair["topic_id"]: frozenset(pair["partitions"]) for pair in answer["assignment"]["topic_partitions"]}
        if told == self._owned:
            return
        before = {partition for partitions in self._owned.values() for partition in partitions}
        now = {partition for partitions in told.values() for partition in partitions}
        self._owned = told
        for partition in before - now:
            self.positions.pop(partition, None)
        if now - before:
            life = self._life

            def owns(partition: int) -> bool:
                return self._life == life and self._owns(partition)

            for partition in now - before:
                self.spawn(self.begin({partition}, functools.partial(owns, partition)))
            self.was_assigned()

    def _owns(self, partition: int) -> bool:
        return any(partition in partitions for partitions in self._owned.values())

    def commit_failed(self, code: ErrorCode) -> None:
        if code not in (
            ErrorCode.none,
            ErrorCode.coordinator_load_in_progress,
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.request_timed_out,
            ErrorCode.unknown_member_id,
            ErrorCode.stale_member_epoch,
        ):
            self.fatal("OffsetCommit", code)
