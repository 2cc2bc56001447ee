"""What brokers say to each other: a proof that both know a secret, then questions for WAL objects by their ids.

Big endian throughout. The broker that is asked speaks first:

    greeting   magic "HWPEER1" and a newline, 32 random bytes
    proof      32 random bytes of who asks, and the HMAC-SHA-256 of "client" and both sides' random bytes
    proof      the HMAC of "server" and the same bytes
    question   domain u32, the writer's epoch u64 and sequence u64
    answer     status u8, length u32, the object's bytes if it is there

Questions and answers follow each other until somebody closes. No path is ever named, so nothing but WAL objects that
the metadata knows can be asked for.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from enum import IntEnum

MAGIC = b"HWPEER1\n"
NONCE_BYTES = 32
PROOF_BYTES = 32
QUESTION = struct.Struct(">IQQ")
ANSWER = struct.Struct(">BI")
CLIENT, SERVER = b"client", b"server"


class Status(IntEnum):
    """How a question was answered."""

    FOUND = 0
    MISSING = 1
    FAILED = 2
    """Ask somebody else, or the store."""


def proof(secret: bytes, role: bytes, server_nonce: bytes, client_nonce: bytes) -> bytes:
    """What only somebody who knows the secret can say, and nobody can say again later."""
    return hmac.digest(secret, role + server_nonce + client_nonce, hashlib.sha256)


def proves(given: bytes, secret: bytes, role: bytes, server_nonce: bytes, client_nonce: bytes) -> bool:
    """Whether the other side knows the secret, too."""
    return hmac.compare_digest(given, proof(secret, role, server_nonce, client_nonce))
