"""The data of domain 0, which all parts of its state share."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import msgspec

from headwater.state.cluster.access import Access
from headwater.state.cluster.links import Links
from headwater.state.cluster.resources import Resources
from headwater.state.cluster.rotation import Rotation
from headwater.state.cluster.schemas import Schemas
from headwater.state.commands.cluster import Listener, TakeEpoch
from headwater.state.machine import State
from headwater.state.records import Record
from headwater.types import CLUSTER

NO_NODE = -1
"""The node id of a process that serves no clients."""


class Process(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A process whose epoch is not fenced."""

    epoch: int
    name: str
    """Unique to one run of the process."""
    node: int
    zone: str
    listeners: tuple[Listener, ...]
    level: int
    """The highest feature level that the process knows."""
    build: str
    """The version of the process's code."""


class Topic(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A topic. `streams` are allocated with the intent; the first `ready` of them can be used."""

    id: uuid.UUID
    name: str
    domain: int
    configs: dict[str, str]
    streams: list[int]
    ready: int
    deleting: bool
    created_ms: int

    @property
    def pending(self) -> bool:
        """Whether an intent (to create, grow or delete the topic) is not carried out yet."""
        return self.deleting or self.ready < len(self.streams)


class ClusterDomain(State):
    """The data of domain 0."""

    def __init__(self) -> None:
        super().__init__(CLUSTER)
        self.processes: dict[int, Process] = {}
        """By epoch."""
        self.topics: dict[uuid.UUID, Topic] = {}
        """All topics, including those that are being deleted."""
        self.names: dict[str, Topic] = {}
        """Topics by name, without those that are being deleted."""
        self.partitions = 0
        """Partitions of all topics, including those that are being deleted. Derived from `topics`."""
        self.alike: dict[str, str] = {}
        """Names of topics by their `likeness`, without those that are being deleted."""
        self.cluster_id = ""
        """Derived from the name of the first process. It is the same in every process and never changes."""
        self.resources = Resources()
        self.access = Access()
        self.rotation = Rotation()
        self.links = Links()
        self.schemas = Schemas()
        self.next_epoch = 1
        self.next_stream = 1
        self.next_producer = 1
        self.changes = 0
        """How often processes, topics or configs have changed. It is not part of the state."""
        self.on_change: Callable[[], None] | None = None
        """Called after each of these changes. The broker sets it; it is not part of the state."""

    def changed(self) -> None:
        """Processes, topics or configs have changed."""
        self.changes += 1
        if self.on_change is not None:
            self.on_change()

    def _open_to_all(self, record: Record) -> bool:
        return all(isinstance(command, TakeEpoch) for command in record.commands) or super()._open_to_all(record)

    @property
    def unused(self) -> bool:
        """Whether no stream has ever been allocated."""
        return self.next_stream == 1

    def serving(self) -> list[Process]:
        """Processes that serve clients."""
        return [process for process in self.processes.values() if process.node != NO_NODE]

    def in_rotation(self, process: Process) -> bool:
        """Whether clients should be sent to a process."""
        return process.epoch not in self.rotation.out
