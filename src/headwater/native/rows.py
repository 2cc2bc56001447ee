"""The rows of a native thread's ring: numbers and addresses, by column."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, TypeAlias

SLOTS = 64
"""The number of jobs of one thread that can wait or be under way."""
COLUMNS = 16
IOV_MAX = 1000

# A row of the ring: the kind of job, its result, ...
KIND, RESULT = 0, 1
STOP, PUT, APPEND = range(3)
DONE, FAILED, UNKNOWN = range(3)
"""Done; not done; perhaps done, but a crash may lose it."""
# ... and the addresses and numbers of the job.
TEMPORARY, TARGET, VECTOR, COUNT, SIZE, DIRECTORY, MODE = range(2, 9)
DOMAIN, RECORD, RECORD_BYTES, LOCK, STATEMENT, BIND_INT64, BIND_BLOB, STEP, COLUMN_INT64, RESET, POSITION = range(2, 13)

LAYOUT = zlib.crc32(repr(sorted((k, v) for k, v in globals().items() if k.isupper())).encode())
"""Identifies this set of columns, because cached machine code may be older than this file."""

Serve: TypeAlias = Callable[[Any, int, int], None]
"""A compiled function. It takes the ring and two eventfds: one signals new jobs, the other finished jobs."""
