"""A shard moves, or the ledger is away for a moment: what requests are answered then.

A client that does not retry an error must not get it. `ARCHITECTURE.md` has the rules.
"""

import asyncio
import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headwater.app.node import Node
from headwater.broker.groups import coordinator as module
from headwater.errors import StoreUnavailable
from headwater.settings.settings import Groups
from headwater.state.commands.groups import ClaimShard
from headwater.state.streams.stored.groups import MAX_NAME, shard_of
from tests.support.nodes import Caller
from tests.support.promise import promise
from tests.support.virtual_nodes import ONE, topic, way_of
from tests.unit.broker.groups.coordinators import FETCH, Coordinators, consumer, over

PROMISES = ("K8", "K9", "K10")

AWAY = StoreUnavailable("the ledger is away")
SLOW = Groups(initial_rebalance_delay_ms=60_000)


def elsewhere(world: Coordinators, group: str = "g") -> Node:
    """A broker that does not coordinate a group."""
    return next(node for node in world.nodes if node is not world.of(group))


async def _away() -> None:
    raise AWAY


async def fetched(node: Node, **given: Any) -> Any:
    asked = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}], **given}
    return (await Caller(node)(FETCH, 9, groups=[asked], require_stable=True)).groups[0]


def test_every_broker_knows_the_committed_offsets() -> None:
    """librdkafka never asks again for the offsets of an assignment after NOT_COORDINATOR."""

    async def test(world: Coordinators) -> None:
        member = await world.stable("g")
        for offset in (5, 6):
            assert await world.commit("g", offset, member, 1) is ErrorCode.none
            for node in world.nodes:
                assert await world.committed("g", node) == offset
        assert world.of("g").domains[ONE].state.groups.claims[shard_of("g")].number == 1, "to read takes no shard"

    over(3, test)


def test_committed_offsets_are_answered_between_two_claims() -> None:
    """The claim is gone and the next one is not there yet."""

    async def test(world: Coordinators) -> None:
        await world.commit("g", 5)
        here, other = world.of("g"), elsewhere(world)
        await other.membership.fence(here.cluster.state.processes[here.membership.epoch])
        for node in world.nodes:
            assert await world.committed("g", node) == 5
        await other.domains[ONE].submit([ClaimShard(shard_of("g"))])
        for node in world.nodes:
            assert await world.committed("g", node) == 5

    over(2, test)


def test_committed_offsets_wait_for_the_ledger() -> None:
    async def test(world: Coordinators) -> None:
        await world.commit("g", 5)
        node = world.of("g")
        way_of(node).error = AWAY
        waiting = asyncio.ensure_future(world.committed("g", node))
        await asyncio.sleep(2)
        assert not waiting.done() and node.broker.coordinator.looks == 1
        way_of(node).error = None
        assert await waiting == 5
        assert node.broker.coordinator.looks == 0

    over(1, test)


def test_a_long_wait_for_the_ledger_ends_with_an_error_that_every_client_retries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(world: Coordinators) -> None:
        await world.commit("g", 5)
        node = world.of("g")
        way_of(node).error = AWAY
        async with asyncio.timeout(module.LOOK_SECONDS + 1):
            assert await world.committed("g", node) is ErrorCode.coordinator_load_in_progress
        monkeypatch.setattr(module, "MAX_LOOKS", 1)
        first = asyncio.ensure_future(world.committed("g", node))
        await asyncio.sleep(0.1)
        assert await world.committed("g", node) is ErrorCode.coordinator_load_in_progress
        assert not first.done(), "one may wait, and the second was refused at once"
        way_of(node).error = None
        assert await first == 5

    over(1, test)


def test_a_name_that_is_too_long_has_no_offsets() -> None:
    async def test(world: Coordinators) -> None:
        assert await world.committed("n" * (MAX_NAME + 1), world.nodes[0]) is ErrorCode.invalid_group_id

    over(1, test)


