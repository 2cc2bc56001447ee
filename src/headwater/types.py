"""The names of things: ids that are plain integers on the wire but not interchangeable in code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NewType, TypeAlias

import msgspec

StreamId = NewType("StreamId", int)
"""One topic partition."""

Domain = NewType("Domain", int)
"""A set of streams whose metadata change together; 0 is the cluster's own."""

Epoch = NewType("Epoch", int)
"""One life of one process, taken in domain 0. Epoch 0 belongs to nobody."""

Position = NewType("Position", int)
"""A record's place in a ledger. Positions only rise; 0 is before the first."""

NodeId = NewType("NodeId", int)
"""What Kafka clients call a broker id."""

CLUSTER: Domain = Domain(0)

Buffer: TypeAlias = bytes | bytearray | memoryview
Pieces: TypeAlias = Sequence[Buffer]
"""Bytes in several pieces, so that nothing is copied on its way to the disk or the socket."""


class WalId(msgspec.Struct, frozen=True, order=True, gc=False):
    """A WAL object: the writer's epoch and its sequence within that epoch."""

    epoch: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.epoch:010d}-{self.sequence:012d}"
