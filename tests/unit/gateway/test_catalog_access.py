"""S2: the REST catalog of a gateway on a socket: who may see which table, and how Iceberg's clients log in."""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyiceberg.catalog.rest import RestCatalog as Client
from pyiceberg.exceptions import ForbiddenError, NoSuchTableError, UnauthorizedError

from headwater.gateway.catalog import MOUNT
from headwater.security.http_logins import NOT_KNOWN
from headwater.settings.settings import HttpSecurity, Oauth, Settings
from headwater.state.cluster.access import Operation
from tests.support.certificates import Signer, key_document
from tests.support.gateways import ALICE, InGateway, gateway, listening, secured
from tests.support.rules import rule
from tests.support.secured import PASSWORDS
from tests.unit.gateway.test_catalog import World

SIGNER = Signer("k", "ES256")
TABLES = f"{MOUNT}v1/namespaces/topics/tables"


@contextlib.asynccontextmanager
async def with_tables(settings: Settings) -> AsyncIterator[InGateway]:
    """A gateway with users and a few tables."""
    async with gateway(settings, users=True) as found:
        world = World(found.services.guard)
        await world.fill()
        found.services.catalog = world.catalog
        yield found


def test_tables_under_rules() -> None:
    """S2: DESCRIBE lists, READ loads; what may not be described looks as if there were none."""

    async def story() -> None:
        async with with_tables(secured()) as found:
            unknown = await found.get(f"{MOUNT}v1/config")
            assert unknown.json()["error"] == {"message": NOT_KNOWN, "type": "NotAuthorizedException", "code": 401}
            assert "www-authenticate" in unknown.headers
            assert (await found.get(f"{MOUNT}v1/config", "alice")).status_code == 200
            await found.allow(rule(ALICE, Operation.DESCRIBE, "orders"), rule(ALICE, Operation.READ, "a.b"))
            listed = (await found.get(TABLES, "alice")).json()["identifiers"]
            assert [row["name"] for row in listed] == ["a.b", "orders"]
            assert (await found.get(TABLES, "bob")).json()["identifiers"] == []
            loaded = await found.get(f"{TABLES}/a%2Eb", "alice")
            assert loaded.status_code == 200 and "metadata-location" in loaded.json()
            described = await found.get(f"{TABLES}/orders", "alice")
            assert (described.status_code, described.json()["error"]["type"]) == (403, "ForbiddenException")
            head = await found.ask("HEAD", f"{TABLES}/orders", "alice")
            assert (head.status_code, head.content) == (204, b"")
            for more, method in (("", "GET"), ("", "HEAD"), ("/metrics", "POST")):
                hidden, absent = [
                    await found.ask(method, f"{TABLES}/{name}{more}", "alice", headers={"X-Request-Id": "r"})
                    for name in ("a_b", "zzz")
                ]
                assert hidden.status_code == absent.status_code == 404
                assert hidden.text == absent.text.replace("zzz", "a_b")
                assert _told(hidden) == _told(absent)

    asyncio.run(story())


def _told(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name != "date"}


def test_refusals_have_the_form_that_clients_understand() -> None:
    """T9: also those of the front; writes say what to do instead."""

    async def story() -> None:
        async with with_tables(secured(body_bytes=10)) as found:
            large = await found.ask("POST", TABLES, "alice", content=b"x" * 11)
            assert (large.status_code, large.json()["error"]["type"]) == (413, "BadRequestException")
            for method in ("POST", "PUT", "DELETE"):
                write = await found.ask(method, f"{TABLES}/orders", "alice", content=b"{}")
                assert write.status_code == 403 and "produce to the topic" in write.json()["error"]["message"]
            missing = await found.get(f"{MOUNT}v1/nothing", "alice")
            assert (missing.status_code, missing.json()["error"]["type"]) == (404, "NoSuchEndpointException")

    asyncio.run(story())


def test_pyiceberg_logs_in(tmp_path: Path) -> None:
    """S2: pyiceberg's own client with a token, with a password, and with neither."""
    (tmp_path / "keys.json").write_text(key_document(SIGNER))
    oauth = Oauth(jwks=str(tmp_path / "keys.json"), issuer="i", audience="a")

    async def story() -> None:
        settings = secured(HttpSecurity(authentication="any"), oauth, http="127.0.0.1:0")
        async with with_tables(settings) as found, listening(found) as server:
            await found.allow(rule("User:carol", Operation.READ, "orders"), rule(ALICE, Operation.DESCRIBE, "orders"))
            expires = found.clock.wall_ms() // 1000 + 600
            token = SIGNER.token({"iss": "i", "aud": "a", "sub": "carol", "exp": expires})
            await asyncio.to_thread(check, f"{server.url}/iceberg", token)

    def check(url: str, token: str) -> None:
        with client(url, token=token) as catalog:
            assert catalog.list_tables("topics") == [("topics", "orders")]
            assert catalog.load_table("topics.orders").metadata.properties["headwater.topic"] == "orders"
            with pytest.raises(NoSuchTableError):
                catalog.load_table(("topics", "a_b"))
        with client(url, auth=password("alice", PASSWORDS["alice"])) as catalog:
            assert catalog.list_tables("topics") == [("topics", "orders")]
            with pytest.raises(ForbiddenError):
                catalog.load_table("topics.orders")
        for unknown in ({}, {"token": token[:-4] + "AAAA"}, {"auth": password("alice", "wrong")}):
            with pytest.raises(UnauthorizedError), client(url, **unknown):
                pass

    asyncio.run(story())


def password(name: str, text: str) -> dict[str, Any]:
    return {"type": "basic", "basic": {"username": name, "password": text}}


@contextlib.contextmanager
def client(url: str, **properties: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        more = {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO", **properties}
        catalog = Client("headwater", uri=url, **more)
        try:
            yield catalog
        finally:
            catalog.close()
