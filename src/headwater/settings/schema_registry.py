"""Settings of an external schema registry: the section `[schema_registry]`."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from headwater.errors import ConfigError


class SchemaRegistry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The schema registry that compactors and gateways ask for the schemas of records.

    By default it is that of this cluster.
    """

    url: str = ""
    """URL of a registry with Confluent's API, `http://…` or `https://…`. Empty: the registry of this cluster."""
    user: str = ""
    """User of the registry, for HTTP's basic authentication."""
    password_file: str = ""
    """File with the user's password."""
    password_env: str = ""
    """Variable of the environment with the user's password, instead of a file."""
    token_file: str = ""
    """File with a bearer token, instead of a user. It is read again for every request."""
    token_env: str = ""
    """Variable of the environment with a bearer token."""
    ca: str = ""
    """File with the issuers of the registry's certificate, in PEM. Empty: those that the machine trusts."""
    certificate: str = ""
    """File with a client certificate, in PEM."""
    key: str = ""
    """File with the key of the client certificate."""
    timeout_ms: int = 5_000
    """How long the registry may take for one answer. SQL and scans wait for two seconds at most."""
    retries: int = 2
    """How often a request that failed is repeated. Then records settle without typed values and are decoded later.

    SQL and scans repeat nothing.
    """
    answer_bytes: int = 4 << 20
    """Largest answer. A larger schema cannot be used."""


def check_schema_registry(own: SchemaRegistry) -> None:
    """Raise `ConfigError` for values that cannot work."""
    try:
        parts = urlsplit(own.url)
        sound = not own.url or (parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0)
    except ValueError:
        sound = False
    if not sound or (own.url and ("@" in parts.netloc or parts.query or parts.fragment)):
        raise ConfigError(
            "settings: schema_registry.url must be http://HOST[:PORT][/PATH] or https://…, without a user in it"
        )
    secrets = [name for name in ("password_file", "password_env", "token_file", "token_env") if getattr(own, name)]
    if len(secrets) > 1:
        raise ConfigError(f"settings: schema_registry has {secrets[0]} and {secrets[1]}: give one of them")
    if bool(own.user) != any(name.startswith("password") for name in secrets):
        raise ConfigError("settings: schema_registry.user needs password_file or password_env, and they need a user")
    if bool(own.certificate) != bool(own.key):
        raise ConfigError("settings: schema_registry.certificate needs key, and key needs certificate")
    if own.timeout_ms <= 0 or own.answer_bytes <= 0 or own.retries < 0:
        raise ConfigError("settings: schema_registry: timeout_ms and answer_bytes must be above 0, retries not below 0")
