"""Topics as clients see them: those of the cluster, and Kafka's internal topics, which have an empty log here.

Offsets of groups and transactional ids are in the ledger, not in topics. Tools still look for the internal topics, so
clients find them with fixed ids. A real topic of such a name, which an earlier build may have created, takes the place
of the internal one.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from headwater.errors import InternalTopic
from headwater.state.cluster.domain import Topic
from headwater.state.cluster.state import ClusterState
from headwater.state.cluster.topics import likeness
from headwater.state.streams.stream import Stream
from headwater.types import StreamId

PARTITIONS = 50
"""Kafka's default for both topics."""

_CONFIGS = {
    "__consumer_offsets": {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"},
    "__transaction_state": {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "segment.bytes": "104857600",
    },
}
_FIRST_ID = 0x68656164_7761_4465_B272_000000000001


def _empty_topic(number: int, name: str, configs: dict[str, str]) -> Topic:
    first = -1 - number * PARTITIONS  # real streams have positive ids
    return Topic(
        id=uuid.UUID(int=_FIRST_ID + number),
        name=name,
        domain=1,
        configs=configs,
        streams=list(range(first, first - PARTITIONS, -1)),
        ready=PARTITIONS,
        deleting=False,
        created_ms=0,
    )


_BY_NAME: Mapping[str, Topic] = {
    name: _empty_topic(number, name, configs) for number, (name, configs) in enumerate(_CONFIGS.items())
}
_BY_ID: Mapping[uuid.UUID, Topic] = {topic.id: topic for topic in _BY_NAME.values()}
_ALIKE: Mapping[str, str] = {likeness(name): name for name in _BY_NAME}
_STREAMS: Mapping[int, Stream] = {
    stream: Stream(StreamId(stream), topic.id, partition, append_time=False)
    for topic in _BY_NAME.values()
    for partition, stream in enumerate(topic.streams)
}


def is_internal(name: str) -> bool:
    """Whether Kafka uses the name for an internal topic."""
    return name in _BY_NAME


def is_empty(topic: Topic) -> bool:
    """Whether a topic is an internal one that exists for clients only."""
    return topic.id in _BY_ID


def empty_stream(stream_id: int) -> Stream | None:
    """A stream of an internal topic. It never changes."""
    return _STREAMS.get(stream_id)


def topic_by_name(state: ClusterState, name: str) -> Topic | None:
    """A topic of the cluster, or an internal one."""
    return state.names.get(name) or _BY_NAME.get(name)


def topic_by_id(state: ClusterState, topic_id: uuid.UUID | None) -> Topic | None:
    """A topic of the cluster that is not being deleted, or an internal one."""
    topic = state.topics.get(topic_id) if topic_id is not None else None
    if topic is not None:
        return None if topic.deleting else topic
    internal = _BY_ID.get(topic_id) if topic_id is not None else None
    return internal if internal is not None and internal.name not in state.names else None


def topic_names(state: ClusterState) -> list[str]:
    """The names of all topics, sorted."""
    return sorted(state.names.keys() | _BY_NAME.keys())


def topic_alike(state: ClusterState, name: str) -> str | None:
    """The name of a topic that differs from a name in dots and underscores only, or not at all."""
    return state.alike.get(likeness(name)) or _ALIKE.get(likeness(name))


def changeable(topic: Topic) -> Topic:
    """The topic, unless it is internal: then there is nothing that could change."""
    if is_empty(topic):
        raise InternalTopic(f"The topic '{topic.name}' is internal and exists for clients only. It cannot be changed.")
    return topic
