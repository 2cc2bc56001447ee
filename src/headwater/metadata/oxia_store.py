"""What the Oxia ledger asks of Oxia: a handful of calls on keys that are routed by a name.

All keys of one route lie in one shard. `headwater.metadata.oxia_grpc` speaks to servers; the simulation has a model.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

ABSENT = -1
"""The expected version of a key that must not be there yet."""


@dataclass(frozen=True, slots=True)
class Put:
    """Store a value. In a sequence the key is a prefix, to which the shard adds the next number."""

    key: str
    value: bytes = b""
    sequence: bool = False
    expected_version: int | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """Changes of one shard that are applied together: puts first, then deletions, then deletions of ranges.

    A put whose version is not the expected one is left out; everything else is done all the same.
    """

    puts: Sequence[Put] = ()
    deletes: Sequence[str] = ()
    delete_ranges: Sequence[tuple[str, str]] = ()
    """First key and the key after the last."""


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a write."""

    keys: Sequence[str | None]
    """Per put: the key that it got, or None if the version was another one."""
    leader: str
    """The server that had it accepted by a quorum."""


@dataclass(frozen=True, slots=True)
class Item:
    """One key as a server holds it."""

    key: str
    value: bytes
    version: int
    modifications: int
    """How often it was changed since it was created."""


class OxiaStore(Protocol):
    """Reads come from a shard's leader, or from whoever takes itself for it: they may be old, but are never wrong.

    A read that names the leader of a write sees at least what that write left.
    """

    async def write(self, route: str, write: Write) -> Written:
        """Raises `StoreUnavailable` if for certain nothing was or will be changed, else `OutcomeUnknown`."""

    async def get(self, route: str, key: str, *, lower: bool = False, leader: str | None = None) -> Item | None:
        """The key, or with `lower` the last one before it; that one without its value."""

    async def scan(
        self, route: str, start: str, end: str, *, limit: int, limit_bytes: int, leader: str | None = None
    ) -> list[Item]:
        """The first keys of a range as they were at one moment. Stops at a limit, but not before the first."""

    def sequence(self, route: str, prefix: str) -> AsyncIterator[str]:
        """The newest key of a sequence, now and whenever there is a newer one. May leave some out; ends at any time."""

    async def close(self) -> None:
        """Release sockets and tasks. Idempotent."""
