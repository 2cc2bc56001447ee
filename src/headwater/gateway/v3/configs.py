"""Configs in the form of the REST Proxy, whatever they are of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from headwater.configs.brokers import DEFAULT, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, Row
from headwater.configs.described import OF_TOPIC
from headwater.gateway.problems import NOT_FOUND, Refusal
from headwater.gateway.v3.errors import refused
from headwater.gateway.v3.frame import Frame, Metadata

_SOURCES = {
    OF_TOPIC: "DYNAMIC_TOPIC_CONFIG",
    DYNAMIC_BROKER: "DYNAMIC_BROKER_CONFIG",
    DYNAMIC_DEFAULT: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    STATIC: "STATIC_BROKER_CONFIG",
    DEFAULT: "DEFAULT_CONFIG",
}


class Synonym(msgspec.Struct, frozen=True):
    """A source of a config's value."""

    name: str
    """The name of the config in that source."""
    value: str
    """The value there."""
    source: str
    """The source."""


class ConfigData(msgspec.Struct, frozen=True):
    """A config."""

    kind: str
    """`KafkaTopicConfig`, `KafkaBrokerConfig` or `KafkaClusterConfig`."""
    metadata: Metadata
    """The links of the config."""
    cluster_id: str
    """The id of the cluster."""
    name: str
    """The name of the config."""
    value: str
    """The value that applies."""
    is_default: bool
    """Whether that is the default."""
    is_read_only: bool
    """Whether the config cannot be changed."""
    is_sensitive: bool
    """Always false: no config is secret."""
    source: str
    """Where the value comes from."""
    synonyms: list[Synonym]
    """All sources that have a value. The first one applies."""
    topic_name: str | msgspec.UnsetType = msgspec.UNSET
    """The topic, for a config of a topic."""
    broker_id: int | msgspec.UnsetType = msgspec.UNSET
    """The broker, for a config of a broker."""
    config_type: str | msgspec.UnsetType = msgspec.UNSET
    """`BROKER`, for a config of all brokers."""


class NewValue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value to set."""

    value: str | None = None
    """The value. Null is refused."""


class Alteration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A config to set or to reset."""

    name: str
    """The name of the config."""
    value: str | None = None
    """The value to set."""
    operation: str | None = None
    """`SET`, which is the default, or `DELETE`."""


class Alterations(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Configs to set and to reset. All are changed, or none."""

    data: list[Alteration]
    """The configs, each at most once."""
    validate_only: bool = False
    """Whether the request is only checked."""


def config_data(
    frame: Frame,
    kind: str,
    row: Row,
    path: Sequence[str | int],
    *,
    topic: str | msgspec.UnsetType = msgspec.UNSET,
    broker: int | msgspec.UnsetType = msgspec.UNSET,
    of: str | msgspec.UnsetType = msgspec.UNSET,
) -> ConfigData:
    """A config, below the path of its resource."""
    return ConfigData(
        kind,
        frame.metadata(*path, row.key.name),
        frame.cluster_id,
        row.key.name,
        row.value,
        row.source == DEFAULT,
        row.read_only,
        False,
        _SOURCES[row.source],
        [Synonym(name, value, _SOURCES[source]) for name, value, source in row.sources],
        topic,
        broker,
        of,
    )


def name_of(row: Row) -> str:
    """The key of a row in a listing."""
    return row.key.name


def the_config(rows: Iterable[Row], name: str) -> Row:
    """The config of a name."""
    for row in rows:
        if row.key.name == name:
            return row
    raise Refusal(NOT_FOUND, f"Config {name} cannot be found.")


def value_of(name: str, given: NewValue) -> str:
    """The value to set."""
    if given.value is None:
        raise refused(f"Null value not supported for configs: {name}")
    return given.value


def edits_of(wanted: Alterations) -> tuple[dict[str, str], list[str]]:
    """What a request sets, and what it resets."""
    put: dict[str, str] = {}
    reset: list[str] = []
    for one in wanted.data:
        if one.name in put or one.name in reset:
            raise refused(f"The config {one.name} is there more than once.")
        if one.operation == "DELETE":
            reset.append(one.name)
        elif one.operation in (None, "SET"):
            put[one.name] = value_of(one.name, NewValue(one.value))
        else:
            raise refused(f"The operation {one.operation} is neither SET nor DELETE.")
    return put, reset
