"""The rows of a native thread's ring: numbers and addresses, by column."""

from __future__ import annotations

import zlib

SLOTS = 64
"""Jobs of one thread that wait or are under way."""
COLUMNS = 16
IOV_MAX = 1000

# A row of the ring: what to do, what became of it, ...
KIND, RESULT = 0, 1
STOP, PUT, APPEND = range(3)
DONE, FAILED, UNKNOWN = range(3)
"""Done; for certain not done; perhaps done, but it may be lost in a crash."""
# ... and the addresses and numbers of the job.
TEMPORARY, TARGET, VECTOR, COUNT, SIZE, DIRECTORY = range(2, 8)
DOMAIN, RECORD, RECORD_BYTES, LOCK, STATEMENT, BIND_INT64, BIND_BLOB, STEP, COLUMN_INT64, RESET, POSITION = range(2, 13)

LAYOUT = zlib.crc32(repr(sorted((k, v) for k, v in globals().items() if k.isupper())).encode())
"""Tells this set of columns from others: compiled code that is kept on the disk may be older than this file."""
