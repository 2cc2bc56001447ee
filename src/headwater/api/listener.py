"""A process's HTTP listener: where its settings say, with the certificates that they name."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from headwater.broker.tls import Certificates, principal_of
from headwater.config import Settings, parse_address
from headwater.errors import ConfigError
from headwater.ops.http import HttpServer, Route


class HttpListener:
    """Serves routes until it is closed. With a secret it answers a supervisor only."""

    def __init__(self, settings: Settings, routes: Mapping[str, Route], secret: str = "") -> None:
        self._settings = settings
        self._server = HttpServer(routes, secret=secret, identify=self._principal)
        self._watching: asyncio.Task[None] | None = None
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
            self._watching = asyncio.create_task(
                certificates.watch(security.reload_ms / 1000), name="http certificates"
            )

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await self._server.close()

    def _principal(self, certificate: dict[str, Any]) -> str:
        return principal_of(certificate, self._settings.security.http.principal_rules)
