"""SCRAM (RFC 5802, RFC 7677) without sockets: keys, and both sides of the exchange."""

from __future__ import annotations

import binascii
import hashlib
import hmac
from base64 import b64decode, b64encode

from headwater.errors import BadInput

MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""The numbers of Kafka's protocol by name."""
NAMES = {number: name for name, number in MECHANISMS.items()}
_HASHES = {1: "sha256", 2: "sha512"}
MAX_ITERATIONS = 1_000_000
"""Limit on the iterations that a client computes for a server."""


class ScramFailed(BadInput):
    """A message of the other side is malformed, or its proof is wrong."""


def salt_password(mechanism: int, password: str, salt: bytes, iterations: int) -> bytes:
    """The salted password. Slow on purpose."""
    return hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)


def derive_keys(mechanism: int, salted_password: bytes) -> tuple[bytes, bytes]:
    """The stored key and the server key: all that a server needs to know."""
    client_key = _sign(mechanism, salted_password, b"Client Key")
    return _digest(mechanism, client_key), _sign(mechanism, salted_password, b"Server Key")


def _sign(mechanism: int, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, _HASHES[mechanism])


def _digest(mechanism: int, data: bytes) -> bytes:
    return hashlib.new(_HASHES[mechanism], data).digest()


def _fields(message: bytes) -> dict[str, str]:
    """The fields of `a=1,b=2`. If a name occurs twice, the first counts."""
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        raise ScramFailed("a SCRAM message is not UTF-8") from None
    found: dict[str, str] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if not equals or len(name) != 1:
            continue
        found.setdefault(name, value)
    return found


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramFailed("a SCRAM message has a field that is not base64") from None


class ServerSide:
    """The server's side of one exchange: `first`, `challenge`, `final`."""

    def __init__(self, mechanism: int, nonce: str) -> None:
        self._mechanism = mechanism
        self._nonce = nonce
        self._header = ""
        self._bare = ""
        self._said = ""

    def first(self, message: bytes) -> str:
        """The user name in the client's first message."""
        try:
            flag, authorized_as, bare = message.decode().split(",", 2)
        except ValueError:
            raise ScramFailed("the first SCRAM message is malformed") from None
        fields = _fields(bare.encode())
        if flag not in ("n", "y") or "m" in fields or not bare.startswith("n=") or not fields.get("r"):
            raise ScramFailed("the first SCRAM message asks for an extension that is not supported")
        name = _unescaped(fields["n"])
        if authorized_as and _unescaped(authorized_as.removeprefix("a=")) != name:
            raise ScramFailed("acting for another user is not supported")
        self._header = f"{flag},{authorized_as},"
        self._bare = bare
        self._nonce = fields["r"] + self._nonce
        return name

    def challenge(self, salt: bytes, iterations: int) -> bytes:
        """The server's first message."""
        self._said = f"r={self._nonce},s={b64encode(salt).decode()},i={iterations}"
        return self._said.encode()

    def final(self, message: bytes, stored_key: bytes, server_key: bytes) -> bytes:
        """The server's last message; raises `ScramFailed` if the client's proof is wrong."""
        bare, comma, proof = message.rpartition(b",p=")
        fields = _fields(bare)
        if not comma or _decoded(fields.get("c", "")) != self._header.encode() or fields.get("r") != self._nonce:
            raise ScramFailed("the last SCRAM message does not belong to the first")
        exchange = f"{self._bare},{self._said},".encode() + bare
        signature = _sign(self._mechanism, stored_key, exchange)
        shown = _decoded(proof.decode("ascii", "replace"))
        if len(shown) != len(signature):
            raise ScramFailed("the proof is wrong")
        client_key = bytes(a ^ b for a, b in zip(shown, signature, strict=True))
        if not hmac.compare_digest(_digest(self._mechanism, client_key), stored_key):
            raise ScramFailed("the proof is wrong")
        return b"v=" + b64encode(_sign(self._mechanism, server_key, exchange))


class ClientSide:
    """The client's side of one exchange: `first`, `final`, `check`."""

    def __init__(self, mechanism: int, user: str, password: str, nonce: str) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._bare = f"n={_escaped(user)},r={nonce}"
        self._expected = b""

    def __repr__(self) -> str:
        return f"<ClientSide of {NAMES[self._mechanism]}>"

    def first(self) -> bytes:
        """The client's first message."""
        return f"n,,{self._bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        """The client's last message, with its proof."""
        fields = _fields(challenge)
        nonce, iterations = fields.get("r", ""), fields.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce or not iterations.isdecimal():
            raise ScramFailed("the server's SCRAM challenge is malformed")
        if not 0 < int(iterations) <= MAX_ITERATIONS:
            raise ScramFailed(f"the server asks for {iterations} iterations")
        salted = salt_password(self._mechanism, self._password, _decoded(fields.get("s", "")), int(iterations))
        stored_key, server_key = derive_keys(self._mechanism, salted)
        bare = f"c=biws,r={nonce}"
        exchange = f"{self._bare},".encode() + challenge + b"," + bare.encode()
        client_key = _sign(self._mechanism, salted, b"Client Key")
        signature = _sign(self._mechanism, stored_key, exchange)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._expected = b"v=" + b64encode(_sign(self._mechanism, server_key, exchange))
        return f"{bare},p=".encode() + b64encode(proof)

    def check(self, last: bytes) -> None:
        """Check the server's last message, which needs the user's keys."""
        if not self._expected or not hmac.compare_digest(last, self._expected):
            raise ScramFailed("the server does not prove that it knows the user's keys")


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    plain = name.replace("=2C", ",").replace("=3D", "=")
    if name.count("=") != name.count("=2C") + name.count("=3D"):
        raise ScramFailed("a user name in a SCRAM message is malformed")
    return plain
