"""Flight SQL with users and rules: passwords, tokens, certificates, and topics that do not exist for a caller."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import pytest

from headwater.clock import SystemChance
from headwater.errors import NotAuthenticated
from headwater.gateway.flight.sessions import IDLE_SECONDS, Sessions
from headwater.replica.users import put_user
from headwater.settings.settings import HttpSecurity, Oauth
from headwater.state.cluster.access import ANONYMOUS, Operation
from tests.support.certificates import Pair, Signer, issue, key_document
from tests.support.flights import Flying, flying
from tests.support.gateways import ALICE, BOB, basic, gateway, secured
from tests.support.promise import promise
from tests.support.rules import rule
from tests.support.secured import PASSWORDS

PORT = "127.0.0.1:0"
SIGNER = Signer("k", "ES256")
OPTION = "adbc.flight.sql.client_option."


def known(user: str, password: str | None = None) -> dict[str, str]:
    return {"username": user, "password": PASSWORDS[user] if password is None else password}


async def ask(found: Flying, text: str, options: dict[str, str], uri: str = "") -> list[Any]:
    """The rows that a user gets."""

    def work() -> list[Any]:
        connection = adbc.connect(uri or found.uri, db_kwargs=options, autocommit=True)
        with connection, connection.cursor() as cursor:
            cursor.execute(text)
            rows: list[Any] = cursor.fetchall()
            return rows

    return await asyncio.to_thread(work)


async def refused(found: Flying, text: str, options: dict[str, str], uri: str = "") -> str:
    with pytest.raises(adbc_driver_manager.Error) as failed:
        await ask(found, text, options, uri)
    return str(failed.value)


@promise("S2")
def test_passwords() -> None:
    """An unknown user and a wrong password get the same answer; nobody gets in without one."""

    async def story() -> None:
        async with flying(secured(flight=PORT), users=True) as found:
            await found.gateway.allow(rule(ALICE, Operation.READ, "orders"), rule(BOB, Operation.READ, "secret"))
            assert await ask(found, "SELECT count(*) FROM orders", known("alice")) == [(3,)]
            assert await ask(found, "SELECT count(*) FROM secret", known("bob")) == [(1,)]
            header = {"adbc.flight.sql.authorization_header": basic("alice")["Authorization"]}
            assert await ask(found, "SELECT count(*) FROM orders", header) == [(3,)]
            wrong = [known("alice", "wrong"), known("nobody", "x"), {}]
            texts = [await refused(found, "SELECT 1", options) for options in wrong]
            assert all("UNAUTHENTICATED" in text or "Unauthenticated" in text for text in texts), texts
            assert texts[0] == texts[1]

    asyncio.run(story())


def test_a_topic_without_read_does_not_exist() -> None:
    """The caller may DESCRIBE it all the same."""

    async def story() -> None:
        async with flying(secured(flight=PORT), users=True) as found:
            rules = [rule(ALICE, Operation.READ, "orders"), rule(ALICE, Operation.DESCRIBE, "secret")]
            await found.gateway.allow(*rules)
            hidden = await refused(found, "SELECT * FROM secret", known("alice"))
            missing = await refused(found, "SELECT * FROM mystery", known("alice"))
            assert "does not exist" in hidden
            assert hidden.replace("secret", "mystery").split("!")[0] == missing.split("!")[0]

            def work() -> Any:
                with adbc.connect(found.uri, db_kwargs=known("alice"), autocommit=True) as connection:
                    with pytest.raises(adbc_driver_manager.Error):
                        connection.adbc_get_table_schema("secret")
                    return connection.adbc_get_objects(depth="all").read_all().to_pylist()

            [catalog] = await asyncio.to_thread(work)
            [schema] = catalog["catalog_db_schemas"]
            assert [table["table_name"] for table in schema["db_schema_tables"]] == ["orders"]

    asyncio.run(story())


def test_sessions_end() -> None:
    """With the password, after an hour without use, after `security.session_ms`, and never for another gateway."""

    async def story() -> None:
        async with flying(secured(flight=PORT), users=True) as found:
            own = found.gateway
            security, logins = own.services.settings.security, own.services.logins
            sessions = Sessions(security, logins)

            async def begin() -> str:
                token = await sessions.begin("h", basic("alice")["Authorization"], "")
                assert await sessions.who("h", token, "") == ALICE
                return token

            token = await begin()
            assert await sessions.begin("h", token, "") == token
            with pytest.raises(NotAuthenticated):
                await Sessions(security, logins).who("h", token, "")
            own.clock.moved += IDLE_SECONDS + 1
            with pytest.raises(NotAuthenticated):
                await sessions.who("h", token, "")
            token = await begin()
            await put_user(own.core.cluster, SystemChance(), "alice", "SCRAM-SHA-256", "another", 4096)
            with pytest.raises(NotAuthenticated):
                await sessions.who("h", token, "")
            with pytest.raises(NotAuthenticated):
                await sessions.who("h", "Bearer headwater-guessed", "")
            assert repr(sessions) == "<Sessions, 0 kept>"

    asyncio.run(story())


def test_a_session_has_the_time_of_the_settings() -> None:
    async def story() -> None:
        async with flying(secured(flight=PORT), users=True) as found:
            import msgspec

            own = found.gateway
            security = msgspec.structs.replace(own.services.settings.security, session_ms=5_000)
            sessions = Sessions(security, own.services.logins)
            token = await sessions.begin("h", basic("bob")["Authorization"], "")
            own.clock.moved += 4
            assert await sessions.who("h", token, "") == BOB
            own.clock.moved += 2
            with pytest.raises(NotAuthenticated):
                await sessions.who("h", token, "")

    asyncio.run(story())


def test_nobody_in_particular() -> None:
    """Without authentication a driver that sends a name and a password gets in, as nobody."""

    async def story() -> None:
        async with flying() as found:
            assert await ask(found, "SELECT 1", {"username": "x", "password": "y"}) == [(1,)]
            assert [query.asker for query in found.asking.asked] == ["User:ANONYMOUS"]

    asyncio.run(story())


def test_tokens(tmp_path: Path) -> None:
    signer, keys = Signer("k", "ES256"), tmp_path / "keys.json"
    keys.write_text(key_document(signer))
    oauth = Oauth(jwks=str(keys), issuer="https://issuer", audience="headwater")

    async def story() -> None:
        settings = secured(HttpSecurity(authentication="bearer"), oauth, flight=PORT)
        async with flying(settings, users=True) as found:
            await found.gateway.allow(rule(ALICE, Operation.READ, "orders"))
            expires = found.gateway.clock.wall_ms() // 1000 + 600
            claims = {"iss": "https://issuer", "aud": "headwater", "sub": "alice", "exp": expires}
            header = {"adbc.flight.sql.authorization_header": f"Bearer {signer.token(claims)}"}
            assert await ask(found, "SELECT count(*) FROM orders", header) == [(3,)]
            stranger = {"adbc.flight.sql.authorization_header": f"Bearer {Signer('k', 'ES256').token(claims)}"}
            assert "nauthenticated" in await refused(found, "SELECT 1", stranger)
            assert "nauthenticated" in await refused(found, "SELECT 1", known("alice"))

    asyncio.run(story())


@promise("S2")
@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_a_handshake_does_not_make_a_token_last_longer(scheme: str, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(key_document(SIGNER))
    oauth = Oauth(jwks=str(tmp_path / "keys.json"), issuer="i", audience="a")

    async def story() -> None:
        async with gateway(secured(HttpSecurity(authentication="any"), oauth), users=True) as found:
            sessions = Sessions(found.core.settings.security, found.services.logins)
            ends = found.clock.wall_ms() // 1000 + 120
            token = SIGNER.token({"iss": "i", "aud": "a", "sub": "alice", "exp": ends})
            given = await sessions.begin("127.0.0.1", f"{scheme} {token}", "")
            assert await sessions.who("127.0.0.1", given, "") == ALICE
            found.clock.moved += 180
            with pytest.raises(NotAuthenticated):
                await sessions.who("127.0.0.1", given, "")

    asyncio.run(story())


@promise("S2")
def test_a_handshake_where_rules_hold_and_nothing_checks_credentials() -> None:
    """A password is refused. What a driver gets without one is good for a caller without credentials."""

    async def story() -> None:
        async with gateway(secured(HttpSecurity()), users=True) as found:
            sessions = Sessions(found.core.settings.security, found.services.logins)
            with pytest.raises(NotAuthenticated, match=r"security\.http\.authentication"):
                await sessions.begin("127.0.0.1", basic("alice")["Authorization"], "")
            given = await sessions.begin("127.0.0.1", "", "")
            assert await sessions.who("127.0.0.1", given, "") == ANONYMOUS
            assert await sessions.who("127.0.0.1", given, ALICE) == ALICE

    asyncio.run(story())


def test_certificates(tmp_path: Path) -> None:
    """The principal of a client's certificate is that of the HTTP API. New files serve new connections."""
    authority = issue(tmp_path, "authority")
    server, client = issue(tmp_path, "server", authority), issue(tmp_path, "client", authority, "O=Works,CN=alice")

    def options(own: Pair | None, issuer: Pair) -> dict[str, str]:
        found = {OPTION + "tls_root_certs": issuer.certificate.read_text()}
        if own is not None:
            found[OPTION + "mtls_cert_chain"] = own.certificate.read_text()
            found[OPTION + "mtls_private_key"] = own.key.read_text()
        return found

    async def story() -> None:
        http = HttpSecurity(
            certificate=str(server.certificate),
            key=str(server.key),
            client_ca=str(authority.certificate),
            client_auth="required",
            principal_rules=("RULE:CN=([a-z]+),O=Works/$1/",),
        )
        async with flying(secured(http, flight=PORT), users=True) as found:
            await found.gateway.allow(rule(ALICE, Operation.READ, "orders"))
            uri = found.uri.replace("grpc://127.0.0.1", "grpc+tls://localhost")
            text = "SELECT count(*) FROM orders"
            assert await ask(found, text, options(client, authority), uri) == [(3,)]
            assert [query.asker for query in found.asking.asked] == [ALICE]
            await refused(found, text, options(None, authority), uri)
            await refused(found, text, {})
            another = issue(tmp_path, "another")
            renewed = issue(tmp_path, "renewed", another)
            server.certificate.write_bytes(renewed.certificate.read_bytes())
            server.key.write_bytes(renewed.key.read_bytes())
            assert await ask(found, text, options(client, another), uri) == [(3,)]
            server.key.write_text("no key")
            assert await ask(found, text, options(client, another), uri) == [(3,)]

    asyncio.run(story())
