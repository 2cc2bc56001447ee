"""What brokers of a zone send each other after `peer_handshake`: questions for WAL objects by their ids.

Big endian throughout:

    question   domain u32, the writer's epoch u64 and sequence u64
    answer     status u8, length u32, the object's bytes if it was found

Questions and answers follow each other until one side closes the connection. No path is sent, so only WAL objects that
the metadata knows can be asked for.
"""

from __future__ import annotations

import struct
from enum import IntEnum

MAGIC = b"HWPEER1\n"
QUESTION = struct.Struct(">IQQ")
ANSWER = struct.Struct(">BI")


class Status(IntEnum):
    """How a question was answered."""

    FOUND = 0
    MISSING = 1
    FAILED = 2
    """The object could not be read; ask the store."""
