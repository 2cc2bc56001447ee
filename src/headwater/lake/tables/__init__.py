"""Table formats that follow a topic table's journal. No Spark in here."""

from __future__ import annotations

import os

from headwater.config import Lake
from headwater.lake.tables.follower import TableFollower
from headwater.lake.tables.storage import reader_properties
from headwater.objects import ObjectStore
from headwater.store_options import StoreOptions
from headwater.threads import Offload, inline


def make_followers(
    store: ObjectStore, lake: Lake, offload: Offload = inline, options: StoreOptions | None = None
) -> list[TableFollower]:
    """The followers that the settings ask for. What takes them long to compute is done where `offload` says.

    Catalogs of others write metadata by themselves, so they are told where the store is.
    """
    found: list[TableFollower] = []
    keep, age, hours = lake.keep_versions, lake.version_age_ms, lake.tag_hours
    if "iceberg" in lake.followers:
        from headwater.lake.tables.iceberg import IcebergFollower

        found.append(IcebergFollower(store, keep_versions=keep, max_age_ms=age, tag_hours=hours))
    if "delta" in lake.followers:
        from headwater.lake.tables.delta import DeltaFollower

        found.append(DeltaFollower(store, keep_versions=keep, max_age_ms=age, offload=offload))
    for name, properties in lake.catalogs.items():
        from headwater.lake.tables.iceberg_catalog import CatalogFollower

        own = reader_properties(store.url, os.environ, options.provider if options else {}, properties)
        catalog = CatalogFollower(name, own, store, keep_versions=keep, max_age_ms=age, tag_hours=hours)
        found.append(catalog)
    return found
