"""The configs of a topic, a group or a subscription as they are shown: those that are set, and defaults for others."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.configs import topics as topic_configs
from headwater.configs.brokers import DEFAULT, Row, common_sources
from headwater.configs.keys import ConfigKey
from headwater.state.cluster.resources import Resources

OF_TOPIC, OF_CLIENT_METRICS, OF_GROUP = 1, 7, 8
"""The source of a value that is set for the resource itself, in Kafka's numbers."""
_UNSET = ("log.retention.ms", "log.roll.ms", "log.roll.jitter.ms", "log.flush.interval.ms")
"""Broker configs that Kafka leaves unset, so they are never the default of a topic config."""


def rows_of(keys: Mapping[str, ConfigKey], configs: Mapping[str, str], source: int, resources: Resources) -> list[Row]:
    """All configs of a resource. `source` is that of the values that are set for it."""
    found = []
    for key in keys.values():
        sources = [(key.name, configs[key.name], source)] if key.name in configs and not key.shown else []
        sources += common_sources(key.synonym, resources)
        value = sources[0][1] if sources else key.default
        if key.synonym and key.synonym not in _UNSET:
            sources.append((key.synonym, key.default, DEFAULT))
        found.append(Row(key, value, tuple(sources), False))
    return found


def topic_rows(configs: Mapping[str, str], resources: Resources) -> list[Row]:
    """All configs of a topic."""
    return rows_of(topic_configs.KEYS, configs, OF_TOPIC, resources)
