"""The listener by which brokers ask each other for WAL objects, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater.app.exposure import check_exposure
from headwater.app.peers import make_secret, read_secret
from headwater.broker.peers.client import PeerConnections
from headwater.broker.peers.server import PeerServer
from headwater.clock import SystemChance
from headwater.configs.brokers import _uris
from headwater.errors import ConfigError, StoreUnavailable
from headwater.log.wal.zone_cache import PeerFailed
from headwater.security.tls import peer_context
from headwater.settings.settings import ListenerSecurity, Peers, Security, Settings, load
from headwater.types import Buffer, WalId
from headwater.wire.peer_frames import ANSWER, MAGIC, Status
from headwater.wire.peer_handshake import NONCE_BYTES, PROOF_BYTES
from tests.support.certificates import issue
from tests.support.promise import promise

PROMISES = ("L9", "S3")

SECRET = b"a secret of sixteen or more"
ID = WalId(3, 7)
LIMIT = 1 << 20
Look = Callable[[int, WalId], Awaitable[Sequence[Buffer] | None]]


async def look(domain: int, object_id: WalId) -> Sequence[Buffer] | None:
    if domain == 9:
        raise StoreUnavailable("not now")
    return [b"object ", b"%d of " % object_id.sequence, b"%d" % domain] if object_id == ID else None


@asynccontextmanager
async def server(
    look: Look = look, own: ListenerSecurity | None = None, **settings: int
) -> AsyncIterator[tuple[PeerServer, tuple[str, int]]]:
    made = PeerServer(Peers(**settings), SECRET, SystemChance(), look)
    port = await made.listen("127.0.0.1", 0, own or ListenerSecurity(protocol="PLAINTEXT"), 60)
    try:
        yield made, ("127.0.0.1", port)
    finally:
        await made.close()


@asynccontextmanager
async def client(secret: bytes = SECRET, **fields: Any) -> AsyncIterator[PeerConnections]:
    settings = Peers(**{name: fields.pop(name) for name in ("timeout_ms", "connections") if name in fields})
    made = PeerConnections(settings, secret, SystemChance(), max_bytes=fields.pop("max_bytes", LIMIT), **fields)
    try:
        yield made
    finally:
        await made.close()


def run(test: Awaitable[None]) -> None:
    async def main() -> None:
        async with asyncio.timeout(30):
            await test

    asyncio.run(main())


@promise("L9")
def test_questions_and_answers() -> None:
    """An object's bytes, that there is none, or a failure; all over the same few connections."""

    async def test() -> None:
        async with server() as (peer, address), client(connections=2) as asking:
            answers = await asyncio.gather(*(asking.ask(address, 1, ID) for _ in range(50)))
            assert answers == [b"object 7 of 1"] * 50
            assert await asking.ask(address, 1, WalId(3, 8)) is None
            with pytest.raises(PeerFailed):
                await asking.ask(address, 9, ID)
            assert await asking.ask(address, 2, ID) == b"object 7 of 2"
            assert (peer.found, peer.missing, peer.failed, peer.refused) == (51, 1, 1, 0)
            assert len(peer._open) <= 2

    run(test())


@promise("S3")
def test_without_the_secret_nothing_is_told() -> None:
    """Neither side talks to one that does not know the secret."""

    async def test() -> None:
        async with server() as (peer, address), client(b"another secret entirely") as asking:
            with pytest.raises(PeerFailed):
                await asking.ask(address, 1, ID)
            assert (peer.refused, peer.found) == (1, 0)
            reader, writer = await asyncio.open_connection(*address)
            assert (await reader.readexactly(len(MAGIC) + NONCE_BYTES)).startswith(MAGIC)
            writer.write(bytes(NONCE_BYTES + PROOF_BYTES))
            assert await reader.read() == b"", "not even a proof of the other side"
            writer.close()

    run(test())


@promise("S3")
def test_a_proof_cannot_be_used_again() -> None:
    """What was overheard on one connection opens no other."""

    async def test() -> None:
        heard = bytearray()

        async def overhear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            up = await asyncio.open_connection(*real)
            writer.write(await up[0].readexactly(len(MAGIC) + NONCE_BYTES))
            heard.extend(await reader.readexactly(NONCE_BYTES + PROOF_BYTES))
            writer.close()
            up[1].close()

        async with server() as (peer, real), client() as asking:
            spy = await asyncio.start_server(overhear, "127.0.0.1", 0)
            with pytest.raises(PeerFailed):
                await asking.ask(spy.sockets[0].getsockname(), 1, ID)
            assert len(heard) == NONCE_BYTES + PROOF_BYTES
            spy.close()
            reader, writer = await asyncio.open_connection(*real)
            await reader.readexactly(len(MAGIC) + NONCE_BYTES)
            writer.write(bytes(heard))
            assert await reader.read() == b""
            assert peer.refused == 1
            writer.close()

    run(test())


