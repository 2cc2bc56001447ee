"""The control batch of a transaction's end. No object holds it: every broker makes the same bytes of an index entry.

It is Kafka's `EndTransactionMarker`: one record, whose key has a version and the kind of the end, and whose value has a
version and the epoch of the coordinator. There is no coordinator with an epoch here, so that is 0.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from headwater.log.batch import CONTROL_BIT, CRC_FROM, LENGTH_OVERHEAD, MAGIC, TRANSACTIONAL_BIT
from headwater.state.streams.index import MARKER_BYTES, IndexEntry

_START = struct.Struct(">qiib")
_CHECKED = struct.Struct(">hiqqqhii")
_ABORT = bytes.fromhex("20 00 00 00 08 0000 0000 0c 0000 00000000 00")
"""Length, attributes, the deltas of time and offset, key, value and headers. The lengths are varints."""
_COMMIT = bytes.fromhex("20 00 00 00 08 0000 0001 0c 0000 00000000 00")
_ATTRIBUTES = TRANSACTIONAL_BIT | CONTROL_BIT
_NO_SEQUENCE = -1
_LEADER_EPOCH = 0


def marker_batch(entry: IndexEntry) -> bytes:
    """The control batch of an index entry that is a marker."""
    time = entry.max_timestamp
    checked = _CHECKED.pack(
        _ATTRIBUTES, 0, time, time, entry.producer, entry.producer_epoch, _NO_SEQUENCE, 1
    ) + (_COMMIT if entry.commits else _ABORT)  # fmt: skip
    start = _START.pack(entry.start, MARKER_BYTES - LENGTH_OVERHEAD, _LEADER_EPOCH, MAGIC)
    crc = crc32c(checked).to_bytes(CRC_FROM - _START.size, "big")
    return start + crc + checked
