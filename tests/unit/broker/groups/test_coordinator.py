"""Groups through the handlers, over brokers that share a ledger, in virtual time."""

import asyncio
import contextlib
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headwater.errors import StoreUnavailable
from headwater.settings.settings import Groups
from headwater.state.commands.base import Fence
from headwater.state.commands.groups import ClaimShard, CommitOffsets, DropOffsets
from headwater.state.commands.transactions import EndTransaction, InitTransaction, StageOffsets
from headwater.state.results import Done, Judgement, Transacted
from headwater.state.streams.stored.groups import shard_of
from tests.support.nodes import Caller
from tests.support.promise import promise
from tests.support.virtual_nodes import ONE, topic, way_of
from tests.unit.broker.groups.coordinators import (
    BEAT,
    COMMIT,
    CONSUMER_DESCRIBE,
    DELETE,
    DELETE_OFFSETS,
    DESCRIBE,
    FETCH,
    FIND,
    JOIN,
    LEAVE,
    LIST,
    PROMPT,
    SESSION,
    Coordinators,
    consumer,
    over,
)

PROMISES = ("K8", "K10")


def test_every_broker_names_the_same_coordinator() -> None:
    async def test(world: Coordinators) -> None:
        names = [f"g{i}" for i in range(40)]
        answers = [await Caller(node)(FIND, 4, key_type=0, coordinator_keys=names) for node in world.nodes]
        placed = [[c.node_id for c in answer.coordinators] for answer in answers]
        assert placed[0] == placed[1] == placed[2]
        assert set(placed[0]) == {1, 2, 3}
        older = await Caller(world.nodes[0])(FIND, 3, key="g0", key_type=0)
        assert (older.error_code, older.node_id, older.port) == (ErrorCode.none, placed[0][0], 9092 + placed[0][0])
        bad = await Caller(world.nodes[0])(FIND, 4, key_type=7, coordinator_keys=["g"])
        assert bad.coordinators[0].error_code is ErrorCode.invalid_request

    over(3, test)


def test_only_the_coordinator_answers() -> None:
    async def test(world: Coordinators) -> None:
        await world.stable("g")
        others = [node for node in world.nodes if node is not world.of("g")]
        for node in others:
            caller = Caller(node)
            assert (await caller(BEAT, 3, group_id="g", member_id="m")).error_code is ErrorCode.not_coordinator
            assert await world.commit("g", 5, at=node) is ErrorCode.not_coordinator
            assert (await caller(DESCRIBE, 5, groups=["g"])).groups[0].error_code is ErrorCode.not_coordinator
        empty = await Caller(others[0])(JOIN, 3, group_id="", protocols=[])
        assert empty.error_code is ErrorCode.invalid_group_id

    over(3, test)


def test_a_member_joins_commits_and_leaves() -> None:
    async def test(world: Coordinators) -> None:
        member = await world.stable("g")
        assert await world.beat("g", member, 1) is ErrorCode.none
        assert await world.commit("g", 5, member, 1) is ErrorCode.none
        assert await world.commit("g", 6, member, 9) is ErrorCode.illegal_generation
        assert await world.committed("g") == 5
        described = (await world.ask("g")(DESCRIBE, 5, groups=["g"])).groups[0]
        assert (described.group_state, described.protocol_data) == ("Stable", "range")
        assert (described.members[0].member_assignment, described.members[0].client_host) == (b"mine", "/127.0.0.1")
        listed = (await world.ask("g")(LIST, 5, states_filter=["stable"], types_filter=["Classic"])).groups
        assert [(g.group_id, g.group_state, g.group_type) for g in listed] == [("g", "Stable", "classic")]
        assert (await world.ask("g")(LIST, 5, states_filter=["Empty"], types_filter=[])).groups == ()
        used = await world.ask("g")(
            DELETE_OFFSETS, 0, group_id="g", topics=[{"name": "t", "partitions": [{"partition_index": 0}]}]
        )
        assert used.topics[0].partitions[0].error_code is ErrorCode.group_subscribed_to_topic
        assert (await world.ask("g")(DELETE, 2, groups_names=["g"])).results[0].error_code is ErrorCode.non_empty_group
        left = await world.ask("g")(LEAVE, 5, group_id="g", members=[{"member_id": member}, {"member_id": "x"}])
        assert [m.error_code for m in left.members] == [ErrorCode.none, ErrorCode.unknown_member_id]
        assert (await world.ask("g")(DELETE, 2, groups_names=["g"])).results[0].error_code is ErrorCode.none
        assert await world.committed("g") == -1
        gone = (await world.ask("g")(DELETE, 2, groups_names=["g"])).results[0].error_code
        assert gone is ErrorCode.group_id_not_found

    over(3, test)


