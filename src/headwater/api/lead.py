"""Where the REST catalog is: the pages below `/iceberg/` of `http`, where it was before the gateway had it.

Iceberg's clients first ask for `/v1/config`. The answer overrides their URL by that of the gateway, so clients that
were set up with the old URL work. A client that does not heed the answer (DuckDB) is redirected, unless it sends
credentials: clients leave them out on another port, so it is told where the catalog is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from headwater.gateway.catalog import ENDPOINTS, MOUNT, refused
from headwater.ops.http import Page, Request

PATH = MOUNT.rstrip("/")


class CatalogLead:
    """Leads Iceberg's clients to the gateway."""

    def __init__(self, url: Callable[[], str], properties: Mapping[str, str]) -> None:
        """`url` returns the URL of the gateway, or an empty text if it is not known; clients get `properties` too."""
        self._url = url
        self._properties = dict(properties)

    def __repr__(self) -> str:
        return f"<CatalogLead to {self._url()}>"

    async def page(self, request: Request) -> Page:
        """The answer to a request."""
        url = self._url()
        if not url:
            return refused(503, "no gateway is known here, and only gateways serve the catalog: see gateway.url")
        if request.path == f"{MOUNT}v1/config" and request.method in ("GET", "HEAD"):
            overrides = {"uri": url + PATH}
            config = {"defaults": self._properties, "overrides": overrides, "endpoints": ENDPOINTS}
            return Page(json.dumps(config))
        told = f"the catalog is at {url}{PATH}; set this as its uri"
        if request.authorization or request.method not in ("GET", "HEAD"):
            return refused(421, told)
        query = f"?{request.query}" if request.query else ""
        return refused(307, told, (("Location", f"{url}{request.path}{query}"),))
