"""Who calls: passwords, tokens and nobody; what a caller may not do, and what it may not know of."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headwater.clock import SystemChance
from headwater.gateway.callers import Caller
from headwater.gateway.problems import Refusal
from headwater.gateway.services import Call
from headwater.replica.users import put_user
from headwater.security import logins
from headwater.security.logins import Logins
from headwater.settings.settings import HttpSecurity, Oauth
from headwater.state.cluster.access import ANONYMOUS, AclResource, Operation
from tests.support.certificates import Signer, key_document
from tests.support.gateways import ALICE, BOB, basic, gateway, secured
from tests.support.promise import promise
from tests.support.rules import rule
from tests.support.secured import PASSWORDS

PROMISES = ("S2",)

SIGNER = Signer("k", "ES256")


@promise("S2")
def test_passwords() -> None:
    """An unknown user and a wrong password get the same answer."""

    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            assert (await found.get("/v1", "alice")).status_code == 200
            assert (await found.get("/v1", "bob")).status_code == 200
            wrong = [basic("alice", "wrong"), basic("nobody", "x"), {"Authorization": "Basic ??"}, {}]
            answers = [await found.get("/v1", headers=headers) for headers in wrong]
            assert {(answer.status_code, answer.text) for answer in answers} == {(401, answers[0].text)}
            assert all(answer.headers["www-authenticate"].startswith("Basic ") for answer in answers)
            assert answers[0].json()["type"] == "/problems/not-authenticated"

    asyncio.run(story())


@promise("S2")
def test_tokens(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(key_document(SIGNER))
    oauth = Oauth(jwks=str(tmp_path / "keys.json"), issuer="i", audience="a")

    async def story() -> None:
        async with gateway(secured(HttpSecurity(authentication="bearer"), oauth), users=True) as found:
            good = {"iss": "i", "aud": "a", "sub": "carol", "exp": found.clock.wall_ms() // 1000 + 600}
            for claims, code in ((good, 200), ({**good, "aud": "b"}, 401), ({**good, "exp": 1}, 401)):
                answer = await found.get("/v1", headers={"Authorization": f"Bearer {SIGNER.token(claims)}"})
                assert answer.status_code == code
            assert (await found.get("/v1", "alice")).status_code == 401, "passwords are not accepted here"

    asyncio.run(story())


@promise("S2")
def test_credentials_that_nothing_checks_are_refused_where_rules_hold() -> None:
    """With the right password or a wrong one, and never as another caller. Without rules they make no difference."""

    async def story() -> None:
        async with gateway(secured(HttpSecurity()), users=True) as found:
            await found.topic("orders")
            await found.allow(rule(ALICE, Operation.ALL, "orders"), rule(ANONYMOUS, Operation.DESCRIBE, "orders"))
            assert [line["name"] for line in (await found.get("/v1/topics")).json()["items"]] == ["orders"]
            for headers in (basic("alice"), basic("alice", "wrong"), {"Authorization": "Bearer x.y.z"}):
                for path in ("/v1/topics", "/v1/topics/orders", "/iceberg/v1/config", "/subjects"):
                    answer = await found.get(path, headers=headers)
                    assert answer.status_code == 401, path
                    assert "security.http.authentication" in answer.text
            assert (await found.get("/v1/health", "alice")).status_code == 200
        async with gateway(users=True) as found:
            assert (await found.get("/v1/topics", "alice")).status_code == 200

    asyncio.run(story())


@promise("S2")
def test_two_claims() -> None:
    """A proxy and the gateway must not read different ones."""

    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            both = [("Authorization", basic(name)["Authorization"]) for name in ("alice", "bob")]
            assert (await found.client.get("/v1", headers=both)).status_code == 400

    asyncio.run(story())


@promise("S3")
def test_what_everybody_may_see() -> None:
    """Whether the gateway serves, and what problems mean; nothing of the cluster."""

    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            health = await found.get("/v1/health")
            assert (health.status_code, health.json()) == (200, {"status": "healthy"})
            assert (await found.get("/problems/not-found")).status_code == 200
            for path in (
                "/v1",
                "/v1/topics",
                "/v1/health/",
                "/v1/healthx",
                "/problems",
                "/nothing",
                "/iceberg/v1/config",
            ):
                assert (await found.get(path)).status_code == 401, path

    asyncio.run(story())


@promise("S2")
def test_guessing_is_slowed_down() -> None:
    """Failures count by address, with `Retry-After`."""

    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            found.services.logins.limiter = type(found.services.logins.limiter)(2, found.clock)
            codes = [(await found.get("/v1", headers=basic("alice", "wrong"))).status_code for _ in range(3)]
            assert codes == [401, 401, 429]
            refused = await found.get("/v1", "alice")
            assert refused.status_code == 429 and refused.headers["retry-after"] == "1"
            found.clock.moved += 60
            assert (await found.get("/v1", "alice")).status_code == 200

    asyncio.run(story())


@promise("S2")
def test_a_right_password_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slow check is done once a minute; a password that was changed or deleted is forgotten at once."""
    checked = []
    check = Logins.check_password

    async def counted(self: Logins, name: str, password: str) -> bool:
        checked.append(name)
        return await check(self, name, password)

    monkeypatch.setattr(Logins, "check_password", counted)

    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            for _ in range(3):
                assert (await found.get("/v1", "alice")).status_code == 200
                assert (await found.get("/v1", headers=basic("alice", "wrong"))).status_code == 401
            assert checked == ["alice"] * 4
            await put_user(found.core.cluster, SystemChance(), "alice", "SCRAM-SHA-256", "another", 4096)
            assert (await found.get("/v1", "alice")).status_code == 401
            assert (await found.get("/v1", headers=basic("alice", "another"))).status_code == 200
            del checked[:]
            found.clock.moved += logins.REMEMBER_SECONDS + 1
            assert (await found.get("/v1", headers=basic("alice", "another"))).status_code == 200
            assert checked == ["alice"]

    asyncio.run(story())


@promise("S2")
def test_few_passwords_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "MAX_REMEMBERED", 1)

    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            for name in ("alice", "bob", "alice"):
                assert (await found.get("/v1", name)).status_code == 200
            right = found.app._callers._logins._logins.right  # type: ignore[attr-defined]
            assert right.has("alice", PASSWORDS["alice"]) and not right.has("bob", PASSWORDS["bob"])

    asyncio.run(story())


@promise("S2")
def test_what_a_caller_may_not_do() -> None:
    """403 if the caller may know of it, else 404."""

    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.topic("orders")
            await found.allow(rule(ALICE, Operation.DESCRIBE, "orders"))

            async def status(principal: str, operation: Operation, name: str) -> int:
                call = Call(found.services, Caller(principal, "127.0.0.1"), "r")
                try:
                    await call.topic(name, operation)
                except Refusal as refusal:
                    return refusal.kind.status
                return 200

            assert await status(ALICE, Operation.DESCRIBE, "orders") == 200
            assert await status(ALICE, Operation.WRITE, "orders") == 403
            assert await status(BOB, Operation.WRITE, "orders") == 404
            assert await status("User:admin", Operation.WRITE, "orders") == 200
            assert await status("User:admin", Operation.WRITE, "none") == 404
            call = Call(found.services, Caller(ALICE, "127.0.0.1"), "r")
            with pytest.raises(Refusal, match="may not ALTER the cluster"):
                call.check(Operation.ALTER, AclResource.CLUSTER)

    asyncio.run(story())
