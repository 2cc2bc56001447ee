"""The loops over records that are in use: plain Python at first, compiled ones once there are enough records.

Importing numba takes most of a second and a hundred megabytes, so a broker starts without it: `walk_records` is plain
Python and `produce_rows` declines every request, until `compile_kernels` replaces both. Callers use them as attributes
of this module, so that they see the replacement.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from headwater import native
from headwater.log.kernels import records
from headwater.log.kernels.records import WalkResult
from headwater.types import Buffer

log = logging.getLogger("headwater.kernels")
COMPILE_AFTER = 1_000
"""Records that go through the plain loop before the compiler starts."""

walk_records: Callable[[Buffer, int, int, int], WalkResult] = records.walk_records
"""The loop over the records of a batch, plain or compiled."""

Rows: TypeAlias = list[list[int]]
MAX_ROWS = 1024


def _no_rows(frame: memoryview, version: int) -> Rows | None:
    return None


produce_rows: Callable[[memoryview, int], Rows | None] = _no_rows
"""The rows of `produce.read_produce` for a request; None if it declines the request or is not compiled yet."""


def is_compiled() -> bool:
    """Whether the loops over records are compiled ones, some hundred times as fast as plain Python."""
    return produce_rows is not _no_rows


def compile_when_used(prepare: Callable[[], None]) -> None:
    """Count the records that go through the plain loop; at `COMPILE_AFTER`, load compiled loops in the background.

    An idle broker never pays for them. `prepare` blocks until their machine code is cached, so that loading it takes
    little of this process, which serves meanwhile.
    """
    global walk_records
    seen = 0

    def counting(data: Buffer, start: int, end: int, count: int) -> WalkResult:
        nonlocal seen
        seen += count
        if seen - count < COMPILE_AFTER <= seen:
            threading.Thread(target=_compile_quietly, args=(prepare,), name="compile", daemon=True).start()
        return records.walk_records(data, start, end, count)

    walk_records = counting


def _compile_quietly(prepare: Callable[[], None]) -> None:
    try:
        prepare()
        compile_kernels()
    except Exception:
        log.exception("kernels could not be compiled; records are checked by plain Python")


def compile_kernels() -> None:
    """Replace the loops by compiled ones. Takes seconds the first time; safe to call from a thread."""
    global walk_records, produce_rows
    import numpy as np

    from headwater.log.kernels import produce

    compiled = produce.walk_records
    compiled(b"", 0, 0, 0)
    walk_records = compiled
    read: Any = produce.read_produce
    rows = np.zeros((MAX_ROWS, produce.COLUMNS), dtype=np.int64)
    read(memoryview(b""), 0, rows)

    def filled(frame: memoryview, version: int) -> Rows | None:
        used = read(frame, version, rows)
        return rows[:used].tolist() if used > 0 else None

    produce_rows = filled
    native.load()
