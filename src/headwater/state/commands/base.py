"""The base of all commands, and the commands that every domain takes.

Every command is a tagged struct without defaults, so the meaning of an old record never changes with the code. A
replica that meets an unknown tag or field halts. Structs are encoded as arrays.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class Fields(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base of the structs inside commands."""


class Command(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base of all commands."""


class Tick(Command, frozen=True, tag="tick"):
    """Does nothing. Its record carries the writer's clock, so the domain's time moves while nothing else is written."""


class Fence(Command, frozen=True, tag="fence"):
    """Fence an epoch: records that it appends to this domain from now on are refused."""

    epoch: int


class Check(Command, frozen=True, tag="check"):
    """The writer's digest at a position. A replica whose digest differs halts."""

    position: int
    digest: int


class TakeLease(Command, frozen=True, tag="lease"):
    """Take or extend a named lease. Refused while another epoch holds it and it has not expired."""

    name: str
    duration_ms: int


class SetLevel(Command, frozen=True, tag="level"):
    """Raise the feature level, which selects the behaviour of `apply`. A lower or equal level changes nothing."""

    level: int
    build: str
    """The first build that knows the level."""


class Accept(Command, frozen=True, tag="accept"):
    """Go on from here, although the ledger had come further before it lost its end.

    Numbers that the lost end may have given away are not given again. A second one of the same `life` changes nothing.
    """

    life: str
    """The ledger's new name for itself. Marks of earlier lives count no more."""
    epoch: int
    """The next epoch that is assigned. All before it are fenced."""
    producer: int
    """The next producer id that is assigned."""
    skip: int
    """How many numbers of files and versions are left out."""


CommonCommand: TypeAlias = Tick | Fence | Check | TakeLease | SetLevel | Accept
