"""Two processes of a cluster prove to each other that they know a secret, before any other message.

The process that was connected to sends first:

    greeting   eight bytes that name the protocol, 32 random bytes
    proof      32 random bytes of the client, and the HMAC-SHA-256 of "client" and both sides' random bytes
    proof      the HMAC of "server" and the same bytes

A proof is valid for one connection only. The caller opens the connection and sets the time limits.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac

from headwater.clock import Chance

MAGIC_BYTES = 8
NONCE_BYTES = 32
PROOF_BYTES = 32
_CLIENT, _SERVER = b"client", b"server"


class Stranger(ConnectionError):
    """The other side uses another protocol, or does not know the secret."""


async def introduce(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, magic: bytes, secret: bytes, chance: Chance
) -> None:
    """The client's side: prove that we know the secret, and check that the server does."""
    greeting = await reader.readexactly(MAGIC_BYTES + NONCE_BYTES)
    if not greeting.startswith(magic):
        raise Stranger("the other side uses another protocol")
    theirs, ours = greeting[MAGIC_BYTES:], _nonce(chance)
    writer.write(ours + _proof(secret, _CLIENT, theirs, ours))
    if not hmac.compare_digest(await reader.readexactly(PROOF_BYTES), _proof(secret, _SERVER, theirs, ours)):
        raise Stranger("the other side does not know the secret")


async def admit(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, magic: bytes, secret: bytes, chance: Chance
) -> None:
    """The server's side: send nothing but a greeting before the client has proved that it knows the secret."""
    ours = _nonce(chance)
    writer.write(magic + ours)
    said = await reader.readexactly(NONCE_BYTES + PROOF_BYTES)
    theirs, given = said[:NONCE_BYTES], said[NONCE_BYTES:]
    if not hmac.compare_digest(given, _proof(secret, _CLIENT, ours, theirs)):
        raise Stranger("the other side does not know the secret")
    writer.write(_proof(secret, _SERVER, ours, theirs))


def _nonce(chance: Chance) -> bytes:
    """Random bytes that were never used before."""
    return chance.uuid().bytes + chance.uuid().bytes


def _proof(secret: bytes, role: bytes, server_nonce: bytes, client_nonce: bytes) -> bytes:
    """A proof that needs the secret and cannot be replayed."""
    return hmac.digest(secret, role + server_nonce + client_nonce, hashlib.sha256)
