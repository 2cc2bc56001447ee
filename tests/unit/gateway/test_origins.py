"""What web pages of other origins may do: nothing, unless the settings name them."""

from __future__ import annotations

import asyncio

import pytest

from headwater.gateway.origins import Origins
from headwater.gateway.problems import Refusal
from headwater.settings.settings import Gateway, Settings
from tests.support.gateways import gateway
from tests.support.promise import promise

PROMISES = ("S3",)

HERE, PAGE = b"localhost:8081", b"https://page.example"


@promise("S3")
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_page_of_another_origin_changes_nothing(method: str) -> None:
    """A browser sends simple requests without asking; only the answer would be kept from the page."""
    own = Origins((), "127.0.0.1", "")
    for origin in (PAGE, b"null", b"http://localhost:9999", b"", b"http://[bad"):
        with pytest.raises(Refusal) as refused:
            own.check(method, origin, HERE)
        assert refused.value.kind.name == "other-origin"
    own.check(method, b"http://localhost:8081", HERE)
    own.check(method, None, HERE)
    Origins((PAGE.decode(),), "127.0.0.1", "").check(method, PAGE, HERE)
    Origins(("*",), "127.0.0.1", "").check(method, PAGE, HERE)
    own.check("GET", PAGE, HERE)


@promise("S3")
@pytest.mark.parametrize("host", [b"page.example", b"page.example:8081", b"127.0.0.1.page.example", b"", b"[bad"])
def test_a_name_that_points_to_loopback(host: bytes) -> None:
    """A page whose own name points to this machine is of the same origin; the name tells it."""
    with pytest.raises(Refusal) as refused:
        Origins(("*",), "127.0.0.1", "").check("GET", None, host)
    assert refused.value.kind.name == "other-host"
    Origins((), "10.0.0.1", "").check("GET", None, host)


@pytest.mark.parametrize("host", [b"localhost", b"LOCALHOST:1", b"127.0.0.1:8081", b"[::1]:8081", b"gate.example"])
def test_names_of_this_machine(host: bytes) -> None:
    Origins((), "localhost", "https://gate.example:443").check("POST", None, host)


@promise("S3")
def test_over_http() -> None:
    """The front refuses, and pages of problems and health answer everybody."""

    async def story() -> None:
        async with gateway(Settings(gateway=Gateway(origins=(PAGE.decode(),)))) as found:
            other = await found.get("/v1/topics", headers={"Host": "page.example"})
            assert (other.status_code, other.json()["type"]) == (421, "/problems/other-host")
            posted = await found.ask("POST", "/v1/topics", headers={"Origin": "https://else.example"})
            assert (posted.status_code, posted.json()["type"]) == (403, "/problems/other-origin")
            named = await found.get("/v1/topics", headers={"Origin": PAGE.decode()})
            assert named.status_code == 200
            assert named.headers["access-control-allow-origin"] == PAGE.decode()
            assert (await found.get("/v1/health", headers={"Host": "page.example"})).status_code == 200

    asyncio.run(story())
