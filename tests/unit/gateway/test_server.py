"""The gateway's sockets: TLS with client certificates, clients that are slow, rude or many, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop
from litestar import get

from headwater.errors import ConfigError
from headwater.gateway import server as server_module
from headwater.gateway.server import Connection, HttpServer
from headwater.gateway.services import TheCall
from headwater.settings.settings import Gateway, HttpSecurity, Security, Settings
from tests.support.certificates import issue
from tests.support.gateways import InGateway, gateway, listening
from tests.support.promise import promise


@get("/who")
async def who(call: TheCall) -> str:
    return call.caller.principal


@get("/wait")
async def wait(call: TheCall) -> str:
    await call.services.stopping.wait()
    return "over"


LARGE = 20 << 20


@get("/large")
async def large() -> str:
    return "x" * LARGE


MODULES = (SimpleNamespace(ROUTES=(who, wait, large)),)


class Line:
    """A connection on which a test sends exactly the bytes that it wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, text: str) -> None:
        self.writer.write(text.encode("latin-1"))

    async def answer(self) -> tuple[int, str]:
        """Status and body of the next answer."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = next(int(line.split(": ")[1]) for line in head.split("\r\n") if line.startswith("content-length"))
        return int(head.split()[1]), (await self.reader.readexactly(length)).decode()

    async def ended(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True


@contextlib.asynccontextmanager
async def connected(server: HttpServer, tls: ssl.SSLContext | None = None) -> AsyncIterator[Line]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=tls)
    try:
        yield Line(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


def run(
    story: Callable[[InGateway, HttpServer], Awaitable[None]], http: HttpSecurity | None = None, **own: Any
) -> None:
    async def main() -> None:
        security = Security(http=http or HttpSecurity(), reload_ms=20)
        settings = Settings(gateway=Gateway(http="127.0.0.1:0", **own), security=security)
        async with gateway(settings, MODULES) as found, listening(found) as server, asyncio.timeout(60):
            await story(found, server)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as in a gateway
        runner.run(main())


ASK = "GET /who HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_several_requests_on_a_connection() -> None:
    """One after the other, and without waiting for answers."""

    async def story(found: InGateway, server: HttpServer) -> None:
        async with connected(server) as line:
            for text, count in ((ASK, 1), (ASK * 3, 3)):
                line.send(text)
                for _ in range(count):
                    assert await line.answer() == (200, "User:ANONYMOUS")
            assert (found.services.stats.connections, found.services.stats.connections_total) == (1, 1)

    run(story)


@promise("S2")
def test_the_owner_of_a_certificate_is_the_caller(tmp_path: Path) -> None:
    """By the rules for names; without a certificate the caller is unknown, with a foreign one it is refused."""
    issuer = issue(tmp_path, "issuer")
    own, robot = issue(tmp_path, "server", issuer), issue(tmp_path, "robot", issuer, "CN=robot,O=Acme")
    foreign = issue(tmp_path, "foreign", issue(tmp_path, "elsewhere"))
    http = HttpSecurity(
        certificate=str(own.certificate),
        key=str(own.key),
        client_ca=str(issuer.certificate),
        client_auth="requested",
        principal_rules=("RULE:.*CN=([a-z]+).*/$1/U",),
    )

    def context(*pair: Any) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=str(issuer.certificate))
        for shown in pair:
            made.load_cert_chain(shown.certificate, shown.key)
        return made

    async def story(found: InGateway, server: HttpServer) -> None:
        assert server.url == f"https://127.0.0.1:{server.port}"
        for tls, principal in ((context(robot), "User:ROBOT"), (context(), "User:ANONYMOUS")):
            async with connected(server, tls) as line:
                line.send(ASK)
                assert await line.answer() == (200, principal)
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            async with connected(server, context(foreign)) as line:
                line.send(ASK)
                await line.answer()

    run(story, http)


def test_connections_beyond_the_limit() -> None:
    """They are told so and closed; a place is free again when a connection ends."""

    async def story(found: InGateway, server: HttpServer) -> None:
        async with connected(server) as first, connected(server) as second:
            for line in (first, second):
                line.send(ASK)
                await line.answer()
            async with connected(server) as third:
                status, body = await third.answer()
                assert status == 429 and json.loads(body)["type"] == "/problems/overloaded"
                assert await third.ended()
        while found.services.stats.connections:
            await asyncio.sleep(0)
        async with connected(server) as line:
            line.send(ASK)
            assert (await line.answer())[0] == 200
        assert found.services.stats.refusals == {"connections": 1}

    run(story, connections_per_address=2)


@pytest.mark.parametrize(
    "begun", ["", "GET /who HT", ASK, "POST /who HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx"]
)
def test_silent_connections_are_closed(begun: str) -> None:
    """Before a request, in its head, after it, and in a body."""

    async def story(found: InGateway, server: HttpServer) -> None:
        async with connected(server) as line:
            line.send(begun)
            if begun.endswith(("\n", "x")):
                await line.answer()
            assert await line.ended()

    run(story, idle_ms=30)


@pytest.mark.parametrize(
    "head",
    [
        "GET /who HTTP/1.1\r\nX: " + "x" * 3_000,
        "GET /who HTTP/1.1\r\nHost: localhost\r\nX: " + "x" * 3_000 + "\r\n\r\n",
        "GET /" + "x" * 3_000 + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_a_head_that_is_too_large(head: str) -> None:
    """431, whether it is whole or not."""

    async def story(found: InGateway, server: HttpServer) -> None:
        async with connected(server) as line:
            line.send(head)
            status, body = await line.answer()
            assert status == 431 and json.loads(body)["type"] == "/problems/head-too-large"
            assert await line.ended()

    run(story, head_bytes=2_000)


@pytest.mark.parametrize("text", ["\x16\x03\x01\x02\x00", "nonsense\r\n\r\n", "GET /who HTTP/9.9\r\n\r\n"])
def test_what_is_not_http(text: str) -> None:
    async def story(found: InGateway, server: HttpServer) -> None:
        async with connected(server) as line:
            line.send(text)
            status, body = await line.answer()
            assert status == 400 and json.loads(body)["type"] == "/problems/bad-request"
            assert await line.ended()

    run(story)


@pytest.mark.parametrize("more", ["", "Connection: close\r\n"])
def test_a_client_that_does_not_read(more: str) -> None:
    """It loses its connection, and the gateway what it kept for it."""

    async def story(found: InGateway, server: HttpServer) -> None:
        async with connected(server) as line:
            line.send(ASK.replace("/who", "/large").replace("\r\n\r\n", f"\r\n{more}\r\n"))
            while not found.services.stats.refusals:
                await asyncio.sleep(0.001)
            while found.services.stats.connections:
                await asyncio.sleep(0.001)
            assert found.services.stats.refusals == {"stalled": 1} and found.services.requests.count == 0

    run(story, stalled_ms=20)


def test_a_client_that_reads_slowly() -> None:
    """It gets everything, though it takes longer than a client may do nothing."""

    async def story(found: InGateway, server: HttpServer) -> None:
        async with connected(server) as line:
            line.send(ASK.replace("/who", "/large"))
            await line.reader.readuntil(b"\r\n\r\n")
            got = 0
            while got < LARGE:
                got += len(await line.reader.read(100_000))
                await asyncio.sleep(0.003)
            assert got == LARGE and not found.services.stats.refusals

    run(story, stalled_ms=400)


def test_a_small_answer_that_nobody_reads() -> None:
    """It is too small to wait for, so the connection is closed when it is idle for too long."""

    async def story(found: InGateway, server: HttpServer) -> None:
        async with connected(server) as line:
            line.send(ASK.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"))
            while found.services.stats.connections or not found.services.stats.connections_total:
                await asyncio.sleep(0.001)

    run(story, idle_ms=20)


def test_a_request_for_another_protocol() -> None:
    """It is answered as what it is otherwise."""

    async def story(found: InGateway, server: HttpServer) -> None:
        async with connected(server) as line:
            line.send(ASK.replace("\r\n\r\n", "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"))
            assert await line.answer() == (200, "User:ANONYMOUS")

    run(story)


@pytest.mark.parametrize("requests", [1, 3])
def test_a_client_that_closes_its_sending_side(requests: int) -> None:
    """As `nc -N` does: it gets the answers to all its requests, then the connection ends."""

    async def story(found: InGateway, server: HttpServer) -> None:
        async with connected(server) as line:
            line.send(ASK * requests)
            line.writer.write_eof()
            for _ in range(requests):
                assert await line.answer() == (200, "User:ANONYMOUS")
            assert await line.ended()
        while found.services.stats.connections:
            await asyncio.sleep(0)

    run(story)


def test_an_answer_that_takes_its_time_to_a_client_that_sends_no_more() -> None:
    async def story(found: InGateway, server: HttpServer) -> None:
        async with connected(server) as line:
            line.send(ASK.replace("/who", "/wait"))
            line.writer.write_eof()
            while not found.services.requests.count:
                await asyncio.sleep(0)
            for _ in range(100):  # turns of the event loop in which the server notices
                await asyncio.sleep(0)
            found.services.stopping.set()
            assert await line.answer() == (200, "over") and await line.ended()

    run(story)


def test_an_answer_that_does_not_begin_while_nobody_can_ask_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that has left looks the same as one that has closed its sending side: it is not waited for."""
    monkeypatch.setattr(server_module, "HALF_CLOSED_SECONDS", 0.05)

    async def story(found: InGateway, server: HttpServer) -> None:
        async with connected(server) as line:
            line.send(ASK.replace("/who", "/wait"))
            line.writer.write_eof()
            assert await line.ended()
        while found.services.stats.connections:
            await asyncio.sleep(0)
        found.services.stopping.set()

    run(story)


