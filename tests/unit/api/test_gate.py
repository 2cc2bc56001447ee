"""HTTP pages over real sockets: who is let in, who may see what, and how guessing is slowed down."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headwater.api.gate import NOT_ALLOWED, Gate
from headwater.api.listener import HttpListener
from headwater.ops.http import FORWARDED, Page, Request
from headwater.security.http_logins import NOT_KNOWN
from headwater.security.logins import TOO_MANY
from headwater.settings.settings import HttpSecurity, Oauth, Security, Settings
from headwater.state.cluster.access import AclResource, Operation, Pattern, Permission
from headwater.state.commands.access import Acl, PutAcls
from tests.support.certificates import Pair, Signer, issue, key_document
from tests.support.promise import promise
from tests.support.rules import rule
from tests.support.secured import PASSWORDS, InProcess, running

PROMISES = ("S2", "S3")

SIGNER = Signer("k", "ES256")
ALICE, BOB = "User:alice", "User:bob"


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: str


@dataclass
class Served:
    """Pages of a broker: `/who` tells who asks, `/metrics` is for those who may describe the cluster."""

    broker: InProcess
    port: int
    tls: ssl.SSLContext | None = None

    async def ask(self, path: str, authorization: str = "", method: str = "GET", **headers: str) -> Answer:
        lines = [f"{method} {path} HTTP/1.1", "Host: x"]
        if authorization:
            lines.append(f"Authorization: {authorization}")
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return await self.say("\r\n".join(lines) + "\r\n\r\n")

    async def say(self, text: str) -> Answer:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls)
        try:
            writer.write(text.encode("latin-1"))
            whole = (await reader.read()).decode()
        finally:
            writer.close()
        if not whole:
            return Answer(0, {}, "")
        head, _, body = whole.partition("\r\n\r\n")
        first, *rest = head.split("\r\n")
        pairs = [line.split(": ", 1) for line in rest]
        assert len({name for name, _ in pairs}) == len(pairs)
        return Answer(int(first.split()[1]), {name.lower(): value for name, value in pairs}, body)

    async def allow(self, *rules: Acl) -> None:
        await self.broker.node.cluster.submit([PutAcls(rules)])


def basic(name: str, password: str | None = None) -> str:
    text = f"{name}:{PASSWORDS.get(name, '') if password is None else password}"
    return "Basic " + b64encode(text.encode()).decode()


def claims(broker: InProcess, **more: Any) -> dict[str, Any]:
    return {"iss": "i", "aud": "a", "sub": "carol", "exp": broker.clock.wall_ms() // 1000 + 600, **more}


async def who(request: Request) -> Page:
    return Page(request.principal)


@contextlib.asynccontextmanager
async def serving(http: HttpSecurity, secret: str = "", **security: Any) -> AsyncIterator[Served]:
    values = {"failed_login_delay_ms": 1, "reload_ms": 20, **security}
    settings = Settings(http="127.0.0.1:0", objects="memory://", security=Security(http=http, **values))
    async with running(settings, "PLAINTEXT") as broker, asyncio.timeout(60):
        gate = Gate(settings.security, broker.node.broker.logins, broker.node.broker.guard)
        routes = {
            "/who": gate.known(who),
            "/metrics": gate.describes_cluster(who),
        }
        listener = HttpListener(settings, routes, secret)
        await listener.open()
        try:
            yield Served(broker, listener.port)
        finally:
            await listener.close()


def run(test: Callable[[Served], Awaitable[None]], http: HttpSecurity, secret: str = "", **security: Any) -> None:
    async def main() -> None:
        async with serving(http, secret, **security) as served:
            await test(served)

    asyncio.run(main())


BASIC = HttpSecurity(authentication="basic")


def oauth(directory: Path) -> Oauth:
    (directory / "keys.json").write_text(key_document(SIGNER))
    return Oauth(jwks=str(directory / "keys.json"), issuer="i", audience="a")


# --- who it is -------------------------------------------------------------------------------------------


@promise("S2")
def test_passwords() -> None:
    """Basic takes the passwords of SASL's users; all that is wrong gets one and the same answer."""

    async def test(served: Served) -> None:
        for name in PASSWORDS:
            found = await served.ask("/who", basic(name))
            assert (found.status, found.body, found.headers["cache-control"]) == (200, f"User:{name}", "no-store")
        assert (await served.ask("/who", basic("alice").replace("Basic", "bAsIc"))).status == 200
        assert served.broker.node.broker.logins.granted == len(PASSWORDS) + 1
        wrong = [
            basic("alice", "wrong"), basic("nobody", "wrong"), basic("nobody", PASSWORDS["alice"]), basic("alice", ""),
            basic("", "x"), basic("bob", PASSWORDS["alice"]), basic("a" * 5_000, "x"), "Basic", "Basic !!!",
            "Basic " + b64encode(b"alice").decode(), "Basic " + b64encode(b"\xff:\xff").decode(),
            "Bearer x.y.z", "Negotiate abc", "alice",
        ]  # fmt: skip
        answers = [await served.ask("/who", authorization) for authorization in ["", *wrong]]
        assert {(a.status, a.body, a.headers["content-type"]) for a in answers} == {
            (401, f'{{"title":"{NOT_KNOWN}"}}', "application/problem+json")
        }
        assert {a.headers["www-authenticate"] for a in answers} == {'Basic realm="headwater", charset="UTF-8"'}
        assert served.broker.node.broker.logins.refused == len(wrong)

    run(test, BASIC)


