"""Commands of domain 0 about processes, topics, producer ids, configs and quotas."""

from __future__ import annotations

import uuid
from typing import TypeAlias

from headwater.state.commands.base import Command, Fields
from headwater.types import Domain


class Listener(Fields, frozen=True):
    """An address at which clients reach a broker."""

    name: str
    host: str
    port: int


class TakeEpoch(Command, frozen=True, tag="epoch"):
    """A process that starts takes a new epoch. The only command that epoch 0 may write. Returns the epoch."""

    process: str
    node: int
    zone: str
    listeners: tuple[Listener, ...]
    level: int
    """The highest feature level that the process knows."""
    build: str
    """The version of the process's code."""


class CreateTopic(Command, frozen=True, tag="topic+"):
    """The intent to create a topic. Its streams are created in their domain afterwards."""

    topic: uuid.UUID
    name: str
    partitions: int
    configs: dict[str, str]
    domain: Domain


class AddPartitions(Command, frozen=True, tag="partitions+"):
    """The intent to grow a topic to a number of partitions."""

    topic: uuid.UUID
    total: int


class TopicReady(Command, frozen=True, tag="topic="):
    """The first `partitions` streams of the topic exist in their domain."""

    topic: uuid.UUID
    partitions: int


class DeleteTopic(Command, frozen=True, tag="topic-"):
    """The intent to delete a topic. Its name can be used again at once."""

    topic: uuid.UUID


class TopicGone(Command, frozen=True, tag="topic--"):
    """The topic's streams are dropped from their domain."""

    topic: uuid.UUID


class AlterConfigs(Command, frozen=True, tag="configs"):
    """Set and remove configs of a topic. The others stay as they are."""

    topic: uuid.UUID
    put: dict[str, str]
    remove: tuple[str, ...]


class AllocateProducers(Command, frozen=True, tag="producers+"):
    """Reserve a block of producer ids. Returns the first."""

    count: int


class AlterResource(Command, frozen=True, tag="resource="):
    """Set and remove configs of a broker, a group or a subscription to clients' metrics."""

    kind: int
    name: str
    put: dict[str, str]
    remove: tuple[str, ...]


class AlterQuota(Command, frozen=True, tag="quota="):
    """Set and remove quotas of an entity: (kind, name) sorted by kind. The default of a kind has no name."""

    entity: tuple[tuple[str, str | None], ...]
    put: dict[str, str]
    remove: tuple[str, ...]


ClusterCommand: TypeAlias = (
    TakeEpoch
    | CreateTopic
    | AddPartitions
    | TopicReady
    | DeleteTopic
    | TopicGone
    | AlterConfigs
    | AllocateProducers
    | AlterResource
    | AlterQuota
)
