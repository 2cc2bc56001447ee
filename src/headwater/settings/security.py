"""Settings of security: listeners, users, tokens, HTTP pages. `headwater.settings.settings` reads them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headwater.errors import ConfigError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
CLIENT_AUTH = ("none", "requested", "required")
AUTHENTICATION = ("none", "basic", "bearer", "any")


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of the sections here. The string below a field is its meaning in `docs/reference/configuration.md`."""


class Tls(_Section, frozen=True):
    """The certificates of a server."""

    certificate: str = ""
    """File with the server's certificate and its issuers, PEM."""
    key: str = ""
    """File with the private key of the certificate, PEM."""
    key_password_file: str = ""
    """File with the password of the key. Empty: the key is not encrypted."""
    client_ca: str = ""
    """File with the issuers of clients' certificates, PEM. Needed unless `client_auth` is `none`."""
    client_auth: str = "none"
    """Whether clients show a certificate: `none`, `requested` or `required`."""
    principal_rules: tuple[str, ...] = ()
    """How the subject of a certificate becomes a user name, as in Kafka's `ssl.principal.mapping.rules`. Empty: the
    subject itself."""


class ListenerSecurity(Tls, frozen=True):
    """How the listener NAME is protected."""

    protocol: str = ""
    """`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`. Empty: the listener's name if it is one of these, else
    `PLAINTEXT`."""
    mechanisms: str = "SCRAM-SHA-256,SCRAM-SHA-512"
    """Comma-separated mechanisms by which clients of a SASL listener log in: `PLAIN`, `SCRAM-SHA-256`,
    `SCRAM-SHA-512`, `OAUTHBEARER`."""


class HttpSecurity(Tls, frozen=True):
    """How the HTTP pages and the gateway are protected. They use TLS if there is a certificate."""

    authentication: str = "none"
    """How clients log in: `none`, `basic` (name and password of a user), `bearer` (a token) or `any` (either)."""

    @property
    def knows_who_asks(self) -> bool:
        """Whether every client must authenticate."""
        return self.authentication != "none" or self.client_auth == "required"


class Oauth(_Section, frozen=True):
    """Which tokens are accepted."""

    jwks: str = ""
    """Keys of the issuer of tokens (a JSON web key set): a file, or an `https:` or loopback `http:` address."""
    issuer: str = ""
    """Issuer (`iss`) that a token must have."""
    audience: str = ""
    """Comma-separated audiences. A token must have one of them (`aud`)."""
    principal_claim: str = "sub"
    """Claim of a token that holds the user name."""
    clock_skew_ms: int = 30_000
    """Tolerance when the times of a token are checked."""
    refresh_ms: int = 3_600_000
    """Age after which the keys are read again. A token with an unknown key causes that sooner."""

    @property
    def configured(self) -> bool:
        """Whether keys, issuer and audience are set."""
        return bool(self.jwks and self.issuer and self.audience)


class Security(_Section, frozen=True):
    """Who may connect, and what users may do."""

    acls: bool = False
    """Whether access rules are enforced. Without them every user may do everything."""
    allow_without_acls: bool = False
    """Whether everything is allowed on a resource that no rule names."""
    super_users: str = ""
    """Principals that no rule applies to, separated by semicolons: `User:admin;User:CN=ops`."""
    insecure: bool = False
    """Whether Kafka listeners, HTTP pages and gateways beyond loopback may do without authentication. Otherwise the
    process refuses to start."""
    login_ms: int = 10_000
    """Time limit for a log-in, and for a TLS handshake. After that the broker closes the connection."""
    login_frame_bytes: int = 128 * 1024
    """Largest request in bytes of a client that has not logged in. The broker closes a connection with a larger one."""
    failed_login_delay_ms: int = 100
    """Time after which a failed log-in is answered, whatever its reason."""
    failed_logins_per_minute: int = 60
    """Failed log-ins per address and minute. Above this all log-ins from the address are refused until a part of a
    minute has passed. Every broker counts for itself."""
    session_ms: int = 0
    """How long a log-in lasts. The client must renew it by then, or the broker closes the connection. 0 means no
    limit."""
    reload_ms: int = 2_000
    """How often the files of certificates are checked for changes."""
    listeners: dict[str, ListenerSecurity] = {}
    """Sections of the listeners, by name."""
    http: HttpSecurity = HttpSecurity()
    oauth: Oauth = Oauth()

    def listener(self, name: str) -> ListenerSecurity:
        """A listener's section with its protocol filled in. Case is ignored: names in the environment have lost it."""
        found = next((s for n, s in self.listeners.items() if n.upper() == name.upper()), ListenerSecurity())
        if found.protocol:
            return found
        return msgspec.structs.replace(found, protocol=name.upper() if name.upper() in PROTOCOLS else "PLAINTEXT")