def test_session_time_outs_are_checked() -> None:
    async def test(world: Coordinators) -> None:
        for session in (PROMPT.min_session_timeout_ms - 1, PROMPT.max_session_timeout_ms + 1):
            assert (await world.join("g", session_timeout=session)).error_code is ErrorCode.invalid_session_timeout

    over(1, test)


def test_a_killed_coordinator_is_followed_by_another_that_knows_everything() -> None:
    """No committed offset is lost and no generation used again."""

    async def test(world: Coordinators) -> None:
        member = await world.stable("g")
        assert await world.commit("g", 5, member, 1) is ErrorCode.none
        dead = world.of("g")
        waiting = asyncio.ensure_future(world.join("g"))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        way_of(dead).error = StoreUnavailable("gone")
        world.nodes.remove(dead)
        waiting.cancel()
        placed = world.nodes[0].broker.coordinator.place
        while placed("g") is None or placed("g").node == dead.settings.node:  # type: ignore[union-attr]
            await asyncio.sleep(0.1)  # its peers miss its beats and fence it
        assert await world.committed("g") == 5
        assert await world.beat("g", member, 1) is ErrorCode.none
        assert await world.commit("g", 6, member, 1) is ErrorCode.none
        again = await world.join("g", member)
        assert again.generation_id == 2

    over(3, test)


def test_who_has_lost_a_shard_decides_nothing_any_more() -> None:
    async def test(world: Coordinators) -> None:
        member = await world.stable("g")
        await world.commit("g", 5, member, 1)
        here = world.of("g")
        other = next(node for node in world.nodes if node is not here)
        waiting = asyncio.ensure_future(world.join("g"))
        await asyncio.sleep(0.1)
        await other.domains[ONE].submit([ClaimShard(shard_of("g"))])
        await here.domains[ONE].barrier()
        assert (await waiting).error_code is ErrorCode.not_coordinator
        # It is still this one's turn, so the next request claims the shard back.
        assert await world.beat("g", member, 1) is ErrorCode.none
        assert await world.committed("g") == 5

    over(2, test)


def test_a_decision_that_cannot_be_stored_is_not_told() -> None:
    async def test(world: Coordinators) -> None:
        member = await world.stable("g")
        node = world.of("g")
        way_of(node).faults = [(False, StoreUnavailable("full"))]
        refused = await world.join("g", member)
        assert refused.error_code is ErrorCode.coordinator_not_available
        assert await world.beat("g", member, 1) is ErrorCode.none
        assert (await world.join("g", member)).generation_id == 2

    over(1, test)


@promise("K8")
def test_a_decision_is_stored_whatever_is_asked_beside_it() -> None:
    """A request that changes nothing, in the same moment as one that does, takes nothing from it."""

    async def test(world: Coordinators) -> None:
        joined = await world.join("g")
        member = joined.member_id
        synced, left = await asyncio.gather(
            world.sync("g", member, 1, {member: b"mine"}),
            world.ask("g")(LEAVE, 5, group_id="g", members=[{"member_id": "nobody"}]),
        )
        assert (synced.assignment, left.members[0].error_code) == (b"mine", ErrorCode.unknown_member_id)
        stored = world.of("g").broker.coordinator.stored("g")
        assert stored is not None and b"mine" in stored.members[member]

    over(1, test)


