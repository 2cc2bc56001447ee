"""Appends to a SQLite ledger by a native thread, over a connection of its own.

The thread uses the functions of the SQLite library that Python's own module has loaded. A second copy of SQLite in the
process would undo the locks of the first. If the functions cannot be found, there are no native appends. A record that
the native thread cannot append (another process is writing, or the disk is full) is appended by the ledger's own
connection, which waits or reports the cause.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from headwater import native
from headwater.native import rows
from headwater.native.thread import NativeThread, address

_OK = 0
_READ_WRITE, _NO_MUTEX = 0x2, 0x8000
_NEEDED = ("bind_int64", "bind_blob", "step", "column_int64", "reset")


class NativeAppends:
    """One native thread with one statement of one connection."""

    def __init__(self, path: Path, append: str, library: ctypes.CDLL, serve: rows.Serve) -> None:
        self._library = library
        self._connection, self._statement = ctypes.c_void_p(), ctypes.c_void_p()
        self._lock = -1
        try:
            self._calls = [
                ctypes.cast(getattr(library, f"sqlite3_{name}"), ctypes.c_void_p).value or 0 for name in _NEEDED
            ]
            flags = _READ_WRITE | _NO_MUTEX
            _check(library.sqlite3_open_v2(os.fsencode(path), ctypes.byref(self._connection), flags, None))
            _check(library.sqlite3_exec(self._connection, b"PRAGMA synchronous=FULL", None, None, None))
            statement = ctypes.byref(self._statement)
            _check(library.sqlite3_prepare_v2(self._connection, append.encode(), -1, statement, None))
            self._lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CLOEXEC)
        except BaseException:
            self._release()
            raise
        self._thread = NativeThread(serve, "native-append")

    def __repr__(self) -> str:
        return f"<NativeAppends {self._thread}>"

    async def append(self, domain: int, record: bytes, *, alone: bool) -> Sequence[int] | None:
        """Append a record. The thread takes the writers' lock file first, unless this process is alone.

        Returns a row with the outcome, or `None` if another append is under way.
        """
        if not self._thread.idle:
            return None
        job = (
            rows.APPEND, rows.DONE, domain, address(record), len(record), -1 if alone else self._lock,
            self._statement.value or 0, *self._calls,
        )  # fmt: skip
        return await self._thread.submit(job, record)

    async def close(self) -> None:
        """Stop the thread and close the connection."""
        await self._thread.close()
        self._release()

    def _release(self) -> None:
        self._library.sqlite3_finalize(self._statement)
        self._library.sqlite3_close_v2(self._connection)
        if self._lock >= 0:
            os.close(self._lock)


def open_appends(path: Path, append: str, module: ModuleType) -> NativeAppends | None:
    """Open native appends with this statement and the library of Python's module. `None` if that is not possible."""
    if native.serve is None or not module.__file__:
        return None
    try:
        return NativeAppends(path, append, ctypes.CDLL(module.__file__), native.serve)
    except (OSError, AttributeError):
        return None


def _check(code: int) -> None:
    if code != _OK:
        raise OSError(f"SQLite returned error code {code}")
