"""The calls that the ledger needs of Oxia, on keys that are routed by a name.

All keys of one route are in one shard. `ledger/oxia/transport.py` talks to servers; the simulation has a model.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

ABSENT = -1
"""The expected version of a key that must not exist yet."""


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

    A put whose version is not the expected one is skipped; all other changes are applied.
    """

    puts: Sequence[Put] = ()
    deletes: Sequence[str] = ()
    delete_ranges: Sequence[tuple[str, str]] = ()
    """The first key, and the key after the last."""


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write."""

    keys: Sequence[str | None]
    """Per put: its key, or `None` if the version was not the expected one."""
    leader: str
    """The server that led the write. A quorum has accepted it."""


@dataclass(frozen=True, slots=True)
class Item:
    """One key with its value and versions."""

    key: str
    value: bytes
    version: int
    modifications: int
    """How often the key was changed since it was created."""


class OxiaStore(Protocol):
    """A store of keys. Reads go to a shard's leader, or to a server that was deposed without knowing it.

    So a read may be old. A read that names the leader of a write sees at least the state after that write.
    """

    async def write(self, route: str, write: Write) -> Written:
        """Apply changes. Raises `StoreUnavailable` if nothing is changed, now or later; otherwise `OutcomeUnknown`."""

    async def get(self, route: str, key: str, *, lower: bool = False, leader: str | None = None) -> Item | None:
        """The key. With `lower`, the last key before it, without its value."""

    async def scan(
        self, route: str, start: str, end: str, *, limit: int, limit_bytes: int, leader: str | None = None
    ) -> list[Item]:
        """The first keys of a range at one moment, up to the limits, but at least one if there is any."""

    def sequence(self, route: str, prefix: str) -> AsyncIterator[str]:
        """The newest key of a sequence, now and after each change. May skip some keys, and may end at any time."""

    async def close(self) -> None:
        """Release sockets and tasks. Idempotent."""
