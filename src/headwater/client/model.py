"""Brokers, topics, offsets and groups as plain data."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from enum import IntEnum

import msgspec

EARLIEST, LATEST = -2, -1
"""In place of a timestamp: the start and the end of a log."""
DAMAGE = "headwater.damage"
"""The topic config with which a Headwater broker shows records that it cannot read."""
LINK = "headwater.link"
"""The one with which it shows the link of a topic."""
RETENTION_NOTICE = "headwater.retention.notice"
"""The one with which it says that records were too old when they arrived."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker and its address for clients."""

    node: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class FeatureLevels:
    """What a broker says of the cluster's feature level."""

    broker: str
    """`HOST:PORT`"""
    level: int
    """The level of the cluster."""
    newest: int
    """The highest level that the broker knows."""


class DamagedOffsets(msgspec.Struct, frozen=True):
    """Records that a broker cannot read, the object that has them, and why."""

    partition: int
    first_offset: int
    last_offset: int
    object: str
    reason: str
    groups: list[str] = msgspec.field(default_factory=list)
    """Groups that continue in the range, as far as the caller may describe them."""
    clients: list[str] = msgspec.field(default_factory=list)
    """Clients that wait at the range, if the caller may describe the cluster."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition, its leader and replicas. The leader is -1 while there is none."""

    index: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    leader_epoch: int = -1
    """The number of the leader's term; -1 if the broker does not say."""


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
    """A topic to create. With -1 the broker chooses the number of partitions or replicas."""

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
    """The result of a look-up. The offset is -1 if there is none, the timestamp -1 if it is not that of a record."""

    offset: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """The part of a fetch that belongs to one partition."""

    data: bytes
    high_watermark: int
    log_start: int
    aborted: tuple[tuple[int, int], ...] = ()
    """Producer id and first offset of aborted transactions, if only committed records were asked for."""
    stable: int = -1
    """Where readers of committed records stop: the end, or the first open transaction. -1: the broker does not say."""


@dataclass(frozen=True, slots=True)
class Produced:
    """The offset of a batch; -1 if the broker only says that it already has the batch."""

    base_offset: int
    append_ms: int
    """Time of the append if the topic has log-append time, else -1."""


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """Producer id and epoch, by which brokers recognize repeated batches."""

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


OPEN_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""Kafka's states of a transaction that has not ended in every partition. Headwater has the first of them only."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id, with its open or its last transaction."""

    id: str
    state: str
    producer: ProducerIdentity
    timeout_ms: int
    started_ms: int
    """When the transaction was opened, by the brokers' time; -1 if there was none since a producer has started."""
    partitions: tuple[tuple[str, int], ...]
    """The (topic, partition) pairs of an open transaction."""

    @property
    def open(self) -> bool:
        return self.state in OPEN_STATES
