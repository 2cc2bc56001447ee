"""What is at `/`: nothing, for clients that look whether the registry is there, and a page that leads people on."""

from __future__ import annotations

from typing import Any, cast

from litestar import MediaType, Request, Response, get

from headwater.gateway.asgi import Scope, first_values
from headwater.gateway.media import liked
from headwater.gateway.registry.errors import MEDIA_TYPE

PAGES = {
    "docs": "all calls of the HTTP API, to read",
    "openapi.json": "the same, for programs",
    "v1/topics": "topics and their records",
    "subjects": "the schema registry",
    "v3/clusters": "the REST Proxy",
    "iceberg/v1/config": "the Iceberg REST catalog",
    "v1/health": "whether the gateway serves",
}


@get("/", operation_id="openRegistry", tags=["description"])
async def front_page(request: Request[Any, Any, Any]) -> Response[dict[str, str]]:
    """Nothing: the registry is there. A browser gets a page with links. It needs no authentication."""
    headers = first_values(cast(Scope, request.scope))
    if any(name == "text/html" and weight for name, weight in liked(headers.get(b"accept", b"").decode("latin-1"))):
        return cast(Response[dict[str, str]], Response(_page(), media_type=MediaType.HTML))
    return Response({}, media_type=MEDIA_TYPE)


def _page() -> str:
    """It says nothing about the cluster."""
    listed = "".join(f'<li><a href="{path}">/{path}</a>: {text}</li>' for path, text in PAGES.items())
    return f"<!doctype html><title>Headwater</title><h1>Headwater</h1><ul>{listed}</ul>"


ROUTES = (front_page,)
