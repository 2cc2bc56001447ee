"""The read-only Iceberg REST catalog. Its clients know its calls from Iceberg's own document; see `RestCatalog`."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import quote

from litestar import HttpMethod, Request, Response, route
from litestar.params import FromPath

from headwater.gateway.asgi import Scope
from headwater.gateway.catalog import MOUNT, refused
from headwater.gateway.problems import Body, Refusal
from headwater.gateway.services import TheCall
from headwater.ops.http import Request as Asked

METHODS = [HttpMethod.GET, HttpMethod.HEAD, HttpMethod.POST, HttpMethod.PUT, HttpMethod.PATCH, HttpMethod.DELETE]


@route(f"{MOUNT}{{path:path}}", http_method=METHODS, include_in_schema=False)
async def catalog(call: TheCall, request: Request[Any, Any, Any], path: FromPath[str]) -> Response[str]:
    """A call of the catalog."""
    query = request.scope["query_string"].decode("latin-1")
    caller = call.caller
    asked = Asked(request.method, _raw_path(cast(Scope, request.scope)), query, caller.host, principal=caller.principal)
    page = await call.services.catalog.page(asked)
    return Response(page.body, status_code=page.status, media_type=page.content_type, headers=dict(page.headers))


def _raw_path(scope: Scope) -> str:
    """The path as it was sent, percent-encoded: a name may contain a slash or a control character."""
    raw = scope.get("raw_path")
    return raw.decode("latin-1").partition("?")[0] if raw else quote(scope["path"])


def style(refusal: Refusal) -> Body:
    """A refusal in the form that Iceberg's clients understand."""
    page = refused(refusal.kind.status, str(refusal))
    return Body(page.body.encode(), page.content_type)


ROUTES = (catalog,)
STYLES = {MOUNT: style}
