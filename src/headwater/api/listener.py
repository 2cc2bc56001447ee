"""The HTTP listener of a process, with the address and certificates of its settings."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from headwater.background import Background, Supervised
from headwater.errors import ConfigError
from headwater.ops.http import HttpServer, Route
from headwater.security.tls import CERTIFICATES, Certificates, principal_of
from headwater.settings.settings import Settings, parse_address


class HttpListener:
    """Serves routes until it is closed. With a secret it answers only the supervisor."""

    def __init__(
        self,
        settings: Settings,
        routes: Mapping[str, Route],
        secret: str = "",
        background: Background | None = None,
        refused: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._background = background or Background()
        self._settings = settings
        self._server = HttpServer(
            routes,
            secret=secret,
            identify=self._principal,
            connections=settings.limits.http_connections,
            refused=refused,
        )
        self._watching: Supervised | None = None
        self.host = ""
        self.port = 0

    def __repr__(self) -> str:
        return f"<HttpListener on {self.host}:{self.port}>"

    async def open(self) -> None:
        """Listen, unless the settings name no address."""
        if not self._settings.http:
            return
        self.host, port = parse_address(self._settings.http)
        security = self._settings.security
        certificates = Certificates("http", security.http) if security.http.certificate else None
        try:
            self.port = await self._server.listen(self.host, port, certificates.context if certificates else None)
        except OSError as error:
            raise ConfigError(f"cannot listen on {self.host}:{port}: {error.strerror or error}") from error
        if certificates is not None:
            watch = functools.partial(certificates.watch, security.reload_ms / 1000)
            self._watching = self._background.run(CERTIFICATES, watch, "http")

    async def close(self) -> None:
        if self._watching is not None:
            await self._watching.stop()
        await self._server.close()

    def _principal(self, certificate: dict[str, Any]) -> str:
        return principal_of(certificate, self._settings.security.http.principal_rules)
