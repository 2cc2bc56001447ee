"""Puts of the local store by a native thread: one job writes, syncs and renames, and Python is not asked meanwhile.

Only the common case is done so: bytes for a directory that is known, while no other such put is under way. The store
does all else itself, and repeats what could not be done here, so that errors are told in one place.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from headwater import native
from headwater.native import rows
from headwater.native.thread import NativeThread, address, vector
from headwater.objects.scratch import Scratch
from headwater.types import Pieces

HANDLES = 16
LARGEST = 64 << 20
"""An object that is larger takes long, and nothing is gained."""


class NativePuts:
    """One native thread, started with the first put after the code is compiled."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._thread: NativeThread | None = None
        self._handles: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<NativePuts {self._thread}>"

    def begin(self, target: str, directory: str, pieces: Pieces) -> asyncio.Future[Sequence[int]] | None:
        """Start to put an object into a directory that exists; nothing if it must be done in another way.

        The future's row says what became of it.
        """
        thread = self._started()
        if thread is None or not thread.idle or not 0 < len(pieces) <= rows.IOV_MAX:
            return None
        name = self._scratch.name()
        if name is None:
            return None
        try:
            iovec, size, kept = vector(pieces)
            handle = self._handle(directory)
        except (TypeError, OSError):
            return None
        if size > LARGEST:
            return None
        temporary, final = os.fsencode(name), os.fsencode(target)
        job = (
            rows.PUT, rows.DONE, address(temporary), address(final), iovec, len(pieces), size, handle,
        )  # fmt: skip
        return thread.submit(job, (kept, temporary, final))

    def _started(self) -> NativeThread | None:
        if self._thread is None and native.serve is not None:
            self._thread = NativeThread(native.serve, "native-put")
        return self._thread

    def _handle(self, directory: str) -> int:
        """An open handle of a directory. Nothing is under way, so older ones can be closed."""
        handle = self._handles.get(directory)
        if handle is None:
            if len(self._handles) >= HANDLES:
                self._close_handles()
            handle = self._handles[directory] = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        return handle

    def _close_handles(self) -> None:
        while self._handles:
            os.close(self._handles.popitem()[1])

    async def close(self) -> None:
        """End the thread once its put is done."""
        if self._thread is not None:
            await self._thread.close()
        self._close_handles()
