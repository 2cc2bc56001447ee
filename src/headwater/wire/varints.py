"""Unsigned varints, as in Kafka's compact fields and in protobuf."""

from __future__ import annotations

from headwater.errors import CorruptBatch
from headwater.types import Buffer

_MAX_SHIFT = 63


def read_unsigned(data: Buffer, at: int) -> tuple[int, int]:
    """A number of at most 64 bits and the position behind it."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > _MAX_SHIFT:
            raise CorruptBatch("a varint is cut short or too long")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
