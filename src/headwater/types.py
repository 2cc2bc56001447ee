"""Ids. They are plain integers on the wire, but have different types in the code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NewType, TypeAlias

import msgspec

StreamId = NewType("StreamId", int)
"""One topic partition."""

Domain = NewType("Domain", int)
"""A part of the metadata with its own ledger. Domain 0 is the cluster; the others hold streams."""

Epoch = NewType("Epoch", int)
"""The number of one run of a process, taken in domain 0. Epoch 0 means no epoch."""

Position = NewType("Position", int)
"""The place of a record in a ledger. Positions only rise. 0 is before the first."""

NodeId = NewType("NodeId", int)
"""A broker's id in Kafka's protocol."""

CLUSTER: Domain = Domain(0)
STREAM_DOMAINS = (Domain(1),)
"""The domains that hold streams."""
DOMAINS = (CLUSTER, *STREAM_DOMAINS)
"""All domains of a cluster."""

LAST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999. Tables show no later time."""

Buffer: TypeAlias = bytes | bytearray | memoryview
Pieces: TypeAlias = Sequence[Buffer]
"""Bytes in several pieces, which saves copies on the way to the disk or the socket."""


class WalId(msgspec.Struct, frozen=True, order=True, gc=False):
    """A WAL object: the writer's epoch and its sequence within that epoch."""

    epoch: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.epoch:010d}-{self.sequence:012d}"
