"""Objects in a cloud's store (S3 and compatible, GCS, Azure) through obstore. Each call is made once.

Credentials, region and endpoint come from the environment, under the names of the clouds' own tools, or from a role of
the machine. The retries of the library are off: they would repeat a create-only PUT after a lost reply, and then report
that the object exists. `headwater.objects.retrying` retries where that is right.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any
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

from headwater.errors import ConfigError, ObjectMissing, OutcomeUnknown, StoreFull, StoreUnavailable
from headwater.objects.answers import Answer
from headwater.objects.gathering import gathered
from headwater.objects.store import ObjectInfo, StoreRefused, checked_path
from headwater.settings.objects import ENCRYPTIONS, StoreOptions
from headwater.types import Pieces

if TYPE_CHECKING:
    from obstore import GetOptions

_REFUSED = (InvalidPathError, NotSupportedError, PermissionDeniedError, UnauthenticatedError)
"""Errors of the library after which the store has certainly done nothing, and would refuse a retry."""
_MISSING = (NotFoundError, FileNotFoundError)
_ANY = (BaseError, OSError)
PART_RETRIES = 3
"""Retries of the library for one part: parts of one number replace each other. It aborts an upload that fails, unless
the last part fails."""


class RemoteStore:
    """See `headwater.objects.store.ObjectStore`."""

    def __init__(self, store: Store, url: str, options: StoreOptions | None = None, parts: Store | None = None) -> None:
        self._store = store
        self._parts = parts or store
        self._options = options or StoreOptions()
        self.url = url

    @classmethod
    def from_url(cls, url: str, options: StoreOptions | None = None) -> RemoteStore:
        options = options or StoreOptions()
        return cls(connected(url, options, 0), url, options, connected(url, options, PART_RETRIES))

    def __repr__(self) -> str:
        return f"<RemoteStore {urlsplit(self.url).scheme}>"

    async def put(self, path: str, pieces: Pieces) -> None:
        data, own = b"".join(pieces), self._options
        with _translated(path):
            if len(data) <= own.multipart_bytes:
                await obstore.put_async(self._store, checked_path(path), data, use_multipart=False)
                return
            await obstore.put_async(
                self._parts,
                checked_path(path),
                _cut(data, own.part_bytes),
                use_multipart=True,
                chunk_size=own.part_bytes,
                max_concurrency=own.parts_at_once,
            )

    async def create(self, path: str, pieces: Pieces) -> bool:
        data = b"".join(pieces)
        try:
            await obstore.put_async(self._store, checked_path(path), data, mode="create", use_multipart=False)
        except (AlreadyExistsError, FileExistsError):
            return await self._holds(path, data)
        except ValueError as error:
            raise ConfigError(f"{path!r} is not a path inside an object store: {error}") from None
        except _ANY as error:
            trouble = _trouble(path, error)
            if isinstance(trouble, StoreRefused | StoreFull) or Answer.of(error).nothing_done:
                raise trouble from None
            raise OutcomeUnknown(str(trouble)) from None
        return True

    async def _holds(self, path: str, data: bytes) -> bool:
        """Whether an existing object has the bytes just sent: a proxy may have sent them twice."""
        try:
            return await self.get(path, 0, len(data) + 1) == data
        except (ObjectMissing, StoreUnavailable) as error:
            raise OutcomeUnknown(f"{path}: the object exists, but cannot be compared: {error}") from error

    async def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        if length is not None and length <= 0:
            await self.size(path)
            return b""
        with _translated(path):
            try:
                result = await obstore.get_async(self._store, checked_path(path), options=_range(start, length))
                return bytes(await result.bytes_async())
            except _ANY as error:
                if Answer.of(error).beyond_the_end:
                    return b""
                raise

    async def get_many(self, paths: Sequence[str]) -> list[bytes | None]:
        return await gathered(self.get, paths, self._options.gets_at_once)

    async def size(self, path: str) -> int:
        with _translated(path):
            return int((await obstore.head_async(self._store, checked_path(path)))["size"])

    async def delete(self, path: str) -> None:
        with _translated(path), contextlib.suppress(*_MISSING):
            await obstore.delete_async(self._store, checked_path(path))

    async def scan(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        """See the contract. With `after`, only paths behind it in the order of their bytes."""
        with _translated(prefix):
            async for page in obstore.list(self._store, prefix or None, offset=after or None):
                for meta in page:
                    yield ObjectInfo(str(meta["path"]), int(meta["size"]))

    async def close(self) -> None:
        return None


def connected(url: str, options: StoreOptions, retries: int) -> Store:
    """The library's store of a URL. An endpoint without TLS is used only if it is configured."""
    client = {
        "allow_http": True,
        "connect_timeout": timedelta(milliseconds=options.connect_ms),
        "timeout": timedelta(milliseconds=options.attempt_ms),
    }
    retry = {"max_retries": retries, "retry_timeout": timedelta(milliseconds=options.total_ms if retries else 0)}
    config: Any = dict(options.provider)
    if urlsplit(url).scheme in ("s3", "s3a"):
        config |= _s3_config(options)
    try:
        store: Store = from_url(url, config=config, client_options=client, retry_config=retry)  # type: ignore[call-overload]
        return store
    except (*_ANY, ValueError) as error:
        given = f"; object_store.provider gives {sorted(options.provider)}" if options.provider else ""
        raise ConfigError(f"cannot open {url!r}: {Answer.of(error)}{given}") from None


def _s3_config(options: StoreOptions) -> dict[str, str]:
    wanted = {
        "checksum_algorithm": options.checksum,
        "server_side_encryption": ENCRYPTIONS[options.encryption],
        "sse_kms_key_id": options.kms_key,
        "sse_bucket_key_enabled": "true" if options.kms_bucket_key else "",
    }
    return {name: value for name, value in wanted.items() if value}


def _cut(data: bytes, size: int) -> list[memoryview]:
    view = memoryview(data)
    return [view[start : start + size] for start in range(0, len(data), size)]


def _range(start: int, length: int | None) -> GetOptions | None:
    if length is not None:
        return {"range": (start, start + length)}
    return {"range": {"offset": start}} if start else None


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except _MISSING as error:
        answer = Answer.of(error)
        if answer.code == "NoSuchBucket":
            raise StoreRefused(f"{path}: {answer}") from None
        raise ObjectMissing(f"no object {path}") from None
    except ValueError as error:
        raise ConfigError(f"{path!r} is not a path inside an object store: {error}") from None
    except _ANY as error:
        raise _trouble(path, error) from None


def _trouble(path: str, error: Exception) -> StoreUnavailable:
    """The error that a failed call means to the caller."""
    answer = Answer.of(error)
    if isinstance(error, (*_REFUSED, *_MISSING)) or answer.refused:
        return StoreRefused(f"{path}: {answer}")
    return StoreFull(f"{path}: {answer}") if answer.full else StoreUnavailable(f"{path}: {answer}")
