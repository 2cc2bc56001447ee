"""The front of the gateway: ids, limits, slow clients, and what becomes of errors."""

from __future__ import annotations

import asyncio
import json
import logging
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from litestar import Request, get, post
from litestar.params import FromPath, JSONBody
from litestar.response import Stream

from headwater.errors import StoreUnavailable
from headwater.gateway.asgi import OURS, Message, Receive, Scope
from headwater.gateway.callers import MAX_FORM_BYTES, TOKENS
from headwater.gateway.problems import CONFLICT, Refusal
from headwater.gateway.services import TheCall
from headwater.settings.settings import Gateway, Settings
from tests.support.gateways import InGateway, gateway, secured
from tests.support.promise import promise


class Words(msgspec.Struct, frozen=True):
    """A body."""

    words: list[str]


@post("/echo")
async def echo(data: JSONBody[Words]) -> Words:
    return data


@get("/wait")
async def wait(call: TheCall) -> str:
    await call.services.stopping.wait()
    return "over"


@get("/stream")
async def stream(call: TheCall) -> Stream:
    call.as_stream()

    async def lines() -> Any:
        yield b"first\n"
        await call.services.stopping.wait()
        yield b"last\n"

    return Stream(lines())


@post("/swallow")
async def swallow(call: TheCall, request: Request[Any, Any, Any]) -> int:
    call.as_stream()
    return sum([len(chunk) async for chunk in request.stream()])


MODULES = (SimpleNamespace(ROUTES=(echo, wait, stream, swallow)),)


def settings(**own: Any) -> Settings:
    return Settings(gateway=Gateway(**own))


async def exchange(
    found: InGateway,
    scope: dict[str, Any],
    *received: Message,
    slow_from: int | None = None,
    receive: Receive | None = None,
) -> tuple[list[Message], list[str]]:
    """What the front sends for a request, and what it does to the connection. A slow client stops reading."""
    sent: list[Message] = []
    done: list[str] = []
    rest = list(received)

    async def receive_these() -> Message:
        if rest:
            return rest.pop(0)
        return await asyncio.Event().wait()  # type: ignore[return-value]

    async def send(message: Message) -> None:
        if slow_from is not None and len(sent) >= slow_from:
            await asyncio.Event().wait()
        sent.append(message)

    whole: Scope = {
        "type": "http", "method": "GET", "path": "/", "raw_path": b"/", "query_string": b"", "headers": [],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "scheme": "http", "http_version": "1.1",
        "root_path": "", "extensions": {OURS: {"abort": lambda: done.append("abort")}}, **scope,
    }  # fmt: skip
    await found.app(whole, receive or receive_these, send)
    return sent, done


def test_request_ids() -> None:
    """A caller's own id is kept if it is a short word; each answer has a date, and is not cached."""

    async def story() -> None:
        async with gateway() as found:
            given = await found.get("/v1", headers={"X-Request-Id": "abc-1"})
            assert given.headers["x-request-id"] == "abc-1" and given.headers["cache-control"] == "no-store"
            made = [(await found.get("/v1", headers={"X-Request-Id": bad})).headers for bad in ("x" * 65, "a b", "")]
            assert len({headers["x-request-id"] for headers in made}) == 3
            assert all(len(headers["x-request-id"]) == 32 and headers["date"].endswith("GMT") for headers in made)

    asyncio.run(story())


def test_a_body_that_is_too_large() -> None:
    """By its announced length before it is read, in chunks when it is; a small one is taken."""

    async def chunks() -> Any:
        for _ in range(30):
            yield b" " * 10

    async def story() -> None:
        async with gateway(settings(body_bytes=100), MODULES) as found:
            small = await found.ask("POST", "/echo", json={"words": ["a"]})
            assert (small.status_code, small.json()) == (201, {"words": ["a"]})
            for body in (b" " * 101, chunks()):
                refused = await found.ask("POST", "/echo", content=body, headers={"Content-Type": "application/json"})
                assert refused.status_code == 413 and refused.json()["type"] == "/problems/too-large"
            assert found.services.stats.refusals == {"too-large": 2}

    asyncio.run(story())


