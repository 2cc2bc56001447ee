"""All calls of the schema registry, at the paths that its clients know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from litestar import Router
from litestar.di import Provide
from litestar.types import Middleware

from headwater.gateway.problems import Style
from headwater.gateway.registry import front_page, schemas, settings, subjects
from headwater.gateway.registry.errors import body_of
from headwater.gateway.registry.expected import as_expected
from headwater.gateway.registry.frame import provide_frame

_FAMILIES = (subjects, schemas, settings, front_page)
PREFIXES = ("/subjects", "/schemas", "/config", "/mode", "/compatibility", "/contexts", "/v1/metadata/")

DESCRIBED = tuple(route for family in _FAMILIES for route in family.ROUTES)
"""The calls, for the OpenAPI document."""
ROUTES = (
    Router(
        "/",
        route_handlers=list(DESCRIBED),
        dependencies={"frame": Provide(provide_frame)},
        middleware=[cast(Middleware, as_expected)],
    ),
)
STYLES: Mapping[str, Style] = dict.fromkeys(PREFIXES, body_of)
