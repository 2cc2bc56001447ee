"""How a client connects, told by references: secrets are in files or in the environment, never in the text.

The names are librdkafka's. A secret has two names of its own instead: `sasl.password.file` names a file that contains
it, `sasl.password.env` a variable of the environment. So a description of a connection can be stored and shown.

The caller who describes a connection also says which address it goes to. So the operator lists what a description may
refer to (`Allowed`): any other file or variable of the machine would be sent where the caller wants it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from headwater.client.security import ClientSecurity, from_properties, read_secret
from headwater.errors import ConfigError, NotAllowed

PLAIN = (
    "security.protocol", "sasl.mechanism", "sasl.username", "ssl.ca.location", "ssl.certificate.location",
    "ssl.key.location",
)  # fmt: skip
"""Properties that are stored as they are."""
SECRETS = ("sasl.password", "sasl.oauthbearer.token", "ssl.key.password")
"""Properties that are stored as references."""
NAMES = (*PLAIN, *(f"{name}.{by}" for name in SECRETS for by in ("file", "env")))
"""All properties of a description."""
FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", *(f"{name}.file" for name in SECRETS))
"""Properties that name files."""
VARIABLES = tuple(f"{name}.env" for name in SECRETS)
"""Properties that name variables of the environment."""
MAX_VALUE = 1_024
"""Longest value of a property, in characters."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Allowed:
    """What descriptions may refer to."""

    directories: tuple[str, ...] = ()
    """Absolute paths of directories, or of single files."""
    variables: tuple[str, ...] = ()
    """Names of variables of the environment."""

    def resolved(self, given: Mapping[str, str]) -> dict[str, str]:
        """A description with the real paths of its files. Raises `NotAllowed` for what is not listed."""
        for name in VARIABLES:
            if name in given and given[name] not in self.variables:
                raise NotAllowed(
                    f"{name} names the variable {given[name]}, which is not in the setting links.secret_variables"
                )
        return {name: self._path(name, value) if name in FILES else value for name, value in given.items()}

    def _path(self, name: str, path: str) -> str:
        """The real path of a file below a listed directory, with links followed. Other paths are not touched."""
        plain = os.path.normpath(path)
        if "\0" not in path and os.path.isabs(path):
            for directory in self.directories:
                if _is_below(plain, os.path.normpath(directory)):
                    real = os.path.realpath(path)
                    if any(_is_below(real, os.path.realpath(other)) for other in self.directories):
                        return real
        raise NotAllowed(f"{name} names {path!r}, which is in none of the directories of links.secret_directories")


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


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


def read_references(given: Mapping[str, str], environment: Mapping[str, str], allowed: Allowed) -> ClientSecurity:
    """How to connect, with the secrets that a description refers to. They are read and judged anew at every call."""
    check_references(given)
    given = allowed.resolved(given)
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
