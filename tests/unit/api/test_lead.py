"""The former place of the REST catalog leads to the gateway."""

from __future__ import annotations

import asyncio
import json

import pytest

from headwater.api.lead import CatalogLead
from headwater.ops.http import Page, Request
from tests.support.promise import promise

PROMISES = ("T9",)

URL = "https://gateway.example:8081"


def ask(path: str, method: str = "GET", query: str = "", url: str = URL, authorization: str = "") -> Page:
    lead = CatalogLead(lambda: url, {"s3.region": "here"})
    return asyncio.run(lead.page(Request(method, f"/iceberg/{path}", query, authorization=authorization)))


@promise("T9")
def test_config_overrides_the_url() -> None:
    """A client that was set up with the former URL goes on at the gateway, with what it needs to read objects."""
    page = ask("v1/config", query="warehouse=x")
    told = json.loads(page.body)
    assert page.status == 200 and told["overrides"] == {"uri": f"{URL}/iceberg"}
    assert told["defaults"] == {"s3.region": "here"} and "GET /v1/{prefix}/namespaces" in told["endpoints"]


@promise("T9")
def test_other_paths_are_redirected() -> None:
    """For clients that do not heed the configuration."""
    page = ask("v1/namespaces/topics/tables/a%2Eb", query="snapshots=refs")
    assert page.status == 307
    assert dict(page.headers) == {"Location": f"{URL}/iceberg/v1/namespaces/topics/tables/a%2Eb?snapshots=refs"}
    assert f"{URL}/iceberg" in json.loads(page.body)["error"]["message"]


@promise("T9")
@pytest.mark.parametrize(("method", "authorization"), [("GET", "Basic eA=="), ("POST", "")])
def test_no_redirect_that_would_lose_something(method: str, authorization: str) -> None:
    """Credentials and bodies do not survive a redirect. The answer says where to go."""
    page = ask("v1/namespaces/topics/tables/t", method, authorization=authorization)
    assert page.status == 421 and not page.headers
    assert f"{URL}/iceberg" in json.loads(page.body)["error"]["message"]


@promise("T9")
def test_without_a_gateway() -> None:
    page = ask("v1/config", url="")
    assert page.status == 503 and "gateway.url" in json.loads(page.body)["error"]["message"]
