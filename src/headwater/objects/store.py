"""The contract of an object store. `headwater.objects.conformance` proves it for every backend.

- `put` returns only when the object is durable and visible whole; a failed `put` may or may not have left
  the whole object behind, never a part of it.
- `create` is a `put` that never replaces: of several creators of a path with different bytes, one alone is told `True`.
- Objects are immutable: nobody puts one path twice with other bytes, save for hints that may be out of date.
- `delete` of a missing object succeeds.
- A path may hold any characters but control characters, which a store may refuse with `ConfigError`, and backslashes,
  which Azure takes for slashes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headwater.errors import ConfigError, HeadwaterError, StoreUnavailable
from headwater.types import Pieces


class ObjectMissing(HeadwaterError):
    """There is no object of that path."""


class StoreRefused(StoreUnavailable):
    """The store understood and will not: rights are lacking, or a bucket is. Trying again at once is of no use."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One line of a listing."""

    path: str
    size: int


class ObjectStore(Protocol):
    """Paths are relative, `/`-separated and never begin or end with a slash."""

    url: str

    def put(self, path: str, pieces: Pieces) -> Awaitable[None]:
        """Store an object. It may begin before it is awaited."""

    async def create(self, path: str, pieces: Pieces) -> bool:
        """Store an object if there is none of that path; whether this call did.

        Raises `StoreUnavailable` if for certain nothing was stored, `OutcomeUnknown` if nobody knows: then the object
        may appear until somebody else has created that path. Two creators with the same bytes may both hear `True`.
        """

    async def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """An object's bytes, or a range of them. A range past the end is cut short."""

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
    """Refuse paths that would leave the store's root."""
    if not path or path.startswith("/") or any(part in ("", ".", "..") for part in path.split("/")):
        raise ConfigError(f"{path!r} is not a path inside an object store")
    return path
