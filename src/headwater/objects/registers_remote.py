"""Registers in a cloud's store: conditional PUTs through obstore, each sent once.

The library's own retries are off: it would repeat a PUT after a lost reply and then report that the object exists.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotFoundError,
    NotModifiedError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import ObjectStore as Store
from obstore.store import from_url

from headwater.errors import OutcomeUnknown, StoreUnavailable
from headwater.objects.registers import Held, Tag
from headwater.objects.store import checked_path

if TYPE_CHECKING:
    from obstore import PutMode, UpdateVersion

REQUEST_SECONDS = 3
CONNECT_SECONDS = 2
_REFUSED = (InvalidPathError, NotSupportedError, PermissionDeniedError, UnauthenticatedError)
"""What a store answers when it has certainly written nothing."""
_CONDITION = (AlreadyExistsError, PreconditionError, NotModifiedError, NotFoundError, FileExistsError)


class RemoteRegisters:
    """See `headwater.objects.registers.Registers`."""

    def __init__(self, store: Store, url: str) -> None:
        self._store = store
        self.url = url

    @classmethod
    def from_url(cls, url: str, endpoint: str = "") -> RemoteRegisters:
        """The registers below a URL; an S3 server that is not Amazon's may be named here or in the environment."""
        options = {
            "allow_http": True,
            "timeout": timedelta(seconds=REQUEST_SECONDS),
            "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
        }
        never = {"max_retries": 0, "retry_timeout": timedelta(0)}
        more = {"endpoint": endpoint} if endpoint else {}
        return cls(from_url(url, client_options=options, retry_config=never, **more), url)  # type: ignore[call-overload]

    def __repr__(self) -> str:
        return f"<RemoteRegisters {urlsplit(self.url).scheme}>"

    async def read(self, path: str) -> Held | None:
        try:
            result = await obstore.get_async(self._store, checked_path(path))
            data = bytes(await result.bytes_async())
        except (NotFoundError, FileNotFoundError):
            return None
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"{path}: {_said(error)}") from error
        return Held(data, _tag(path, result.meta.get("e_tag"), result.meta.get("version")))

    async def create(self, path: str, data: bytes) -> Tag | None:
        return await self._put(path, data, "create")

    async def replace(self, path: str, data: bytes, tag: Tag) -> Tag | None:
        e_tag, _, version = tag.partition("\n")
        seen: UpdateVersion = {}
        if e_tag:
            seen["e_tag"] = e_tag
        if version:
            seen["version"] = version
        return await self._put(path, data, seen)

    async def put(self, path: str, data: bytes) -> None:
        await self._put(path, data, "overwrite")

    async def _put(self, path: str, data: bytes, mode: PutMode) -> Tag | None:
        try:
            result = await obstore.put_async(self._store, checked_path(path), data, mode=mode, use_multipart=False)
        except _CONDITION:
            return None
        except _REFUSED as error:
            raise StoreUnavailable(f"{path}: {_said(error)}") from error
        except (BaseError, OSError) as error:
            raise OutcomeUnknown(f"{path}: {_said(error)}") from error
        return _tag(path, result["e_tag"], result["version"])

    async def delete(self, path: str) -> None:
        try:
            await obstore.delete_async(self._store, checked_path(path))
        except (NotFoundError, FileNotFoundError):
            return
        except (BaseError, OSError) as error:
            raise OutcomeUnknown(f"{path}: {_said(error)}") from error

    async def tags(self, prefix: str) -> dict[str, str]:
        found: dict[str, str] = {}
        try:
            async for page in obstore.list(self._store, prefix):
                for meta in page:
                    found[str(meta["path"])] = str(meta["e_tag"])
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"{prefix}: {_said(error)}") from error
        return found

    async def close(self) -> None:
        return None


def _tag(path: str, e_tag: str | None, version: str | None) -> Tag:
    if not e_tag and not version:
        raise OutcomeUnknown(f"{path}: the store names no version of an object; a ledger cannot lie there")
    return Tag(f"{e_tag or ''}\n{version or ''}")


def _said(error: Exception) -> str:
    """An error's first line; the library adds pages of its own insides."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
