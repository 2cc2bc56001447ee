"""The Python side of a native thread: its ring, and the addresses for it."""

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

from headwater.native.rows import COLUMNS, KIND, SLOTS, STOP, Serve
from headwater.types import Pieces

_DATA = bytes.__basicsize__ - 1
"""The offset of the data in a `bytes` object. The basic size includes the zero byte at the end."""


class NativeThread:
    """One thread of compiled code. It does the jobs of one event loop, one after the other."""

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
        """Whether a new job would start at once. False in another event loop than the thread's."""
        return not self._waiting and not self._closed and asyncio.get_running_loop() is self._loop

    def submit(self, numbers: Sequence[int], keep: object) -> asyncio.Future[Sequence[int]]:
        """Submit a job. `keep` is held until the job is done, so that its addresses stay valid.

        `numbers` are the first columns of the row. The future's result is the row after the job.
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
        """Wait for all jobs, then end the thread."""
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
    """The address of an iovec of the pieces, their total size, and an object to keep while the address is used.

    Raises `TypeError` if a piece is not `bytes`.
    """
    if {*map(type, pieces)} != {bytes}:
        raise TypeError("only bytes have a fixed address")
    count = len(pieces)
    vectors = np.empty((count, 2), dtype=np.int64)
    vectors[:, 0] = np.fromiter(map(id, pieces), dtype=np.int64, count=count)
    vectors[:, 0] += _DATA
    lengths = [*map(len, pieces)]
    vectors[:, 1] = lengths
    return vectors.ctypes.data, sum(lengths), (pieces, vectors)


def address(data: bytes) -> int:
    """The address of the bytes, which end with a zero. The caller keeps `data` while the address is used."""
    return id(data) + _DATA


def addressable() -> bool:
    """Whether the data of `bytes` is where CPython has it: in the object, behind its header."""
    probe = b"where are you?"
    return sys.implementation.name == "cpython" and ctypes.string_at(address(probe)) == probe