@promise("L9", "S3")
def test_somebody_else_s_server_is_not_believed() -> None:
    """No greeting, a wrong proof, an answer beyond the limit, or silence: each is a failure, soon."""

    async def test() -> None:
        said: list[bytes] = []

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for part in said:
                writer.write(part)
            await reader.read()
            writer.close()

        fake = await asyncio.start_server(talk, "127.0.0.1", 0)
        address = fake.sockets[0].getsockname()
        greeting = MAGIC + bytes(NONCE_BYTES)
        for parts in ([b"HTTP/1.1 400 \r\n" * 9], [greeting, bytes(PROOF_BYTES)], [greeting], []):
            said[:] = parts
            async with client(timeout_ms=200) as asking:
                with pytest.raises(PeerFailed):
                    await asking.ask(address, 1, ID)
        fake.close()
        async with server() as (_, real), client(max_bytes=4) as asking:
            with pytest.raises(PeerFailed):
                await asking.ask(real, 1, ID)
        async with client() as asking:
            with pytest.raises(PeerFailed):
                await asking.ask(("127.0.0.1", 1), 1, ID)

    run(test())


@promise("L9")
def test_a_slow_broker_is_not_waited_for() -> None:
    """After the time limit, and those in line do not wait for it again."""

    async def test() -> None:
        asked = 0

        async def never(domain: int, object_id: WalId) -> Sequence[Buffer] | None:
            nonlocal asked
            asked += 1
            await asyncio.Event().wait()
            return None

        async with server(never) as (_, address), client(timeout_ms=100, connections=2) as asking:
            calls = [asking.ask(address, 1, ID) for _ in range(20)]
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(result, PeerFailed) for result in results)
            assert asked == 2

    run(test())


@promise("L9")
def test_connections_are_bounded() -> None:
    """A broker serves so many and ends the others."""

    async def test() -> None:
        async with server(served_connections=2) as (peer, address):
            lines = [await asyncio.open_connection(*address) for _ in range(2)]
            for reader, _ in lines:
                await reader.readexactly(len(MAGIC))
            third = await asyncio.open_connection(*address)
            assert await third[0].read() == b""
            assert peer.refused == 1
            for _, writer in [*lines, third]:
                writer.close()

    run(test())


@promise("L9")
def test_a_closed_connection_is_replaced() -> None:
    """A broker that closed an idle connection is asked by a new one."""

    async def test() -> None:
        async with server() as (peer, address), client() as asking:
            assert await asking.ask(address, 1, ID)
            for writer in list(peer._open):
                writer.close()
            while not all(reader.at_eof() for reader, _ in asking._peers[address].idle):
                await asyncio.sleep(0)
            assert await asking.ask(address, 1, ID)

    run(test())


@promise("S3")
def test_mutual_tls(tmp_path: Path) -> None:
    """With certificates of the same issuer on both sides; another issuer's is refused."""
    issuer, stranger = issue(tmp_path, "issuer"), issue(tmp_path, "stranger")
    good, bad = issue(tmp_path, "broker", issuer), issue(tmp_path, "other", stranger)

    def section(pair: Any) -> ListenerSecurity:
        files = {"certificate": str(pair.certificate), "key": str(pair.key), "client_ca": str(issuer.certificate)}
        return ListenerSecurity(protocol="SSL", client_auth="required", **files)

    async def test() -> None:
        async with server(own=section(good)) as (_, address):
            async with client(tls=lambda: peer_context(section(good))) as asking:
                assert await asking.ask(address, 1, ID) == b"object 7 of 1"
            for tls in (lambda: peer_context(section(bad)), None):
                async with client(tls=tls, timeout_ms=2_000) as asking:
                    with pytest.raises(PeerFailed):
                        await asking.ask(address, 1, ID)

    run(test())


@promise("S3")
def test_never_beyond_loopback_without_protection(tmp_path: Path) -> None:
    """Also not with `insecure`, since whole objects are given away."""
    mutual = Security(listeners={"INTERNAL": ListenerSecurity(protocol="SSL", client_auth="required")})
    for settings in (
        Settings(internal="127.0.0.1:0"),
        Settings(internal="0.0.0.0:1", internal_secret_file="x"),
        Settings(internal="0.0.0.0:1", security=mutual),
        Settings(),
    ):
        check_exposure(settings)
    for security in (Security(), Security(insecure=True), Security(listeners={"INTERNAL": ListenerSecurity()})):
        with pytest.raises(ConfigError, match="internal"):
            check_exposure(Settings(internal="10.0.0.1:7000", security=security))


@promise("S3")
def test_settings(tmp_path: Path) -> None:
    """Secrets are read from a file that only its owner can read, and must not be short."""
    name = make_secret(tmp_path, SystemChance())
    assert Path(name).stat().st_mode & 0o777 == 0o600
    assert make_secret(tmp_path, SystemChance()) == name
    secret = read_secret(Settings(internal_secret_file=name))
    assert len(secret) == 64 and secret == read_secret(Settings(internal_secret_file=name))
    (tmp_path / "short").write_text("hunter2\n")
    for bad in ("short", "missing"):
        with pytest.raises(ConfigError) as raised:
            read_secret(Settings(internal_secret_file=str(tmp_path / bad)))
        assert "hunter2" not in str(raised.value)
    for flags in ({"kafka": "INTERNAL=127.0.0.1:1"}, {"internal": "nowhere"}, {"peers.timeout_ms": 0}):
        with pytest.raises(ConfigError):
            load(environment={}, flags=flags)
    assert _uris("A=h:1,INTERNAL=h:2") == "A://h:1", "clients are not told of it by configs either"


@promise("L9")
def test_answers_begin_with_their_length() -> None:
    """The layout that all versions share."""
    assert ANSWER.pack(Status.MISSING, 0) == b"\x01\0\0\0\0"
