"""What `apply` says of each command. Results are derived from the ledger, never stored in it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias

import msgspec


class Reason(enum.Enum):
    """Why a command was refused. A refused command changed nothing."""

    FENCED = "the writer's epoch is fenced"
    EXISTS = "it exists already"
    UNKNOWN = "it does not exist"
    INVALID = "it is not valid in the present state"
    LEASED = "another process holds the lease"
    STALE = "it rests on a lease or a state that is no longer current"


class Verdict(enum.IntEnum):
    """What became of one batch."""

    ACCEPTED = 0
    DUPLICATE = 1
    OUT_OF_ORDER = 2
    STALE_PRODUCER = 3
    NO_STREAM = 4
    MOVED = 5
    """Out of order, but its predecessors went through another process: they may still come."""


@dataclass(frozen=True, slots=True)
class Done:
    """The command took effect, or already had. `value` is what it yields: an epoch, a first id, a number."""

    value: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """The command changed nothing."""

    reason: Reason
    detail: str = ""


class ChunkResult(msgspec.Struct, frozen=True):
    """A stream's part of an append: the first offset and, unless all was accepted, a verdict per batch.

    `verdicts` holds (verdict, first offset) in the order of the chunk's batches.
    """

    first_offset: int
    log_start: int
    append_ms: int
    verdicts: list[tuple[Verdict, int]] | None = None


class Appended(msgspec.Struct, frozen=True):
    """One result per chunk of an append."""

    chunks: list[ChunkResult]


Result: TypeAlias = Done | Refused | Appended
