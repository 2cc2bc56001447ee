"""Table formats that follow a topic table's journal. No Spark in here."""

from __future__ import annotations

from headwater.config import Lake
from headwater.lake.tables.follower import TableFollower
from headwater.objects import ObjectStore
from headwater.threads import Offload, inline


def make_followers(store: ObjectStore, lake: Lake, offload: Offload = inline) -> list[TableFollower]:
    """The followers that the settings ask for. What takes them long to compute is done where `offload` says."""
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

        catalog = CatalogFollower(name, properties, store, keep_versions=keep, max_age_ms=age, tag_hours=hours)
        found.append(catalog)
    return found
