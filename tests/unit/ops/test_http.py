"""Pages of other processes arrive whole, however large they are."""

import asyncio

import pytest

from headwater.ops import http
from headwater.ops.http import HttpServer, Page, Request, ask
from tests.support.promise import promise

PROMISES = ("O2",)

LINES = 'headwater_something{topic="t"} 1\n' * 100_000


async def asked(text: str) -> tuple[int, str]:
    async def answer(request: Request) -> Page:
        return Page(text)

    server = HttpServer({"/metrics": answer})
    port = await server.listen("127.0.0.1", 0)
    try:
        page = await ask(port, Request("GET", "/metrics"))
        return page.status, page.body
    finally:
        await server.close()


def test_a_large_page_arrives_whole() -> None:
    status, body = asyncio.run(asked(LINES))
    assert (status, len(body), body) == (200, len(LINES), LINES)


def test_a_page_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_ANSWER_BYTES", 100_000)
    with pytest.raises(ValueError, match="100000"):
        asyncio.run(asked(LINES))


async def half_a_request(port: int) -> asyncio.StreamWriter:
    """A connection that does not finish its request."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\n")
    return writer


@promise("S4")
def test_health_answers_whatever_others_do() -> None:
    """Slow connections, and pages that take long, leave room for the health pages."""

    async def main() -> None:
        release, refused = asyncio.Event(), []

        async def slow(request: Request) -> Page:
            await release.wait()
            return Page("slow")

        async def alive(request: Request) -> Page:
            return Page("alive")

        routes = {"/metrics": slow, "/healthz": alive}
        server = HttpServer(routes, connections=4, refused=refused.append)
        port = await server.listen("127.0.0.1", 0)
        busy = [asyncio.ensure_future(ask(port, Request("GET", "/metrics"))) for _ in range(4)]
        while "4 requests" not in repr(server):
            await asyncio.sleep(0)
        assert (await ask(port, Request("GET", "/metrics"))).status == 503
        silent = [await half_a_request(port) for _ in range(10)]
        assert (await ask(port, Request("GET", "/healthz"))).body == "alive"
        assert refused.count("http_connections") >= 7
        release.set()
        assert [(await one).body for one in busy] == ["slow"] * 4
        for writer in silent:
            writer.close()
        await server.close()

    asyncio.run(main())
