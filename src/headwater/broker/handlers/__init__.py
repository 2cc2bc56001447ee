"""One module per family of APIs. Importing this package registers them all."""

from headwater.broker.handlers import (
    alter_configs,
    api_versions,
    configs,
    coordinators,
    features,
    fetch,
    list_offsets,
    log_dirs,
    metadata,
    produce,
    producers,
    quotas,
    records,
    replicas,
    telemetry,
    topics,
)

__all__ = [
    "alter_configs",
    "api_versions",
    "configs",
    "coordinators",
    "features",
    "fetch",
    "list_offsets",
    "log_dirs",
    "metadata",
    "produce",
    "producers",
    "quotas",
    "records",
    "replicas",
    "telemetry",
    "topics",
]
