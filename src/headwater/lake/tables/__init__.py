"""Table formats that follow a topic table's journal. No Spark in here."""

from __future__ import annotations

import os

from headwater.lake.tables.follower import TableFollower
from headwater.lake.tables.storage import reader_properties
from headwater.objects import ObjectStore
from headwater.settings.objects import StoreOptions
from headwater.settings.settings import Lake
from headwater.threads import Offload, inline


def make_followers(
    store: ObjectStore, lake: Lake, offload: Offload = inline, options: StoreOptions | None = None
) -> list[TableFollower]:
    """The followers in the settings. They run long computations with `offload`.

    External catalogs write metadata themselves, so they get the address of the store.
    """
    found: list[TableFollower] = []
    keep, age, hours = lake.keep_versions, lake.version_age_ms, lake.tag_hours
    if "iceberg" in lake.followers:
        from headwater.lake.tables.iceberg.table import IcebergFollower

        found.append(IcebergFollower(store, keep_versions=keep, max_age_ms=age, tag_hours=hours))
    if "delta" in lake.followers:
        from headwater.lake.tables.delta.table import DeltaFollower

        found.append(DeltaFollower(store, keep_versions=keep, max_age_ms=age, offload=offload))
    for name, properties in lake.catalogs.items():
        from headwater.lake.tables.iceberg.catalog import CatalogFollower

        own = reader_properties(store.url, os.environ, options.provider if options else {}, properties)
        catalog = CatalogFollower(name, own, store, keep_versions=keep, max_age_ms=age, tag_hours=hours)
        found.append(catalog)
    return found
