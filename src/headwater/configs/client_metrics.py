"""Subscriptions to clients' metrics (KIP-714): which clients push which metrics, and how often."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from headwater.configs.keys import INT_MAX, MAX_VALUE_LENGTH, ConfigKey, Kind, anything, elements, number
from headwater.coordination.common import GroupError
from headwater.coordination.regex import Pattern, compiled
from headwater.errors import BadInput, ConfigError

INTERVAL, MATCH, METRICS = "interval.ms", "match", "metrics"
EVERYTHING = "*"
"""Means all metrics, in place of a list of prefixes."""
MIN_INTERVAL_MS, MAX_INTERVAL_MS = 100, 3_600_000
KEPT = 256
"""Values of `match` whose patterns a process keeps."""
MATCHED = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)

_KEYS = [
    ConfigKey(INTERVAL, Kind.INT, "300000", number(-INT_MAX, INT_MAX), "How often the clients push, in milliseconds."),
    ConfigKey(MATCH, Kind.LIST, "", anything, "Which clients: `name=pattern` (RE2), all of which must match."),
    ConfigKey(METRICS, Kind.LIST, "", anything, "Prefixes of the metrics' names, or `*`."),
]
KEYS: Mapping[str, ConfigKey] = {key.name: key for key in _KEYS}


@functools.lru_cache(KEPT)
def patterns(match: str) -> Mapping[str, Pattern]:
    """The patterns of a `match` config by the property of the client that they match."""
    found = {}
    for element in elements(match):
        name, equals, pattern = element.partition("=")
        if not equals or "=" in pattern or not pattern.strip() or name.strip() not in MATCHED:
            raise ConfigError(f"Illegal client matching pattern: {element}")
        try:
            found[name.strip()] = compiled(pattern.strip())
        except GroupError:
            raise ConfigError(f"Illegal client matching pattern: {element}") from None
    return found


def checked(name: str, value: str) -> str:
    """Check a config of a subscription. Returns its canonical form."""
    if name not in KEYS:
        raise BadInput(f"Unknown client metrics configuration: {name}")
    if len(value) > MAX_VALUE_LENGTH:
        raise BadInput(f"Invalid value for {name}: more than {MAX_VALUE_LENGTH} characters")
    if name == INTERVAL:
        try:
            value = KEYS[name].check(value)
        except ConfigError as error:
            raise ConfigError(f"Invalid value {value} for configuration {name}: {error}") from None
        if not MIN_INTERVAL_MS <= int(value) <= MAX_INTERVAL_MS:
            raise BadInput(f"Invalid value {value} for {name}, interval must be between 100 and 3600000 (1 hour)")
    elif name == MATCH:
        patterns(value)
    return value