@promise("S2")
def test_tokens(tmp_path: Path) -> None:
    """Bearer takes the tokens that OAUTHBEARER takes, and no others."""

    async def test(served: Served) -> None:
        good = SIGNER.token(claims(served.broker))
        found = await served.ask("/who", f"Bearer {good}")
        assert (found.status, found.body) == (200, "User:carol")
        bad = [
            SIGNER.token(claims(served.broker, aud="b")),
            SIGNER.token(claims(served.broker, exp=1)),
            Signer("k", "ES256").token(claims(served.broker)),
            good[:-4] + "AAAA",
            "nonsense",
        ]
        for authorization in [f"Bearer {token}" for token in bad] + [basic("alice"), "Bearer"]:
            found = await served.ask("/who", authorization)
            assert (found.status, found.headers["www-authenticate"]) == (401, 'Bearer realm="headwater"')

    run(test, HttpSecurity(authentication="bearer"), oauth=oauth(tmp_path))


@promise("S2")
def test_passwords_or_tokens(tmp_path: Path) -> None:
    """Where both are taken, both are offered."""

    async def test(served: Served) -> None:
        assert (await served.ask("/who", basic("bob"))).body == BOB
        assert (await served.ask("/who", f"Bearer {SIGNER.token(claims(served.broker))}")).body == "User:carol"
        offered = (await served.ask("/who")).headers["www-authenticate"]
        assert offered == 'Basic realm="headwater", charset="UTF-8", Bearer realm="headwater"'

    run(test, HttpSecurity(authentication="any"), oauth=oauth(tmp_path))


@promise("S3")
def test_tokens_without_an_issuer_let_nobody_in() -> None:
    """What is not configured fails closed."""

    async def test(served: Served) -> None:
        assert [(await served.ask("/who", a)).status for a in ("", basic("alice"), "Bearer x.y.z")] == [401] * 3

    run(test, HttpSecurity(authentication="bearer"))


@promise("S2")
def test_without_authentication_everybody_is_anonymous() -> None:
    """Rules still count, and what somebody claims is refused: it cannot be checked."""

    async def test(served: Served) -> None:
        assert (await served.ask("/who")).body == "User:ANONYMOUS"
        claimed = await served.ask("/who", basic("alice"))
        assert claimed.status == 401 and "security.http.authentication" in claimed.body
        assert (await served.ask("/metrics")).status == 403
        await served.allow(rule("User:ANONYMOUS", Operation.DESCRIBE, "kafka-cluster", AclResource.CLUSTER))
        assert (await served.ask("/metrics")).status == 200

    run(test, HttpSecurity(), acls=True)


