"""A coordinator and the handlers work with a kind of group that they have never heard of."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from kio.schema.errors import ErrorCode

from headwater.broker.groups.held import Held
from headwater.coordination import kinds
from headwater.coordination.classic.group import ClassicGroup
from headwater.coordination.common import Change, GroupError, Reply, Topics
from headwater.coordination.group import Commit, GroupContext
from tests.unit.broker.groups.coordinators import (
    CONSUMER_BEAT,
    DELETE,
    LIST,
    Coordinators,
    over,
)

PROMISES = ("K8",)

SESSION_MS = 10_000


class Visitors:
    """A kind of group whose members come, and are gone after a while."""

    kind = "visitors"
    protocol_type = "visit"

    def __init__(self, members: Mapping[str, bytes], now_ms: int) -> None:
        self.members = dict(members)
        self.due = {name: now_ms + SESSION_MS for name in members}
        self.change: Change | None = None

    @classmethod
    def create(cls, name: str, context: GroupContext, wall_ms: int) -> Visitors:
        return cls({}, 0)

    @classmethod
    def restore(
        cls, name: str, context: GroupContext, head: bytes, members: Mapping[str, bytes], now_ms: int
    ) -> Visitors:
        assert head == b"visitors"
        return cls(members, now_ms)

    @property
    def state(self) -> str:
        return "Empty" if self.is_empty else "Stable"

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def weight(self) -> int:
        return sum(map(len, self.members.values()))

    def come(self, name: str, now_ms: int) -> None:
        self.members[name], self.due[name] = b"here", now_ms + SESSION_MS
        self.change = Change(b"visitors", {name: b"here"}, ())

    def next_deadline(self) -> int | None:
        return min(self.due.values(), default=None)

    def tick(self, topics: Topics, now_ms: int, wall_ms: int) -> None:
        gone = tuple(name for name, due in self.due.items() if due <= now_ms)
        for name in gone:
            del self.members[name], self.due[name]
        self.change = Change(None, {}, gone) if gone else None

    def changes(self) -> Change | None:
        change, self.change = self.change, None
        return change

    def replies(self) -> list[Reply]:
        return []

    def abandon(self, code: str) -> list[Reply]:
        return []

    def subscribed(self, topics: Topics) -> set[str] | None:
        return None

    def is_subscribed(self, topic: str, topics: Topics) -> bool:
        return True

    def check_commit(self, commit: Commit, now_ms: int) -> None:
        if commit.member_id not in self.members:
            raise GroupError("unknown_member_id")

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        pass


async def visited(world: Coordinators, name: str) -> Held:
    """A group with one member, stored."""
    coordinator = world.of(name).broker.coordinator
    await coordinator.enter(name)
    held = coordinator.hold(name, group := coordinator.new(Visitors, name))
    group.come("m", coordinator.now_ms())
    coordinator.settle(held)
    assert held.saving is not None
    await held.saving
    return held


def test_a_third_kind_of_group_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Listed, asked about commits, protected from the other protocols and from deletion while it has members."""
    monkeypatch.setitem(kinds.KINDS, Visitors.kind, Visitors)

    async def test(world: Coordinators) -> None:
        held = await visited(world, "g")
        assert held.of_kind(Visitors) is held.group and held.of_kind(ClassicGroup) is None
        [listed] = (await world.ask("g")(LIST, 5, states_filter=[], types_filter=[])).groups
        assert (listed.group_type, listed.protocol_type, listed.group_state) == ("visitors", "visit", "Stable")
        assert await world.commit("g", 7, "stranger") is ErrorCode.unknown_member_id
        assert await world.commit("g", 7, "m") is ErrorCode.none
        assert (await world.join("g")).error_code is ErrorCode.inconsistent_group_protocol
        beat = {"group_id": "g", "member_id": "x", "member_epoch": 0, "rebalance_timeout": 1_000}
        joining = {**beat, "subscribed_topic_names": ["t"], "topic_partitions": []}
        assert (await world.ask("g")(CONSUMER_BEAT, 1, **joining)).error_code is ErrorCode.group_id_not_found
        [deleted] = (await world.ask("g")(DELETE, 2, groups_names=["g"])).results
        assert deleted.error_code is ErrorCode.non_empty_group

    over(1, test)


def test_a_third_kind_of_group_survives_its_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one reads it from the ledger and ends the sessions of members that stay silent."""
    monkeypatch.setitem(kinds.KINDS, Visitors.kind, Visitors)

    async def test(world: Coordinators) -> None:
        await visited(world, "g")
        first = world.of("g")
        await first.stop()
        world.nodes.remove(first)
        await world.nodes[0].cluster.barrier()
        coordinator = world.of("g").broker.coordinator
        await coordinator.enter("g")
        held = coordinator.find("g")
        assert held is not None
        group = held.of_kind(Visitors)
        assert group is not None and list(group.members) == ["m"]
        deadline = group.next_deadline()
        assert deadline is not None
        group.tick(coordinator.topics, deadline, coordinator.wall_ms())
        coordinator.settle(held)
        assert held.saving is not None
        await held.saving
        stored = coordinator.stored("g")
        assert stored is not None and not stored.members
        [deleted] = (await world.ask("g")(DELETE, 2, groups_names=["g"])).results
        assert deleted.error_code is ErrorCode.none
        assert coordinator.stored("g") is None

    over(2, test)