def test_a_topic_that_a_broker_has_not_heard_of_is_looked_up() -> None:
    """Otherwise the answer would be that nothing is committed, and a consumer would begin somewhere else."""

    async def test(world: Coordinators) -> None:
        here, other = world.of("g"), elsewhere(world)
        way_of(other).deaf = True
        for name, asked in (("a", [{"name": "a", "partition_indexes": [0]}]), ("b", None)):
            await topic(here, name)
            rows = [{"name": name, "partitions": [{"partition_index": 0, "committed_offset": 7}]}]
            await Caller(here)(8, 8, group_id="g", member_id="", generation_id_or_member_epoch=-1, topics=rows)
            assert name not in other.cluster.state.names
            found = {t.name: t.partitions[0].committed_offset for t in (await fetched(other, topics=asked)).topics}
            assert found[name] == 7
        other.cluster.barrier = _away  # type: ignore[method-assign]
        nowhere = await fetched(other, topics=[{"name": "c", "partition_indexes": [0]}])
        assert nowhere.error_code is ErrorCode.coordinator_load_in_progress

    over(2, test)


@promise("K9")
def test_the_epoch_of_a_member_is_checked_by_every_broker() -> None:
    """The Java client names the member that fetches."""

    async def test(world: Coordinators) -> None:
        joined = await consumer(world, "g", "m", 0)
        for node in world.nodes:
            good = await fetched(node, member_id="m", member_epoch=joined.member_epoch)
            assert good.error_code is ErrorCode.none
            stale = await fetched(node, member_id="m", member_epoch=joined.member_epoch - 1)
            assert stale.error_code is ErrorCode.stale_member_epoch
            unknown = await fetched(node, member_id=str(uuid.uuid4()), member_epoch=1)
            assert unknown.error_code is ErrorCode.unknown_member_id
            assert (await fetched(node)).error_code is ErrorCode.none

    over(2, test)


@promise("K8")
def test_a_member_that_syncs_while_a_shard_is_being_claimed_joins_again() -> None:
    """The Java client throws an exception at COORDINATOR_LOAD_IN_PROGRESS, here and nowhere else."""

    async def test(world: Coordinators) -> None:
        joined = await world.join("g")
        here, other = world.of("g"), elsewhere(world)
        await other.domains[ONE].submit([ClaimShard(shard_of("g"))])
        await here.domains[ONE].barrier()
        way_of(here).gate.clear()
        synced = await world.sync("g", joined.member_id, joined.generation_id, {joined.member_id: b"mine"})
        assert synced.error_code is ErrorCode.rebalance_in_progress
        assert await world.beat("g", joined.member_id, joined.generation_id) is ErrorCode.none, "it counts as alive"
        way_of(here).gate.set()

    over(2, test)


@promise("K10")
def test_members_do_not_wait_at_a_broker_that_has_lost_the_ledger() -> None:
    """Another broker may coordinate the group by now."""

    async def test(world: Coordinators) -> None:
        here = world.of("g")
        waiting = asyncio.ensure_future(world.join("g"))
        await asyncio.sleep(1)
        assert not waiting.done()
        way_of(here).error = AWAY
        async with asyncio.timeout(15):
            assert (await waiting).error_code is ErrorCode.not_coordinator

    over(1, test, SLOW)


@promise("K9")
def test_a_heartbeat_does_not_wait_for_a_ledger_that_is_lost() -> None:
    """What the heartbeat changes is being stored, for as long as the ledger is away."""

    async def test(world: Coordinators) -> None:
        await consumer(world, "g", "m", 0)
        here = world.of("g")
        way_of(here).gate.clear()
        waiting = asyncio.ensure_future(consumer(world, "g", "n", 0))
        await asyncio.sleep(1)
        assert not waiting.done()
        way_of(here).error = AWAY
        async with asyncio.timeout(15):
            assert (await waiting).error_code is ErrorCode.not_coordinator

    over(1, test)


@promise("K10")
def test_members_do_not_wait_at_a_broker_that_is_not_the_coordinator_any_more() -> None:
    """The shard is placed elsewhere, and nobody has claimed it there yet."""

    async def test(world: Coordinators) -> None:
        here = world.of("g")
        waiting = asyncio.ensure_future(world.join("g"))
        await asyncio.sleep(1)
        here.broker.coordinator._is_ours = lambda shard: False  # type: ignore[method-assign]
        async with asyncio.timeout(2):
            assert (await waiting).error_code is ErrorCode.not_coordinator

    over(1, test, SLOW)