def check_security(security: Security, listeners: Iterable[str]) -> None:
    """Raise `ConfigError` for values that cannot work with these listeners."""
    for name in ("login_ms", "login_frame_bytes", "failed_logins_per_minute", "reload_ms"):
        if getattr(security, name) <= 0:
            raise ConfigError(f"settings: security.{name} must be above 0")
    if min(security.failed_login_delay_ms, security.session_ms, security.oauth.clock_skew_ms) < 0:
        raise ConfigError(
            "settings: security.failed_login_delay_ms, session_ms and oauth.clock_skew_ms must not be negative"
        )
    unknown = [name for name in security.super_users.split(";") if name.strip() and ":" not in name]
    if unknown:
        raise ConfigError(f"settings: security.super_users: {unknown[0]!r} must have the form User:NAME")
    for name in listeners:
        _check_listener(name, security)
    _check_http(security)


def _check_http(security: Security) -> None:
    own, oauth = security.http, security.oauth
    if own.authentication not in AUTHENTICATION:
        raise ConfigError(f"settings: security.http.authentication must be one of {AUTHENTICATION}")
    if own.authentication == "bearer" and not oauth.configured:
        raise ConfigError(
            "settings: security.http.authentication = bearer needs security.oauth.jwks, .issuer and .audience"
        )
    if bool(own.certificate) != bool(own.key):
        raise ConfigError("settings: security.http.certificate and security.http.key must both be set, or neither")
    if own.client_auth not in CLIENT_AUTH:
        raise ConfigError(f"settings: security.http.client_auth must be one of {CLIENT_AUTH}")
    if own.client_auth != "none" and not (own.certificate and own.client_ca):
        raise ConfigError(
            f"settings: security.http.client_auth = {own.client_auth} needs client_ca, certificate and key"
        )


def _check_listener(name: str, security: Security) -> None:
    own = security.listener(name)
    if own.protocol not in PROTOCOLS:
        raise ConfigError(
            f"settings: listener {name}: the protocol is {own.protocol!r}, but must be one of {PROTOCOLS}"
        )
    if own.client_auth not in CLIENT_AUTH:
        raise ConfigError(
            f"settings: listener {name}: client_auth is {own.client_auth!r}, but must be one of {CLIENT_AUTH}"
        )
    if own.protocol.endswith("SSL") and not (own.certificate and own.key):
        raise ConfigError(f"settings: listener {name}: {own.protocol} needs a certificate and a key")
    if own.client_auth != "none" and not own.client_ca:
        raise ConfigError(f"settings: listener {name}: client_auth = {own.client_auth} needs client_ca")
    if not own.protocol.startswith("SASL"):
        return
    mechanisms = [mechanism.strip() for mechanism in own.mechanisms.split(",")]
    if not mechanisms or set(mechanisms) - set(MECHANISMS):
        raise ConfigError(
            f"settings: listener {name}: the mechanisms are {own.mechanisms!r}, but known are {MECHANISMS}"
        )
    oauth = security.oauth
    if "OAUTHBEARER" in mechanisms and not oauth.configured:
        raise ConfigError(f"settings: listener {name}: OAUTHBEARER needs security.oauth.jwks, .issuer and .audience")
