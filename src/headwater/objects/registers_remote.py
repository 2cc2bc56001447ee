"""Registers in a cloud's store: conditional PUTs through obstore, each sent once.

The retries of the library are off: it would repeat a PUT after a lost reply and then report that the object exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
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

from headwater.errors import OutcomeUnknown, StoreUnavailable
from headwater.objects.answers import Answer
from headwater.objects.registers import Held, Tag
from headwater.objects.remote import connected
from headwater.objects.store import checked_path
from headwater.settings.objects import StoreOptions

if TYPE_CHECKING:
    from obstore import PutMode, UpdateVersion

REQUEST_MS = 3_000
"""Time limit of a request. Registers are small."""
CONNECT_MS = 2_000
_ANY = (BaseError, OSError)
_MISSING = (NotFoundError, FileNotFoundError)
_REFUSED = (InvalidPathError, NotSupportedError, PermissionDeniedError, UnauthenticatedError)
"""Errors after which the store has certainly written nothing."""
_CONDITION = (AlreadyExistsError, PreconditionError, NotModifiedError, FileExistsError)


class RemoteRegisters:
    """See `headwater.objects.registers.Registers`."""

    def __init__(self, store: Store, url: str) -> None:
        self._store = store
        self.url = url

    @classmethod
    def from_url(cls, url: str, options: StoreOptions | None = None) -> RemoteRegisters:
        """The registers below a URL."""
        options = options or StoreOptions()
        quick = msgspec.structs.replace(
            options,
            connect_ms=min(options.connect_ms, CONNECT_MS),
            attempt_ms=min(options.attempt_ms, REQUEST_MS),
        )
        return cls(connected(url, quick, 0), url)

    def __repr__(self) -> str:
        return f"<RemoteRegisters {urlsplit(self.url).scheme}>"

    async def read(self, path: str) -> Held | None:
        try:
            result = await obstore.get_async(self._store, checked_path(path))
            data = bytes(await result.bytes_async())
        except _MISSING:
            return None
        except _ANY as error:
            raise StoreUnavailable(f"{path}: {Answer.of(error)}") from None
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
        except _ANY as error:
            answer = Answer.of(error)
            if isinstance(error, _MISSING) and isinstance(mode, dict):
                return None
            if isinstance(error, (*_REFUSED, *_MISSING)) or answer.nothing_done:
                raise StoreUnavailable(f"{path}: {answer}") from None
            raise OutcomeUnknown(f"{path}: {answer}") from None
        return _tag(path, result["e_tag"], result["version"])

    async def delete(self, path: str) -> None:
        try:
            await obstore.delete_async(self._store, checked_path(path))
        except _MISSING:
            return
        except _ANY as error:
            raise OutcomeUnknown(f"{path}: {Answer.of(error)}") from None

    async def tags(self, prefix: str) -> dict[str, str]:
        found: dict[str, str] = {}
        try:
            async for page in obstore.list(self._store, prefix):
                for meta in page:
                    found[str(meta["path"])] = str(meta["e_tag"])
        except _ANY as error:
            raise StoreUnavailable(f"{prefix}: {Answer.of(error)}") from None
        return found

    async def close(self) -> None:
        return None


def _tag(path: str, e_tag: str | None, version: str | None) -> Tag:
    if not e_tag and not version:
        raise OutcomeUnknown(f"{path}: the store returns no version of an object; it cannot hold a ledger")
    return Tag(f"{e_tag or ''}\n{version or ''}")
