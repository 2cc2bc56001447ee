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
    MIRRORED = "a link copies the topic, and nobody else writes to it"


class Verdict(enum.IntEnum):
    """The outcome of one batch."""

    ACCEPTED = 0
    DUPLICATE = 1
    OUT_OF_ORDER = 2
    STALE_PRODUCER = 3
    NO_STREAM = 4
    MOVED = 5
    """Out of order, but the batches before it went through another process and may still arrive."""
    NO_TRANSACTION = 6
    """No transactional id has this producer id."""
    NOT_JOINED = 7
    """The stream is not part of the producer's transaction."""
    IN_TRANSACTION = 8
    """A plain batch of a producer that has an open transaction in this stream."""
    MIRRORED = 9
    """The stream is a mirror: only its link appends to it."""


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


class UnitVerdict(enum.IntEnum):
    """The outcome of a unit with conditions."""

    ACCEPTED = 0
    REPEATED = 1
    """The key is known with the same body. The unit changed nothing."""
    CONFLICT = 2
    """A condition does not hold."""
    MISMATCH = 3
    """The key is known with another body."""
    NO_STREAM = 4
    FULL = 5
    """The owner, or the domain, has as many keys as it may have."""
    MIRRORED = 6
    """A stream is a mirror, and the unit does not have the condition `MirrorIs` for it."""


class Placed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Where the records of one chunk of an accepted unit are."""

    stream: int
    first_offset: int
    offsets: int
    append_ms: int


class UnitResult(msgspec.Struct, frozen=True):
    """The result of one unit of an append."""

    verdict: UnitVerdict
    failed: list[int]
    """The places of the conditions that do not hold."""
    present: list[int]
    """Per condition what is there: the next offset, the table's version, the generation of a mirror, -1 if there is
    nothing to tell."""
    placed: list[Placed]
    """Where the records are, now or since the first time the key was used."""
    note: bytes = b""
    """What was kept with a repeated answer."""


class Appended(msgspec.Struct, frozen=True):
    """One result per chunk of an append, and one per unit if any unit has conditions."""

    chunks: list[ChunkResult]
    units: list[UnitResult | None] = []


class Judgement(enum.IntEnum):
    """The outcome of a transactional request."""

    DONE = 0
    UNKNOWN_PRODUCER = 1
    """There is no such transactional id, or it has another producer id."""
    FENCED = 2
    """Another epoch of the producer is current."""
    INVALID_STATE = 3
    """The transaction's phase does not allow the request."""
    NOT_JOINED = 4
    """The group is not part of the transaction."""
    NO_STREAM = 5
    STALE_CLAIM = 6
    """Another process coordinates the group."""
    FULL = 7
    """A limit is reached."""
    NEEDS_ID = 8
    """A fresh producer id is needed, and the command has none. Nothing was changed."""
    MIRRORED = 9
    """A stream is a mirror: only its link appends to it."""


class Transacted(msgspec.Struct, frozen=True):
    """The result of a transactional request, with the producer id and epoch to use from now on. -1: as before."""

    judgement: Judgement
    producer: int = -1
    epoch: int = -1
    detail: str = ""


class SkipVerdict(enum.IntEnum):
    """The outcome of one gap of `SkipStreams`."""

    SKIPPED = 0
    CONFLICT = 1
    """The stream's next offset is another one."""
    NOT_MIRRORED = 2
    """The stream is not a mirror under this generation."""
    NO_STREAM = 3
    INVALID = 4
    """The gap is empty, too long or ends out of range."""


class Skipped(msgspec.Struct, frozen=True):
    """Per gap the outcome and the stream's next offset, -1 if there is no stream."""

    gaps: list[tuple[SkipVerdict, int]]


Result: TypeAlias = Done | Refused | Appended | Transacted | Skipped
