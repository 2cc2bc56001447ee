"""All calls of the REST Proxy, below both of its prefixes."""

from __future__ import annotations

from collections.abc import Mapping

from litestar import Router
from litestar.di import Provide

from headwater.gateway.problems import Style
from headwater.gateway.v3 import (
    acls,
    broker_configs,
    brokers,
    clusters,
    groups,
    partitions,
    records,
    topic_configs,
    topics,
)
from headwater.gateway.v3.errors import body_of
from headwater.gateway.v3.frame import PREFIX, ROOT, provide_frame

_FAMILIES = (clusters, brokers, broker_configs, topics, topic_configs, partitions, records, groups, acls)

ROUTES = (
    Router(
        PREFIX,
        route_handlers=[route for family in _FAMILIES for route in family.ROUTES],
        dependencies={"frame": Provide(provide_frame)},
    ),
)
STYLES: Mapping[str, Style] = {f"{PREFIX}/": body_of, f"{ROOT}{PREFIX}/": body_of}
ROOTS: Mapping[str, str] = {f"{ROOT}{PREFIX}/": ROOT}