def test_bodies_and_parameters_that_do_not_fit() -> None:
    """400 with what is wrong where, and never 500."""

    async def story() -> None:
        async with gateway(settings(), MODULES) as found:
            for body in (b"{", b"[]", b'{"words":"a"}', b"", b"\xff"):
                refused = await found.ask("POST", "/echo", content=body, headers={"Content-Type": "application/json"})
                assert refused.status_code == 400, body
                assert refused.headers["content-type"] == "application/problem+json"
                assert refused.json()["type"] == "/problems/bad-request"

    asyncio.run(story())


def test_errors_of_handlers(caplog: pytest.LogCaptureFixture) -> None:
    """What was not foreseen is logged with the request's id, and the caller learns the id only."""

    @get("/fail/{how:str}")
    async def fail(how: FromPath[str]) -> None:
        known = {"conflict": Refusal(CONFLICT, "no", more={"present": 3}), "store": StoreUnavailable("away")}
        raise known.get(how) or RuntimeError("a secret")

    async def story() -> None:
        async with gateway(None, (SimpleNamespace(ROUTES=(fail,)),)) as found:
            conflict = await found.get("/fail/conflict")
            assert conflict.status_code == 409 and conflict.json()["present"] == 3
            away = await found.get("/fail/store")
            assert away.status_code == 503 and away.headers["retry-after"] == "1"
            with caplog.at_level(logging.ERROR):
                broken = await found.get("/fail/other", headers={"X-Request-Id": "find-me"})
            assert broken.status_code == 500 and "secret" not in broken.text
            [line] = [record for record in caplog.records if record.message == "a request failed"]
            assert vars(line)["request"] == "find-me" and line.exc_info is not None

    asyncio.run(story())


def test_requests_under_way() -> None:
    """Beyond the limit 429; a place is given back when the answer ends."""

    async def story() -> None:
        async with gateway(settings(requests=1), MODULES) as found:
            waiting = asyncio.ensure_future(found.get("/wait"))
            while not found.services.requests.count:
                await asyncio.sleep(0)
            refused = await found.get("/wait")
            assert refused.status_code == 429 and refused.json()["type"] == "/problems/overloaded"
            found.services.stopping.set()
            assert (await waiting).text == "over"
            assert found.services.requests.count == 0 and (await found.get("/wait")).status_code == 200

    asyncio.run(story())


@promise("S4")
def test_slow_bodies_of_one_caller_leave_places_to_others() -> None:
    """One address has a share of the places; another one is answered meanwhile."""

    async def story() -> None:
        async with gateway(settings(requests=4, requests_per_caller=2), MODULES) as found:
            slow = {"method": "POST", "path": "/echo", "headers": [(b"content-type", b"application/json")]}
            waiting = [asyncio.ensure_future(exchange(found, slow)) for _ in range(2)]
            while found.services.requests.count < 2:
                await asyncio.sleep(0)
            sent, _ = await exchange(found, {"path": "/v1"}, {"type": "http.request"})
            assert sent[0]["status"] == 429
            other = {"path": "/v1", "client": ("127.0.0.2", 1)}
            sent, _ = await exchange(found, other, {"type": "http.request"})
            assert sent[0]["status"] == 404 and found.services.requests.count == 2, (
                "there is nothing, and it is told so"
            )
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            assert found.services.requests.count == 0

    asyncio.run(story())


@promise("S4")
def test_forms_without_a_log_in_take_no_places_of_requests() -> None:
    """They have places of their own, and one address has at most a quarter of these."""

    async def story() -> None:
        async with gateway(secured(requests=32)) as found:
            kind = [(b"content-type", b"application/x-www-form-urlencoded"), (b"content-length", b"100")]
            slow = {"method": "POST", "path": TOKENS, "headers": kind}
            hosts = [f"127.0.{n}.1" for n in range(7)]
            waiting = [
                asyncio.ensure_future(exchange(found, {**slow, "client": (host, 1)}))
                for host in hosts
                for _ in range(3)
            ]
            while found.services.strangers.count < 8:
                await asyncio.sleep(0)
            assert found.services.strangers.metrics()[1:] == (8, 8, 2, 2)
            assert found.services.requests.count == 0
            assert (await found.get("/v1")).status_code == 401, "others are asked to log in, and not to come later"
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            assert found.services.strangers.count == 0

    asyncio.run(story())


