"""The check that nothing listens beyond loopback without authentication, unless the settings allow it."""

from __future__ import annotations

import logging

from headwater.errors import ConfigError
from headwater.settings.addresses import is_loopback
from headwater.settings.settings import INTERNAL, Settings, parse_address, parse_listeners

log = logging.getLogger("headwater.exposure")


def check_exposure(settings: Settings, *, kafka: bool = True, gateway: bool = False) -> None:
    """Raise if a listener could be used without authentication. `kafka` and `gateway` say which a process has.

    Rules without authentication over HTTP are allowed, with a warning.
    """
    if settings.security.acls and not settings.security.http.knows_who_asks:
        log.warning(
            "rules hold, and nothing checks credentials over HTTP: callers without a certificate are User:ANONYMOUS, "
            "and requests with a password or a token get 401",
            extra={"setting": "security.http.authentication"},
        )
    if kafka and settings.internal:
        _check_internal(settings)
    if settings.security.insecure:
        return
    advice = "listen on loopback, or start with --insecure (security.insecure) if the network itself is trusted"
    for name, (host, _) in parse_listeners(settings.kafka).items() if kafka else ():
        own = settings.security.listener(name)
        known = own.protocol.startswith("SASL") or (own.protocol == "SSL" and own.client_auth == "required")
        if not known and not is_loopback(host):
            raise ConfigError(
                f"listener {name} on {host} would let anybody in: give it a SASL protocol, or SSL with "
                f"client_auth = required (security.listeners.{name}); or {advice}"
            )
    more = [("gateway", settings.gateway.http), ("Flight SQL server", settings.gateway.flight)] if gateway else []
    for what, address in [("HTTP pages", settings.http), *more]:
        host = parse_address(address)[0] if address else "localhost"
        if not settings.security.http.knows_who_asks and not is_loopback(host):
            raise ConfigError(
                f"the {what} on {host} would be open to anybody: set an authentication "
                f"(security.http.authentication), or client_auth = required; or {advice}"
            )


def _check_internal(settings: Settings) -> None:
    """Check the internal listener. It serves whole objects, so no setting opens it without authentication."""
    host, _ = parse_address(settings.internal)
    own = settings.security.listener(INTERNAL)
    mutual = own.protocol == "SSL" and own.client_auth == "required"
    if not is_loopback(host) and not settings.internal_secret_file and not mutual:
        raise ConfigError(
            f"the internal listener on {host} would let anybody read everything: give it internal_secret_file, or SSL "
            f"with client_auth = required (security.listeners.{INTERNAL}), or listen on loopback"
        )
