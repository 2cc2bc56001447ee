"""What brokers tell about themselves and their topics, as plain data."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from enum import IntEnum

EARLIEST, LATEST = -2, -1
"""Instead of a timestamp: a log's start and its end."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker and where clients reach it."""

    node: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition and who has it; the leader is -1 while there is none."""

    index: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic; its partitions are in the order of their indexes."""

    name: str
    id: uuid.UUID | None
    internal: bool
    partitions: tuple[Partition, ...]
    led: tuple[int, ...]
    """The partitions that have a leader."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The live brokers."""

    id: str | None
    controller: int
    brokers: tuple[Broker, ...]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 partitions or replicas leave the number to the broker."""

    name: str
    partitions: int = -1
    replicas: int = -1
    configs: dict[str, str] = field(default_factory=dict)


class ConfigSource(IntEnum):
    """Where a config's value comes from."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_BROKERS = 3
    STATIC_BROKER = 4
    DEFAULT = 5

    @classmethod
    def _missing_(cls, value: object) -> ConfigSource:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class Config:
    """A config and its value, which is not told if it is a secret."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    documentation: str | None


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """An offset that was looked up; -1 if there is none, and the timestamp -1 if it is not of a record."""

    offset: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """A partition's part of a fetch."""

    data: bytes
    high_watermark: int
    log_start: int


@dataclass(frozen=True, slots=True)
class Produced:
    """Where a batch went; -1 if the broker only says that it had the batch already."""

    base_offset: int
    append_ms: int
    """When the broker appended it, if the topic has log-append time, else -1."""


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """What makes a producer's batches recognizable."""

    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list."""

    name: str
    state: str
    kind: str
    protocol_type: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group."""

    id: str
    instance: str | None
    client_id: str
    host: str


@dataclass(frozen=True, slots=True)
class Group:
    """A group and its members."""

    name: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]
