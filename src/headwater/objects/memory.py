"""Objects in memory, for tests and the simulation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from headwater.errors import ObjectMissing
from headwater.objects.store import ObjectInfo, checked_path
from headwater.types import Pieces


class MemoryStore:
    """See `headwater.objects.store.ObjectStore`."""

    def __init__(self) -> None:
        self.url = "memory://"
        self.objects: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return f"<MemoryStore of {len(self.objects)} objects>"

    def _get(self, path: str) -> bytes:
        try:
            return self.objects[checked_path(path)]
        except KeyError:
            raise ObjectMissing(f"no object {path}") from None

    async def put(self, path: str, pieces: Pieces) -> None:
        self.objects[checked_path(path)] = b"".join(pieces)

    async def create(self, path: str, pieces: Pieces) -> bool:
        if checked_path(path) in self.objects:
            return False
        self.objects[path] = b"".join(pieces)
        return True

    async def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        data = self._get(path)
        return data[start:] if length is None else data[start : start + length]

    async def get_many(self, paths: Sequence[str]) -> list[bytes | None]:
        return [self.objects.get(checked_path(path)) for path in paths]

    async def size(self, path: str) -> int:
        return len(self._get(path))

    async def delete(self, path: str) -> None:
        self.objects.pop(checked_path(path), None)

    async def scan(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        for path, data in list(self.objects.items()):
            if path.startswith(prefix):
                yield ObjectInfo(path, len(data))

    async def close(self) -> None:
        return None
