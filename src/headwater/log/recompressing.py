"""Batches that their topic wants in another codec, on the way to the writer.

A small batch is put into its new codec at once. A large one is left to a thread, and batches of its stream that come
after it wait for it: producers' sequences depend on their order. How much waits is bounded by what requests may be
under way.
"""

from __future__ import annotations

import asyncio
from collections import deque

import msgspec

from headwater.errors import BatchTooLarge, HeadwaterError
from headwater.log.batch import Batch, codec_of, recompressed
from headwater.log.parts import Part
from headwater.log.writer import Writer
from headwater.threads import Offload
from headwater.wire.codecs import NONE

LARGE = 16 << 10
RATIO = 8
"""How much a compressed batch is taken to open to."""


class Target(msgspec.Struct, frozen=True):
    """How a topic's batches are stored."""

    codec: int
    level: int
    max_bytes: int
    max_opened_bytes: int


def apply(batch: Batch, target: Target) -> Batch:
    """The batch in its topic's codec, within its topic's size."""
    if codec_of(batch.data) == target.codec:
        return batch
    data = recompressed(batch.data, target.codec, target.level, target.max_opened_bytes)
    if len(data) > target.max_bytes:
        raise BatchTooLarge(
            f"a batch of {len(data)} bytes once it is recompressed; the topic allows {target.max_bytes}"
        )
    return msgspec.structs.replace(batch, data=data)


def _opened_size(data: bytes) -> int:
    """About how many bytes have to be worked on."""
    return len(data) if codec_of(data) == NONE else len(data) * RATIO


class Recompression:
    """Everything of one process that waits for a new codec."""

    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        self.waiting: dict[int, deque[tuple[Writer, Part, Target | None]]] = {}
        """By stream, in the order of arrival. A stream is here as long as a batch of it is under way."""
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Recompression, {len(self.waiting)} streams wait>"

    def append(self, writer: Writer, part: Part, target: Target | None) -> None:
        """Hand a batch to its writer, in the codec it has to have, behind all that came before it."""
        line = self.waiting.get(part.stream)
        if line is not None:
            line.append((writer, part, target))
        elif target is None or codec_of(part.batch.data) == target.codec:
            writer.append(part)
        elif _opened_size(part.batch.data) < LARGE:
            try:
                part = msgspec.structs.replace(part, batch=apply(part.batch, target))
            except HeadwaterError as error:
                asyncio.get_running_loop().call_soon(part.caller.decided, part.number, error)
                return
            writer.append(part)
        else:
            self.waiting[part.stream] = deque([(writer, part, target)])
            task = asyncio.create_task(self._work_off(part.stream), name=f"recompress-{part.stream}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work_off(self, stream: int) -> None:
        line = self.waiting[stream]
        while line:
            writer, part, target = line.popleft()
            try:
                if target is not None:
                    batch = await self._offload(apply, part.batch, target)
                    part = msgspec.structs.replace(part, batch=batch)
            except HeadwaterError as error:
                part.caller.decided(part.number, error)
            else:
                writer.append(part)
        del self.waiting[stream]