def test_a_large_answer_to_a_client_that_sends_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is sent whole, however long that takes once it has begun."""
    ended: list[Connection] = []
    eof_received = Connection.eof_received

    def noted(connection: Connection) -> bool:
        ended.append(connection)
        return eof_received(connection)

    monkeypatch.setattr(Connection, "eof_received", noted)

    async def story(found: InGateway, server: HttpServer) -> None:
        async with connected(server) as line:
            line.send(ASK.replace("/who", "/large"))
            line.writer.write_eof()
            await line.reader.readuntil(b"\r\n\r\n")
            ended[0].give_up()
            assert len(await line.reader.readexactly(LARGE)) == LARGE and await line.ended()

    run(story)


@pytest.mark.parametrize(
    "begun", ["", "GET /who HT", "POST /who HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx"]
)
def test_a_request_that_will_never_be_whole(begun: str) -> None:
    """Its client sends no more, so its connection is closed at once."""

    async def story(found: InGateway, server: HttpServer) -> None:
        async with connected(server) as line:
            line.send(begun)
            line.writer.write_eof()
            await line.reader.read()
            while found.services.stats.connections or not found.services.stats.connections_total:
                await asyncio.sleep(0)

    run(story)


def test_an_orderly_end() -> None:
    """What is under way is answered, idle connections are closed, new ones are refused."""

    async def story(found: InGateway, server: HttpServer) -> None:
        async with connected(server) as busy, connected(server) as idle:
            idle.send(ASK)
            await idle.answer()
            busy.send(ASK.replace("/who", "/wait"))
            while not found.services.requests.count:
                await asyncio.sleep(0)
            found.services.stopping.set()
            await server.close(60)
            assert await busy.answer() == (200, "over") and await busy.ended() and await idle.ended()
            with pytest.raises(ConnectionError):
                async with connected(server):
                    pass

    run(story)


def test_an_end_without_patience() -> None:
    """What does not end in time is cut off."""

    async def story(found: InGateway, server: HttpServer) -> None:
        async with connected(server) as busy:
            busy.send(ASK.replace("/who", "/wait"))
            while not found.services.requests.count:
                await asyncio.sleep(0)
            await server.close(0.01)
            assert await busy.ended() and found.services.requests.count == 0

    run(story)


def test_an_address_that_is_taken() -> None:
    async def story(found: InGateway, server: HttpServer) -> None:
        taken = Settings(gateway=Gateway(http=f"127.0.0.1:{server.port}"))
        second = HttpServer(taken, found.app, found.services.stats, found.core.background)
        with pytest.raises(ConfigError, match="cannot listen"):
            await second.open()

    run(story)
