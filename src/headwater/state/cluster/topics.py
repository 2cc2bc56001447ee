"""The part of the state for topics: their names, configs and streams."""

from __future__ import annotations

import msgspec

from headwater.state.cluster.domain import ClusterDomain, Topic
from headwater.state.commands.cluster import (
    AddPartitions,
    AlterConfigs,
    CreateTopic,
    DeleteTopic,
    TopicGone,
    TopicReady,
)
from headwater.state.machine import Part
from headwater.state.results import Done, Reason, Refused, Result

MAX_TOPICS = 100_000
MAX_PARTITIONS = 100_000
MAX_CLUSTER_PARTITIONS = 1_000_000
"""Partitions of all topics. Brokers refuse earlier, by their settings; this holds when several of them race."""


def likeness(name: str) -> str:
    """A topic's name with dots as underscores. Some tools do not distinguish the two."""
    return name.replace(".", "_")


def _create_topic(state: ClusterDomain, epoch: int, command: CreateTopic) -> Result:
    if command.topic in state.topics:
        return Done()
    if command.name in state.names:
        return Refused(Reason.EXISTS, f"topic {command.name!r} exists already")
    if not 0 < command.partitions <= MAX_PARTITIONS or len(state.topics) >= MAX_TOPICS or command.domain < 1:
        return Refused(
            Reason.INVALID,
            f"a topic with {command.partitions} partitions cannot be created; there are {len(state.topics)} topics",
        )
    if state.partitions + command.partitions > MAX_CLUSTER_PARTITIONS:
        return _full(state)
    topic = Topic(
        id=command.topic,
        name=command.name,
        domain=command.domain,
        configs=dict(command.configs),
        streams=_allocate_streams(state, command.partitions),
        ready=0,
        deleting=False,
        created_ms=state.date_ms,
    )
    state.topics[topic.id] = state.names[topic.name] = topic
    state.alike[likeness(topic.name)] = topic.name
    state.roll("topic", topic.name, topic.streams)
    state.changed()
    return Done()


def _full(state: ClusterDomain) -> Refused:
    detail = f"the cluster has {state.partitions} partitions, and may have {MAX_CLUSTER_PARTITIONS}"
    return Refused(Reason.FULL, detail)


def _allocate_streams(state: ClusterDomain, count: int) -> list[int]:
    first = state.next_stream
    state.partitions += count
    state.next_stream += count
    return list(range(first, first + count))


def _add_partitions(state: ClusterDomain, epoch: int, command: AddPartitions) -> Result:
    topic = state.topics.get(command.topic)
    if topic is None or topic.deleting:
        return Refused(Reason.UNKNOWN, "the topic does not exist")
    missing = command.total - len(topic.streams)
    if missing <= 0 or command.total > MAX_PARTITIONS:
        return Refused(Reason.INVALID, f"the topic has {len(topic.streams)} partitions")
    if state.partitions + missing > MAX_CLUSTER_PARTITIONS:
        return _full(state)
    topic.streams += _allocate_streams(state, missing)
    state.roll("partitions", topic.name, topic.streams)
    state.changed()
    return Done()


def _topic_ready(state: ClusterDomain, epoch: int, command: TopicReady) -> Result:
    topic = state.topics.get(command.topic)
    if topic is None or topic.deleting:
        return Refused(Reason.UNKNOWN, "the topic does not exist")
    topic.ready = max(topic.ready, min(command.partitions, len(topic.streams)))
    state.roll("ready", topic.name, topic.ready)
    state.changed()
    return Done()


def _delete_topic(state: ClusterDomain, epoch: int, command: DeleteTopic) -> Result:
    topic = state.topics.get(command.topic)
    if topic is None or topic.deleting:
        return Refused(Reason.UNKNOWN, "the topic does not exist")
    topic.deleting = True
    del state.names[topic.name]
    if state.alike.get(likeness(topic.name)) == topic.name:
        del state.alike[likeness(topic.name)]
    state.links.forget_topic(topic.id)
    state.roll("delete", topic.name)
    state.changed()
    return Done()


def _topic_gone(state: ClusterDomain, epoch: int, command: TopicGone) -> Result:
    topic = state.topics.get(command.topic)
    if topic is not None and not topic.deleting:
        return Refused(Reason.INVALID, "the topic is not being deleted")
    if state.topics.pop(command.topic, None) is not None and topic is not None:
        state.partitions -= len(topic.streams)
    state.roll("gone", command.topic)
    return Done()


def _alter_configs(state: ClusterDomain, epoch: int, command: AlterConfigs) -> Result:
    topic = state.topics.get(command.topic)
    if topic is None or topic.deleting:
        return Refused(Reason.UNKNOWN, "the topic does not exist")
    for key in command.remove:
        topic.configs.pop(key, None)
    topic.configs.update(command.put)
    state.roll("configs", topic.name, sorted(topic.configs.items()))
    state.changed()
    return Done()


class TopicsImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The topics of a cluster inside a checkpoint."""

    topics: list[Topic]
    next_stream: int


def _unpack(state: ClusterDomain, image: TopicsImage) -> None:
    state.topics = {topic.id: topic for topic in image.topics}
    state.names = {topic.name: topic for topic in image.topics if not topic.deleting}
    state.alike = {likeness(name): name for name in state.names}
    state.partitions = sum(len(topic.streams) for topic in image.topics)
    state.next_stream = image.next_stream


PART: Part[ClusterDomain, TopicsImage] = Part(
    name="topics",
    commands={
        CreateTopic: _create_topic,
        AddPartitions: _add_partitions,
        TopicReady: _topic_ready,
        DeleteTopic: _delete_topic,
        TopicGone: _topic_gone,
        AlterConfigs: _alter_configs,
    },
    format=1,
    image=TopicsImage,
    pack=lambda state: TopicsImage(list(state.topics.values()), state.next_stream),
    unpack=_unpack,
    empty=lambda: TopicsImage([], 1),
)
