"""The contract of an object store. `headwater.objects.conformance` proves it for every backend.

- `put` returns only when the object is durable and visible as a whole. A failed `put` leaves the whole object or
  nothing, never a part.
- `create` is a `put` that never replaces: of several creators of a path with different bytes, exactly one gets `True`.
- Objects are immutable: a path is never put twice with different bytes, except for hints that may be out of date.
- `delete` of a missing object succeeds.
- A path may hold any characters but control characters, which a store may refuse with `ConfigError`, and backslashes,
  which Azure takes for slashes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headwater.errors import ConfigError, StoreUnavailable
from headwater.types import Pieces


class StoreRefused(StoreUnavailable):
    """The store refused: permissions or the bucket are missing. An immediate retry would be refused too."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One line of a listing."""

    path: str
    size: int


class ObjectStore(Protocol):
    """Paths are relative, `/`-separated and never begin or end with a slash."""

    url: str

    def put(self, path: str, pieces: Pieces) -> Awaitable[None]:
        """Store an object. The work may begin before the result is awaited."""

    async def create(self, path: str, pieces: Pieces) -> bool:
        """Store an object if none has this path; returns whether this call did.

        Raises `StoreUnavailable` if certainly nothing was stored. Raises `OutcomeUnknown` if that is not known: the
        object may still appear until another creator has taken the path. Two creators with the same bytes may both get
        `True`.
        """

    async def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """The bytes of an object, or a range of them. A range ends at the end of the object."""

    async def get_many(self, paths: Sequence[str]) -> list[bytes | None]:
        """Several whole objects at once; `None` for those that do not exist."""

    async def size(self, path: str) -> int:
        """An object's size."""

    async def delete(self, path: str) -> None:
        """Remove an object."""

    def scan(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Every object below a prefix that ends in a slash (or is empty), in no particular order."""

    async def close(self) -> None:
        """Release threads and connections. Idempotent."""


def checked_path(path: str) -> str:
    """The path itself; raises `ConfigError` if it leads out of the store's root."""
    if not path or path.startswith("/") or any(part in ("", ".", "..") for part in path.split("/")):
        raise ConfigError(f"{path!r} is not a path inside an object store")
    return path
