"""The contract of a ledger: an ordered, append-only sequence of records per domain.

A backend promises this and nothing more; `headwater.metadata.conformance` proves it for each of them.

- `append` either returns the record's position, raises `StoreUnavailable` (for certain not appended, now
  or later) or `OutcomeUnknown` (it may stand already, or may still come to stand).
- Positions of one domain only rise and are never used again, not even after a truncation.
- Once `append` has returned p, every `last` that starts afterwards, in any process, answers at least p.
- `read` gives records in order without holes: if it returns position p, it has returned every record
  between `after` and p. If records after `after` were truncated away it raises `Truncated`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from headwater.types import Domain, Position

MAX_RECORD_BYTES = 1 << 20
"""A record's size limit on every backend. Larger payloads belong into an object."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One record as the ledger holds it."""

    position: Position
    data: bytes


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where a domain's newest checkpoint lies, and the position it covers."""

    position: Position
    path: str
    older: tuple[Position, str] | None = None
    """The checkpoint before it, kept so that one bad object loses nothing."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A sign of life. Watchers compare counts on their own clocks; nobody compares wall clocks."""

    process: str
    count: int


class Ledger(Protocol):
    """A store of ledgers, one per domain."""

    dense: bool
    """True where positions of a domain are consecutive integers, which saves reading one's own record."""

    async def append(self, domain: Domain, record: bytes) -> Position:
        """Add a record at the end."""

    async def read(self, domain: Domain, after: Position, limit: int) -> list[Entry]:
        """Up to `limit` records after a position, oldest first."""

    async def last(self, domain: Domain) -> Position:
        """The newest position, or the one truncated through if nothing is left; linearizable."""

    async def watch(self, domain: Domain, after: Position) -> Position:
        """Wait until there may be a record after a position; answers how far it may reach.

        May return too often, never too late, and never with less than `after + 1`.
        """

    async def truncate(self, domain: Domain, through: Position) -> None:
        """Forget records up to and including a position. Idempotent."""

    async def pointer(self, domain: Domain) -> Pointer | None:
        """The newest checkpoint's pointer."""

    async def set_pointer(self, domain: Domain, expected: Position, pointer: Pointer) -> bool:
        """Replace the pointer if it still names `expected` (0: none yet) and the new one is further on."""

    async def beat(self, process: str) -> None:
        """Say that a process lives. Lies outside every ledger."""

    async def beats(self) -> list[Beat]:
        """Everybody's last sign of life."""

    async def forget_beat(self, process: str) -> None:
        """Remove a process's sign of life, once it is fenced or has left."""

    async def close(self) -> None:
        """Release files, sockets and threads. Idempotent."""
