"""Authentication and access rules for pages, with the users, tokens, rules and log-in limits of Kafka's listeners.

A password (Basic) is checked against the salted keys of SASL, a token (Bearer) as with OAUTHBEARER. An unknown user and
a wrong password get the same answer, a fixed time after the request, and count against the address of the caller.
"""

from __future__ import annotations

import asyncio
import binascii
import dataclasses
import logging
from base64 import b64decode
from collections.abc import Awaitable, Callable

from headwater.ops.http import Page, Request, Route, problem
from headwater.security.guard import Guard
from headwater.security.logins import MAX_PLAIN_CHARACTERS, TOO_MANY, LoginFailed, Logins
from headwater.security.tokens import TokenRefused
from headwater.settings.settings import Security
from headwater.state.cluster.access import ANONYMOUS, THE_CLUSTER, AclResource, Operation

log = logging.getLogger("headwater.gate")
RETRY_SECONDS = 1
"""When an address that failed too often may try again. It gets a part of its attempts back every second."""
NOT_KNOWN = "the caller is not authenticated"
NOT_ALLOWED = "the caller is not allowed to see this"
Headers = tuple[tuple[str, str], ...]
Refuse = Callable[[int, str, Headers], Page]
_CHALLENGES = {"basic": 'Basic realm="headwater", charset="UTF-8"', "bearer": 'Bearer realm="headwater"'}


class _Unwelcome(Exception):
    """The caller is refused. Used inside this module only."""

    def __init__(self, status: int, title: str, headers: Headers = ()) -> None:
        super().__init__(title)
        self.status = status
        self.title = title
        self.headers = headers


class Gate:
    """Protects pages: it authenticates callers and checks their rights."""

    def __init__(self, security: Security, logins: Logins, guard: Guard) -> None:
        self._logins = logins
        self._guard = guard
        self._delay = security.failed_login_delay_ms / 1000
        wanted = security.http.authentication
        self._required = wanted != "none"
        self._schemes: dict[str, Callable[[str], Awaitable[str]]] = {}
        if wanted in ("basic", "any"):
            self._schemes["basic"] = self._basic
        if wanted in ("bearer", "any") and security.oauth.configured:
            self._schemes["bearer"] = self._bearer

    def __repr__(self) -> str:
        return f"<Gate, {'/'.join(self._schemes) or 'open'}>"

    def known(self, route: Route, refuse: Refuse = problem) -> Route:
        """A route for authenticated callers; its requests have the principal. `refuse` makes the answer to others."""

        async def answer(request: Request) -> Page:
            try:
                principal = await self._who(request)
            except _Unwelcome as unwelcome:
                return refuse(unwelcome.status, unwelcome.title, unwelcome.headers)
            return await route(dataclasses.replace(request, principal=principal))

        return answer

    def describes_cluster(self, route: Route) -> Route:
        """A route for callers who may describe the cluster."""

        async def answer(request: Request) -> Page:
            if not self._guard.may(
                request.principal, request.host, Operation.DESCRIBE, AclResource.CLUSTER, THE_CLUSTER
            ):
                return problem(403, NOT_ALLOWED)
            return await route(request)

        return self.known(answer)

    # --- authentication --------------------------------------------------------------------------------

    async def _who(self, request: Request) -> str:
        """The principal of the caller. Credentials in the request take precedence over the certificate."""
        if self._required and request.authorization:
            return await self._log_in(request)
        if request.certified:
            return request.certified
        if self._required:
            raise _Unwelcome(401, NOT_KNOWN, self._challenges())
        return ANONYMOUS

    def _challenges(self) -> Headers:
        """The accepted schemes, in one header, so that a proxy does not drop some of them."""
        return (("WWW-Authenticate", ", ".join(_CHALLENGES[scheme] for scheme in self._schemes)),)

    async def _log_in(self, request: Request) -> str:
        began = self._logins.clock.monotonic()
        limiter, scheme = self._logins.limiter, request.authorization.partition(" ")[0].lower()
        try:
            if not limiter.take(request.host):
                raise _Unwelcome(429, TOO_MANY, (("Retry-After", str(RETRY_SECONDS)),))
            principal = await self._judge(request)
        except (LoginFailed, TokenRefused, _Unwelcome) as error:
            self._logins.refused += 1
            extra = {"address": request.host, "scheme": scheme[:20], "reason": str(error)}
            log.warning("a log-in over HTTP failed", extra=extra)
            await asyncio.sleep(max(0.0, began + self._delay - self._logins.clock.monotonic()))
            if isinstance(error, _Unwelcome):
                raise
            raise _Unwelcome(401, NOT_KNOWN, self._challenges()) from None
        limiter.give_back(request.host)
        self._logins.granted += 1
        return principal

    async def _judge(self, request: Request) -> str:
        scheme, _, given = request.authorization.partition(" ")
        judge = self._schemes.get(scheme.lower())
        if judge is None:
            raise LoginFailed("this authentication scheme is not accepted here")
        return await judge(given.strip())

    async def _basic(self, given: str) -> str:
        """A user's name and password (RFC 7617)."""
        try:
            name, colon, password = b64decode(given, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            raise LoginFailed("a malformed name and password") from None
        if not colon or not name or not password or max(len(name), len(password)) > MAX_PLAIN_CHARACTERS:
            raise LoginFailed("a malformed name and password")
        if not await self._logins.check_password(name, password):
            raise LoginFailed("an unknown user or a wrong password")
        return f"User:{name}"

    async def _bearer(self, given: str) -> str:
        """A token (RFC 6750)."""
        return f"User:{(await self._logins.tokens.check(given)).name}"
