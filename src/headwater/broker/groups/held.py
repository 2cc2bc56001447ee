"""Groups in a coordinator's memory, and the topics as groups see them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from headwater.coordination.common import Change, GroupError, Reply
from headwater.coordination.group import Group
from headwater.replica.internal_topics import topic_by_id, topic_by_name, topic_names
from headwater.security.guard import Guard
from headwater.state.cluster.access import AclResource, Operation
from headwater.state.cluster.state import ClusterState

_G = TypeVar("_G", bound=Group)


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
        topic = topic_by_name(self._state, name)
        return (topic.id, topic.ready) if topic is not None else None

    def names(self) -> Iterable[str]:
        """See `Topics`. Kafka's internal topics are among them: regular expressions match them, as in Kafka."""
        return topic_names(self._state)

    def name_of(self, topic_id: uuid.UUID) -> str | None:
        """See `Topics`."""
        topic = topic_by_id(self._state, topic_id)
        return topic.name if topic is not None else None

    def visible(self, principal: str, host: str, names: frozenset[str]) -> frozenset[str]:
        """See `Topics`."""
        if not self._guard.enforced:
            return names
        may = self._guard.may
        return frozenset(n for n in names if may(principal, host, Operation.DESCRIBE, AclResource.TOPIC, n))


@dataclass(slots=True)
class Held:
    """A group, with its changes and answers that wait for the ledger."""

    name: str
    shard: int
    claim: int
    """The claim to the group's shard under which the group was loaded, and is stored."""
    group: Group
    outbox: list[tuple[Change | None, list[Reply]]] = field(default_factory=list)
    sending: list[Reply] = field(default_factory=list)
    """The answers to the changes that are being stored."""
    saving: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None
    due_ms: int = 0

    def of_kind(self, kind: type[_G]) -> _G | None:
        """The group, if it is of this kind."""
        return self.group if isinstance(self.group, kind) else None

    def check_delete(self) -> None:
        """Raise if the group may not be deleted."""
        if not self.group.is_empty:
            raise GroupError("non_empty_group")

    def check_delete_offsets(self) -> None:
        """Raise if no offsets may be deleted. A group of consumers allows it for topics that it does not use."""
        if not self.group.is_empty and self.group.protocol_type != "consumer":
            raise GroupError("non_empty_group")
