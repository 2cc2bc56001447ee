"""Log-ins over real sockets: who is let in, what is answered before, and how guessing is slowed down."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headwater.broker.registry import APIS
from headwater.client.connection import Connection, connect
from headwater.client.errors import AnswerLost, KafkaError
from headwater.client.security import ClientSecurity, Conversation
from headwater.clock import SystemChance
from headwater.replica.users import put_user
from headwater.security import logins
from headwater.security.logins import TOO_MANY, LoginLimiter, network_of
from headwater.settings.settings import ListenerSecurity, Oauth, Security, Settings
from headwater.threads import CALLER
from headwater.wire.messages import request_type
from headwater.wire.scram import salt_password
from tests.support.certificates import Signer, key_document
from tests.support.promise import promise
from tests.support.secured import PASSWORDS, InProcess, MovingClock, Raw, raw, running

PROMISES = ("S1", "S3")

SASL, PLAIN_TEXT = "SASL_PLAINTEXT", "PLAINTEXT"
METADATA, HANDSHAKE, AUTHENTICATE, VERSIONS = 3, 17, 36, 18
BEFORE_A_LOGIN = (HANDSHAKE, AUTHENTICATE, VERSIONS)
EVERY_MECHANISM = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def settings(**security: Any) -> Settings:
    listener = ListenerSecurity(mechanisms=security.pop("mechanisms", ",".join(EVERY_MECHANISM)))
    values = {"failed_login_delay_ms": 1, **security}
    return Settings(objects="memory://", security=Security(listeners={SASL: listener}, **values))


def run(test: Callable[[InProcess], Awaitable[None]], chosen: Settings | None = None) -> None:
    async def main() -> None:
        async with running(chosen or settings(), SASL, PLAIN_TEXT) as broker, asyncio.timeout(60):
            await test(broker)

    asyncio.run(main())


async def log_in(broker: InProcess, **fields: Any) -> Connection:
    return await connect("127.0.0.1", broker.ports[SASL], "test", security=ClientSecurity(**fields))


def as_user(name: str, mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
    return {"user": name, "password": PASSWORDS[name], "mechanism": mechanism}


@promise("S1")
@pytest.mark.parametrize("mechanism", EVERY_MECHANISM)
def test_each_mechanism(mechanism: str) -> None:
    """Users are let in as themselves; wrong passwords and unknown users get one and the same answer."""

    async def test(broker: InProcess) -> None:
        for name in PASSWORDS:
            connection = await log_in(broker, **as_user(name, mechanism))
            assert await connection.request(METADATA, topics=[]) is not None
            assert f"User:{name}" in {c.principal for c in broker.server._connections}
            await connection.close()
        said = set()
        for name, password in (("alice", "wrong"), ("nobody", "wrong"), ("nobody", PASSWORDS["alice"]), ("alice", "x")):
            with pytest.raises(KafkaError) as error:
                await log_in(broker, user=name, password=password, mechanism=mechanism)
            assert error.value.code is ErrorCode.sasl_authentication_failed
            said.add(str(error.value))
        assert len(said) == 1 and "alice" not in said.pop()

    run(test)


@promise("S1")
def test_tokens_let_in_until_they_expire(tmp_path: Path) -> None:
    """OAUTHBEARER; a refused token gets its reason in two steps, as the mechanism has it."""
    signer = Signer("k", "ES256")
    file = tmp_path / "keys.json"
    file.write_text(key_document(signer))
    oauth = Oauth(jwks=str(file), issuer="i", audience="a")

    async def test(broker: InProcess) -> None:
        now = broker.clock.wall_ms() // 1000
        claims = {"iss": "i", "aud": "a", "sub": "carol", "exp": now + 600}
        connection = await log_in(broker, mechanism="OAUTHBEARER", token=signer.token(claims))
        assert await connection.request(METADATA, topics=[]) is not None
        assert "User:carol" in {c.principal for c in broker.server._connections}
        await connection.close()
        with pytest.raises(KafkaError) as error:
            await log_in(broker, mechanism="OAUTHBEARER", token=signer.token({**claims, "aud": "b"}))
        assert error.value.code is ErrorCode.sasl_authentication_failed
        async with raw(broker, SASL) as wire:
            await wire.ask(HANDSHAKE, 1, mechanism="OAUTHBEARER")
            message = f"n,,\x01auth=Bearer {signer.token(claims)}\x01\x01".encode()
            answer = await wire.ask(AUTHENTICATE, 2, auth_bytes=message)
            assert 590 < answer.session_lifetime.total_seconds() <= 600, "as long as the token holds"

    run(test, settings(mechanisms="OAUTHBEARER", oauth=oauth))


@promise("S2", "S3")
@pytest.mark.parametrize("key", sorted(APIS))
def test_nothing_is_answered_without_a_login(key: int) -> None:
    """Every API that is served, also those added later, ends the connection unheard."""

    async def test(broker: InProcess) -> None:
        version = APIS[key].versions[-1]
        async with raw(broker, SASL) as wire:
            answer = await wire.ask(key, version, **_some_fields(key, version))
            assert (answer is not None) == (key in BEFORE_A_LOGIN)

    run(test)


def _some_fields(key: int, version: int) -> dict[str, Any]:
    """Empty requests are valid but for names that cannot be."""
    names = {"client_software_name": "x", "client_software_version": "1", "mechanism": "PLAIN"}
    return {name: value for name, value in names.items() if name in request_type(key, version).__annotations__}


@promise("S2", "S3")
@pytest.mark.parametrize("key", sorted(set(APIS) - set(BEFORE_A_LOGIN)))
def test_nothing_is_answered_after_a_failed_login(key: int) -> None:
    """Wrong credentials, and then any API."""

    async def test(broker: InProcess) -> None:
        async with raw(broker, SASL) as wire:
            await wire.ask(HANDSHAKE, 1, mechanism="PLAIN")
            refused = await wire.ask(AUTHENTICATE, 2, auth_bytes=b"\0alice\0wrong")
            assert refused.error_code is ErrorCode.sasl_authentication_failed
            version = APIS[key].versions[-1]
            assert await wire.ask(key, version) is None
            assert await wire.ended()

    run(test)


@promise("S3")
@pytest.mark.parametrize("right", [True, False])
def test_requests_behind_a_login(right: bool) -> None:
    """What is sent behind a message of a log-in waits for it, as in Apache Kafka. It is heard only if that succeeds."""

    async def test(broker: InProcess) -> None:
        async with raw(broker, SASL) as wire:
            await wire.ask(HANDSHAKE, 1, mechanism="PLAIN")
            password = PASSWORDS["alice"] if right else "wrong"
            await wire.send(AUTHENTICATE, 2, auth_bytes=f"\0alice\0{password}".encode())
            await wire.send(METADATA, 12, topics=[])
            answer = await wire.receive(AUTHENTICATE, 2)
            assert (answer.error_code is ErrorCode.none) == right
            if right:
                assert (await wire.receive(METADATA, 12)).brokers
            else:
                assert await wire.ended()

    run(test)


@promise("S1")
def test_the_order_of_a_login() -> None:
    """What comes out of order, or is not offered, is said so in Kafka's codes."""

    async def test(broker: InProcess) -> None:
        async with raw(broker, SASL) as wire:
            answer = await wire.ask(HANDSHAKE, 1, mechanism="GSSAPI")
            assert answer.error_code is ErrorCode.unsupported_sasl_mechanism
            assert answer.mechanisms == EVERY_MECHANISM
            assert await wire.ended()
        async with raw(broker, SASL) as wire:
            answer = await wire.ask(AUTHENTICATE, 2, auth_bytes=b"x")
            assert answer.error_code is ErrorCode.illegal_sasl_state
            assert await wire.ended()
        async with raw(broker, SASL) as wire:
            await wire.ask(HANDSHAKE, 1, mechanism="PLAIN")
            assert (await wire.ask(VERSIONS, 0)).error_code is ErrorCode.illegal_sasl_state
            assert await wire.ended()
        async with raw(broker, PLAIN_TEXT) as wire:
            assert (await wire.ask(HANDSHAKE, 1, mechanism="PLAIN")).error_code is ErrorCode.illegal_sasl_state
            assert (await wire.ask(AUTHENTICATE, 2, auth_bytes=b"x")).error_code is ErrorCode.illegal_sasl_state
            assert await wire.ask(METADATA, 12, topics=[]) is not None

    run(test)


