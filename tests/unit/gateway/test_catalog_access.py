"""The REST catalog of a gateway on a socket: who may see which table, and how Iceberg's clients log in."""

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

from headwater.clock import SystemChance
from headwater.gateway.callers import TOKENS
from headwater.gateway.catalog import MOUNT
from headwater.gateway.routes.iceberg import BY_TOKEN
from headwater.replica.users import put_user
from headwater.security.http_logins import NOT_KNOWN
from headwater.security.login_tokens import SECONDS, LoginTokens
from headwater.settings.settings import HttpSecurity, Oauth, Settings
from headwater.state.cluster.access import Operation
from tests.support.certificates import Signer, key_document
from tests.support.gateways import ALICE, InGateway, basic, gateway, listening, secured
from tests.support.promise import promise
from tests.support.rules import rule
from tests.support.secured import PASSWORDS
from tests.unit.gateway.test_catalog import World

PROMISES = ("S2",)

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


@promise("S2")
def test_tables_under_rules() -> None:
    """DESCRIBE lists, READ loads; what may not be described looks as if there were none."""

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


@promise("T9")
def test_refusals_have_the_form_that_clients_understand() -> None:
    """Also those of the front; writes say what to do instead."""

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


@promise("S2")
def test_pyiceberg_logs_in(tmp_path: Path) -> None:
    """pyiceberg's own client with a token, with a password, and with neither."""
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
        ways: tuple[dict[str, Any], ...] = (
            {"auth": password("alice", PASSWORDS["alice"])},
            {"credential": f"alice:{PASSWORDS['alice']}", "oauth2-server-uri": url.removesuffix("/iceberg") + TOKENS},
        )
        for by in ways:
            _check_alice(url, by)
        for unknown in ({}, {"token": token[:-4] + "AAAA"}, {"auth": password("alice", "wrong")}):
            with pytest.raises(UnauthorizedError), client(url, **unknown):
                pass

    def _check_alice(url: str, by: dict[str, Any]) -> None:
        with client(url, **by) as catalog:
            assert catalog.list_tables("topics") == [("topics", "orders")]
            with pytest.raises(ForbiddenError):
                catalog.load_table("topics.orders")

    asyncio.run(story())


def by_password(name: str, text: str) -> dict[str, str]:
    """The form by which Iceberg's clients ask for a token."""
    return {"grant_type": "client_credentials", "client_id": name, "client_secret": text, "scope": "catalog"}


def by_token(token: str) -> dict[str, str]:
    kind = "urn:ietf:params:oauth:token-type:access_token"
    return {"grant_type": BY_TOKEN, "subject_token": token, "subject_token_type": kind, "scope": "catalog"}


@promise("S2")
def test_a_token_for_a_password() -> None:
    """Java's clients log in by this only. The token is the user's, can be renewed, and ends with the password."""

    async def story() -> None:
        async with with_tables(secured()) as found:
            await found.allow(rule(ALICE, Operation.READ, "orders"))
            given = await found.ask("POST", TOKENS, data=by_password("alice", PASSWORDS["alice"]))
            told = given.json()
            assert given.status_code == 200 and given.headers["cache-control"] == "no-store"
            assert (told["token_type"], told["expires_in"]) == ("bearer", SECONDS)
            bearer = {"Authorization": f"Bearer {told['access_token']}"}
            listed = (await found.get(TABLES, headers=bearer)).json()["identifiers"]
            assert [row["name"] for row in listed] == ["orders"]
            assert (await found.get("/v1", headers=bearer)).status_code == 200
            found.clock.moved += SECONDS - 60
            # Iceberg's client sends the old token twice, and in place of an expired one its name and password.
            form = by_token(told["access_token"])
            same = (await found.ask("POST", TOKENS, data=form, headers=bearer)).json()
            assert same["expires_in"] == 60, "a token gives no more time than it has itself"
            fresh = (await found.ask("POST", TOKENS, data=form, headers=basic("alice"))).json()
            newer = fresh["access_token"]
            assert (newer == told["access_token"], fresh["expires_in"]) == (False, SECONDS)
            found.clock.moved += 61
            assert (await found.get(TABLES, headers=bearer)).status_code == 401
            for old in (told, same):
                assert (await found.ask("POST", TOKENS, data=by_token(old["access_token"]))).status_code == 401
            bearer = {"Authorization": f"Bearer {newer}"}
            assert (await found.get(TABLES, headers=bearer)).status_code == 200
            await put_user(found.core.cluster, SystemChance(), "alice", "SCRAM-SHA-256", "changed", 4096)
            assert (await found.get(TABLES, headers=bearer)).status_code == 401

    asyncio.run(story())


