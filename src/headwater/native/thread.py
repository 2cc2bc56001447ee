"""The Python side of a native thread: its ring, and addresses to put into it."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from headwater.native import Serve
from headwater.native.rows import COLUMNS, KIND, SLOTS, STOP
from headwater.types import Pieces

_DATA = bytes.__basicsize__ - 1
"""Where the bytes of an object of this type begin. They end with a zero, which the size of the type counts."""


class NativeThread:
    """One thread of compiled code. Jobs are done one after the other, for one event loop."""

    def __init__(self, serve: Serve, name: str) -> None:
        self._rows: Any = np.zeros((SLOTS, COLUMNS), dtype=np.int64)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        self._done = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._next = 0
        self._waiting: deque[tuple[Any, asyncio.Future[Sequence[int]], object]] = deque()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._done, self._finished)
        self._closed = False
        self._thread = threading.Thread(target=serve, args=(self._rows, self._wake, self._done), name=name, daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<NativeThread {self._thread.name}, {len(self._waiting)} jobs>"

    @property
    def idle(self) -> bool:
        """Whether a job given now would be begun at once, by this event loop's thread."""
        return not self._waiting and not self._closed and asyncio.get_running_loop() is self._loop

    def submit(self, numbers: Sequence[int], keep: object) -> asyncio.Future[Sequence[int]]:
        """Do a job. What its addresses point to is kept until it is done; the future has the row then.

        `numbers` are a row but for its result, and shorter where the rest does not matter.
        """
        if self._closed or len(self._waiting) == SLOTS:
            raise RuntimeError(f"{self!r} is closed or full")
        row = self._rows[self._next % SLOTS]
        row[: len(numbers)] = numbers
        self._next += 1
        future: asyncio.Future[Sequence[int]] = self._loop.create_future()
        self._waiting.append((row, future, keep))
        os.eventfd_write(self._wake, 1)
        return future

    def _finished(self) -> None:
        for _ in range(os.eventfd_read(self._done)):
            row, future, _ = self._waiting.popleft()
            if not future.done():
                future.set_result(row.tolist())

    async def close(self) -> None:
        """End once all jobs are done."""
        if self._closed:
            return
        while self._waiting:
            await asyncio.wait([self._waiting[-1][1]])
        self._closed = True
        self._rows[self._next % SLOTS, KIND] = STOP
        os.eventfd_write(self._wake, 1)
        await self._loop.run_in_executor(None, self._thread.join)
        self._loop.remove_reader(self._done)
        os.close(self._wake)
        os.close(self._done)


def vector(pieces: Pieces) -> tuple[int, int, object]:
    """The address of an iovec of the pieces, how many bytes they are, and what must be kept meanwhile.

    A `TypeError` says that some piece is not bytes.
    """
    if {*map(type, pieces)} != {bytes}:
        raise TypeError("only bytes have a fixed place")
    count = len(pieces)
    vectors = np.empty((count, 2), dtype=np.int64)
    vectors[:, 0] = np.fromiter(map(id, pieces), dtype=np.int64, count=count)
    vectors[:, 0] += _DATA
    lengths = [*map(len, pieces)]
    vectors[:, 1] = lengths
    return vectors.ctypes.data, sum(lengths), (pieces, vectors)


def address(data: bytes) -> int:
    """Where the bytes lie, with a zero behind them. They must be kept as long as it is used."""
    return id(data) + _DATA


def addressable() -> bool:
    """Whether this Python keeps bytes where CPython does: in the object itself, behind its head."""
    probe = b"where are you?"
    return sys.implementation.name == "cpython" and ctypes.string_at(address(probe)) == probe
