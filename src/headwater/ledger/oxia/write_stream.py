"""A stream of writes to one shard of Oxia.

Answers come in the order of the requests. When a stream breaks, requests that were sent but not answered have an
unknown outcome, unless the server says at the start that it is not the leader. Requests that were not sent had no
effect.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from headwater.background import consume, spawn
from headwater.errors import OutcomeUnknown, StoreUnavailable

WRITE_SECONDS = 5.0
MAX_WAITING = 1_000
"""The limit of writes to one shard that wait for their answer."""
_REFUSED = "node is not leader for shard"
"""A server returns this error when a stream is opened, before it processes any request."""


class WriteStream:
    """Writes to one shard. One task sends, one receives. Answers are matched to requests by their order."""

    def __init__(self, call: Any, shard: int, leader: str) -> None:
        self.shard, self.leader = shard, leader
        self.broken = False
        self._call = call
        self._queued: deque[tuple[Any, asyncio.Future[Any]]] = deque()
        self._sent: deque[asyncio.Future[Any]] = deque()
        self._answers = 0
        self._wake = asyncio.Event()
        self._tasks = [spawn(self._guarded(step), f"oxia-write-{shard}") for step in (self._send, self._receive)]

    async def send(self, message: Any) -> Any:
        if self.broken or len(self._queued) + len(self._sent) >= MAX_WAITING:
            raise StoreUnavailable(f"the stream of writes to {self.leader} is broken or full")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queued.append((message, future))
        self._wake.set()
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                return await asyncio.shield(future)
        except TimeoutError:
            self.abandon(f"no answer from {self.leader} within {WRITE_SECONDS:g} s")
            return await future

    async def _send(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queued:
                message, future = self._queued.popleft()
                self._sent.append(future)
                await self._call.write(message)

    async def _receive(self) -> None:
        while True:
            response = await self._call.read()
            if response is grpc.aio.EOF or not self._sent:
                raise StoreUnavailable("the stream ended")
            self._answers += 1
            future = self._sent.popleft()
            if not future.done():
                future.set_result(response)

    async def _guarded(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except grpc.aio.AioRpcError as error:
            self.abandon(f"{self.leader}: {error.details() or error.code()}")
        except (StoreUnavailable, asyncio.InvalidStateError) as error:
            self.abandon(f"{self.leader}: {error}")
        except asyncio.CancelledError:
            self.abandon(f"the connection to {self.leader} was closed")
            raise

    def abandon(self, why: str) -> None:
        """End the stream. Requests that were not sent had no effect; the outcome of sent requests is unknown."""
        if self.broken:
            return
        self.broken = True
        refused = _REFUSED in why and not self._answers
        for future in self._sent:
            if not future.done():
                future.set_exception(StoreUnavailable(why) if refused else OutcomeUnknown(why))
        for _, future in self._queued:
            if not future.done():
                future.set_exception(StoreUnavailable(why))
        for future in [*self._sent, *(future for _, future in self._queued)]:
            future.add_done_callback(consume)
        self._sent.clear()
        self._queued.clear()
        self._call.cancel()
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()

    async def close(self) -> None:
        self.abandon(f"the connection to {self.leader} was closed")
        await asyncio.wait(self._tasks)