@promise("S3")
def test_guessing_is_slowed_down(caplog: pytest.LogCaptureFixture) -> None:
    """An address that failed too often is not judged for a while, on pages and listeners alike."""

    async def test(served: Served) -> None:
        for _ in range(3):
            assert (await served.ask("/who", basic("bob"))).status == 200, "what is right costs nothing"
            assert (await served.ask("/who", basic("alice", "s3cret guess"))).status == 401
            assert (await served.ask("/who")).status == 401, "nor does asking how"
        found = await served.ask("/who", basic("alice"))
        assert (found.status, found.headers["retry-after"]) == (429, "1")
        assert json.loads(found.body)["title"] == TOO_MANY
        assert not served.broker.node.broker.logins.limiter.take("127.0.0.1")
        served.broker.clock.moved += 30
        assert (await served.ask("/who", basic("alice"))).status == 200

    with caplog.at_level(logging.DEBUG):
        run(test, BASIC, failed_logins_per_minute=3)
    said = caplog.text + "".join(str(vars(record)) for record in caplog.records)
    assert "a log-in over HTTP failed" in said
    for secret in ("s3cret", PASSWORDS["alice"], basic("alice"), basic("alice", "s3cret guess")):
        assert secret.removeprefix("Basic ") not in said


@promise("S3")
@pytest.mark.parametrize(
    "head",
    [
        f"GET /who HTTP/1.1\r\nAuthorization: {basic('bob')}\r\nauthorization: {basic('alice')}\r\n\r\n",
        f"GET /who HTTP/1.1\r\nX: y\nAuthorization: {basic('alice')}\r\n\r\n",
        f"GET /who HTTP/1.1\r\nAuthorization: {basic('alice')}\0\r\n\r\n",
        "GET /who\tHTTP/1.1\x01 HTTP/1.1\r\n\r\n",
        f"GET /who HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 5\r\nAuthorization: {basic('alice')}\r\n\r\n",
        "GET /who HTTP/1.1\r\nAuthorization: " + "x" * 20_000 + "\r\n\r\n",
    ],
    ids=["twice", "newline", "zero", "control", "two lengths", "too long"],
)
def test_what_could_be_read_in_two_ways_is_not_answered(head: str) -> None:
    """A supervisor and its children must not see different requests in the same bytes."""

    async def test(served: Served) -> None:
        with contextlib.suppress(ConnectionError):
            assert (await served.say(head)).status == 0
        assert (await served.ask("/who", basic("alice"))).status == 200

    run(test, BASIC)


# --- what they may see -----------------------------------------------------------------------------------


@promise("S2")
def test_metrics_are_for_those_who_may_describe_the_cluster() -> None:
    """By the rules of Kafka's listeners, also those about hosts, and super users."""

    async def test(served: Served) -> None:
        found = await served.ask("/metrics", basic("alice"))
        assert (found.status, found.body) == (403, f'{{"title":"{NOT_ALLOWED}"}}')
        assert (await served.ask("/metrics", basic("bob"))).status == 200, "a super user"
        allow = Acl(
            AclResource.CLUSTER, "kafka-cluster", Pattern.LITERAL, ALICE, "10.0.0.7", Operation.DESCRIBE,
            Permission.ALLOW,
        )  # fmt: skip
        await served.allow(allow)
        assert (await served.ask("/metrics", basic("alice"))).status == 403, "from elsewhere"
        await served.allow(rule(ALICE, Operation.ALTER, "kafka-cluster", AclResource.CLUSTER))
        assert (await served.ask("/metrics", basic("alice"))).status == 200, "ALTER includes it"

    run(test, BASIC, acls=True, super_users=BOB)


# --- TLS -------------------------------------------------------------------------------------------------


def trusting(issuer: Pair, own: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(issuer.certificate))
    if own is not None:
        context.load_cert_chain(own.certificate, own.key)
    return context


