"""Memory that was freed stays with the process for a while, for the next buffers.

glibc gives large buffers back to the system as soon as they are freed, and every page of the next ones has to be made
anew: with requests and answers of a megabyte, a third of what a broker's CPU did.
"""

from __future__ import annotations

import ctypes

MAPPED_ALONE_BYTES = 32 << 20
"""Buffers of this size and larger are given back when they are freed. It is the most that glibc takes."""
KEPT_BYTES = 64 << 20
"""So much may lie free at the end of the heap."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def keep_freed() -> bool:
    """Tell the C library so; false if it is one that cannot be told."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    told = mallopt(_MMAP_THRESHOLD, MAPPED_ALONE_BYTES) and mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
    return bool(told)
