"""Configs: name, type and allowed values. The errors of the checks are in Kafka's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from headwater.errors import ConfigError

LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1
MAX_VALUE_LENGTH = 10_000


class Kind(Enum):
    """The type of a config's value, in Kafka's numbers."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One config."""

    name: str
    kind: Kind
    default: str
    check: Callable[[str], str]
    doc: str
    synonym: str = ""
    """The name of the broker config with the default, if there is one."""
    inert: bool = False
    """Whether the config has no effect in Headwater. It is checked, kept and shown all the same."""
    shown: str = ""
    """The value that is shown whatever is set, if there is one."""

    @property
    def meaning(self) -> str:
        """What the config does, for users."""
        return f"No effect in Headwater. {self.doc}" if self.inert else self.doc


def checked_by(keys: Mapping[str, ConfigKey], what: str, name: str, value: str) -> str:
    """Check a config. Returns its canonical form, or raises a `ConfigError` in Kafka's words."""
    key = keys.get(name)
    if key is None:
        raise ConfigError(f"Unknown {what} config name: {name}")
    if len(value) > MAX_VALUE_LENGTH:
        raise ConfigError(f"Invalid value for configuration {name}: more than {MAX_VALUE_LENGTH} characters")
    try:
        return key.check(value)
    except ConfigError as error:
        raise ConfigError(f"Invalid value {value} for configuration {name}: {error}") from None


def number(low: int, high: int) -> Callable[[str], str]:
    """A check for a whole number between two limits."""

    def check(value: str) -> str:
        try:
            given = int(value.strip())
        except ValueError:
            raise ConfigError(f"Not a number of type {'INT' if high <= INT_MAX else 'LONG'}") from None
        if not low <= given <= high:
            raise ConfigError(f"Value must be at least {low}" if given < low else f"Value must be no more than {high}")
        return str(given)

    return check


def decimal(low: float, high: float) -> Callable[[str], str]:
    """A check for a number between two limits."""

    def check(value: str) -> str:
        try:
            given = float(value)
        except ValueError:
            raise ConfigError("Not a number of type DOUBLE") from None
        if not low <= given <= high:
            raise ConfigError(f"Value must be between {low:g} and {high:g}")
        return value.strip()

    return check


fraction = decimal(0, 1)


def one_of(*allowed: str) -> Callable[[str], str]:
    """A check for one of a few words."""

    def check(value: str) -> str:
        if value not in allowed:
            raise ConfigError(f"String must be one of: {', '.join(allowed)}")
        return value

    return check


def boolean(value: str) -> str:
    """Check for true or false."""
    if value.strip().lower() not in ("true", "false"):
        raise ConfigError("Expected value to be either true or false")
    return value.strip().lower()


def anything(value: str) -> str:
    """Accept any text."""
    return value


def elements(value: str) -> list[str]:
    """The elements of a comma-separated list."""
    return [part.strip() for part in value.split(",") if part.strip()]