@promise("S2", "S3")
def test_certificates(tmp_path: Path) -> None:
    """TLS with client certificates: who shows one is whom it names, unless a password says otherwise."""
    issuer = issue(tmp_path, "issuer")
    server, robot = issue(tmp_path, "server", issuer), issue(tmp_path, "robot", issuer, "O=Acme,CN=Robot")
    own = HttpSecurity(
        authentication="basic",
        certificate=str(server.certificate),
        key=str(server.key),
        client_auth="requested",
        client_ca=str(issuer.certificate),
        principal_rules=("RULE:^CN=(.*?),.*$/$1/L", "DEFAULT"),
    )

    async def test(served: Served) -> None:
        served.tls = trusting(issuer, robot)
        assert (await served.ask("/who")).body == "User:robot"
        assert (await served.ask("/who", basic("alice"))).body == ALICE
        assert (await served.ask("/who", basic("alice", "wrong"))).status == 401
        served.tls = trusting(issuer)
        assert (await served.ask("/who")).status == 401
        with pytest.raises(ssl.SSLCertVerificationError):
            served.tls = ssl.create_default_context()
            await served.ask("/who")
        served.tls = None
        with contextlib.suppress(ConnectionError):
            assert (await served.ask("/who", basic("alice"))).status == 0, "without TLS nothing is said"

    run(test, own)


@promise("S2")
def test_certificates_are_read_again(tmp_path: Path) -> None:
    """New certificates need no restart."""
    first, second = issue(tmp_path, "first"), issue(tmp_path, "second")
    server = issue(tmp_path, "server", first)
    own = HttpSecurity(certificate=str(server.certificate), key=str(server.key))

    async def test(served: Served) -> None:
        served.tls = trusting(first)
        assert (await served.ask("/who")).status == 200
        issue(tmp_path, "server", second)
        served.tls = trusting(second)
        while True:
            with contextlib.suppress(ssl.SSLCertVerificationError):
                assert (await served.ask("/who")).status == 200
                return
            await asyncio.sleep(0.01)

    run(test, own)


# --- behind a supervisor ---------------------------------------------------------------------------------


@promise("S3")
def test_a_child_answers_its_supervisor_only() -> None:
    """A port on loopback is no back door; who asks, and from where, is what the supervisor says."""

    async def test(served: Served) -> None:
        for wrong in ({}, {FORWARDED: "guess 1.2.3.4 User:admin"}, {FORWARDED: " 1.2.3.4"}, {FORWARDED: ""}):
            for path in ("/who", "/metrics", "/nothing"):
                found = await served.ask(path, basic("alice"), **wrong)
                assert found.status == 403 and "supervisor" in found.body
        found = await served.ask("/who", basic("alice"), **{FORWARDED: "secret 10.0.0.7 "})
        assert found.body == ALICE
        found = await served.ask("/who", **{FORWARDED: "secret 10.0.0.7 User%3ACN%3Drobot%2CO%3DAcme"})
        assert found.body == "User:CN=robot,O=Acme"
        assert (await served.ask("/who", **{FORWARDED: "secret 10.0.0.7 "})).status == 401
        limiter = served.broker.node.broker.logins.limiter
        for _ in range(2):
            await served.ask("/who", basic("alice", "wrong"), **{FORWARDED: "secret 10.0.0.7 "})
        assert not limiter.take("10.0.0.7") and limiter.take("127.0.0.1"), "it is the caller's address that failed"

    run(test, BASIC, secret="secret", failed_logins_per_minute=2)


@promise("S3")
def test_nobody_else_forwards() -> None:
    """Where there is no supervisor, whoever says it is one is not believed."""

    async def test(served: Served) -> None:
        for forged in (" 10.0.0.7 User:admin", "x 10.0.0.7 User:admin"):
            assert (await served.ask("/who", **{FORWARDED: forged})).status == 401
            assert (await served.ask("/who", basic("alice"), **{FORWARDED: forged})).body == ALICE

    run(test, BASIC)
