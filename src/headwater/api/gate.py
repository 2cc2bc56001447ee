"""Who asks for a page, and whether they may see it: the users, tokens, rules and brakes that Kafka's listeners have.

A password (Basic) is checked against the same salted keys as SASL's, a token (Bearer) as OAUTHBEARER's. An unknown user
and a wrong password get one answer, a fixed time after the question, and cost the address that they come from.
"""

from __future__ import annotations

import asyncio
import binascii
import dataclasses
import logging
from base64 import b64decode
from collections.abc import Awaitable, Callable

from headwater.broker.guard import Guard
from headwater.broker.logins import MAX_PLAIN_CHARACTERS, TOO_MANY, LoginFailed, Logins
from headwater.broker.tokens import TokenRefused
from headwater.config import Security
from headwater.metadata.access import ANONYMOUS, THE_CLUSTER, Operation, ResourceKind
from headwater.ops.http import Page, Request, Route, problem

log = logging.getLogger("headwater.gate")
RETRY_SECONDS = 1
"""When an address that failed too often may try again; it gets a part of its attempts back every second."""
NOT_KNOWN = "it is not known who asks"
NOT_ALLOWED = "whoever asks may not see this"
Headers = tuple[tuple[str, str], ...]
Refuse = Callable[[int, str, Headers], Page]
_CHALLENGES = {"basic": 'Basic realm="headwater", charset="UTF-8"', "bearer": 'Bearer realm="headwater"'}


class _Unwelcome(Exception):
    """Whoever asks is not let in. Never leaves this module."""

    def __init__(self, status: int, title: str, headers: Headers = ()) -> None:
        super().__init__(title)
        self.status = status
        self.title = title
        self.headers = headers


class Gate:
    """Stands before pages that not everybody may see."""

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
        """A route that is told who asks; how it refuses is the route's own."""

        async def answer(request: Request) -> Page:
            try:
                principal = await self._who(request)
            except _Unwelcome as unwelcome:
                return refuse(unwelcome.status, unwelcome.title, unwelcome.headers)
            return await route(dataclasses.replace(request, principal=principal))

        return answer

    def describes_cluster(self, route: Route) -> Route:
        """A route for those who may describe the cluster."""

        async def answer(request: Request) -> Page:
            if not self._guard.may(
                request.principal, request.host, Operation.DESCRIBE, ResourceKind.CLUSTER, THE_CLUSTER
            ):
                return problem(403, NOT_ALLOWED)
            return await route(request)

        return self.known(answer)

    # --- who it is -------------------------------------------------------------------------------------

    async def _who(self, request: Request) -> str:
        """The principal of whoever asks. What somebody says counts before the certificate of the connection."""
        if self._required and request.authorization:
            return await self._log_in(request)
        if request.certified:
            return request.certified
        if self._required:
            raise _Unwelcome(401, NOT_KNOWN, self._challenges())
        return ANONYMOUS

    def _challenges(self) -> Headers:
        """How somebody may show who it is, in one header, so that whoever passes the answer on keeps all of it."""
        return (("WWW-Authenticate", ", ".join(_CHALLENGES[scheme] for scheme in self._schemes)),)

    async def _log_in(self, request: Request) -> str:
        began = asyncio.get_running_loop().time()
        brake, scheme = self._logins.brake, request.authorization.partition(" ")[0].lower()
        try:
            if not brake.take(request.host):
                raise _Unwelcome(429, TOO_MANY, (("Retry-After", str(RETRY_SECONDS)),))
            principal = await self._judge(request)
        except (LoginFailed, TokenRefused, _Unwelcome) as error:
            self._logins.refused += 1
            extra = {"address": request.host, "scheme": scheme[:20], "reason": str(error)}
            log.warning("a log-in over HTTP failed", extra=extra)
            await asyncio.sleep(max(0.0, began + self._delay - asyncio.get_running_loop().time()))
            if isinstance(error, _Unwelcome):
                raise
            raise _Unwelcome(401, NOT_KNOWN, self._challenges()) from None
        brake.give_back(request.host)
        self._logins.granted += 1
        return principal

    async def _judge(self, request: Request) -> str:
        scheme, _, given = request.authorization.partition(" ")
        judge = self._schemes.get(scheme.lower())
        if judge is None:
            raise LoginFailed("this way to log in is not offered here")
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
