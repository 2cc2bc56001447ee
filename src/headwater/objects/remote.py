"""Objects in a cloud's store (S3 and compatible, GCS, Azure) through obstore.

Credentials, region and endpoint come from the environment, under the names that the clouds' own tools use.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotFoundError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import ObjectStore as Store
from obstore.store import from_url

from headwater.errors import OutcomeUnknown, StoreUnavailable
from headwater.objects.store import ObjectInfo, ObjectMissing, checked_path
from headwater.types import Pieces

_REFUSED = (InvalidPathError, NotFoundError, NotSupportedError, PermissionDeniedError, UnauthenticatedError)
"""What a store answers when it has certainly stored nothing."""


class RemoteStore:
    """See `headwater.objects.store.ObjectStore`."""

    def __init__(self, store: Store, url: str) -> None:
        self._store = store
        self.url = url

    @classmethod
    def from_url(cls, url: str) -> RemoteStore:
        return cls(from_url(url, client_options={"allow_http": True}), url)

    def __repr__(self) -> str:
        return f"<RemoteStore {urlsplit(self.url).scheme}>"

    async def put(self, path: str, pieces: Pieces) -> None:
        with _translated(path):
            await obstore.put_async(self._store, checked_path(path), b"".join(pieces))

    async def create(self, path: str, pieces: Pieces) -> bool:
        data = b"".join(pieces)
        try:
            await obstore.put_async(self._store, checked_path(path), data, mode="create", use_multipart=False)
        except (AlreadyExistsError, FileExistsError):
            return await self._holds(path, data)
        except _REFUSED as error:
            raise StoreUnavailable(f"{path}: {type(error).__name__}: {error}") from error
        except (BaseError, OSError) as error:
            raise OutcomeUnknown(f"{path}: {type(error).__name__}: {error}") from error
        return True

    async def _holds(self, path: str, data: bytes) -> bool:
        """Whether an object that exists is the one just sent: after a lost reply the library tries again by itself."""
        try:
            return await self.size(path) == len(data) and await self.get(path) == data
        except (ObjectMissing, StoreUnavailable) as error:
            raise OutcomeUnknown(f"{path}: it exists, but cannot be compared: {error}") from error

    async def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        with _translated(path):
            if not start and length is None:
                result = await obstore.get_async(self._store, checked_path(path))
                return bytes(await result.bytes_async())
            size = await self.size(path)
            end = size if length is None else min(size, start + length)
            if start >= end:
                return b""
            return bytes(await obstore.get_range_async(self._store, path, start=start, end=end))

    async def get_many(self, paths: Sequence[str]) -> list[bytes | None]:
        return await asyncio.gather(*(self._get_or_none(path) for path in paths))

    async def _get_or_none(self, path: str) -> bytes | None:
        try:
            return await self.get(path)
        except ObjectMissing:
            return None

    async def size(self, path: str) -> int:
        with _translated(path):
            return int((await obstore.head_async(self._store, checked_path(path)))["size"])

    async def delete(self, path: str) -> None:
        with _translated(path), contextlib.suppress(NotFoundError, FileNotFoundError):
            await obstore.delete_async(self._store, checked_path(path))

    async def scan(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        with _translated(prefix):
            async for page in obstore.list(self._store, prefix or None):
                for meta in page:
                    yield ObjectInfo(str(meta["path"]), int(meta["size"]))

    async def close(self) -> None:
        return None


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except (NotFoundError, FileNotFoundError) as error:
        raise ObjectMissing(f"no object {path}") from error
    except (BaseError, OSError) as error:
        raise StoreUnavailable(f"{path}: {type(error).__name__}: {error}") from error
