"""Ledgers: ordered, append-only sequences of records, one per domain, on several backends.

`contract.py` has the promises and `conformance.py` a check for each. The packages `sqlite`, `journal`, `etcd`, `oxia`
and `bucket` are the backends; `memory.py` is the model for tests.
"""

from __future__ import annotations

from headwater.background import Background
from headwater.errors import ConfigError
from headwater.extras import need
from headwater.ledger.contract import Ledger
from headwater.settings.objects import StoreOptions

__all__ = ["Ledger", "open_ledger"]


def open_ledger(
    url: str, options: StoreOptions | None = None, background: Background | None = None, *, accepting: bool = False
) -> Ledger:
    """Open the ledgers of a URL. The options are used for a bucket. The background runs the ledger's own duties.

    With `accepting`, a journal that lacks its end is cut off where it is no longer sound.

    `sqlite:///absolute/path/ledger.db`, `journal:///absolute/directory`, `etcd://host:port,host:port/prefix`, `oxia://host:port/namespace?prefix=name`,
    or a bucket: `s3://bucket/prefix`, `gs://…`, `az://…`.
    """
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        from headwater.ledger.sqlite.ledger import SqliteLedger

        return SqliteLedger.from_url(url, background)
    if scheme == "journal":
        from headwater.ledger.journal.ledger import JournalLedger

        return JournalLedger.from_url(url, background, accepting=accepting)
    if scheme == "oxia":
        need("oxia")
        from headwater.ledger.oxia.ledger import OxiaLedger

        return OxiaLedger.from_url(url, background)
    if scheme == "etcd":
        need("etcd")
        from headwater.ledger.etcd.ledger import EtcdLedger

        return EtcdLedger.from_url(url, background=background)
    if scheme in ("s3", "s3a", "gs", "az", "abfs"):
        from headwater.ledger.bucket.ledger import BucketLedger

        return BucketLedger.from_url(url, options, background)
    raise ConfigError(
        f"unknown ledger {url!r}; use sqlite:///absolute/path, journal:///absolute/directory, "
        "etcd://host:port,host:port/prefix, oxia://host:port/namespace or s3://bucket/prefix"
    )
