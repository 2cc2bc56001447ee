"""Authentication and access rules for pages: who the callers are, and what they may see. See `HttpLogins`."""

from __future__ import annotations

import dataclasses

from headwater.errors import NotAuthenticated, TooOften
from headwater.gateway.problems import refusal_of
from headwater.ops.http import Page, Request, Route, problem
from headwater.security.guard import Guard
from headwater.security.http_logins import HttpLogins
from headwater.security.logins import Logins
from headwater.settings.settings import Security
from headwater.state.cluster.access import THE_CLUSTER, AclResource, Operation

NOT_ALLOWED = "the caller is not allowed to see this"


class Gate:
    """Protects pages: it authenticates callers and checks their rights."""

    def __init__(self, security: Security, logins: Logins, guard: Guard) -> None:
        self._logins = HttpLogins(security, logins)
        self._guard = guard

    def __repr__(self) -> str:
        return f"<Gate, {self._logins.schemes or 'open'}>"

    def known(self, route: Route) -> Route:
        """A route for authenticated callers; its requests have the principal."""

        async def answer(request: Request) -> Page:
            try:
                principal = await self._logins.who(request.host, request.authorization, request.certified)
            except (NotAuthenticated, TooOften) as error:
                refusal = refusal_of(error)
                return problem(refusal.kind.status, refusal.detail, refusal.all_headers)
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
