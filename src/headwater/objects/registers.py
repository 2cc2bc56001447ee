"""Registers: small objects that are replaced only by whoever has seen what they hold.

This is what a ledger in a bucket is built on. A store promises for one object:

- `create` writes it only where there is none, `replace` only where it still is the one that the tag names. Of all that
  try at once, one wins.
- `None` means that the store refused. After a lost reply it may have refused a repetition of one's own write, so a
  caller reads back before it believes that somebody else was quicker.
- `StoreUnavailable` means that nothing was written by this call, now or later. `OutcomeUnknown` means that it may have
  been, or still will be: a late write meets its condition or is refused, like any other.
- A read that starts after a write was answered sees that write or a later one.

Nothing here is ever repeated by the store's client.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType, Protocol

Tag = NewType("Tag", str)
"""Names one content of one register. Never the same for two contents."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a register holds."""

    data: bytes
    tag: Tag


class Registers(Protocol):
    """See the module."""

    async def read(self, path: str) -> Held | None:
        """What a register holds; None if there is none."""

    async def create(self, path: str, data: bytes) -> Tag | None:
        """Write a register that does not exist yet; None if refused."""

    async def replace(self, path: str, data: bytes, tag: Tag) -> Tag | None:
        """Write a register that still holds what `tag` names; None if refused."""

    async def put(self, path: str, data: bytes) -> None:
        """Write a register whatever it holds: one that a single process writes, or that nothing rests on."""

    async def delete(self, path: str) -> None:
        """Remove a register. Idempotent."""

    async def tags(self, prefix: str) -> dict[str, str]:
        """What names the content of all registers below a prefix. Changes with each write; not for `replace`."""

    async def close(self) -> None:
        """Release connections. Idempotent."""


class MemoryRegisters:
    """Registers in memory, for tests and the simulation. All handles on one store share one instance."""

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
