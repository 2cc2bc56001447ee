"""All calls of the schema registry, at the paths that its clients know."""

from __future__ import annotations

from collections.abc import Mapping

from litestar import Router
from litestar.di import Provide

from headwater.gateway.problems import Style
from headwater.gateway.registry import schemas, settings, subjects
from headwater.gateway.registry.errors import body_of
from headwater.gateway.registry.frame import provide_frame

_FAMILIES = (subjects, schemas, settings)
PREFIXES = ("/subjects", "/schemas", "/config", "/mode", "/compatibility", "/contexts", "/v1/metadata/")

DESCRIBED = tuple(route for family in _FAMILIES for route in family.ROUTES)
"""The calls, for the OpenAPI document."""
ROUTES = (
    Router(
        "/",
        route_handlers=list(DESCRIBED),
        dependencies={"frame": Provide(provide_frame)},
    ),
)
STYLES: Mapping[str, Style] = dict.fromkeys(PREFIXES, body_of)
