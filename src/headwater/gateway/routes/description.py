"""The OpenAPI document of the API, and a page that shows it to people. Both need no authentication."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Annotated

from litestar import MediaType, Response, get
from litestar.di import NamedDependency
from litestar.params import PathParameter

from headwater.gateway.description.document import Description
from headwater.gateway.problems import NOT_FOUND, Refusal
from headwater.gateway.services import TheCall

TheDescription = NamedDependency[Description]
FileName = Annotated[str, PathParameter(description="The name of a file of the page.")]
FILES = {"page.js": "text/javascript", "page.css": "text/css", "icon.svg": "image/svg+xml"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
"""The page loads nothing but its own files and the document."""
HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"}


@get("/openapi.json", operation_id="describeApi", tags=["description"], media_type=MediaType.JSON)
async def describe_api(call: TheCall, description: TheDescription) -> Response[bytes]:
    """This document: the HTTP API as OpenAPI 3.1. It needs no authentication, and has nothing about the cluster."""
    return Response(await call.services.offload(description.encoded), media_type=MediaType.JSON)


@get("/docs", operation_id="browseApi", tags=["description"], media_type=MediaType.HTML)
async def browse_api() -> Response[str]:
    """A page that shows this document. It needs no authentication, and no internet."""
    return Response(_file("index.html"), media_type=MediaType.HTML, headers=HEADERS)


@get("/docs/{name:str}", operation_id="browseApiFile", tags=["description"], media_type="text/css")
async def browse_api_file(name: FileName) -> Response[str]:
    """A file that the page uses."""
    if name not in FILES:
        raise Refusal(NOT_FOUND, "the page has no such file")
    return Response(_file(name), media_type=FILES[name], headers=HEADERS)


@cache
def _file(name: str) -> str:
    return files("headwater.gateway.description").joinpath("page", name).read_text()


ROUTES = (describe_api, browse_api, browse_api_file)
