"""Who calls: the user of a password or a token, the owner of a client certificate, or an unknown user.

Users, tokens, certificates and the limits of failed log-ins are those of Kafka's listeners; see `HttpLogins`.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.gateway.asgi import OURS, Scope
from headwater.gateway.problems import BAD_REQUEST, PATH, Refusal
from headwater.security.http_logins import HttpLogins
from headwater.security.logins import network_of
from headwater.state.cluster.access import ANONYMOUS

OPEN_PATHS = ("/", "/v1/health", "/openapi.json", "/docs")
"""What every client may see. It must not contain anything about the cluster."""
OPEN_PREFIXES = (PATH, "/docs/")
"""Paths below these are open as well: pages that explain problems, and files of the page of the API."""

TOKENS = "/iceberg/v1/oauth/tokens"
"""Where clients of Iceberg get a token for a name and a password. The call itself looks at both."""
MAX_FORM_BYTES = 64 * 1024
"""The largest form with a name and a password, or a token."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The principal of a caller and its address."""

    principal: str
    host: str
    until_ms: int | None = None
    """From when on it may do nothing more, because its token has expired; None if it has none."""

    @property
    def account(self) -> str:
        """What rates and streams are counted by: the user, or the address of an unknown one."""
        return self.principal if self.principal != ANONYMOUS else network_of(self.host)


class Callers:
    """Tells who calls."""

    def __init__(self, logins: HttpLogins) -> None:
        self._logins = logins

    def __repr__(self) -> str:
        return f"<Callers by {self._logins!r}>"

    async def who(self, scope: Scope) -> Caller:
        """The caller of a request. Raises `NotAuthenticated` if the caller must authenticate and has not."""
        client = scope.get("client")
        host = str(client[0]) if client else ""
        if is_open(scope["path"]) or scope["path"] == TOKENS:
            return Caller(ANONYMOUS, host)
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) > 1:
            raise Refusal(BAD_REQUEST, "the request has two Authorization headers")
        authorization = given[0].decode("latin-1") if given else ""
        certified = scope.get("extensions", {}).get(OURS, {}).get("certified", "")
        principal, until_ms = await self._logins.who_until(host, authorization, certified)
        return Caller(principal, host, until_ms)


def is_open(path: str) -> bool:
    """Whether every client may see a path."""
    return path in OPEN_PATHS or path.startswith(OPEN_PREFIXES)
