"""What members bring has limits: of one member, of a group, of the caller who made groups, and of a broker."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from harness.virtual import run
from headwater.broker.groups.shares import GroupShares, caller_of
from headwater.coordination.common import GroupError
from headwater.settings.settings import Limits
from headwater.state.cluster.access import ANONYMOUS
from tests.support.promise import promise
from tests.support.virtual_nodes import NodeWorld, topic
from tests.unit.broker.groups.coordinators import LEAVE, PROMPT, Coordinators, consumer

PROMISES = ("S4",)
SMALL = Limits(group_member_bytes=1_000, group_bytes=2_500, caller_groups_bytes=4_000, groups_bytes=6_000)


def refused(shares: GroupShares, group: str, caller: str, brought: int, before: int = 0) -> str:
    with pytest.raises(GroupError) as error:
        shares.check(group, caller, brought, before)
    assert error.value.code == "group_max_size_reached"
    return error.value.message


def test_each_limit_names_its_setting() -> None:
    shares = GroupShares(SMALL)
    assert "limits.group_member_bytes" in refused(shares, "g", "a", 1_001)
    shares.note("g", 2_000, "a")
    shares.check("g", "a", 500)
    assert "limits.group_bytes" in refused(shares, "g", "b", 501)
    shares.check("g", "b", 501, 300)  # it replaces what it had
    shares.note("h", 1_800, "a")
    assert "limits.caller_groups_bytes" in refused(shares, "i", "a", 300)
    shares.check("i", "b", 300)
    shares.note("i", 2_000, "b")
    assert (shares.total, shares.largest) == (5_800, 3_800)
    assert "limits.groups_bytes" in refused(shares, "j", "c", 300)


def test_a_group_that_is_gone_leaves_its_room() -> None:
    shares = GroupShares(SMALL)
    shares.note("g", 900)
    shares.note("g", 1_000, "a")  # it came from the ledger; the next who joins has it
    shares.note("g", 1_200, "b")
    assert (shares.total, shares.largest) == (1_200, 1_200)
    shares.forget("g")
    shares.forget("g")
    assert (shares.total, shares.largest) == (0, 0)


def test_whose_share_it_is() -> None:
    assert caller_of("User:a", "10.0.0.1") == "User:a"
    assert caller_of(ANONYMOUS, "10.0.0.1") == "10.0.0.1"
    assert caller_of(ANONYMOUS, "2001:db8::1") == caller_of(ANONYMOUS, "2001:db8::2")


async def one_node() -> Coordinators:
    node = await NodeWorld().node(1, groups=PROMPT, limits=SMALL)
    await topic(node)
    return Coordinators([node])


def brings(size: int) -> list[dict[str, Any]]:
    return [{"name": "range", "metadata": bytes(size)}]


@promise("S4")
def test_joins_that_bring_too_much() -> None:
    """They are refused one by one; the group and its members go on, and one that leaves makes room."""

    async def main() -> None:
        world = await one_node()
        shares = world.nodes[0].broker.coordinator.shares
        assert (await world.join("g", protocols=brings(1_000))).error_code is ErrorCode.group_max_size_reached
        assert shares.total == 0
        first = await world.join("g", protocols=brings(900))
        assert first.error_code is ErrorCode.none
        before = shares.total
        assert before > 900
        synced = await world.sync("g", first.member_id, first.generation_id, {first.member_id: bytes(1_001)})
        assert synced.error_code is ErrorCode.group_max_size_reached and shares.total == before
        synced = await world.sync("g", first.member_id, first.generation_id, {first.member_id: bytes(900)})
        assert synced.error_code is ErrorCode.none and shares.total == before + 900
        other = await world.join("g", protocols=brings(890))
        assert other.error_code is ErrorCode.group_max_size_reached, "the group would have more than 2,500 bytes"
        assert await world.beat("g", first.member_id, first.generation_id) is ErrorCode.none
        left = await world.ask("g")(LEAVE, 2, group_id="g", member_id=first.member_id)
        assert left.error_code is ErrorCode.none and shares.total == 0
        assert (await world.join("g", protocols=brings(900))).error_code is ErrorCode.none

    run(main())


@promise("S4")
def test_subscriptions_that_are_too_large() -> None:
    async def main() -> None:
        world = await one_node()
        shares = world.nodes[0].broker.coordinator.shares
        names = [f"{n:0>100}" for n in range(10)]
        answer = await consumer(world, "g", "m", 0, subscribed_topic_names=names)
        assert answer.error_code is ErrorCode.group_max_size_reached and "group_member_bytes" in answer.error_message
        assert shares.total == 0 and world.nodes[0].broker.coordinator.find("g") is None
        answer = await consumer(world, "g", "m", 0, subscribed_topic_names=names[:8])
        assert answer.error_code is ErrorCode.none and shares.total > 800
        grown = await consumer(world, "g", "m", answer.member_epoch, subscribed_topic_names=names)
        assert grown.error_code is ErrorCode.group_max_size_reached
        kept = await consumer(world, "g", "m", answer.member_epoch)
        assert kept.error_code is ErrorCode.none
        await consumer(world, "g", "m", -1)
        assert shares.total == 0

    run(main())
