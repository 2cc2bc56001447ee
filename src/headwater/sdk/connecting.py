"""`headwater.connect`: which kind of connection a place needs."""

from __future__ import annotations

from pathlib import Path

from headwater.errors import ConfigError
from headwater.extras import need
from headwater.sdk.connection import Connection
from headwater.sdk.http import Http, Login


def connect(
    where: str,
    *,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    ca: str | None = None,
    timeout: float = 30.0,
) -> Connection:
    """See `headwater.connect`."""
    if not isinstance(where, str | Path) or not str(where):
        raise ConfigError("give the URL of a gateway, a data directory, or a file with settings")
    if timeout <= 0:
        raise ConfigError(f"`timeout` is {timeout}: it must be above 0")
    place, login = str(where), Login(user, password, token, ca)
    if "://" in place:
        from headwater.sdk.remote import RemoteConnection

        return RemoteConnection(Http(place, login, timeout=timeout))
    need("server")
    from headwater.sdk.local import LocalConnection, settings_of

    return LocalConnection(settings_of(Path(place)), login, timeout)
