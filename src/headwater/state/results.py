"""What `apply` answers to each command. Results are derived from the ledger, never stored in it."""

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
    INVALID = "it is not valid in the current state"
    LEASED = "another process holds the lease"
    FULL = "a limit of the cluster is reached"
    STALE = "it depends on a lease or a state that is no longer current"


class Verdict(enum.IntEnum):
    """The outcome of one batch."""

    ACCEPTED = 0
    DUPLICATE = 1
    OUT_OF_ORDER = 2
    STALE_PRODUCER = 3
    NO_STREAM = 4
    MOVED = 5
    """Out of order, but the batches before it went through another process and may still arrive."""


@dataclass(frozen=True, slots=True)
class Done:
    """The command took effect, now or before. `value` is what it returns: an epoch, a first id, a number."""

    value: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """The command changed nothing."""

    reason: Reason
    detail: str = ""


class ChunkResult(msgspec.Struct, frozen=True):
    """The result of one stream's part of an append.

    `verdicts` has (verdict, first offset) per batch, in the order of the chunk. It is `None` if all were accepted.
    """

    first_offset: int
    log_start: int
    append_ms: int
    verdicts: list[tuple[Verdict, int]] | None = None


class Appended(msgspec.Struct, frozen=True):
    """One result per chunk of an append."""

    chunks: list[ChunkResult]


Result: TypeAlias = Done | Refused | Appended
