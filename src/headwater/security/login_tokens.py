"""Tokens that a log-in by password gives to HTTP clients that send the password once, and a token from then on.

A token has the user's name and its end, and a code (HMAC) under a key that is derived from the user's salted keys. So
no process has to remember it: every process that knows the ledger can check it, also after a restart. It ends at its
time, and at once when the user's password changes or the user is deleted. A token that is valid can be exchanged for
another one, which ends no later than it does. So only a password makes a log-in last longer.

Whoever can read users' keys in the ledger can make tokens too.
"""

from __future__ import annotations

import binascii
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

from headwater.security.logins import MAX_PLAIN_CHARACTERS, Logins
from headwater.security.tokens import Token, TokenRefused
from headwater.settings.settings import Security

MARK = "headwater-login."
"""The beginning of these tokens. Those of OAuth do not look like this."""
SECONDS = 12 * 3_600
"""How long a token lasts, unless `security.session_ms` says less. Clients that cannot renew theirs while no gateway
answers do not try again, so it is long."""
MAX_CHARACTERS = 16 * MAX_PLAIN_CHARACTERS
_PURPOSE = b"headwater login token"


class _Claims(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a token says. Clients that know web tokens find its end in it (`exp`, in seconds)."""

    sub: str
    exp: int


class LoginTokens:
    """Makes and checks tokens."""

    def __init__(self, security: Security, logins: Logins) -> None:
        self._logins = logins
        self.seconds = min(SECONDS, max(1, security.session_ms // 1000)) if security.session_ms else SECONDS
        """How long a new token lasts."""

    def __repr__(self) -> str:
        return f"<LoginTokens of {self.seconds} s>"

    def left(self, until_ms: int | None) -> int:
        """How many seconds a new token lasts for a log-in that ends at a time (None: that has no end).

        Raises `TokenRefused` if that is over already.
        """
        if until_ms is None:
            return self.seconds
        left = until_ms // 1000 - self._logins.clock.wall_ms() // 1000
        if left <= 0:
            raise TokenRefused("the token has expired")
        return min(self.seconds, left)

    def give(self, name: str, seconds: int) -> str:
        """A new token of a user. Raises `TokenRefused` if the user has no password here."""
        expires = self._logins.clock.wall_ms() // 1000 + seconds
        head = MARK + _text(msgspec.json.encode(_Claims(name, expires)))
        return f"{head}.{_text(self._code(name, head))}"

    def check(self, text: str) -> Token:
        """The user of a token, and its end. Raises `TokenRefused`."""
        head, _, shown = text.rpartition(".")
        if not text.startswith(MARK) or len(text) > MAX_CHARACTERS:
            raise TokenRefused("the token is not one of a log-in")
        try:
            claims = msgspec.json.decode(_bytes(head.removeprefix(MARK)), type=_Claims)
            code = _bytes(shown)
        except (binascii.Error, ValueError):  # msgspec's errors are ValueErrors
            raise TokenRefused("the token of a log-in is malformed") from None
        if not hmac.compare_digest(code, self._code(claims.sub, head)):
            raise TokenRefused("the token is not of this user, or the password has changed")
        if claims.exp * 1000 <= self._logins.clock.wall_ms():
            raise TokenRefused("the token of a log-in has expired")
        return Token(claims.sub, claims.exp * 1000)

    def _code(self, name: str, head: str) -> bytes:
        stored = self._logins.stored(name)
        if not stored:
            raise TokenRefused("the user of the token is not known")
        keys = b"".join(keys.server_key for _, keys in sorted(stored.items()))
        return hmac.digest(hmac.digest(keys, _PURPOSE, "sha256"), head.encode(), "sha256")


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode((text + "=" * (-len(text) % 4)).encode("ascii"))
