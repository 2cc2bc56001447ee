"""Topics and well-behaved members for tests of KIP-848 consumer groups."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable

from headwater.coordination.assignors import Assignment
from headwater.coordination.consumer.group import ConsumerGroup
from headwater.coordination.consumer.requests import ConsumerGroupSettings, Heartbeat, HeartbeatAnswer

REBALANCE_TIMEOUT_MS = 60_000


class TopicTable:
    """Topics that a test creates, grows and deletes."""

    def __init__(self, **counts: int) -> None:
        self.version = 0
        self._topics: dict[str, tuple[uuid.UUID, int]] = {}
        self._hidden: dict[str, frozenset[str]] = {}
        self._ids = itertools.count(1)
        for name, count in counts.items():
            self.create(name, count)

    def create(self, name: str, count: int) -> uuid.UUID:
        """A topic with a new id. It replaces a topic of the same name."""
        topic_id = uuid.UUID(int=next(self._ids) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128))
        self._topics[name] = (topic_id, count)
        self.version += 1
        return topic_id

    def grow(self, name: str, more: int) -> None:
        topic_id, count = self._topics[name]
        self._topics[name] = (topic_id, count + more)
        self.version += 1

    def delete(self, name: str) -> None:
        del self._topics[name]
        self.version += 1

    def id(self, name: str) -> uuid.UUID:
        return self._topics[name][0]

    def get(self, name: str) -> tuple[uuid.UUID, int] | None:
        return self._topics.get(name)

    def names(self) -> Iterable[str]:
        return list(self._topics)

    def name_of(self, topic_id: uuid.UUID) -> str | None:
        return next((name for name, (known, _) in self._topics.items() if known == topic_id), None)

    def hide(self, principal: str, *names: str) -> None:
        """From now on a principal may not describe these topics, but all others."""
        self._hidden[principal] = frozenset(names)
        self.version += 1

    def visible(self, principal: str, host: str, names: frozenset[str]) -> frozenset[str]:
        return names - self._hidden.get(principal, frozenset())


def settings(**changes: object) -> ConsumerGroupSettings:
    """The defaults, with numbered member ids and an assignment for each change."""
    ids = itertools.count(1)
    own = {"assignment_interval_ms": 0, **changes}
    return ConsumerGroupSettings(new_member_id=lambda: f"made-{next(ids)}", **own)  # type: ignore[arg-type]


def pairs(assignment: Assignment) -> set[tuple[uuid.UUID, int]]:
    """An assignment as a set of partitions."""
    return {(topic, partition) for topic, partitions in assignment.items() for partition in partitions}


class Client:
    """A consumer that follows the coordinator's answers, perhaps late.

    It owns the partitions of the last answer that reached it. Partitions that it has to give up it drops at `revoke`,
    or at once.
    """

    def __init__(
        self,
        member_id: str,
        names: tuple[str, ...] | None = None,
        *,
        regex: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        principal: str = "User:ANONYMOUS",
    ) -> None:
        self.member_id = member_id
        self.principal = principal
        self.names = names
        self.regex = regex
        self.instance_id = instance_id
        self.assignor = assignor
        self.epoch = 0
        self.owned: Assignment = {}
        self.told: Assignment = {}
        self.said: Assignment = {}
        self.says_all = True

    def __repr__(self) -> str:
        return f"Client({self.member_id!r}, epoch {self.epoch}, {sorted(p for _, p in pairs(self.owned))})"

    def request(self) -> Heartbeat:
        """The next request: a full one if the member joins or missed an answer, else what it owns, if not sent yet."""
        is_full = self.says_all or self.epoch == 0
        return Heartbeat(
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if is_full else -1,
            subscribed_topic_names=self.names if is_full else None,
            subscribed_topic_regex=self.regex if is_full else None,
            server_assignor=self.assignor if is_full else None,
            topic_partitions=self.owned if is_full or self.owned != self.said else None,
            client_id="client",
            client_host="/127.0.0.1",
            principal=self.principal,
        )

    def beat(
        self, group: ConsumerGroup, topics: TopicTable, now_ms: int = 0, *, is_late: bool = False, is_lost: bool = False
    ) -> HeartbeatAnswer:
        """One heartbeat. A late member keeps what it has to give up; a lost answer does not reach the member."""
        request = self.request()
        answer = group.heartbeat(request, topics, now_ms)
        if is_lost:
            self.says_all = True
            return answer
        self.says_all = False
        self.said = request.topic_partitions if request.topic_partitions is not None else self.said
        assert answer.member_epoch >= self.epoch
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.told = answer.assignment
            must_give_up = pairs(self.owned) - pairs(self.told)
            if not must_give_up or not is_late:
                self.owned = self.told
        return answer

    def revoke(self) -> None:
        """Drop the partitions that it has to give up."""
        self.owned = self.told

    def abandon(self) -> None:
        """Own nothing and start over, as a fenced member does."""
        self.epoch, self.owned, self.told, self.says_all = 0, {}, {}, True

    def leave(self, group: ConsumerGroup, topics: TopicTable, *, epoch: int = -1) -> HeartbeatAnswer:
        request = Heartbeat(member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id)
        answer = group.heartbeat(request, topics, 0)
        self.abandon()
        return answer


def settle(group: ConsumerGroup, topics: TopicTable, clients: list[Client], now_ms: int = 0, rounds: int = 20) -> None:
    """Let all clients send heartbeats, on time, until the group is stable and every client knows its assignment."""
    for _ in range(rounds):
        for client in clients:
            client.revoke()
            client.beat(group, topics, now_ms)
        if group.state == "Stable" and all(client.epoch == group.assignment_epoch for client in clients):
            return
    raise AssertionError(f"not stable after {rounds} rounds: {group}")
