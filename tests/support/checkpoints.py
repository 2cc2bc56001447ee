"""Checkpoints as other builds would write them."""

import struct

from crc32c import crc32c

from headwater.replica.checkpoint import MAGIC


def of_format(data: bytes, number: int) -> bytes:
    """A checkpoint with the same state, as a build of another format number would write it."""
    image = data[len(MAGIC) + 16 :]
    assert image[0] == 0x95, "the format number is the first of five values"
    changed = image[:1] + bytes([number]) + image[2:]
    head = data[len(MAGIC) : len(MAGIC) + 12]
    return MAGIC[:-1] + b"%d" % number + head + struct.pack(">I", crc32c(changed)) + changed
