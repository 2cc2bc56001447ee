"""What one request reads from the object store. Caches note every read that they make; what is in memory costs none.

The count belongs to the task that asked for it and to the tasks that it starts. If two requests need the same bytes at
once, the one that began the read counts it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class Reads:
    """Reads of a request so far."""

    requests: int = 0
    bytes: int = 0


_current: ContextVar[Reads | None] = ContextVar("reads", default=None)


@contextlib.contextmanager
def counted() -> Iterator[Reads]:
    """Count the reads of what is awaited inside."""
    reads = Reads()
    token = _current.set(reads)
    try:
        yield reads
    finally:
        _current.reset(token)


def note(size: int, requests: int = 1) -> None:
    """Note that bytes were read."""
    reads = _current.get()
    if reads is not None:
        reads.requests += requests
        reads.bytes += size


def so_far() -> Reads:
    """What the request has read so far; nothing if its reads are not counted."""
    return _current.get() or Reads()
