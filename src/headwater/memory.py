"""Settings of the C library's allocator, for processes that use many large buffers: brokers and Spark's workers.

By default glibc returns large buffers to the system as soon as they are freed, and the system has to create every page
of the next ones again. With requests and answers of a megabyte, that took a third of a broker's CPU time. It also keeps
a heap for each of several threads; what one thread frees, the others cannot use.
"""

from __future__ import annotations

import ctypes

MAPPED_ALONE_BYTES = 32 << 20
"""Buffers of this size and larger are returned when they are freed. It is the largest value that glibc accepts."""
KEPT_BYTES = 64 << 20
"""At most this much free memory is kept at the end of the heap."""
HEAPS = 1

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8


def keep_freed() -> bool:
    """Keep freed memory in the process, in one heap. Call it before threads start; false if that is not possible."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    wanted = ((_MMAP_THRESHOLD, MAPPED_ALONE_BYTES), (_TRIM_THRESHOLD, KEPT_BYTES), (_ARENA_MAX, HEAPS))
    return all([mallopt(option, value) for option, value in wanted])
