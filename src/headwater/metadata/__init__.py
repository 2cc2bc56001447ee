"""Metadata as a replicated state machine over a ledger that someone else keeps safe.

`ledger` is the contract of the store, `commands` what a record may say, `cluster` and `streams` the
states that records fold into, `replica` the part of a process that follows and appends.
"""

from __future__ import annotations

from headwater.errors import ConfigError
from headwater.metadata.ledger import Ledger
from headwater.store_options import StoreOptions

__all__ = ["Ledger", "open_ledger"]


def open_ledger(url: str, options: StoreOptions | None = None) -> Ledger:
    """The ledgers of a URL; the options are for a bucket.

    `sqlite:///absolute/path/ledger.db`, `etcd://host:port,host:port/prefix`, `oxia://host:port/namespace?prefix=name`,
    or a bucket and nothing else: `s3://bucket/prefix`, `gs://…`, `az://…`.
    """
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        from headwater.metadata.sqlite import SqliteLedger

        return SqliteLedger.from_url(url)
    if scheme == "oxia":
        from headwater.metadata.oxia import OxiaLedger

        return OxiaLedger.from_url(url)
    if scheme == "etcd":
        from headwater.metadata.etcd import EtcdLedger

        return EtcdLedger.from_url(url)
    if scheme in ("s3", "s3a", "gs", "az", "abfs"):
        from headwater.metadata.bucket import BucketLedger

        return BucketLedger.from_url(url, options)
    raise ConfigError(
        f"unknown ledger {url!r}; use sqlite:///absolute/path, etcd://host:port,host:port/prefix, "
        "oxia://host:port/namespace or s3://bucket/prefix"
    )
