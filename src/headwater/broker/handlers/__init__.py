"""One module per family of APIs. Importing this package registers them all."""

from headwater.broker.handlers.admin import (  # noqa: F401
    acls,
    alter_configs,
    configs,
    log_dirs,
    quorum,
    quotas,
    replicas,
    topics,
    users,
)
from headwater.broker.handlers.data import fetch, list_offsets, produce, records  # noqa: F401
from headwater.broker.handlers.groups import consumer_groups, coordinators, group_admin, groups, offsets  # noqa: F401
from headwater.broker.handlers.session import api_versions, features, metadata, sasl, telemetry  # noqa: F401
from headwater.broker.handlers.transactions import listing, producers, transactions  # noqa: F401
