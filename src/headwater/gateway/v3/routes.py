"""All calls of the REST Proxy, below both of its prefixes."""

from __future__ import annotations

from collections.abc import Mapping

from litestar import Router
from litestar.di import Provide
from litestar.types import ControllerRouterHandler

from headwater.gateway.problems import Style
from headwater.gateway.v3 import brokers, clusters, partitions, topics
from headwater.gateway.v3.errors import body_of
from headwater.gateway.v3.frame import PREFIXES, provide_frame

_FAMILIES = (clusters, brokers, topics, partitions)


def _router(prefix: str) -> Router:
    """The calls below a prefix. The OpenAPI document has them once."""
    handlers: list[ControllerRouterHandler] = [route for family in _FAMILIES for route in family.ROUTES]
    shown = prefix == PREFIXES[0]
    return Router(
        prefix, route_handlers=handlers, dependencies={"frame": Provide(provide_frame)}, include_in_schema=shown
    )


ROUTES = tuple(_router(prefix) for prefix in PREFIXES)
STYLES: Mapping[str, Style] = {f"{prefix}/": body_of for prefix in PREFIXES}