def test_a_coordinator_under_a_fence_gives_its_groups_up() -> None:
    async def test(world: Coordinators) -> None:
        member = await world.stable("g")
        here = world.of("g")
        other = next(node for node in world.nodes if node is not here)
        epoch = here.membership.epoch
        for replica in (other.cluster, other.domains[ONE]):
            await replica.submit([Fence(epoch)])
        await asyncio.sleep(5)  # it takes a new epoch
        assert await world.beat("g", member, 1) is ErrorCode.none
        claim = here.domains[ONE].state.groups.claims[shard_of("g")]
        assert claim.holder != epoch

    over(2, test)


def test_a_session_ends_on_the_clock_of_the_coordinator() -> None:
    async def test(world: Coordinators) -> None:
        member = await world.stable("g")
        await asyncio.sleep(SESSION / 1000 + 1)
        assert await world.beat("g", member, 1) is ErrorCode.unknown_member_id
        described = (await world.ask("g")(DESCRIBE, 5, groups=["g"])).groups[0]
        assert described.group_state == "Empty"

    over(1, test)


def test_offsets_without_a_group() -> None:
    """Consumers that assign their partitions themselves."""

    async def test(world: Coordinators) -> None:
        assert await world.committed("solo") == -1
        assert await world.commit("solo", 3) is ErrorCode.none
        assert await world.committed("solo") == 3
        assert await world.commit("solo", 4, "x", 1) is ErrorCode.unknown_member_id
        assert await world.commit("solo", 4, committed_metadata="x" * 4097) is ErrorCode.offset_metadata_too_large
        assert await world.commit("solo", 4, partition_index=-1) is ErrorCode.unknown_topic_or_partition
        described = (await world.ask("solo")(DESCRIBE, 6, groups=["solo", "nobody"])).groups
        assert [g.group_state for g in described] == ["Empty", "Dead"]
        assert [g.error_code for g in described] == [ErrorCode.none, ErrorCode.group_id_not_found]
        everything = await world.ask("solo")(FETCH, 8, groups=[{"group_id": "solo", "topics": None}])
        [found] = everything.groups[0].topics
        assert (found.name, found.partitions[0].committed_offset, found.partitions[0].metadata) == ("t", 3, "note")

    over(1, test)


def test_offsets_of_a_deleted_topic_are_gone_and_stay_so_when_it_comes_back() -> None:
    async def test(world: Coordinators) -> None:
        await world.commit("g", 3)
        node = world.nodes[0]
        await node.broker.topics.delete(node.cluster.state.names["t"])
        everything = await world.ask("g")(FETCH, 8, groups=[{"group_id": "g", "topics": None}])
        assert everything.groups[0].topics == ()
        assert await world.commit("g", 4) is ErrorCode.unknown_topic_or_partition
        await topic(node)
        assert await world.committed("g") == -1
        await asyncio.sleep(10)
        stored = node.domains[ONE].state.groups.get("g")
        assert stored is not None and stored.count == 0

    over(1, test)


def test_offsets_expire_once_a_group_has_been_empty_for_long() -> None:
    async def test(world: Coordinators) -> None:
        member = await world.stable("g")
        await world.commit("g", 3, member, 1)
        await world.commit("solo", 7)
        for _ in range(30):
            await asyncio.sleep(5)
            assert await world.beat("g", member, 1) is ErrorCode.none
        assert await world.committed("g") == 3, "a topic that its members read keeps its offsets"
        assert await world.committed("solo") == -1
        await asyncio.sleep(90)
        assert await world.committed("g") == 3
        await asyncio.sleep(60)
        assert await world.committed("g") == -1
        await asyncio.sleep(700)
        assert world.nodes[0].domains[ONE].state.groups.get("g") is None

    over(1, test, Groups(initial_rebalance_delay_ms=0, offset_retention_ms=100_000))


