"""Puts of the local store by native threads: one job writes, syncs and renames without the interpreter's lock.

This covers the common case only: an object for a known directory, while few such puts are under way. The store itself
does all other puts, and repeats those that fail here, so that errors are raised in one place.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from headwater import native
from headwater.native import rows
from headwater.native.thread import NativeThread, address, vector
from headwater.objects.scratch import Scratch, is_gone
from headwater.types import Pieces

THREADS = 2
HANDLES = 16
LARGEST = 64 << 20
"""Larger objects take so long that a native thread saves nothing."""


class NativePuts:
    """A few native threads. One more is started when all others are busy."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._threads: list[NativeThread] = []
        self._handles: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<NativePuts {self._threads}>"

    def begin(self, target: str, directory: str, pieces: Pieces, mode: int) -> asyncio.Future[Sequence[int]] | None:
        """Start to put an object of a mode into a directory that exists; None if the store must do it itself.

        The row of the future has the result.
        """
        thread = self._idle()
        if thread is None or not 0 < len(pieces) <= rows.IOV_MAX:
            return None
        name = self._scratch.name()
        if name is None:
            return None
        try:
            iovec, size, kept = vector(pieces)
            handle = self._handle(directory)
        except (TypeError, OSError):
            return None
        if size > LARGEST or handle is None:
            return None
        temporary, final = os.fsencode(name), os.fsencode(target)
        job = (
            rows.PUT, rows.DONE, address(temporary), address(final), iovec, len(pieces), size, handle, mode,
        )  # fmt: skip
        return thread.submit(job, (kept, temporary, final))

    def _idle(self) -> NativeThread | None:
        for thread in self._threads:
            if thread.idle:
                return thread
        if native.serve is None or len(self._threads) == THREADS:
            return None
        self._threads.append(NativeThread(native.serve, f"native-put-{len(self._threads)}"))
        return self._threads[-1]

    def _handle(self, directory: str) -> int | None:
        """An open handle of a directory; None if there are too many. Old ones are closed while no put is under way."""
        handle = self._handles.get(directory)
        stale = handle is not None and is_gone(handle)
        if handle is None or stale:
            if stale or len(self._handles) >= HANDLES:
                if not all(thread.idle for thread in self._threads):
                    return None
                self._close_handles()
            handle = self._handles[directory] = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        return handle

    def _close_handles(self) -> None:
        while self._handles:
            os.close(self._handles.popitem()[1])

    async def close(self) -> None:
        """Stop the threads after their puts are done."""
        while self._threads:
            await self._threads.pop().close()
        self._close_handles()
