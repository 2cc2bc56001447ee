"""Threads of compiled code that never take the interpreter's lock.

A Python thread releases that lock for every blocking call. Afterwards it waits for the lock while the event loop is
busy: half a dozen times for one synced file. A native thread runs one compiled function. It gets its work through a
ring of rows of numbers and waits in the kernel, not for Python.

Native threads need Linux (eventfd) and compiled kernels. Before `load`, and on other systems, `serve` is `None` and
callers use ordinary code. A native thread reports a failure by a number only. The caller then repeats the work with
ordinary code, which finds the cause.
"""

from __future__ import annotations

import logging
import sys

from headwater.native.rows import Serve

log = logging.getLogger("headwater.kernels")
serve: Serve | None = None


def load() -> None:
    """Compile the kernels, or load cached machine code. The first time takes seconds. Safe to call from a thread."""
    global serve
    if sys.platform == "linux":
        from headwater.native import kernels, thread

        if not thread.addressable():
            return
        if kernels.prepare():
            serve = kernels.serve
        else:
            log.warning("the cached machine code is outdated: remove *.nbi from %s/__pycache__", __path__[0])
