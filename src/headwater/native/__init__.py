"""Threads of compiled code, which work without ever taking the interpreter's lock.

A Python thread gives that lock back for every call that blocks and must wait for it afterwards, while the event loop
is busy: half a dozen times for one synced file. A thread that runs one compiled function gets its work through a ring
of rows of numbers and waits in the kernel, not for Python.

Only Linux has what it takes (eventfd), and only a process that has compiled its kernels anyway: until `load`, and
elsewhere always, there are no such threads and whoever wants one does its work in another way. A failure is told by a
number only, so whoever gets one repeats the work in that other way, which finds out what is wrong.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

log = logging.getLogger("headwater.kernels")
Serve = Callable[[Any, int, int], None]
"""A compiled function of the ring, and of the handles by which it is told of jobs and tells that one is done."""

serve: Serve | None = None


def load() -> None:
    """Compile, or load what was compiled before. Takes seconds the first time; safe to call from a thread."""
    global serve
    if sys.platform == "linux":
        from headwater.native import kernels, thread

        if not thread.addressable():
            return
        if kernels.prepare():
            serve = kernels.serve
        else:
            log.warning("compiled code is older than the rest: remove *.nbi from %s/__pycache__", __path__[0])
