"""Who should own which partitions: Kafka's two server-side assignors, as pure functions.

Both give every partition of every subscribed topic to exactly one member that subscribes to it. Equal input gives an
equal result, whatever the order in which members came.
"""

from __future__ import annotations

import heapq
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Assignment = Mapping[uuid.UUID, frozenset[int]]
"""Partitions by topic. No topic is there without partitions."""

EMPTY: Assignment = {}
ROUNDS = 16
"""How often all topics are gone over to balance them, when members subscribe to different ones."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """What an assignor knows of a member. Every topic it subscribes to exists."""

    member_id: str
    instance_id: str | None
    subscription: frozenset[uuid.UUID]
    target: Assignment
    """What it should have owned so far."""


Counts = Mapping[uuid.UUID, int]
"""How many partitions each topic has."""

Assignor = Callable[[list[MemberSpec], Counts], dict[str, Assignment]]


def uniform(members: list[MemberSpec], counts: Counts) -> dict[str, Assignment]:
    """Numbers of partitions as equal as can be; then, as few moves as can be."""
    members = sorted(members, key=lambda member: member.member_id)
    if all(member.subscription == members[0].subscription for member in members[1:]):
        return _uniform_same(members, counts)
    return _Balancer(members, counts).assign()


def _kept(member: MemberSpec, counts: Counts) -> dict[uuid.UUID, list[int]]:
    """What of its old target a member may keep: partitions that exist, of topics it still wants, in order."""
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
    # Those who have most get the extra partitions: nobody gives one up only for another to get it.
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
    """Uniform assignment where members subscribe to different topics.

    Topics with most partitions for each subscriber come first: they leave least choice. A free partition goes to the
    subscriber with least. Then partitions move, topic by topic, from the subscriber with most to the one with least, as
    long as that makes their numbers more equal.
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
        """Give each free partition to the subscriber with least."""
        smallest = [(self.sizes[index], index) for index in self.subscribers[topic]]
        heapq.heapify(smallest)
        for partition in sorted(self.free[topic]):
            size, index = smallest[0]
            self.owned[index].setdefault(topic, set()).add(partition)
            self.sizes[index] = size + 1
            heapq.heapreplace(smallest, (size + 1, index))

    def _balance(self, topic: uuid.UUID) -> int:
        """Move a topic's partitions from those with most to those with least. How many moved."""
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
    """Kafka's `range`: of each topic every subscriber gets a run of partitions.

    Topics with equally many partitions and the same subscribers are cut in the same places. Static members come first,
    by their instance: a restart with another member id changes nothing.
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
"""Kafka's names for them; the first one is the default."""
