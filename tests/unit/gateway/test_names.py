"""Names with a slash: they are sent as `%2F`, and handlers, refusals and the next request get what was meant."""

from __future__ import annotations

import asyncio

import pytest

from headwater.gateway.asgi import Scope
from headwater.gateway.names import SLASH, divided
from headwater.settings.settings import Gateway, Settings
from tests.support.gateways import gateway, listening


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b"/v1/groups/a%2Fb/offsets", f"/v1/groups/a{SLASH}b/offsets"),
        (b"/v1/groups/%2f%2F", f"/v1/groups/{SLASH}{SLASH}"),
        (b"/v1/groups/a%252Fb", "/v1/groups/a%2Fb"),
        (b"/v1/groups/%C3%A4%2F?x=%2F", f"/v1/groups/\u00e4{SLASH}"),
        (b"/v1/groups/%ED%B0%AF%2F", "/v1/groups/\ufffd\ufffd\ufffd" + SLASH),
        (b"/v1/groups/%20", "/v1/groups/ "),
    ],
)
def test_paths(raw: bytes, path: str) -> None:
    """Only a slash that was sent encoded is one of a name, and no client can send what stands for it."""
    scope: Scope = {"path": "?", "raw_path": raw}
    divided(scope)
    assert scope["path"] == path


def test_groups_and_users() -> None:
    """Twice, because the router keeps what it has found. Names without a slash are other names."""

    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders")
            await found.fill("orders", 3)
            body = {"offsets": [{"topic": "orders", "partition": 0, "offset": 2}]}
            for _ in range(2):
                answer = await found.ask("PUT", "/v1/groups/team%2Freaders/offsets", json=body)
                assert answer.status_code == 200, answer.text
                told = await found.get("/v1/groups/team%2Freaders")
                assert told.status_code == 200 and told.json()["name"] == "team/readers"
            assert [line["name"] for line in (await found.get("/v1/groups")).json()["items"]] == ["team/readers"]
            read = await found.get("/v1/groups/team%2freaders/topics/orders/records")
            assert [line["offset"] for line in read.json()["records"]] == [2]
            user = await found.ask("PUT", "/v1/users/a%2Fb", json={"password": "correct horse"})
            assert user.status_code == 201 and user.json()["name"] == "a/b"
            assert (await found.ask("DELETE", "/v1/users/a%2Fb")).status_code == 204

    asyncio.run(story())


def test_what_is_not_there() -> None:
    """Refusals name what was asked for."""

    async def story() -> None:
        async with gateway() as found:
            for path, words in (
                ("/v1/groups/a%2Fb", "there is no group 'a/b'"),
                ("/v1/topics/a%2Fb", "there is no topic 'a/b'"),
                ("/v1/transactions/a%2Fb", "'a/b'"),
                ("/nowhere/a%2Fb", "there is no GET /nowhere/a/b"),
                ("/v1/groups%2Fa", "there is no GET /v1/groups/a"),
                ("/v1%2Fhealth", "there is no GET /v1/health"),
            ):
                answer = await found.get(path)
                assert answer.status_code == 404 and words in answer.json()["detail"], answer.text
            v3 = await found.get("/v3/clusters/any/consumer-groups/a%2Fb")
            assert v3.status_code == 404 and v3.json()["error_code"] == 404

    asyncio.run(story())


def test_over_a_socket() -> None:
    """The server passes on what was sent."""

    async def story() -> None:
        async with gateway(Settings(gateway=Gateway(http="127.0.0.1:0"))) as found, listening(found) as server:
            reader, writer = await asyncio.open_connection(server.host, server.port)
            writer.write(b"GET /v1/topics/a%2Fb HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = (await reader.read()).decode()
            writer.close()
            assert answer.startswith("HTTP/1.1 404") and "there is no topic 'a/b'" in answer

    asyncio.run(story())
