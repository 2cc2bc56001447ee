"""O2: pages of other processes arrive whole, however large they are."""

import asyncio

import pytest

from headwater.ops import http
from headwater.ops.http import HttpServer, Page, Request, ask

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