@promise("S1")
@pytest.mark.parametrize(
    "message",
    [b"", b"\0", b"\0\0", b"\0alice\0", b"\0\0x", b"a\0b\0c\0d", b"\xff\0\xff\0\xff", b"other\0alice\0wonder=land,",
     b"\0alice\0" + b"x" * 5000],
)  # fmt: skip
def test_plain_messages_that_are_refused(message: bytes) -> None:
    """Malformed, empty, too long, or to act for somebody else."""

    async def test(broker: InProcess) -> None:
        async with raw(broker, SASL) as wire:
            await wire.ask(HANDSHAKE, 1, mechanism="PLAIN")
            answer = await wire.ask(AUTHENTICATE, 2, auth_bytes=message)
            assert answer.error_code is ErrorCode.sasl_authentication_failed
            assert await wire.ended()

    run(test)


@promise("S3", "S4")
def test_a_right_password_is_not_derived_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """PLAIN on many connections costs little. A password that is wrong, or was changed, is still checked."""
    derived = []

    def counted(mechanism: int, password: str, salt: bytes, iterations: int) -> bytes:
        derived.append(password)
        return salt_password(mechanism, password, salt, iterations)

    monkeypatch.setattr(logins, "salt_password", counted)

    async def test(broker: InProcess) -> None:
        for _ in range(5):
            connection = await log_in(broker, **as_user("alice", "PLAIN"))
            await connection.close()
        assert len(derived) == 2, "one for each mechanism"
        with pytest.raises(KafkaError):
            await log_in(broker, user="alice", password="wrong", mechanism="PLAIN")
        assert len(derived) == 4
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            await put_user(broker.node.cluster, SystemChance(), "alice", mechanism, "another", 4096)
        with pytest.raises(KafkaError):
            await log_in(broker, **as_user("alice", "PLAIN"))
        connection = await log_in(broker, user="alice", password="another", mechanism="PLAIN")
        await connection.close()

    run(test)


