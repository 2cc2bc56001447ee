"""Kafka's two server-side assignors, as pure functions.

Both assign every partition of every subscribed topic to exactly one member that subscribes to the topic. Equal input
gives an equal result, regardless of the order in which members joined.
"""

from __future__ import annotations

import heapq
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Assignment = Mapping[uuid.UUID, frozenset[int]]
"""Partitions by topic. Topics without partitions have no entry."""

EMPTY: Assignment = {}
ROUNDS = 16
"""The maximum number of passes over all topics to balance them, if members subscribe to different topics."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """What an assignor knows about a member. All topics in its subscription exist."""

    member_id: str
    instance_id: str | None
    subscription: frozenset[uuid.UUID]
    target: Assignment
    """The member's target so far."""


Counts = Mapping[uuid.UUID, int]
"""The number of partitions of each topic."""

Assignor = Callable[[list[MemberSpec], Counts], dict[str, Assignment]]


def uniform(members: list[MemberSpec], counts: Counts) -> dict[str, Assignment]:
    """Make the numbers of partitions per member as equal as possible, with as few moves as possible."""
    members = sorted(members, key=lambda member: member.member_id)
    if all(member.subscription == members[0].subscription for member in members[1:]):
        return _uniform_same(members, counts)
    return _Balancer(members, counts).assign()


def _kept(member: MemberSpec, counts: Counts) -> dict[uuid.UUID, list[int]]:
    """The part of its old target that a member may keep: existing partitions of topics in its subscription, sorted."""
    kept = {}
    for topic in sorted(member.target):
        if topic in member.subscription:
            partitions = sorted(p for p in member.target[topic] if p < counts[topic])
            if partitions:
                kept[topic] = partitions
    return kept


def _uniform_same(members: list[MemberSpec], counts: Counts) -> dict[str, Assignment]:
    if not members:
        return {}
    topics = sorted(members[0].subscription)
    quota, extra = divmod(sum(counts[topic] for topic in topics), len(members))
    old = {member.member_id: _kept(member, counts) for member in members}
    # Members with the most partitions get the extra ones, so that no partition moves without need.
    by_size = sorted(members, key=lambda m: -sum(map(len, old[m.member_id].values())))
    room = {m.member_id: quota + (place < extra) for place, m in enumerate(by_size)}
    kept: dict[str, dict[uuid.UUID, set[int]]] = {}
    free = {topic: set(range(counts[topic])) for topic in topics}
    for member_id, owned in old.items():
        kept[member_id] = {}
        for topic, partitions in owned.items():
            keep = [p for p in partitions if p in free[topic]][: room[member_id]]
            if keep:
                kept[member_id][topic] = set(keep)
                free[topic].difference_update(keep)
                room[member_id] -= len(keep)
    unassigned = [(topic, partition) for topic in topics for partition in sorted(free[topic])]
    start = 0
    for member_id, more in room.items():
        for topic, partition in unassigned[start : start + more]:
            kept[member_id].setdefault(topic, set()).add(partition)
        start += more
    return {member_id: _frozen(partitions) for member_id, partitions in kept.items()}


def _frozen(assignment: Mapping[uuid.UUID, set[int]]) -> Assignment:
    return {topic: frozenset(partitions) for topic, partitions in assignment.items() if partitions}


