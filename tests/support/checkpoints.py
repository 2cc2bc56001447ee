"""Checkpoints as other builds would write them."""

import struct

from crc32c import crc32c

from headwater.replica.checkpoint import HEADER_BYTES, MAGIC

_CRC = struct.Struct(">I")


def of_format(data: bytes, number: int) -> bytes:
    """A checkpoint with the same state, as a build of another format number would write it."""
    image = data[HEADER_BYTES:]
    assert image[0] == 0x95, "the format number is the first of five values"
    changed = image[:1] + bytes([number]) + image[2:]
    head = MAGIC[:-1] + b"%d" % number + data[len(MAGIC) : HEADER_BYTES - 2 * _CRC.size] + _CRC.pack(crc32c(changed))
    return head + _CRC.pack(crc32c(head)) + changed