@promise("S4")
def test_requests_work_in_threads_for_their_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the jobs of callers take turns there. Who has not logged in is known by the address."""
    seen = []
    api = APIS[METADATA]

    async def noting(broker: Any, request: Any) -> Any:
        seen.append(CALLER.get())
        return await api.handle(broker, request)  # type: ignore[misc]

    monkeypatch.setitem(APIS, METADATA, dataclasses.replace(api, handle=noting))

    async def test(broker: InProcess) -> None:
        async with raw(broker, SASL) as wire:
            await _log_in(wire, "alice")
            await wire.ask(METADATA, 12, topics=[])
        async with raw(broker, PLAIN_TEXT) as wire:
            await wire.ask(METADATA, 12, topics=[])
        assert seen == ["User:alice", "127.0.0.1"] and CALLER.get() == ""

    run(test)


@promise("S3")
def test_before_a_login_only_small_frames_and_not_for_long() -> None:
    """Afterwards frames may be as large as anybody's."""

    async def test(broker: InProcess) -> None:
        async with raw(broker, SASL) as wire:
            await wire.send_bytes((100_000).to_bytes(4) + b"\0" * 100)
            assert await wire.ended()
        async with raw(broker, SASL) as wire:
            assert await wire.ended(), "the time is over without a word"
        async with raw(broker, SASL) as wire:
            await _log_in(wire, "alice")
            assert await wire.ask(METADATA, 12, topics=[{"name": "n" * 200, "topic_id": None}] * 500) is not None

    run(test, settings(login_frame_bytes=10_000, login_ms=500))


async def _log_in(wire: Raw, name: str, mechanism: str = "SCRAM-SHA-512") -> Any:
    """The last answer of a log-in."""
    shaken = await wire.ask(HANDSHAKE, 1, mechanism=mechanism)
    if shaken.error_code is not ErrorCode.none:
        return shaken
    talk = Conversation(ClientSecurity(**as_user(name, mechanism)))  # type: ignore[arg-type]
    said: bytes | None = talk.first()
    answer = None
    while said is not None:
        answer = await wire.ask(AUTHENTICATE, 2, auth_bytes=said)
        if answer.error_code is not ErrorCode.none:
            return answer
        said = talk.answer(answer.auth_bytes)
    return answer


@promise("S1")
def test_logins_are_renewed_or_end() -> None:
    """KIP-368: the lifetime is told; after it only a new log-in is heard; the same user, by the same mechanism."""

    async def test(broker: InProcess) -> None:
        async with raw(broker, SASL) as wire:
            answer = await _log_in(wire, "alice")
            assert answer.session_lifetime.total_seconds() == 2
            assert await wire.ask(METADATA, 12, topics=[]) is not None
            broker.clock.moved += 3
            assert (await _log_in(wire, "alice")).error_code is ErrorCode.none
            assert await wire.ask(METADATA, 12, topics=[]) is not None
            broker.clock.moved += 3
            assert await wire.ask(METADATA, 12, topics=[]) is None, "after its time"
        async with raw(broker, SASL) as wire:
            await _log_in(wire, "alice")
            assert (await _log_in(wire, "bob")).error_code is ErrorCode.sasl_authentication_failed
            assert await wire.ended()
        async with raw(broker, SASL) as wire:
            await _log_in(wire, "alice")
            assert (await _log_in(wire, "alice", "PLAIN")).error_code is ErrorCode.unsupported_sasl_mechanism

    run(test, settings(session_ms=2000))


@promise("S1")
def test_our_client_renews_by_itself() -> None:
    """A connection that is used on and on is logged in on and on; one that cannot renew is closed."""

    async def test(broker: InProcess) -> None:
        connection = await log_in(broker, **as_user("alice"))
        before = broker.node.broker.logins.granted
        while broker.node.broker.logins.granted < before + 2:
            assert await connection.request(METADATA, topics=[]) is not None
        connection._renew_at = None
        broker.clock.moved += 3
        with pytest.raises(AnswerLost):
            await connection.request(METADATA, topics=[])

    run(test, settings(session_ms=200))