class _Balancer:
    """Uniform assignment if members subscribe to different topics.

    Topics with the most partitions per subscriber come first, because they leave the least choice. A free partition is
    assigned to the subscriber with the fewest. Then partitions move, topic by topic, from the subscriber with the most
    to the one with the fewest, as long as that makes their numbers more equal.
    """

    def __init__(self, members: list[MemberSpec], counts: Counts) -> None:
        self.ids = [member.member_id for member in members]
        self.subscribers: dict[uuid.UUID, list[int]] = {}
        self.owned: list[dict[uuid.UUID, set[int]]] = []
        self.free: dict[uuid.UUID, set[int]] = {}
        for index, member in enumerate(members):
            for topic in member.subscription:
                self.subscribers.setdefault(topic, []).append(index)
        self.topics = sorted(
            self.subscribers,
            key=lambda t: (-counts[t] / len(self.subscribers[t]), len(self.subscribers[t]), t),
        )
        for topic in self.topics:
            self.free[topic] = set(range(counts[topic]))
        for member in members:
            kept = {t: set(ps) & self.free[t] for t, ps in _kept(member, counts).items()}
            for topic, partitions in kept.items():
                self.free[topic] -= partitions
            self.owned.append(kept)
        self.sizes = [sum(map(len, owned.values())) for owned in self.owned]

    def assign(self) -> dict[str, Assignment]:
        for topic in self.topics:
            self._hand_out(topic)
        for _ in range(ROUNDS):
            if not sum(self._balance(topic) for topic in self.topics):
                break
        return {member_id: _frozen(owned) for member_id, owned in zip(self.ids, self.owned, strict=True)}

    def _hand_out(self, topic: uuid.UUID) -> None:
        """Assign each free partition to the subscriber with the fewest partitions."""
        smallest = [(self.sizes[index], index) for index in self.subscribers[topic]]
        heapq.heapify(smallest)
        for partition in sorted(self.free[topic]):
            size, index = smallest[0]
            self.owned[index].setdefault(topic, set()).add(partition)
            self.sizes[index] = size + 1
            heapq.heapreplace(smallest, (size + 1, index))

    def _balance(self, topic: uuid.UUID) -> int:
        """Move a topic's partitions from members with the most to members with the fewest. Returns how many moved."""
        subscribers = self.subscribers[topic]
        smallest = [(self.sizes[index], index) for index in subscribers]
        largest = [(-self.sizes[index], -index) for index in subscribers if self.owned[index].get(topic)]
        heapq.heapify(smallest)
        heapq.heapify(largest)
        moved = 0
        while largest:
            giver = -largest[0][1]
            if -largest[0][0] != self.sizes[giver] or not self.owned[giver][topic]:
                heapq.heappop(largest)
                continue
            size, taker = smallest[0]
            if size != self.sizes[taker]:
                heapq.heappop(smallest)
                continue
            if self.sizes[giver] - size <= 1:
                break
            self._move(topic, giver, taker)
            moved += 1
            for index in (giver, taker):
                heapq.heappush(smallest, (self.sizes[index], index))
                heapq.heappush(largest, (-self.sizes[index], -index))
        return moved

    def _move(self, topic: uuid.UUID, giver: int, taker: int) -> None:
        partition = max(self.owned[giver][topic])
        self.owned[giver][topic].remove(partition)
        self.owned[taker].setdefault(topic, set()).add(partition)
        self.sizes[giver] -= 1
        self.sizes[taker] += 1


def contiguous(members: list[MemberSpec], counts: Counts) -> dict[str, Assignment]:
    """Kafka's `range`: every subscriber gets a run of partitions of each topic.

    Topics with the same number of partitions and the same subscribers are divided in the same way. Static members come
    first, sorted by instance id, so a restart with another member id changes nothing.
    """
    ordered = sorted(members, key=lambda m: (m.instance_id is None, m.instance_id or m.member_id, m.member_id))
    subscribers: dict[uuid.UUID, list[str]] = {}
    for member in ordered:
        for topic in member.subscription:
            subscribers.setdefault(topic, []).append(member.member_id)
    result: dict[str, dict[uuid.UUID, frozenset[int]]] = {member.member_id: {} for member in ordered}
    for topic in sorted(subscribers):
        quota, extra = divmod(counts[topic], len(subscribers[topic]))
        start = 0
        for place, member_id in enumerate(subscribers[topic]):
            end = start + quota + (place < extra)
            if end > start:
                result[member_id][topic] = frozenset(range(start, end))
            start = end
    return dict(result)


ASSIGNORS: dict[str, Assignor] = {"uniform": uniform, "range": contiguous}
"""The assignors by Kafka's names. The first one is the default."""