@promise("K10")
def test_many_offsets_expire_in_pieces() -> None:
    """More than a ledger record holds; they held up the expiry of every group."""
    count = 60_000

    async def test(world: Coordinators) -> None:
        await world.commit("many", 1)
        replica = world.nodes[0].domains[ONE]
        [claim] = {c.number for c in replica.state.groups.claims.values()}
        topic = world.nodes[0].cluster.state.names["t"].id.bytes
        for first in range(0, count, 10_000):
            entered = [(topic, i, 1, -1, "") for i in range(first, first + 10_000)]
            [result] = await replica.submit([CommitOffsets(claim, "many", entered)])
            assert isinstance(result, Done), result
        await world.commit("other", 7)
        await asyncio.sleep(300)
        group = replica.state.groups.get("many")
        assert group is None or not group.count
        assert await world.committed("other") == -1

    over(1, test, Groups(initial_rebalance_delay_ms=0, offset_retention_ms=100_000))


@promise("K12")
def test_what_a_transaction_may_still_commit_does_not_expire() -> None:
    """Neither the committed offset that it replaces, nor a group that has staged offsets only."""

    async def test(world: Coordinators) -> None:
        replica = world.nodes[0].domains[ONE]
        await world.commit("old", 1)
        await world.commit("new", 1)
        topic = world.nodes[0].cluster.state.names["t"].id.bytes
        claims = {group: replica.state.groups.claims[shard_of(group)].number for group in ("old", "new")}
        [dropped] = await replica.submit([DropOffsets(claims["new"], "new", [(topic, 0)])])
        assert isinstance(dropped, Done)
        staged = [(topic, 0, 9, -1, "")]
        await replica.submit([InitTransaction("id", 1 << 30, 70, -1, -1)])
        for group, claim in claims.items():
            [result] = await replica.submit([StageOffsets(claim, group, "id", 70, 0, joins=True, offsets=staged)])
            assert isinstance(result, Transacted) and result.judgement is Judgement.DONE, result
        await asyncio.sleep(3_000)
        groups = {group: replica.state.groups.get(group) for group in claims}
        assert [found.count if found is not None else None for found in groups.values()] == [1, 0]
        await replica.submit([EndTransaction("id", 70, 0, commit=False, bump=True, fresh=0)])
        await asyncio.sleep(3_000)
        assert [replica.state.groups.get(group) for group in claims] == [None, None]

    over(1, test, Groups(initial_rebalance_delay_ms=0, offset_retention_ms=100_000))


def test_a_broker_that_leaves_sends_its_members_to_the_next() -> None:
    async def test(world: Coordinators) -> None:
        member = await world.stable("g")
        leaving = world.of("g")
        await leaving.stop()
        world.nodes.remove(leaving)
        with contextlib.suppress(asyncio.CancelledError):
            await world.nodes[0].cluster.barrier()
        assert await world.beat("g", member, 1) is ErrorCode.none

    over(2, test)


@promise("K9")
def test_a_consumer_of_the_new_protocol_joins_commits_and_leaves() -> None:
    async def test(world: Coordinators) -> None:
        joined = await consumer(world, "g", "m", 0)
        assert (joined.error_code, joined.member_epoch, joined.heartbeat_interval.seconds) == (ErrorCode.none, 2, 5)
        assert [tuple(t.partitions) for t in joined.assignment.topic_partitions] == [(0,)]
        assert (await consumer(world, "g", "m", 2)).assignment is None
        assert await world.commit("g", 5, "m", 1) is ErrorCode.unsupported_version
        answer = await world.ask("g")(
            COMMIT,
            9,
            group_id="g",
            member_id="m",
            generation_id_or_member_epoch=2,
            topics=[{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 5}]}],
        )
        assert answer.topics[0].partitions[0].error_code is ErrorCode.none
        described = (await world.ask("g")(CONSUMER_DESCRIBE, 1, group_ids=["g", "no"])).groups
        assert (described[0].group_state, described[0].assignor_name, described[0].group_epoch) == (
            "Stable",
            "uniform",
            2,
        )
        assert described[0].members[0].assignment.topic_partitions[0].topic_name == "t"
        classic = (await world.ask("g")(DESCRIBE, 6, groups=["g"])).groups[0]
        assert classic.error_code is ErrorCode.group_id_not_found
        listed = (await world.ask("g")(LIST, 5, states_filter=[], types_filter=["consumer"])).groups
        assert [(g.group_id, g.group_type, g.protocol_type) for g in listed] == [("g", "consumer", "consumer")]
        assert (await consumer(world, "g", "m", -1)).member_epoch == -1
        assert (await world.ask("g")(DELETE, 2, groups_names=["g"])).results[0].error_code is ErrorCode.none

    over(3, test)


