"""OAUTHBEARER's tokens: JSON web tokens, checked against the keys of their issuer. No token is ever logged."""

from __future__ import annotations

import asyncio
import binascii
import logging
import urllib.error
import urllib.parse
import urllib.request
from base64 import urlsafe_b64decode
from pathlib import Path
from typing import Any

import msgspec

from headwater.clock import Clock
from headwater.errors import BadInput, ConfigError
from headwater.settings.addresses import is_loopback
from headwater.settings.settings import Oauth

log = logging.getLogger("headwater.tokens")
MAX_KEYS_BYTES = 1 << 20
MAX_KEYS = 1_000
MAX_NAME = 1_024
FETCH_SECONDS = 10.0
SOONEST_SECONDS = 10.0
"""The shortest time between two reads of the keys."""
MIN_RSA_BITS = 2048
_COORDINATE_BYTES = 32


class TokenRefused(BadInput):
    """A token is malformed, expired, for another audience, or not signed by a known key."""


class Token(msgspec.Struct, frozen=True):
    """The content of a valid token."""

    name: str
    expires_ms: int


class Tokens:
    """Checks tokens."""

    def __init__(self, oauth: Oauth, clock: Clock) -> None:
        check_location(oauth.jwks)
        self._oauth = oauth
        self._clock = clock
        self._keys: dict[str, Any] = {}
        self._read_at: float | None = None
        self._reading = asyncio.Lock()
        self._audiences = {one.strip() for one in oauth.audience.split(",") if one.strip()}

    def __repr__(self) -> str:
        return f"<Tokens of {self._oauth.issuer}, {len(self._keys)} keys>"

    async def check(self, text: str) -> Token:
        """Check a token. Raises `TokenRefused`."""
        try:
            head, body, signature = text.split(".")
            header, claims = _json(head), _json(body)
            shown = _bytes(signature)
        except ValueError:
            raise TokenRefused("the token does not have three readable parts") from None
        algorithm = header.get("alg")
        if algorithm not in ("RS256", "ES256"):
            raise TokenRefused("the token is not signed with RS256 or ES256")
        key = await self._key(str(header.get("kid", "")))
        if key is None or not _signed(key, algorithm, shown, f"{head}.{body}".encode()):
            raise TokenRefused("the token is not signed by a known key")
        return self._claims(claims)

    def _claims(self, claims: dict[str, Any]) -> Token:
        now, skew = self._clock.wall_ms(), self._oauth.clock_skew_ms
        expires = _time(claims, "exp")
        if expires is None or expires + skew <= now:
            raise TokenRefused("the token has expired")
        for name in ("nbf", "iat"):
            begins = _time(claims, name)
            if begins is not None and begins - skew > now:
                raise TokenRefused("the token is not valid yet")
        if claims.get("iss") != self._oauth.issuer:
            raise TokenRefused("the token comes from another issuer")
        audience = claims.get("aud")
        meant = {audience} if isinstance(audience, str) else {a for a in audience or () if isinstance(a, str)}
        if not meant & self._audiences:
            raise TokenRefused("the token is for another audience")
        who = claims.get(self._oauth.principal_claim)
        if not isinstance(who, str) or not 0 < len(who) <= MAX_NAME:
            raise TokenRefused(f"the token has no {self._oauth.principal_claim!r}")
        return Token(who, expires)

    # --- keys ------------------------------------------------------------------------------------------

    async def _key(self, name: str) -> Any:
        """The key with a name; if the name is empty, the only key. `None` if there is no such key."""
        async with self._reading:
            age = None if self._read_at is None else self._clock.monotonic() - self._read_at
            old = age is None or age * 1000 > self._oauth.refresh_ms
            if old or (age is not None and age > SOONEST_SECONDS and self._find(name) is None):
                await self._read()
            return self._find(name)

    def _find(self, name: str) -> Any:
        if not name and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(name)

    async def _read(self) -> None:
        """Read the keys again. If that fails, the known keys stay."""
        self._read_at = self._clock.monotonic()
        try:
            self._keys = _parsed(await asyncio.to_thread(_load, self._oauth.jwks))
        except (OSError, ValueError, BadInput) as error:
            log.error("cannot read the keys of tokens", extra={"reason": str(error), "from": self._oauth.jwks})


def check_location(location: str) -> None:
    """Check that the keys come from a file, or over a connection on which they cannot be changed."""
    address = urllib.parse.urlsplit(location)
    if address.scheme == "http" and not is_loopback(address.hostname or ""):
        raise ConfigError("settings: security.oauth.jwks must be a file, https, or http on loopback")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _load(location: str) -> bytes:
    """The document of keys."""
    check_location(location)
    if not location.startswith(("http://", "https://")):
        path = Path(location.removeprefix("file://"))
        if path.stat().st_size > MAX_KEYS_BYTES:
            raise ValueError("the document of keys is too large")
        return path.read_bytes()
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
    if location.startswith("http://"):
        handlers.append(urllib.request.ProxyHandler({}))
    with urllib.request.build_opener(*handlers).open(location, timeout=FETCH_SECONDS) as answer:
        data: bytes = answer.read(MAX_KEYS_BYTES + 1)
    if len(data) > MAX_KEYS_BYTES:
        raise ValueError("the document of keys is too large")
    return data


def _parsed(document: bytes) -> dict[str, Any]:
    """Public keys by name. Keys that are not for signatures, or not supported, are skipped."""
    rows = msgspec.json.decode(document, type=dict[str, Any]).get("keys")
    if not isinstance(rows, list) or len(rows) > MAX_KEYS:
        raise ValueError("the document has no list of keys")
    keys: dict[str, Any] = {}
    for row in rows:
        if isinstance(row, dict) and row.get("use", "sig") == "sig":
            try:
                key = _public_key(row)
            except (KeyError, TypeError, ValueError):
                continue
            if key is not None:
                keys[str(row.get("kid", ""))] = key
    return keys


def _public_key(row: dict[str, Any]) -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if row.get("kty") == "RSA" and row.get("alg", "RS256") == "RS256":
        modulus, exponent = _number(row["n"]), _number(row["e"])
        if modulus.bit_length() < MIN_RSA_BITS:
            return None
        return rsa.RSAPublicNumbers(exponent, modulus).public_key()
    if row.get("kty") == "EC" and row.get("crv") == "P-256" and row.get("alg", "ES256") == "ES256":
        return ec.EllipticCurvePublicNumbers(_number(row["x"]), _number(row["y"]), ec.SECP256R1()).public_key()
    return None


def _signed(key: Any, algorithm: str, signature: bytes, data: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA256

    try:
        if algorithm == "RS256" and isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, data, padding.PKCS1v15(), SHA256())
            return True
        if algorithm == "ES256" and isinstance(key, ec.EllipticCurvePublicKey):
            if len(signature) != 2 * _COORDINATE_BYTES:
                return False
            first, second = signature[:_COORDINATE_BYTES], signature[_COORDINATE_BYTES:]
            pair = encode_dss_signature(int.from_bytes(first), int.from_bytes(second))
            key.verify(pair, data, ec.ECDSA(SHA256()))
            return True
    except InvalidSignature:
        return False
    return False


def _bytes(text: str) -> bytes:
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raise ValueError("not base64") from None


def _number(text: str) -> int:
    return int.from_bytes(_bytes(text))


def _json(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(_bytes(text), type=dict[str, Any])
    except msgspec.MsgspecError:
        raise ValueError("not JSON") from None


def _time(claims: dict[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1 << 40:
        raise TokenRefused(f"the token's {name!r} is not a time")
    return int(value * 1000)
