"""One module per family of APIs. Importing this package registers them all."""

from headwater.broker.handlers import (
    api_versions,
    configs,
    consumer_groups,
    coordinators,
    fetch,
    group_admin,
    groups,
    list_offsets,
    metadata,
    offsets,
    produce,
    producers,
    records,
    topics,
)

__all__ = [
    "api_versions",
    "configs",
    "consumer_groups",
    "coordinators",
    "fetch",
    "group_admin",
    "groups",
    "list_offsets",
    "metadata",
    "offsets",
    "produce",
    "producers",
    "records",
    "topics",
]
