"""How a client connects, told by references: secrets are in files or in the environment, never in the text.

The names are librdkafka's. A secret has two names of its own instead: `sasl.password.file` names a file that contains
it, `sasl.password.env` a variable of the environment. So a description of a connection can be stored and shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from headwater.client.security import ClientSecurity, from_properties, read_secret
from headwater.errors import ConfigError

PLAIN = (
    "security.protocol", "sasl.mechanism", "sasl.username", "ssl.ca.location", "ssl.certificate.location",
    "ssl.key.location",
)  # fmt: skip
"""Properties that are stored as they are."""
SECRETS = ("sasl.password", "sasl.oauthbearer.token", "ssl.key.password")
"""Properties that are stored as references."""
NAMES = (*PLAIN, *(f"{name}.{by}" for name in SECRETS for by in ("file", "env")))
"""All properties of a description."""
MAX_VALUE = 1_024
"""Longest value of a property, in characters."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_references(given: Mapping[str, str]) -> None:
    """Raise `ConfigError` unless a description has known names, and no secret in it. Nothing is read.

    The values of a refused property are not repeated: they may be secrets.
    """
    for name, value in given.items():
        if name in SECRETS:
            raise ConfigError(f"{name} is a secret, which is not stored: give {name}.file or {name}.env")
        if name not in NAMES:
            raise ConfigError(f"{name!r} is none of {', '.join(NAMES)}")
        if not 0 < len(value) <= MAX_VALUE:
            raise ConfigError(f"{name} must have 1 to {MAX_VALUE} characters")
        if name.endswith(".env") and not _VARIABLE.fullmatch(value):
            raise ConfigError(f"{name} does not name a variable of the environment")
    for name in SECRETS:
        if f"{name}.file" in given and f"{name}.env" in given:
            raise ConfigError(f"{name} comes from a file or from the environment, not from both")
    from_properties(_with_secrets(given, dict.fromkeys(SECRETS, "-")))


def read_references(given: Mapping[str, str], environment: Mapping[str, str]) -> ClientSecurity:
    """How to connect, with the secrets that a description refers to. They are read anew at every call."""
    check_references(given)
    secrets = {}
    for name in SECRETS:
        if file := given.get(f"{name}.file"):
            secrets[name] = read_secret(file)
        elif variable := given.get(f"{name}.env"):
            if not environment.get(variable):
                raise ConfigError(f"{name}.env: the variable {variable} of the environment is not set")
            secrets[name] = environment[variable]
    return from_properties(_with_secrets(given, secrets))


def _with_secrets(given: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
    """The properties of a client, with those secrets that the description refers to."""
    found = {name: value for name, value in given.items() if name in PLAIN}
    for name in SECRETS:
        if (f"{name}.file" in given or f"{name}.env" in given) and name in secrets:
            found[name] = secrets[name]
    return found
