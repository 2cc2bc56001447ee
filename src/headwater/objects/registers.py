"""Registers: small objects that change by compare-and-set. A ledger in a bucket is built on them.

A store promises for one object:

- `create` writes it only if it does not exist, `replace` only if its content is still the one that the tag names. Of
  several concurrent calls one succeeds.
- `None` means that the store refused. After a lost reply it may have refused a repetition of the caller's own write. So
  the caller reads back before it concludes that another writer was first.
- `StoreUnavailable` means that this call writes nothing, now or later. `OutcomeUnknown` means that it may have written,
  or still may: a late write meets its condition or is refused, like any other.
- A read that starts after a write was answered sees that write or a later one.

The client of the store repeats nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType, Protocol

Tag = NewType("Tag", str)
"""Identifies one content of one register. Two contents never have the same tag."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a register holds."""

    data: bytes
    tag: Tag


class Registers(Protocol):
    """See the module."""

    async def read(self, path: str) -> Held | None:
        """The content of a register; None if it does not exist."""

    async def create(self, path: str, data: bytes) -> Tag | None:
        """Write a register that does not exist yet; None if refused."""

    async def replace(self, path: str, data: bytes, tag: Tag) -> Tag | None:
        """Write a register whose content `tag` still names; None if refused."""

    async def put(self, path: str, data: bytes) -> None:
        """Write a register unconditionally: one with a single writer, or one that safety does not depend on."""

    async def delete(self, path: str) -> None:
        """Remove a register. Idempotent."""

    async def tags(self, prefix: str) -> dict[str, str]:
        """A tag per register below a prefix. It changes with each write; it is not valid for `replace`."""

    async def close(self) -> None:
        """Release connections. Idempotent."""


class MemoryRegisters:
    """Registers in memory, for tests and the simulation. All handles of a store share one instance."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._writes = 0

    def __repr__(self) -> str:
        return f"<MemoryRegisters: {len(self._held)}>"

    def _write(self, path: str, data: bytes) -> Tag:
        self._writes += 1
        tag = Tag(str(self._writes))
        self._held[path] = Held(bytes(data), tag)
        return tag

    async def read(self, path: str) -> Held | None:
        return self._held.get(path)

    async def create(self, path: str, data: bytes) -> Tag | None:
        return None if path in self._held else self._write(path, data)

    async def replace(self, path: str, data: bytes, tag: Tag) -> Tag | None:
        held = self._held.get(path)
        return None if held is None or held.tag != tag else self._write(path, data)

    async def put(self, path: str, data: bytes) -> None:
        self._write(path, data)

    async def delete(self, path: str) -> None:
        self._held.pop(path, None)

    async def tags(self, prefix: str) -> dict[str, str]:
        return {path: held.tag for path, held in sorted(self._held.items()) if path.startswith(prefix)}

    async def close(self) -> None:
        return None
