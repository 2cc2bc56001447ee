"""Size-prefixed frames from a byte stream. Frames that arrive whole are not copied.

A frame that is complete in the shared receive buffer is yielded as a view of it, and must be used at once. Any other
frame gets a buffer of its own; the rest of it is received into that directly.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from headwater.errors import CorruptFrame

_SIZE = struct.Struct(">i")
SIZE_BYTES = _SIZE.size
SCRATCH_BYTES = 256 << 10
SMALLEST_FRAME = 8
"""API key, version and correlation id."""


class FrameReader:
    """The receiving side of one connection. `scratch` may be shared by all connections of a thread."""

    __slots__ = ("_frame", "_prefix", "_received", "_scratch", "_size", "limit")

    def __init__(self, limit: int, scratch: memoryview) -> None:
        self.limit = limit
        """Size of the largest frame. It may change between frames."""
        self._scratch = scratch
        self._prefix = b""
        self._frame: bytearray | None = None
        self._size = 0
        self._received = 0

    def __repr__(self) -> str:
        missing = self._size - self._received if self._frame is not None else 0
        return f"<FrameReader, {missing} bytes missing>"

    def buffer(self) -> memoryview:
        """The buffer for the next bytes of the stream."""
        if self._frame is not None:
            return memoryview(self._frame)[self._received :]
        if self._prefix:
            self._scratch[: len(self._prefix)] = self._prefix
        return self._scratch[len(self._prefix) :]

    def received(self, count: int) -> Iterator[memoryview]:
        """Note that `count` bytes were put into `buffer`; yields the frames that are complete now."""
        if self._frame is not None:
            self._received += count
            if self._received == self._size:
                frame, self._frame = self._frame, None
                yield memoryview(frame).toreadonly()
            elif self._received == len(self._frame):
                self._grow(self._frame)
            return
        end = len(self._prefix) + count
        self._prefix = b""
        at = 0
        while end - at >= SIZE_BYTES:
            (size,) = _SIZE.unpack_from(self._scratch, at)
            if not SMALLEST_FRAME <= size <= self.limit:
                raise CorruptFrame(f"a frame has {size} bytes; the limit is {self.limit}")
            at += SIZE_BYTES
            if size > end - at:
                self._size, self._received = size, end - at
                self._grow(self._scratch[at:end])
                return
            yield self._scratch[at : at + size].toreadonly()
            at += size
        self._prefix = bytes(self._scratch[at:end])

    def _grow(self, start: bytearray | memoryview) -> None:
        """Grow the buffer with the bytes that have arrived: an announced size alone allocates nothing."""
        grown = bytearray(min(self._size, max(SCRATCH_BYTES, 2 * len(start))))
        grown[: len(start)] = start
        self._frame = grown