@promise("S4")
def test_bodies_of_one_caller_leave_memory_to_others() -> None:
    """A caller whose bodies come slowly holds its share of bytes and no more."""

    async def story() -> None:
        limits = settings(caller_bodies_bytes=1_000, bodies_bytes=1_500)
        async with gateway(limits, MODULES) as found:
            slow = {"method": "POST", "path": "/echo", "headers": [(b"content-type", b"application/json")]}
            piece = {"type": "http.request", "body": b" " * 400, "more_body": True}
            waiting = [asyncio.ensure_future(exchange(found, slow, dict(piece))) for _ in range(2)]
            while found.services.bodies.count < 800:
                await asyncio.sleep(0)
            sent, _ = await exchange(found, slow, dict(piece))
            assert sent[0]["status"] == 429 and found.services.stats.refusals == {"too-many-requests": 1}
            whole = {"type": "http.request", "body": b'{"words": []}' + b" " * 400}
            sent, _ = await exchange(found, {**slow, "client": ("127.0.0.2", 1)}, whole)
            assert sent[0]["status"] == 201
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            assert found.services.bodies.count == 0

    asyncio.run(story())


@promise("S4")
def test_a_form_is_small() -> None:
    """A log-in takes no more memory than a name and a password need, whatever its client sends."""

    async def story() -> None:
        async with gateway(secured()) as found:
            form = {"method": "POST", "path": TOKENS}
            announced = {**form, "headers": [(b"content-length", b"%d" % (MAX_FORM_BYTES + 1))]}
            sent, _ = await exchange(found, announced)
            assert sent[0]["status"] == 413
            piece = {"type": "http.request", "body": b"x" * (MAX_FORM_BYTES // 2 + 1), "more_body": True}
            sent, _ = await exchange(found, form, piece, dict(piece))
            assert sent[0]["status"] == 413 and found.services.strangers.count == 0

    asyncio.run(story())


def test_streams_count_apart() -> None:
    """A stream takes no place of requests, has a limit per caller, and gives its place back."""

    async def story() -> None:
        async with gateway(settings(requests=1, streams=5, streams_per_caller=1), MODULES) as found:
            following = asyncio.ensure_future(found.get("/stream"))
            while not found.services.streams.count:
                await asyncio.sleep(0)
            assert found.services.requests.count == 0
            refused = await found.get("/stream")
            assert refused.status_code == 429 and "streams" in refused.json()["detail"]
            found.services.stopping.set()
            assert (await following).text == "first\nlast\n"
            assert found.services.streams.count == 0

    asyncio.run(story())


def test_a_caller_that_asks_too_often() -> None:
    async def story() -> None:
        async with gateway(settings(requests_per_second=1)) as found:
            codes = [(await found.get("/v1")).status_code for _ in range(3)]
            assert codes == [200, 200, 429]
            assert (await found.get("/v1/health")).status_code == 200
            found.clock.moved += 1
            assert (await found.get("/v1")).status_code == 200

    asyncio.run(story())


def test_a_client_that_stops_sending() -> None:
    """408, and the connection is closed."""

    async def story() -> None:
        async with gateway(settings(idle_ms=1), MODULES) as found:
            headers = [(b"content-type", b"application/json"), (b"host", b"localhost")]
            scope = {"method": "POST", "path": "/echo", "raw_path": b"/echo", "headers": headers}
            sent, _ = await exchange(found, scope, {"type": "http.request", "body": b"{", "more_body": True})
            assert sent[0]["status"] == 408
            assert json.loads(sent[1]["body"])["type"] == "/problems/request-timeout"
            assert found.services.requests.count == 0 and found.services.stats.refusals == {"request-timeout": 1}

    asyncio.run(story())


@pytest.mark.parametrize("path", ["/echo", "/swallow"])
def test_a_client_that_leaves_in_its_body(caplog: pytest.LogCaptureFixture, path: str) -> None:
    """That is no failure of the gateway, and no place stays taken."""

    async def story() -> None:
        async with gateway(settings(), MODULES) as found:
            headers = [(b"content-type", b"application/json"), (b"host", b"localhost")]
            scope = {"method": "POST", "path": path, "raw_path": path.encode(), "headers": headers}
            begun: Message = {"type": "http.request", "body": b"{", "more_body": True}
            sent, _ = await exchange(found, scope, begun, {"type": "http.disconnect"})
            assert sent[0]["status"] == 400
            assert found.services.stats.refusals == {"left": 1}
            assert found.services.requests.count == 0 and found.services.streams.count == 0
            assert not caplog.records

    asyncio.run(story())


@pytest.mark.parametrize(("path", "status"), [("/echo", 408), ("/swallow", 201)])
def test_a_client_that_sends_a_byte_now_and_then(path: str, status: int) -> None:
    """It takes a place of requests, so it may not do so for ever; a stream may."""

    async def story() -> None:
        async with gateway(settings(), MODULES) as found:
            left = 10

            async def receive() -> Message:
                nonlocal left
                left -= 1
                found.clock.moved += 20
                await asyncio.sleep(0)
                return {"type": "http.request", "body": b" ", "more_body": left > 0}

            headers = [(b"content-type", b"application/json"), (b"host", b"localhost")]
            scope = {"method": "POST", "path": path, "raw_path": path.encode(), "headers": headers}
            sent, _ = await exchange(found, scope, receive=receive)
            assert sent[0]["status"] == status and (left > 0) == (status == 408)

    asyncio.run(story())


def test_the_body_of_a_stream_has_any_length() -> None:
    """The handler limits what it gathers."""

    async def chunks() -> Any:
        for _ in range(30):
            yield b" " * 10

    async def story() -> None:
        async with gateway(settings(body_bytes=100), MODULES) as found:
            assert (await found.ask("POST", "/swallow", content=chunks())).json() == 300

    asyncio.run(story())


def test_a_client_that_stops_reading() -> None:
    """Its connection is cut, and nothing is left of the request."""

    async def story() -> None:
        async with gateway(settings(stalled_ms=1), MODULES) as found:
            scope = {"path": "/stream", "raw_path": b"/stream"}
            sent, done = await exchange(found, scope, {"type": "http.request"}, slow_from=1)
            assert sent[0]["status"] == 200 and done == ["abort"]
            assert found.services.streams.count == 0 and found.services.stats.under_way == 0
            assert found.services.stats.refusals == {"stalled": 1}

    asyncio.run(story())


def test_counts() -> None:
    """By the template of the path, so that callers cannot make metrics grow."""

    async def story() -> None:
        async with gateway() as found:
            for path in ("/v1/topics/a", "/v1/topics/b", "/x", "/y"):
                await found.get(path)
            await found.ask("BREW", "/v1")
            assert found.services.stats.requests == {
                ("GET", "/v1/topics/{name}", 404): 2,
                ("GET", "none", 404): 2,
                ("OTHER", "none", 405): 1,
            }

    asyncio.run(story())


def test_a_stream_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """The answer has begun, so it is cut off: nobody takes what has come for the whole."""

    @get("/broken")
    async def broken() -> Stream:
        async def lines() -> Any:
            yield b"first\n"
            raise RuntimeError("no more")

        return Stream(lines())

    async def story() -> None:
        async with gateway(None, (SimpleNamespace(ROUTES=(broken,)),)) as found:
            scope = {"path": "/broken", "raw_path": b"/broken"}
            sent, done = await exchange(found, scope, {"type": "http.request"})
            assert [message.get("body") for message in sent] == [None, b"first\n"] and done == ["abort"]
        assert "a request failed" in caplog.text

    asyncio.run(story())
