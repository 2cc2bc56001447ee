"""Object storage: a handful of operations over a local directory or a cloud's store."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from headwater.errors import ConfigError
from headwater.objects.store import ObjectInfo, ObjectMissing, ObjectStore
from headwater.store_options import StoreOptions

__all__ = ["ObjectInfo", "ObjectMissing", "ObjectStore", "open_store"]

REMOTE_SCHEMES = ("s3", "s3a", "gs", "az", "abfs")


def open_store(url: str, options: StoreOptions | None = None) -> ObjectStore:
    """The store of a URL: `file:///path`, `s3://bucket/prefix`, `gs://…`, `az://…`, `memory://`."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        if parts.netloc or not parts.path.startswith("/"):
            raise ConfigError(f"{url!r} is not of the form file:///absolute/path")
        from headwater.objects.local import LocalStore

        return LocalStore(unquote(parts.path))
    if parts.scheme == "memory":
        from headwater.objects.memory import MemoryStore

        return MemoryStore()
    if parts.scheme in REMOTE_SCHEMES:
        from headwater.objects.remote import RemoteStore

        return RemoteStore.from_url(url, options)
    raise ConfigError(f"unknown object store {url!r}; use file://, s3://, gs:// or az://")
