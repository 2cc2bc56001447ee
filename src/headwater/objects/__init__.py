"""Object storage: a handful of operations over a local directory or a cloud's store."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from headwater.clock import Chance, Clock, SystemChance, SystemClock
from headwater.errors import ConfigError
from headwater.objects.hedging import HedgedStore
from headwater.objects.limiting import LimitedStore
from headwater.objects.measuring import MeasuredStore
from headwater.objects.retrying import RetryingStore
from headwater.objects.stats import StoreStats
from headwater.objects.store import ObjectInfo, ObjectStore
from headwater.objects.wrapper import ResumableStore
from headwater.settings.objects import StoreOptions

__all__ = ["ObjectInfo", "ObjectStore", "open_store", "wrapped"]

REMOTE_SCHEMES = ("s3", "s3a", "gs", "az", "abfs")


def open_store(
    url: str, options: StoreOptions | None = None, clock: Clock | None = None, chance: Chance | None = None
) -> ObjectStore:
    """The store of a URL: `file:///path`, `s3://bucket/prefix`, `gs://…`, `az://…`, `memory://`.

    Clock and chance, and all options but the mode of files, are used by stores over a network.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        if parts.netloc or not parts.path.startswith("/"):
            raise ConfigError(f"{url!r} does not have the form file:///absolute/path")
        from headwater.objects.local import LocalStore

        return LocalStore(unquote(parts.path), (options or StoreOptions()).mode)
    if parts.scheme == "memory":
        from headwater.objects.memory import MemoryStore

        return MemoryStore()
    if parts.scheme in REMOTE_SCHEMES:
        from headwater.objects.remote import RemoteStore

        options = options or StoreOptions()
        return wrapped(RemoteStore.from_url(url, options), options, clock or SystemClock(), chance or SystemChance())
    raise ConfigError(f"unknown object store {url!r}; use file://, s3://, gs:// or az://")


def wrapped(store: ResumableStore, options: StoreOptions, clock: Clock, chance: Chance) -> ObjectStore:
    """A store over a network in its wrappers, from the inside out: limit, hedging (if configured), retries, counts."""
    stats = StoreStats()
    store = LimitedStore(store, options, stats)
    if options.hedge_percent:
        store = HedgedStore(store, options, stats, clock)
    store = RetryingStore(store, options, stats, clock, chance)
    return MeasuredStore(store, options, stats, clock)
