"""Log-ins of drivers: a handshake with a name and a password gives a token, which the later calls carry.

A token is known to the gateway that gave it, and to no other. It ends when the user's password changes, when nobody
used it for an hour, and after `security.session_ms` if that is set.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from headwater.security.http_logins import HttpLogins
from headwater.security.logins import Logins
from headwater.settings.settings import Security
from headwater.state.cluster.access import ANONYMOUS, Keys

IDLE_SECONDS = 3_600.0
"""How long a token is kept without use."""
MAX_SESSIONS = 10_000
"""Tokens that are kept. A new one replaces the one that was not used for longest."""
BEARER = "Bearer "
BASIC = "basic "
_MARK = "headwater-"
"""The beginning of our own tokens. Those of OAuth do not look like this."""
_USER = "User:"


def _padded(authorization: str) -> str:
    """A name and a password with the padding of base64, which Go's drivers leave out."""
    scheme, _, given = authorization.partition(" ")
    return f"{scheme} {given}{'=' * (-len(given) % 4)}" if scheme.lower() == "basic" else authorization


@dataclass(slots=True)
class _Session:
    principal: str
    keys: dict[int, Keys]
    used: float
    until: float | None


class Sessions:
    """Who callers are, by token, password or certificate."""

    def __init__(self, security: Security, logins: Logins) -> None:
        self._logins = logins
        self._checks = HttpLogins(security, logins)
        self._seconds = security.session_ms / 1000
        self._kept: OrderedDict[str, _Session] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Sessions, {len(self._kept)} kept>"

    async def who(self, host: str, authorization: str, certified: str) -> str:
        """The principal of a caller. Raises `NotAuthenticated`."""
        token = authorization.removeprefix(BEARER)
        if token != authorization and token.startswith(_MARK):
            found = self._find(token)
            if found is not None:
                return found.principal
            if not self._checks.schemes:
                authorization = ""  # what `begin` gave to a caller without credentials
        return await self._checks.who(host, _padded(authorization), certified)

    async def begin(self, host: str, authorization: str, certified: str) -> str:
        """What a driver is to send as `authorization` from now on. Raises `NotAuthenticated`."""
        principal = await self.who(host, authorization, certified)
        if authorization and not authorization.lower().startswith(BASIC):
            return authorization  # a token has an end of its own, which a session must not put off
        token = _MARK + self._logins.nonce()
        if principal != ANONYMOUS and authorization:
            now = self._logins.clock.monotonic()
            until = now + self._seconds if self._seconds else None
            name = principal.removeprefix(_USER)
            self._kept[token] = _Session(principal, self._logins.stored(name), now, until)
            while len(self._kept) > MAX_SESSIONS:
                self._kept.popitem(last=False)
        return BEARER + token

    def _find(self, token: str) -> _Session | None:
        found, now = self._kept.get(token), self._logins.clock.monotonic()
        if found is None:
            return None
        keys = self._logins.stored(found.principal.removeprefix(_USER))
        if now - found.used > IDLE_SECONDS or (found.until is not None and now > found.until) or keys != found.keys:
            del self._kept[token]
            return None
        found.used = now
        self._kept.move_to_end(token)
        return found
