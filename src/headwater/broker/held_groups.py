"""A group in a coordinator's memory: what both protocols have in common, for whoever does not care which one it is."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from headwater.broker.guard import Guard
from headwater.coordination.classic import ClassicGroup
from headwater.coordination.common import Change, GroupError, Reply, Topics
from headwater.coordination.consumer import ConsumerGroup
from headwater.metadata.access import Operation, ResourceKind
from headwater.metadata.cluster import ClusterState


class ClusterTopics:
    """The cluster's topics, as groups see them."""

    def __init__(self, state: ClusterState, guard: Guard) -> None:
        self._state = state
        self._guard = guard

    @property
    def version(self) -> int:
        """See `Topics`."""
        return self._state.changes + (self._state.access.version if self._guard.enforced else 0)

    def get(self, name: str) -> tuple[uuid.UUID, int] | None:
        """See `Topics`."""
        topic = self._state.names.get(name)
        return (topic.id, topic.ready) if topic is not None else None

    def names(self) -> Iterable[str]:
        """See `Topics`."""
        return self._state.names

    def name_of(self, topic_id: uuid.UUID) -> str | None:
        """See `Topics`."""
        topic = self._state.topics.get(topic_id)
        return topic.name if topic is not None and not topic.deleting else None

    def visible(self, principal: str, host: str, names: frozenset[str]) -> frozenset[str]:
        """See `Topics`."""
        if not self._guard.enforced:
            return names
        may = self._guard.may
        return frozenset(n for n in names if may(principal, host, Operation.DESCRIBE, ResourceKind.TOPIC, n))


@dataclass(slots=True)
class Held:
    """A group and what of it waits for the ledger."""

    name: str
    shard: int
    claim: int
    """The number of the claim to its shard under which it was taken into memory, and is stored."""
    group: ClassicGroup | ConsumerGroup
    outbox: list[tuple[Change | None, list[Reply]]] = field(default_factory=list)
    saving: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None
    due_ms: int = 0

    @property
    def protocol_type(self) -> str:
        """What kind of clients its members are."""
        return self.group.protocol_type or "" if isinstance(self.group, ClassicGroup) else "consumer"

    def replies(self) -> list[Reply]:
        """Answers to requests that waited. Members of KIP-848 groups never wait."""
        return self.group.replies() if isinstance(self.group, ClassicGroup) else []

    def abandoned(self, code: str) -> list[Reply]:
        """Answers for everybody who waits, now that the group is given up here."""
        return self.group.abandon(code) if isinstance(self.group, ClassicGroup) else []

    def tick(self, topics: Topics, now_ms: int, wall_ms: int) -> None:
        """Do what is due."""
        if isinstance(self.group, ClassicGroup):
            self.group.tick(now_ms, wall_ms)
        else:
            self.group.tick(topics, now_ms)

    def subscribed_topics(self, topics: Topics) -> Set[str] | None:
        """The topics its members want, or nothing if that is not known."""
        if isinstance(self.group, ClassicGroup):
            return self.group.subscribed_topics()
        return self.group.subscribed_topics(topics)

    def is_subscribed(self, topic: str, topics: Topics) -> bool:
        """Whether offsets of a topic are in use."""
        if isinstance(self.group, ClassicGroup):
            return self.group.is_subscribed(topic)
        return topic in self.group.subscribed_topics(topics)

    def check_commit(self, member_id: str, instance_id: str | None, epoch: int, *, version: int, now_ms: int) -> None:
        """Whether offsets may be committed by whoever says this."""
        if isinstance(self.group, ClassicGroup):
            self.group.check_commit(member_id, instance_id, epoch, now_ms)
        else:
            self.group.check_commit(member_id, instance_id, epoch, version=version)

    def check_delete(self) -> None:
        """Whether the group may be deleted."""
        if not self.group.is_empty:
            raise GroupError("non_empty_group")

    def check_delete_offsets(self) -> None:
        """Whether offsets may be deleted: of groups of consumers, those of topics that they do not use."""
        if not self.group.is_empty and self.protocol_type != "consumer":
            raise GroupError("non_empty_group")
