"""The read-only Iceberg REST catalog. Its clients know its calls from Iceberg's own document; see `RestCatalog`.

Trino, and other clients that know OAuth2 but no passwords, get a token for a name and a password at `/v1/oauth/tokens`,
and renew it there.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import parse_qs, quote

from litestar import HttpMethod, Request, Response, post, route
from litestar.params import FromPath

from headwater.errors import NotAuthenticated
from headwater.gateway.asgi import Scope
from headwater.gateway.callers import TOKENS
from headwater.gateway.catalog import MOUNT, refused
from headwater.gateway.problems import Body, Refusal, refusal_of
from headwater.gateway.services import TheCall
from headwater.ops.http import Request as Asked

METHODS = [HttpMethod.GET, HttpMethod.HEAD, HttpMethod.POST, HttpMethod.PUT, HttpMethod.PATCH, HttpMethod.DELETE]
MAX_FIELDS = 32
BY_PASSWORD = "client_credentials"
BY_TOKEN = "urn:ietf:params:oauth:grant-type:token-exchange"
TOKEN_TYPE = "urn:ietf:params:oauth:token-type:access_token"


@route(f"{MOUNT}{{path:path}}", http_method=METHODS, include_in_schema=False)
async def catalog(call: TheCall, request: Request[Any, Any, Any], path: FromPath[str]) -> Response[str]:
    """A call of the catalog."""
    query = request.scope["query_string"].decode("latin-1")
    caller = call.caller
    asked = Asked(request.method, _raw_path(cast(Scope, request.scope)), query, caller.host, principal=caller.principal)
    page = await call.services.catalog.page(asked)
    return Response(page.body, status_code=page.status, media_type=page.content_type, headers=dict(page.headers))


@post(TOKENS, include_in_schema=False)
async def tokens(call: TheCall, request: Request[Any, Any, Any]) -> Response[str]:
    """A token for a user's name and password, or for a token that is still valid (RFC 6749, RFC 8693)."""
    logins = call.services.http_logins
    if not logins.takes_passwords:
        return _oauth_error("unsupported_grant_type", "callers do not log in by password here (security.http)")
    body = await request.body()
    try:
        form = parse_qs(body.decode(), keep_blank_values=True, strict_parsing=bool(body), max_num_fields=MAX_FIELDS)
    except ValueError:
        return _oauth_error("invalid_request", "the body is not a form")
    given = request.headers.get("authorization", "")
    match form.get("grant_type"):
        case [kind] if kind == BY_PASSWORD:
            authorization = _of_password(form) or given
        case [kind] if kind == BY_TOKEN:
            authorization = given if given.lower().startswith("basic ") else _of_token(form)
        case _:
            return _oauth_error("unsupported_grant_type", f"grant_type must be {BY_PASSWORD} or {BY_TOKEN}")
    if not authorization:
        return _oauth_error("invalid_request", "client_id and client_secret, or subject_token, are needed")
    try:
        token, seconds = await logins.grant(call.caller.host, authorization)
    except NotAuthenticated as error:
        refusal = refusal_of(error)
        return _oauth_error("invalid_client", str(error), refusal.kind.status, dict(refusal.headers))
    answer = {"access_token": token, "token_type": "bearer", "issued_token_type": TOKEN_TYPE, "expires_in": seconds}
    return Response(json.dumps(answer), status_code=200, media_type="application/json")


def _of_password(form: dict[str, list[str]]) -> str:
    """The header of a name and a password in a form; empty if it has none. A name has no colon there."""
    match form.get("client_id"), form.get("client_secret"):
        case [[name], [password]] if name and ":" not in name:
            return "Basic " + b64encode(f"{name}:{password}".encode()).decode()
    return ""


def _of_token(form: dict[str, list[str]]) -> str:
    match form.get("subject_token"):
        case [token] if token:
            return f"Bearer {token}"
    return ""


def _oauth_error(
    kind: str, description: str, status: int = 400, headers: dict[str, str] | None = None
) -> Response[str]:
    """A refusal in the form of OAuth, which clients read here."""
    body = json.dumps({"error": kind, "error_description": description})
    return Response(body, status_code=status, media_type="application/json", headers=headers)


def _raw_path(scope: Scope) -> str:
    """The path as it was sent, percent-encoded: a name may contain a slash or a control character."""
    raw = scope.get("raw_path")
    return raw.decode("latin-1").partition("?")[0] if raw else quote(scope["path"])


def style(refusal: Refusal, _: Mapping[bytes, bytes]) -> Body:
    """A refusal in the form that Iceberg's clients understand."""
    page = refused(refusal.kind.status, str(refusal))
    return Body(page.body.encode(), page.content_type)


ROUTES = (catalog, tokens)
STYLES = {MOUNT: style}
