"""The application: all calls of the HTTP API, made from a list of route modules.

A family of calls is one module in `headwater/gateway/routes/` and one line in `MODULES` below:

    @get("/v1/things/{name:str}", operation_id="describeThing", tags=["things"], raises=[])
    async def describe_thing(call: TheCall, name: TopicName) -> Thing:
        \"\"\"A thing. The first line is the summary in the OpenAPI document, the rest its description.\"\"\"
        topic = await call.topic(name)                     # 404 unless the caller may DESCRIBE it and it exists
        call.check(Operation.ALTER, AclResource.TOPIC, name)  # 403, or 404 where DESCRIBE is missing too
        return Thing(...)

    ROUTES = (describe_thing, list_things)

- `call` (`headwater/gateway/services.py`) is the request with its caller: `call.may`, `call.check`, `call.topic`,
  `call.services` (domains, writers, reader, topics, guard, settings, clock).
- Path, query and header parameters are `Annotated` with Litestar's `PathParameter`, `QueryParameter`,
  `HeaderParameter`; those that several calls have are in `headwater/gateway/parameters.py`.
- Bodies and answers are frozen `msgspec.Struct`s with a docstring below each field; a body is the parameter
  `data: JSONBody[Thing]`.
- A listing takes `limit: Limit = DEFAULT_ITEMS` and `cursor: Next = ""`, and answers with a `Listing` made by `paged`.
- Errors are raised: a `Refusal` of a kind in `headwater/gateway/problems.py` (or one that the module declares there, a
  `Kind` with a name that never changes), or any error of `headwater.errors`. Nothing else makes an error answer.
- An answer that goes on until the client leaves calls `call.as_stream()` first, and ends when `services.stopping` is
  set. So does a call whose body goes on, before it reads it. The front limits bodies, rates and slow clients; a module
  limits what it gathers in memory.
- A module whose clients expect errors in another form has `STYLES`: a function for the paths below a prefix. The
  OpenAPI document leaves its calls out, but for those in `DESCRIBED`.
- Module names, paths and `operation_id`s are public: they are in the OpenAPI document. Every call has an example in
  `headwater/gateway/description/samples.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from litestar import Litestar, Request, Response
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.types import ControllerRouterHandler, Middleware

from headwater.errors import HeadwaterError
from headwater.gateway.asgi import OURS, App, Receive, Scope, Send, first_values
from headwater.gateway.description.document import Description
from headwater.gateway.front import Front, log_failure
from headwater.gateway.names import divided, named, shown
from headwater.gateway.problems import Refusal, Style, refusal_of, refusal_with, style_of
from headwater.gateway.registry import routes as registry
from headwater.gateway.routes import (
    cluster,
    configs,
    description,
    explanations,
    groups,
    iceberg,
    letters,
    links,
    lookups,
    processes,
    readers,
    reading,
    records,
    rows,
    rules,
    sql,
    tables,
    topics,
    transactions,
    users,
)
from headwater.gateway.services import Call, Services
from headwater.gateway.v3 import routes as rest_proxy


class RouteModule(Protocol):
    """A family of calls."""

    @property
    def ROUTES(self) -> Sequence[ControllerRouterHandler]:
        """The handlers."""


MODULES: tuple[RouteModule, ...] = (
    cluster,
    processes,
    topics,
    configs,
    records,
    reading,
    readers,
    lookups,
    rows,
    sql,
    groups,
    tables,
    transactions,
    letters,
    links,
    users,
    rules,
    iceberg,
    explanations,
    description,
    rest_proxy,
    registry,
)
"""All families of calls."""
STYLES: Mapping[str, Style] = {
    prefix: style for module in MODULES for prefix, style in getattr(module, "STYLES", {}).items()
}
"""By prefix of a path, the form of errors below it."""
ROOTS: Mapping[str, str] = {prefix: root for module in MODULES for prefix, root in getattr(module, "ROOTS", {}).items()}
"""By prefix of a path, the part of it that is not there for the routes: the same calls under another path."""


async def provide_call(request: Request[Any, Any, Any]) -> Call:
    """The parameter `call` of handlers."""
    return cast(Call, request.scope["state"][OURS])


def build(services: Services, modules: Sequence[RouteModule] = MODULES) -> App:
    """The application of a gateway, with its front."""
    return Front(calls_of(modules), services, STYLES)


def calls_of(modules: Sequence[RouteModule] = MODULES) -> App:
    """The calls without their front. They know no gateway: the front gives each request its `Call`."""
    described = description_of(modules)

    async def provide_description() -> Description:
        return described

    litestar = Litestar(
        [route for module in modules for route in module.ROUTES],
        dependencies={"call": Provide(provide_call), "description": Provide(provide_description)},
        exception_handlers={HTTPException: _told_by_litestar, Exception: _told},
        middleware=[cast(Middleware, named)],
        request_max_body_size=None,  # the front has the limit
        logging_config=None,
        openapi_config=None,
        debug=False,
        pdb_on_exception=False,
    )
    return _rooted(cast(App, litestar))


def description_of(modules: Sequence[RouteModule] = MODULES) -> Description:
    """The OpenAPI document. Of modules that imitate another product it has what they call `DESCRIBED`."""
    own = [route for module in modules if not hasattr(module, "STYLES") for route in module.ROUTES]
    return Description([*own, *(route for module in modules for route in getattr(module, "DESCRIBED", ()))])


def _rooted(app: App) -> App:
    """The application, which knows the paths of `ROOTS` too, and names with a slash."""

    async def ask(scope: Scope, receive: Receive, send: Send) -> None:
        divided(scope)
        for prefix, root in ROOTS.items():
            if scope["path"].startswith(prefix):
                scope["root_path"] = root
        await app(scope, receive, send)

    return ask


def _told(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """The answer to a request whose handler raised an error."""
    if not isinstance(error, HeadwaterError):
        log_failure(request.scope["path"], _call(request).request_id, error)
    return _response(request, refusal_of(error))


def _told_by_litestar(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """The answer to a request that Litestar refuses: an unknown path, a parameter or a body of the wrong type."""
    cause = error.__cause__
    if isinstance(cause, HeadwaterError):
        return _response(request, refusal_of(cause))
    if error.status_code >= 500:
        log_failure(request.scope["path"], _call(request).request_id, error)
        return _response(request, refusal_with(error.status_code, ""))
    more = {"errors": error.extra} if error.extra else {}
    headers = tuple((error.headers or {}).items())
    path = shown(request.scope["path"])
    detail = error.detail if error.status_code != 404 else f"there is no {request.method} {path}"
    return _response(request, refusal_with(error.status_code, detail, more=more, headers=headers))


def _response(request: Request[Any, Any, Any], refusal: Refusal) -> Response[bytes]:
    scope = cast(Scope, request.scope)
    body = style_of(scope["path"], STYLES)(refusal, first_values(scope))
    return Response(
        body.data, status_code=refusal.kind.status, media_type=body.media_type, headers=dict(refusal.all_headers)
    )


def _call(request: Request[Any, Any, Any]) -> Call:
    return cast(Call, request.scope["state"][OURS])