@promise("S1")
def test_guessing_is_slowed_down() -> None:
    """After so many failures nobody from that address is let in, until time has passed."""

    async def test(broker: InProcess) -> None:
        for _ in range(5):
            with pytest.raises(KafkaError):
                await log_in(broker, user="alice", password="wrong", mechanism="PLAIN")
        with pytest.raises(KafkaError) as error:
            await log_in(broker, **as_user("alice"))
        assert TOO_MANY.rstrip(".") in str(error.value)
        broker.clock.moved += 13
        connection = await log_in(broker, **as_user("alice", "PLAIN"))
        await connection.close()

    run(test, settings(failed_logins_per_minute=5))


@promise("S1")
def test_the_brake_counts_by_address_and_forgets() -> None:
    """Others are not held up; what is right costs nothing; memory is bounded."""
    clock = MovingClock()
    limiter = LoginLimiter(3, clock)
    assert [limiter.take("a") for _ in range(4)] == [True, True, True, False]
    assert limiter.take("b")
    limiter.give_back("b")
    for _ in range(50):
        assert limiter.take("b")
        limiter.give_back("b")
    clock.moved += 21
    assert [limiter.take("a"), limiter.take("a")] == [True, False]
    for i in range(20_000):
        limiter.take(f"address {i}")
    assert len(limiter._addresses) <= 10_000


@promise("S1")
def test_networks_that_count_as_one() -> None:
    """An IPv6 customer has more addresses than anybody could remember."""
    assert network_of("10.1.2.3") == network_of("::ffff:10.1.2.3") == "10.1.2.3"
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1%eth0") == "2001:db8::/64"
    assert network_of("2001:db8:0:1::1") != network_of("2001:db8::1")
    assert network_of("?") == "?"


@promise("S3", "K1")
def test_noise_before_a_login_is_harmless() -> None:
    """Whatever bytes come, the connection ends and the others do not notice."""
    chance = random.Random(7)

    async def test(broker: InProcess) -> None:
        for _ in range(60):
            async with raw(broker, SASL) as wire:
                key = chance.choice([HANDSHAKE, AUTHENTICATE, VERSIONS, METADATA, 999])
                body = struct.pack(">hhi", key, chance.randrange(-1, 5), 1) + chance.randbytes(chance.randrange(60))
                await wire.send_bytes(struct.pack(">i", len(body)) + body + chance.randbytes(40))
        connection = await log_in(broker, **as_user("alice"))
        assert await connection.request(METADATA, topics=[]) is not None
        await connection.close()

    run(test)


@promise("S1")
def test_unknown_users_look_like_known_ones() -> None:
    """Their challenge has a salt that stays the same, of the same length, with as many iterations."""

    async def test(broker: InProcess) -> None:
        async def challenge(name: str) -> list[str]:
            async with raw(broker, SASL) as wire:
                await wire.ask(HANDSHAKE, 1, mechanism="SCRAM-SHA-256")
                answer = await wire.ask(AUTHENTICATE, 2, auth_bytes=f"n,,n={name},r=nonce".encode())
                assert answer.error_code is ErrorCode.none
                return str(answer.auth_bytes, "ascii").split(",")[1:]

        known, nobody, somebody = [await challenge(name) for name in ("alice", "nobody", "somebody")]
        assert nobody == await challenge("nobody") != somebody
        assert [len(part) for part in nobody] == [len(part) for part in known]
        assert nobody[1] == known[1]

    run(test)


@promise("S3")
def test_secrets_show_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    """Not in logs, errors, metrics or representations."""
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []

    async def test(broker: InProcess) -> None:
        from headwater.broker.metrics import collect
        from headwater.ops.metrics import render

        for mechanism in EVERY_MECHANISM:
            connection = await log_in(broker, **as_user("bob", mechanism))
            shown.extend(map(repr, (connection, ClientSecurity(**as_user("bob", mechanism)))))  # type: ignore[arg-type]
            shown.extend(map(repr, broker.server._connections))
            await connection.close()
            with pytest.raises(KafkaError) as error:
                await log_in(broker, user="bob", password="not-the-password", mechanism=mechanism)
            shown.append(str(error.value))
        shown.append(render(collect(broker.node.broker, broker.node.cache, broker.node.housekeeper)))
        shown.extend(map(repr, (broker.node.broker.logins, broker.node.cluster.state.access.users)))

    run(test)
    text = "\n".join([*shown, *(str(vars(record)) for record in caplog.records)])
    assert "a log-in failed" in text
    assert PASSWORDS["bob"] not in text and "not-the-password" not in text
