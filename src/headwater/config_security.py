"""The settings of security: listeners, users, tokens, the HTTP pages. `config` reads them; see there."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headwater.errors import ConfigError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
CLIENT_AUTH = ("none", "requested", "required")
AUTHENTICATION = ("none", "basic", "bearer", "any")


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of the sections here."""


class Tls(_Section, frozen=True):
    """The certificates of a server."""

    certificate: str = ""
    """The server's certificate and those above it, PEM."""
    key: str = ""
    key_password_file: str = ""
    client_ca: str = ""
    """Who signs clients' certificates, PEM."""
    client_auth: str = "none"
    """Whether clients show certificates: none, requested or required."""
    principal_rules: tuple[str, ...] = ()
    """How a certificate's subject becomes a name, as in Kafka's `ssl.principal.mapping.rules`."""


class ListenerSecurity(Tls, frozen=True):
    """How one listener is protected."""

    protocol: str = ""
    """One of `PROTOCOLS`; by default the listener's name if that is one of them, else PLAINTEXT."""
    mechanisms: str = "SCRAM-SHA-256,SCRAM-SHA-512"
    """How clients of a SASL listener may log in, comma separated; see `MECHANISMS`."""


class HttpSecurity(Tls, frozen=True):
    """How the HTTP pages are protected. They speak TLS if there is a certificate."""

    authentication: str = "none"
    """How those who ask show who they are, see `AUTHENTICATION`: a user's password, a token, either, or not at all."""

    @property
    def knows_who_asks(self) -> bool:
        """Whether nobody is served unknown."""
        return self.authentication != "none" or self.client_auth == "required"


class Oauth(_Section, frozen=True):
    """Whose tokens are believed."""

    jwks: str = ""
    """The keys of whoever signs tokens: a file, or an `https:` or loopback `http:` address."""
    issuer: str = ""
    audience: str = ""
    principal_claim: str = "sub"
    clock_skew_ms: int = 30_000
    refresh_ms: int = 3_600_000
    """How old keys may be before they are read again; a token with an unknown key brings that forward."""

    @property
    def configured(self) -> bool:
        """Whether it is said whose tokens are believed."""
        return bool(self.jwks and self.issuer and self.audience)


class Security(_Section, frozen=True):
    """Who may connect, and who may do what."""

    acls: bool = False
    """Whether rules count. Without them everybody who is let in may do everything."""
    allow_without_acls: bool = False
    """Whether everybody may do everything to things that no rule is about."""
    super_users: str = ""
    """Principals that no rule binds, separated by semicolons: `User:admin;User:CN=ops`."""
    insecure: bool = False
    """Whether listeners beyond loopback may do without authentication."""
    login_ms: int = 10_000
    """How long a client may take to log in."""
    login_frame_bytes: int = 128 * 1024
    """The largest frame of a client that has not logged in."""
    failed_login_delay_ms: int = 100
    failed_logins_per_minute: int = 60
    """More than so many from one address, and nobody there is let in for a while."""
    session_ms: int = 0
    """How long a log-in holds before it has to be renewed; 0 for ever."""
    reload_ms: int = 2_000
    """How often certificates are looked at for changes."""
    listeners: dict[str, ListenerSecurity] = {}
    """By the listeners' names."""
    http: HttpSecurity = HttpSecurity()
    oauth: Oauth = Oauth()

    def listener(self, name: str) -> ListenerSecurity:
        """A listener's section, with its protocol filled in. Names in the environment have lost their case."""
        found = next((s for n, s in self.listeners.items() if n.upper() == name.upper()), ListenerSecurity())
        if found.protocol:
            return found
        return msgspec.structs.replace(found, protocol=name.upper() if name.upper() in PROTOCOLS else "PLAINTEXT")


def check_security(security: Security, listeners: Iterable[str]) -> None:
    """Refuse what cannot be, for the listeners that there are."""
    for name in ("login_ms", "login_frame_bytes", "failed_logins_per_minute", "reload_ms"):
        if getattr(security, name) <= 0:
            raise ConfigError(f"settings: security.{name} must be above 0")
    if min(security.failed_login_delay_ms, security.session_ms, security.oauth.clock_skew_ms) < 0:
        raise ConfigError("settings: times of security must not be negative")
    unknown = [name for name in security.super_users.split(";") if name.strip() and ":" not in name]
    if unknown:
        raise ConfigError(f"settings: the super user {unknown[0]!r} must be written as `User:name`")
    for name in listeners:
        _check_listener(name, security)
    _check_http(security)


def _check_http(security: Security) -> None:
    own, oauth = security.http, security.oauth
    if own.authentication not in AUTHENTICATION:
        raise ConfigError(f"settings: security.http.authentication is one of {AUTHENTICATION}")
    if own.authentication == "bearer" and not oauth.configured:
        raise ConfigError("settings: tokens over HTTP need security.oauth.jwks, .issuer and .audience")
    if bool(own.certificate) != bool(own.key):
        raise ConfigError("settings: security.http needs a certificate and its key, or neither")
    if own.client_auth not in CLIENT_AUTH:
        raise ConfigError(f"settings: security.http.client_auth is one of {CLIENT_AUTH}")
    if own.client_auth != "none" and not (own.certificate and own.client_ca):
        raise ConfigError(
            "settings: security.http asks for clients' certificates and needs client_ca and a certificate"
        )


def _check_listener(name: str, security: Security) -> None:
    own = security.listener(name)
    if own.protocol not in PROTOCOLS:
        raise ConfigError(f"settings: listener {name} has the protocol {own.protocol!r}; known are {PROTOCOLS}")
    if own.client_auth not in CLIENT_AUTH:
        raise ConfigError(f"settings: listener {name} has client_auth {own.client_auth!r}; known are {CLIENT_AUTH}")
    if own.protocol.endswith("SSL") and not (own.certificate and own.key):
        raise ConfigError(f"settings: listener {name} speaks TLS and needs a certificate and a key")
    if own.client_auth != "none" and not own.client_ca:
        raise ConfigError(f"settings: listener {name} asks for clients' certificates and needs client_ca")
    if not own.protocol.startswith("SASL"):
        return
    mechanisms = [mechanism.strip() for mechanism in own.mechanisms.split(",")]
    if not mechanisms or set(mechanisms) - set(MECHANISMS):
        raise ConfigError(f"settings: listener {name} has the mechanisms {own.mechanisms!r}; known are {MECHANISMS}")
    oauth = security.oauth
    if "OAUTHBEARER" in mechanisms and not oauth.configured:
        raise ConfigError("settings: OAUTHBEARER needs security.oauth.jwks, .issuer and .audience")
