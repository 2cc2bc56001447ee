"""One module per family of APIs. Importing this package registers them all."""

from headwater.broker.handlers import (
    acls,
    api_versions,
    configs,
    coordinators,
    fetch,
    list_offsets,
    metadata,
    produce,
    producers,
    records,
    sasl,
    topics,
    users,
)

__all__ = [
    "acls",
    "api_versions",
    "configs",
    "coordinators",
    "fetch",
    "list_offsets",
    "metadata",
    "produce",
    "producers",
    "records",
    "sasl",
    "topics",
    "users",
]
