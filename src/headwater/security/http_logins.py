"""Log-ins over HTTP, with the users, tokens and log-in limits of Kafka's listeners.

A password (Basic) is checked against the salted keys of SASL, a token (Bearer) as with OAUTHBEARER. An unknown user and
a wrong password get the same answer, a fixed time after the request, and count against the address of the caller.

Every request carries the password, so one that was right is remembered (`RightPasswords`).

Clients that send a password once get a token for it (`grant`); see `LoginTokens`.
"""

from __future__ import annotations

import asyncio
import binascii
import logging
from base64 import b64decode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from headwater.errors import NotAuthenticated, TooOften
from headwater.security.login_tokens import MARK, LoginTokens
from headwater.security.logins import MAX_PLAIN_CHARACTERS, TOO_MANY, Logins
from headwater.security.tokens import TokenRefused
from headwater.settings.settings import Security
from headwater.state.cluster.access import ANONYMOUS

log = logging.getLogger("headwater.gate")
NOT_KNOWN = "the caller is not authenticated"
NOT_CHECKED = (
    "this server checks no credentials over HTTP, and the request has some: leave them out, or have "
    "security.http.authentication set"
)
_USER = "User:"
_CHALLENGES = {"basic": 'Basic realm="headwater", charset="UTF-8"', "bearer": 'Bearer realm="headwater"'}


@dataclass(frozen=True, slots=True)
class _LoggedIn:
    """A user who has logged in."""

    name: str
    expires_ms: int | None = None
    """When the credentials end; None for a password."""
    until_ms: int | None = None
    """Up to when they are accepted: the clock of another issuer may differ."""


class HttpLogins:
    """Tells who the callers are."""

    def __init__(self, security: Security, logins: Logins) -> None:
        self._logins = logins
        self._delay = security.failed_login_delay_ms / 1000
        wanted = security.http.authentication
        self._skew_ms = security.oauth.clock_skew_ms
        self._required = wanted != "none"
        self._rules = security.acls
        self._schemes: dict[str, Callable[[str], Awaitable[_LoggedIn]]] = {}
        self._given: LoginTokens | None = None
        if wanted in ("basic", "any"):
            self._schemes["basic"] = self._basic
            self._given = LoginTokens(security, logins)
        if wanted in ("bearer", "any") and security.oauth.configured:
            self._schemes["bearer"] = self._bearer

    def __repr__(self) -> str:
        return f"<HttpLogins, {self.schemes or 'open'}>"

    @property
    def schemes(self) -> str:
        """The accepted schemes; empty if callers need none."""
        return "/".join(self._schemes)

    async def who(self, host: str, authorization: str, certified: str) -> str:
        """The principal of a caller; see `who_until`."""
        return (await self.who_until(host, authorization, certified))[0]

    async def who_until(self, host: str, authorization: str, certified: str) -> tuple[str, int | None]:
        """The principal of a caller, and the time from which on it is not known any more; None if there is none.

        Credentials in the request take precedence over the certificate. Where rules hold and nothing checks
        credentials, a request with some is refused: its caller would be taken for another one without a word.
        """
        if self._required and authorization:
            found = await self._log_in(host, authorization)
            return _USER + found.name, found.until_ms
        if authorization and self._rules:
            raise NotAuthenticated(NOT_CHECKED)
        if certified:
            return certified, None
        if self._required:
            raise NotAuthenticated(NOT_KNOWN, self._challenges())
        return ANONYMOUS, None

    @property
    def takes_passwords(self) -> bool:
        """Whether callers may log in by password, and so get tokens for it."""
        return self._given is not None

    async def grant(self, host: str, authorization: str) -> tuple[str, int]:
        """Log in, by password or by an earlier token. Returns a token, and the seconds that it lasts.

        A token that is given for a token ends no later than that one.
        """
        assert self._given is not None
        found = await self._log_in(host, authorization)
        try:
            seconds = self._given.left(found.expires_ms)
            return self._given.give(found.name, seconds), seconds
        except TokenRefused:  # the token ends now, or is of a user without a password
            raise NotAuthenticated(NOT_KNOWN, self._challenges()) from None

    def _challenges(self) -> str:
        """The accepted schemes, in one header, so that a proxy does not drop some of them."""
        return ", ".join(_CHALLENGES[scheme] for scheme in self._schemes)

    async def _log_in(self, host: str, authorization: str) -> _LoggedIn:
        began = self._logins.clock.monotonic()
        limiter, scheme = self._logins.limiter, authorization.partition(" ")[0].lower()
        try:
            if not limiter.take(host):
                raise TooOften(TOO_MANY)
            found = await self._judge(authorization)
        except (NotAuthenticated, TokenRefused, TooOften) as error:
            self._logins.refused += 1
            extra = {"address": host, "scheme": scheme[:20], "reason": str(error)}
            log.warning("a log-in over HTTP failed", extra=extra)
            await asyncio.sleep(max(0.0, began + self._delay - self._logins.clock.monotonic()))
            if isinstance(error, TooOften):
                raise
            raise NotAuthenticated(NOT_KNOWN, self._challenges()) from None
        limiter.give_back(host)
        self._logins.granted += 1
        return found

    async def _judge(self, authorization: str) -> _LoggedIn:
        scheme, _, given = authorization.partition(" ")
        scheme, given = scheme.lower(), given.strip()
        if scheme == "bearer" and given.startswith(MARK) and self._given is not None:
            token = self._given.check(given)
            return _LoggedIn(token.name, token.expires_ms, token.expires_ms)
        judge = self._schemes.get(scheme)
        if judge is None:
            raise NotAuthenticated("this authentication scheme is not accepted here")
        return await judge(given)

    async def _basic(self, given: str) -> _LoggedIn:
        """A user's name and password (RFC 7617)."""
        try:
            name, colon, password = b64decode(given, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            raise NotAuthenticated("a malformed name and password") from None
        if not colon or not name or not password or max(len(name), len(password)) > MAX_PLAIN_CHARACTERS:
            raise NotAuthenticated("a malformed name and password")
        if not self._logins.right.has(name, password) and not await self._logins.check_password(name, password):
            raise NotAuthenticated("an unknown user or a wrong password")
        return _LoggedIn(name)

    async def _bearer(self, given: str) -> _LoggedIn:
        """A token (RFC 6750)."""
        token = await self._logins.tokens.check(given)
        return _LoggedIn(token.name, token.expires_ms, token.expires_ms + self._skew_ms)
