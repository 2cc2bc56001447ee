"""The machine code of native threads: calls to the system and to libraries.

Importing this module imports numba. See `headwater.native` for the rules of the ring.
"""

from __future__ import annotations

import fcntl
import os
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from headwater.native import rows as ring
from headwater.native.compiling import compiled

_INT, _LONG = types.int32, types.int64
_READ_LIMIT = 1_000
"""The number of reads in a row that may fail, for example by a signal, before a thread ends."""
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_DSYNC
_LOCK, _UNLOCK = fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN
_SQLITE_ROW, _SQLITE_DONE = 100, 101
_SQLITE_BUSY, _SQLITE_LOCKED, _SQLITE_CORRUPT, _SQLITE_FULL, _SQLITE_NOTADB = 5, 6, 11, 13, 26

_open: Any = types.ExternalFunction("open", _INT(_LONG, _INT, _INT))
_close: Any = types.ExternalFunction("close", _INT(_INT))
_read: Any = types.ExternalFunction("read", _LONG(_INT, _LONG, _LONG))
_write: Any = types.ExternalFunction("write", _LONG(_INT, _LONG, _LONG))
_writev: Any = types.ExternalFunction("writev", _LONG(_INT, _LONG, _INT))
_rename: Any = types.ExternalFunction("rename", _INT(_LONG, _LONG))
_unlink: Any = types.ExternalFunction("unlink", _INT(_LONG))
_fchmod: Any = types.ExternalFunction("fchmod", _INT(_INT, _INT))
_fsync: Any = types.ExternalFunction("fsync", _INT(_INT))
_flock: Any = types.ExternalFunction("flock", _INT(_INT, _INT))


@intrinsic
def _called(typing_context: Any, function: Any, arguments: Any) -> Any:
    """Call a C function at an address, with integers and addresses. It returns 64 bits."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        long = ir.IntType(64)
        given = [builder.extract_value(values[1], i) for i in range(len(arguments))]
        kind = ir.FunctionType(long, [long] * len(given))
        return builder.call(builder.inttoptr(values[0], kind.as_pointer()), given)

    return types.int64(types.int64, arguments), generate


_call: Any = _called


@compiled
def _put(row: Any) -> int:
    """Put an object of the local store: write a file under a temporary name, synced; rename it; sync the directory."""
    handle = _open(row[ring.TEMPORARY], _CREATE, row[ring.MODE])
    if handle < 0:
        return ring.FAILED
    _fchmod(handle, row[ring.MODE])  # the umask took rights away; a file system without modes may refuse
    written = _writev(handle, row[ring.VECTOR], row[ring.COUNT])
    closed = _close(handle)
    if written != row[ring.SIZE] or closed != 0 or _rename(row[ring.TEMPORARY], row[ring.TARGET]) != 0:
        _unlink(row[ring.TEMPORARY])
        return ring.FAILED
    if _fsync(row[ring.DIRECTORY]) != 0:
        return ring.UNKNOWN
    return ring.DONE


@compiled
def _append(row: Any) -> int:
    """Append one record to a SQLite ledger in one transaction. Takes the writers' lock file first, if one is given."""
    if row[ring.LOCK] >= 0 and _flock(row[ring.LOCK], _LOCK) != 0:
        return ring.FAILED
    statement = row[ring.STATEMENT]
    code = np.int32(_call(row[ring.BIND_INT64], (statement, np.int64(1), row[ring.DOMAIN])))
    blob = (statement, np.int64(2), row[ring.RECORD], row[ring.RECORD_BYTES], np.int64(0))
    code |= np.int32(_call(row[ring.BIND_BLOB], blob))
    bound = code == 0
    if bound:
        code = np.int32(_call(row[ring.STEP], (statement,)))
    if code == _SQLITE_ROW:
        row[ring.POSITION] = _call(row[ring.COLUMN_INT64], (statement, np.int64(0)))
        code = np.int32(_call(row[ring.STEP], (statement,)))
    _call(row[ring.RESET], (statement,))
    if row[ring.LOCK] >= 0:
        _flock(row[ring.LOCK], _UNLOCK)
    if not bound:
        return ring.FAILED
    if code == _SQLITE_DONE:
        return ring.DONE
    kind = code & 0xFF
    if kind in (_SQLITE_BUSY, _SQLITE_LOCKED, _SQLITE_CORRUPT, _SQLITE_FULL, _SQLITE_NOTADB):
        return ring.FAILED
    return ring.UNKNOWN


@compiled
def serve(rows: Any, wake: int, done: int) -> None:
    """Do the jobs of a ring until a job of kind STOP."""
    count, one = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
    at = failures = 0
    while failures < _READ_LIMIT:
        if _read(wake, count.ctypes.data, 8) != 8:
            failures += 1
            continue
        failures = 0
        for _ in range(count[0]):
            row = rows[at % len(rows)]
            if row[ring.KIND] == ring.PUT:
                row[ring.RESULT] = _put(row)
            elif row[ring.KIND] == ring.APPEND:
                row[ring.RESULT] = _append(row)
            else:
                return
            at += 1
            _write(done, one.ctypes.data, 8)


@compiled
def layout() -> int:
    """The layout of rows for which this code was compiled."""
    return ring.LAYOUT


def prepare() -> bool:
    """Compile, or load the cached machine code. Returns false if that code was compiled for other rows."""
    compiling: Any = serve
    compiling.compile("void(int64[:,::1],int64,int64)")
    return layout() == ring.LAYOUT
