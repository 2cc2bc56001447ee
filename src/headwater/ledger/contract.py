"""The contract of a ledger: an ordered, append-only sequence of records per domain.

A backend promises this and nothing more. `headwater.ledger.conformance` checks it for each backend.

- `append` returns the record's position, or raises `StoreUnavailable` (the record is not appended, now or later), or
  `OutcomeUnknown` (the record may be committed, now or later).
- Positions of one domain only rise. None is used again, not even after a truncation.
- After `append` has returned p, every `last` that starts later, in any process, returns at least p.
- `read` returns records in order without holes: if it returns position p, it has returned every record between `after`
  and p. If records after `after` were truncated, it raises `Truncated`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from headwater.types import Domain, Pieces, Position

MAX_RECORD_BYTES = 1 << 20
"""The size limit of a record on every backend. Larger payloads belong in an object."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of a ledger."""

    position: Position
    data: bytes


@dataclass(frozen=True, slots=True)
class Pointer:
    """The path of a domain's newest checkpoint, and the position that it covers."""

    position: Position
    path: str
    older: tuple[Position, str] | None = None
    """The checkpoint before it. It is kept so that one damaged object loses nothing."""
    time_ms: int = 0
    """The ledger time of the newest checkpoint. What died later may not be deleted."""


@dataclass(frozen=True, slots=True)
class Image:
    """A WAL object, for a ledger that stores it together with the record that names it."""

    epoch: int
    sequence: int
    pieces: Pieces
    size: int
    crc: int
    """The CRC32C of all bytes but the last four, which are this number."""


class Carried(NamedTuple):
    """An image that a ledger has."""

    domain: Domain
    epoch: int
    sequence: int
    file: int
    """The number of the file that it is in. Images that were written later are in files with higher ones."""
    size: int


@dataclass(frozen=True, slots=True)
class Beat:
    """A process's heartbeat. Watchers measure on their own clock how long a count stays the same."""

    process: str
    count: int


class Ledger(Protocol):
    """A store of ledgers, one per domain."""

    dense: bool
    """True if positions of a domain are consecutive integers. A process then need not read its own records."""

    async def append(self, domain: Domain, record: bytes) -> Position:
        """Add a record at the end."""

    async def read(self, domain: Domain, after: Position, limit: int) -> list[Entry]:
        """Up to `limit` records after a position, oldest first."""

    async def last(self, domain: Domain) -> Position:
        """The newest position, or the last truncated one if no record is left. Linearizable."""

    async def watch(self, domain: Domain, after: Position) -> Position:
        """Wait until there may be a record after a position. Returns the position that the ledger may have reached.

        May return without a new record, but never misses one. Never returns less than `after + 1`.
        """

    async def truncate(self, domain: Domain, through: Position) -> None:
        """Delete records up to and including a position. Idempotent."""

    async def pointer(self, domain: Domain) -> Pointer | None:
        """The newest checkpoint's pointer."""

    async def set_pointer(self, domain: Domain, expected: Position, pointer: Pointer) -> bool:
        """Replace the pointer if it still names `expected` (0: none yet) and the new position is higher."""

    async def beat(self, process: str) -> None:
        """Count up the heartbeat of a process. Beats are not in any domain's ledger."""

    async def beats(self) -> list[Beat]:
        """The last beat of every process."""

    async def forget_beat(self, process: str) -> None:
        """Remove the beat of a process that is fenced or has left."""

    async def close(self) -> None:
        """Release files, sockets and threads. Idempotent."""


class Carrier(Ledger, Protocol):
    """A ledger that stores WAL objects together with the records that name them.

    Who can read a record can read its images, until the record is truncated and the image is freed.
    """

    async def append(self, domain: Domain, record: bytes, images: Sequence[Image] = ()) -> Position:
        """See `Ledger.append`."""

    async def image(
        self, domain: Domain, epoch: int, sequence: int, start: int = 0, length: int | None = None
    ) -> bytes | None:
        """An image, or a range of it; None if the ledger does not have it. It may be damaged."""

    async def images(self) -> list[Carried]:
        """All images whose records can be read, or could be."""

    async def free(self, through: int) -> None:
        """Delete files up to a number, whose images nobody needs, as soon as nobody needs their records either."""