@promise("K9")
def test_a_consumer_of_the_new_protocol_outlives_its_coordinator() -> None:
    """Nothing that a member was told is lost."""

    async def test(world: Coordinators) -> None:
        assert (await consumer(world, "g", "m", 0)).member_epoch == 2
        here = world.of("g")
        other = next(node for node in world.nodes if node is not here)
        await other.domains[ONE].submit([ClaimShard(shard_of("g"))])
        await here.domains[ONE].barrier()
        assert (await consumer(world, "g", "m", 2)).error_code is ErrorCode.none
        node = world.nodes[0]
        await node.broker.topics.add_partitions(node.cluster.state.names["t"], 3)
        await world.of("g").cluster.barrier()
        grown = await consumer(world, "g", "m", 2)
        assert (grown.member_epoch, [len(t.partitions) for t in grown.assignment.topic_partitions]) == (3, [3])
        await asyncio.sleep(50)
        assert (await consumer(world, "g", "m", 2)).error_code is ErrorCode.unknown_member_id

    over(2, test)


@promise("K7", "K9")
def test_a_groups_own_configs_count() -> None:
    """How often its members show themselves, and how long they may be silent."""

    async def test(world: Coordinators) -> None:
        await consumer(world, "g", "m", 0)
        configs = [
            {"name": "consumer.heartbeat.interval.ms", "config_operation": 0, "value": "6000"},
            {"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "60000"},
        ]
        resources = [{"resource_type": 32, "resource_name": "g", "configs": configs}]
        altered = await world.ask("g")(44, 1, resources=resources, validate_only=False)
        assert altered.responses[0].error_code is ErrorCode.none
        assert (await consumer(world, "g", "m", 2)).heartbeat_interval.seconds == 6
        assert (await consumer(world, "other", "m", 0)).heartbeat_interval.seconds == 5
        await asyncio.sleep(50)
        assert (await consumer(world, "g", "m", 2)).error_code is ErrorCode.none
        assert (await consumer(world, "other", "m", 1)).error_code is ErrorCode.unknown_member_id

    over(1, test)


@promise("K9")
def test_a_group_changes_its_protocol_only_while_it_is_empty() -> None:
    """And keeps its offsets."""

    async def test(world: Coordinators) -> None:
        member = await world.stable("g")
        await world.commit("g", 5, member, 1)
        refused = await consumer(world, "g", "m", 0)
        assert refused.error_code is ErrorCode.group_id_not_found
        await world.ask("g")(LEAVE, 5, group_id="g", members=[{"member_id": member}])
        assert (await consumer(world, "g", "m", 0)).error_code is ErrorCode.none
        assert (await world.join("g")).error_code is ErrorCode.inconsistent_group_protocol
        assert await world.beat("g", member, 1) is ErrorCode.unknown_member_id
        await consumer(world, "g", "m", -1)
        assert (await world.join("g")).error_code is ErrorCode.none
        assert await world.committed("g") == 5
        unknown = await consumer(world, "nobody", "m", 3)
        assert unknown.error_code is ErrorCode.group_id_not_found
        nameless = await consumer(world, "g2", "", 0)
        assert nameless.error_code is ErrorCode.invalid_request

    over(1, test)


@promise("K8")
def test_an_unexpected_failure_to_store_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    """Members are told, the log has it, and the group goes on with what the ledger has."""

    async def test(world: Coordinators) -> None:
        coordinator = world.of("g").broker.coordinator
        submit = coordinator._submit

        async def planted(command: Any) -> int:
            raise RuntimeError("planted")

        coordinator._submit = planted  # type: ignore[method-assign]
        assert (await world.join("g")).error_code is ErrorCode.unknown_server_error
        coordinator._submit = submit  # type: ignore[method-assign]
        await world.stable("g")

    over(1, test)
    assert "a task failed" in caplog.text and "planted" in caplog.text
