"""Rules for creating and growing topics, for Kafka's APIs and the HTTP API alike. The errors are in Kafka's words."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.configs.topics import DLQ_TOPIC, NO_SCHEMA, TABLE_FLATTEN, VALUE_SCHEMA, TopicConfig
from headwater.errors import ConfigError, Exists, InvalidName, InvalidPartitions, LimitReached
from headwater.replica.internal_topics import topic_alike, topic_by_name
from headwater.settings.limits import Limits
from headwater.state.cluster.domain import Topic
from headwater.state.cluster.state import ClusterState


def check_free(state: ClusterState, name: str) -> None:
    """Raise if the topic exists or, as in Kafka, if one exists that differs only in dots and underscores."""
    if topic_by_name(state, name) is not None:
        raise Exists(f"Topic '{name}' already exists.")
    other = topic_alike(state, name)
    if other is not None:
        raise InvalidName(f"Topic '{name}' collides with existing topic: {other}")


def check_room(state: ClusterState, limits: Limits, partitions: int) -> None:
    """Raise if the cluster may not have so many more partitions."""
    if state.partitions + partitions > limits.partitions:
        raise LimitReached(
            f"The cluster has {state.partitions} partitions and may have {limits.partitions} (limits.partitions)."
        )


def within_limit(limits: Limits, count: int) -> int:
    """The number of partitions of a topic, unless it is too large."""
    limit = limits.partitions_per_topic
    if count > limit:
        raise InvalidPartitions(f"A topic has at most {limit} partitions here, not {count}.")
    return count


def check_growth(limits: Limits, topic: Topic, count: int) -> None:
    """Raise unless a topic can have this number of partitions from now on: it may only rise."""
    now = len(topic.streams)
    if count == now:
        raise InvalidPartitions(f"Topic already has {now} partition(s).")
    if count < now:
        raise InvalidPartitions(
            f"The topic {topic.name} currently has {now} partition(s); {count} would not be an increase."
        )
    within_limit(limits, count)


def check_choices(state: ClusterState, name: str, configs: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Raise if a topic's configs do not fit each other, or other topics. `before` are its configs before the change.

    What a topic has already is not judged again.
    """
    _check_letters(state, name, configs, before)
    wanted = TopicConfig.of(configs, state.resources.common)
    if wanted.flatten and wanted.value_schema == NO_SCHEMA and configs.get(TABLE_FLATTEN) != before.get(TABLE_FLATTEN):
        raise ConfigError(
            f"{TABLE_FLATTEN} has no effect on topic {name!r}: its values have no schema; set {VALUE_SCHEMA}, too"
        )


def _check_letters(state: ClusterState, name: str, configs: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Raise if a topic cannot have the dead-letter topic that its configs name.

    A dead-letter topic has none itself: letters would go in a circle, or from one topic to the next. Two changes at the
    same time may still do that; then no letters are written, and the compactor says so.
    """
    target = configs.get(DLQ_TOPIC, "")
    if not target or target == before.get(DLQ_TOPIC, ""):
        return
    if target == name:
        raise ConfigError(f"Topic {name!r} cannot be its own dead-letter topic ({DLQ_TOPIC})")
    found = state.names.get(target)
    if found is not None and found.configs.get(DLQ_TOPIC):
        raise ConfigError(
            f"Topic {target!r} cannot be the dead-letter topic of {name!r}: it has one itself ({DLQ_TOPIC})"
        )
    if any(other.configs.get(DLQ_TOPIC) == name and not other.deleting for other in state.topics.values()):
        raise ConfigError(f"Topic {name!r} cannot have a dead-letter topic: it is that of another topic ({DLQ_TOPIC})")
    if found is None or found.deleting:
        raise ConfigError(
            f"Topic {target!r} cannot be the dead-letter topic of {name!r}: there is no such topic; create it first "
            f"({DLQ_TOPIC})"
        )
