"""Two processes of a cluster prove to each other that they know a secret, before anything else is said.

The process that is asked speaks first:

    greeting   eight bytes that name what is spoken, 32 random bytes
    proof      32 random bytes of who asks, and the HMAC-SHA-256 of "client" and both sides' random bytes
    proof      the HMAC of "server" and the same bytes

A proof holds for one connection only. Who speaks and who listens, and for how long they wait, is the caller's.
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
    """The other side speaks something else, or does not know the secret."""


async def introduce(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, magic: bytes, secret: bytes, chance: Chance
) -> None:
    """Say who we are to somebody we have connected to, and make sure who it is."""
    greeting = await reader.readexactly(MAGIC_BYTES + NONCE_BYTES)
    if not greeting.startswith(magic):
        raise Stranger("it speaks something else")
    theirs, ours = greeting[MAGIC_BYTES:], _nonce(chance)
    writer.write(ours + _proof(secret, _CLIENT, theirs, ours))
    if not hmac.compare_digest(await reader.readexactly(PROOF_BYTES), _proof(secret, _SERVER, theirs, ours)):
        raise Stranger("it does not know the secret")


async def admit(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, magic: bytes, secret: bytes, chance: Chance
) -> None:
    """Greet somebody who has connected to us, and tell nothing more before it has shown that it knows the secret."""
    ours = _nonce(chance)
    writer.write(magic + ours)
    said = await reader.readexactly(NONCE_BYTES + PROOF_BYTES)
    theirs, given = said[:NONCE_BYTES], said[NONCE_BYTES:]
    if not hmac.compare_digest(given, _proof(secret, _CLIENT, ours, theirs)):
        raise Stranger("it does not know the secret")
    writer.write(_proof(secret, _SERVER, ours, theirs))


def _nonce(chance: Chance) -> bytes:
    """Bytes that were never used before."""
    return chance.uuid().bytes + chance.uuid().bytes


def _proof(secret: bytes, role: bytes, server_nonce: bytes, client_nonce: bytes) -> bytes:
    """What only somebody who knows the secret can say, and nobody can say again later."""
    return hmac.digest(secret, role + server_nonce + client_nonce, hashlib.sha256)
