"""Tokens for a password: who gets one, how long it lasts, and what ends it."""

from __future__ import annotations

import asyncio
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable

import pytest

from headwater.clock import SystemChance
from headwater.replica.users import put_user
from headwater.security.login_tokens import MARK, SECONDS, LoginTokens
from headwater.security.tokens import TokenRefused
from headwater.settings.settings import Security
from headwater.state.commands.access import DropUser
from headwater.wire.scram import MECHANISMS
from tests.support.gateways import InGateway, gateway, secured

PROMISES = ("S2",)

MECHANISM = "SCRAM-SHA-256"


def run(test: Callable[[InGateway, LoginTokens], Awaitable[None]], security: Security | None = None) -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await test(found, LoginTokens(security or Security(), found.services.logins))

    asyncio.run(story())


def test_every_process_checks_it() -> None:
    async def test(found: InGateway, tokens: LoginTokens) -> None:
        token = tokens.give("bob", tokens.seconds)
        assert tokens.check(token).name == "bob"
        assert LoginTokens(Security(), found.services.logins).check(token).name == "bob", "nothing is remembered"
        claims = json.loads(_opened(token.split(".")[1]))
        assert claims == {"sub": "bob", "exp": found.clock.wall_ms() // 1000 + SECONDS}, "clients look for its end"

    run(test)


@pytest.mark.parametrize(("session_ms", "seconds"), [(0, SECONDS), (60_000, 60), (1, 1), (10**12, SECONDS)])
def test_it_ends_at_its_time(session_ms: int, seconds: int) -> None:
    async def test(found: InGateway, tokens: LoginTokens) -> None:
        token = tokens.give("bob", tokens.seconds)
        assert tokens.seconds == seconds
        found.clock.moved += seconds - 1
        if seconds > 1:
            assert tokens.check(token).name == "bob"
        found.clock.moved += 2
        with pytest.raises(TokenRefused, match="expired"):
            tokens.check(token)

    run(test, Security(session_ms=session_ms))


def test_another_password_ends_it() -> None:
    async def test(found: InGateway, tokens: LoginTokens) -> None:
        bob, alice = tokens.give("bob", tokens.seconds), tokens.give("alice", tokens.seconds)
        await put_user(found.core.cluster, SystemChance(), "bob", MECHANISM, "another", 4096)
        with pytest.raises(TokenRefused, match="has changed"):
            tokens.check(bob)
        assert tokens.check(alice).name == "alice"
        assert tokens.check(tokens.give("bob", tokens.seconds)).name == "bob"
        await found.core.cluster.submit([DropUser("alice", MECHANISMS[MECHANISM])])
        with pytest.raises(TokenRefused, match="not known"):
            tokens.check(alice)

    run(test)


def test_what_was_not_given() -> None:
    async def test(found: InGateway, tokens: LoginTokens) -> None:
        token = tokens.give("bob", tokens.seconds)
        mark, body, code = token.split(".")
        claims = json.loads(_opened(body))
        forged = [
            ".".join((mark, _shut(json.dumps({**claims, **more}).encode()), code))
            for more in ({"sub": "alice"}, {"exp": claims["exp"] + 1}, {"sub": "nobody"}, {"more": 1}, {"exp": "x"})
        ]
        spoilt = [token[:-3] + "AAA", token + ".x", MARK, MARK + "x", f"{MARK}.", f"{mark}.{body}.", f"{mark}.é.{code}"]
        for text in (*forged, *spoilt, f"{mark}.{body}", "", "x.y.z", MARK + "a" * 100_000 + ".b"):
            with pytest.raises(TokenRefused):
                tokens.check(text)
        with pytest.raises(TokenRefused):
            tokens.give("nobody", tokens.seconds)

    run(test)


def _opened(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _shut(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