@promise("S2")
def test_a_token_of_another_issuer_gives_none_that_outlives_it(tmp_path: Path) -> None:
    """Its user has a password here, too."""
    (tmp_path / "keys.json").write_text(key_document(SIGNER))
    oauth = Oauth(jwks=str(tmp_path / "keys.json"), issuer="i", audience="a")

    async def story() -> None:
        async with gateway(secured(HttpSecurity(authentication="any"), oauth), users=True) as found:
            ends = found.clock.wall_ms() // 1000 + 120
            token = SIGNER.token({"iss": "i", "aud": "a", "sub": "alice", "exp": ends})
            told = (await found.ask("POST", TOKENS, data=by_token(token))).json()
            assert 0 < told["expires_in"] <= 120
            assert found.services.http_logins.takes_passwords
            bearer = {"Authorization": f"Bearer {told['access_token']}"}
            assert (await found.get("/v1", headers=bearer)).status_code == 200
            again = (await found.ask("POST", TOKENS, data=by_token(told["access_token"]))).json()
            assert again["expires_in"] <= told["expires_in"]
            found.clock.moved += 121
            for old in (told, again):
                bearer = {"Authorization": f"Bearer {old['access_token']}"}
                assert (await found.get("/v1", headers=bearer)).status_code == 401
            # The issuer's own token is still good within the skew of clocks, and gives nothing more.
            assert (await found.get("/v1", headers={"Authorization": f"Bearer {token}"})).status_code == 200
            assert (await found.ask("POST", TOKENS, data=by_token(token))).status_code == 401

    asyncio.run(story())


@promise("S2")
def test_who_gets_no_token() -> None:
    """The same answer for an unknown user and a wrong password, in OAuth's form; guesses are counted."""
    wrong = [
        ({}, 400, "unsupported_grant_type"),
        ({"grant_type": "password"}, 400, "unsupported_grant_type"),
        ({"grant_type": "client_credentials", "client_id": "alice"}, 400, "invalid_request"),
        ({"grant_type": "client_credentials", "client_secret": "x"}, 400, "invalid_request"),
        (by_password("alice:x", "x"), 400, "invalid_request"),
        ({"grant_type": BY_TOKEN}, 400, "invalid_request"),
        (by_password("alice", "wrong"), 401, "invalid_client"),
        (by_password("nobody", "wrong"), 401, "invalid_client"),
        (by_token("x.y.z"), 401, "invalid_client"),
    ]

    async def story() -> None:
        async with with_tables(secured()) as found:
            for form, status, kind in wrong:
                answer = await found.ask("POST", TOKENS, data=form)
                assert (answer.status_code, answer.json()["error"]) == (status, kind)
                assert answer.json()["error_description"] == NOT_KNOWN or status == 400
            for body in (b"\xff", b"&" * 100):
                answer = await found.ask("POST", TOKENS, content=body)
                assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
            assert (await found.ask("POST", TOKENS, content=b"a" * 100_000)).status_code == 413
            found.services.logins.limiter = type(found.services.logins.limiter)(2, found.clock)
            tries = [await found.ask("POST", TOKENS, data=by_password("alice", f"{i}")) for i in range(3)]
            assert tries[-1].status_code == 429 and "retry-after" in tries[-1].headers
            assert tries[-1].json()["error"]["type"] == "TooManyRequestsException"

    asyncio.run(story())


@promise("S2")
@pytest.mark.parametrize("authentication", ["none", "bearer"])
def test_no_tokens_where_no_passwords_are_taken(authentication: str, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(key_document(SIGNER))
    oauth = Oauth(jwks=str(tmp_path / "keys.json"), issuer="i", audience="a")

    async def story() -> None:
        async with with_tables(secured(HttpSecurity(authentication=authentication), oauth)) as found:
            answer = await found.ask("POST", TOKENS, data=by_password("alice", PASSWORDS["alice"]))
            assert (answer.status_code, answer.json()["error"]) == (400, "unsupported_grant_type")
            token = LoginTokens(found.core.settings.security, found.services.logins).give("alice", SECONDS)
            answer = await found.get("/v1", headers={"Authorization": f"Bearer {token}"})
            assert answer.status_code == 401

    asyncio.run(story())


@promise("S2")
def test_a_token_of_another_issuer_is_not_renewed_here(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(key_document(SIGNER))
    oauth = Oauth(jwks=str(tmp_path / "keys.json"), issuer="i", audience="a")

    async def story() -> None:
        async with with_tables(secured(HttpSecurity(authentication="any"), oauth)) as found:
            expires = found.clock.wall_ms() // 1000 + 600
            token = SIGNER.token({"iss": "i", "aud": "a", "sub": "carol", "exp": expires})
            answer = await found.ask("POST", TOKENS, data=by_token(token))
            assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")

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
