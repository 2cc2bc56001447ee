"""Which brokers clients are told of, by the zone in their client id."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from headwater.broker.rotation.routing import zone_of
from headwater.settings.settings import Routing, Settings
from tests.support.batches import batch
from tests.support.nodes import Caller, cluster
from tests.support.promise import promise
from tests.unit.broker.calling import create, fetch, produce, recs

PROMISES = ("M3",)

METADATA, LIST_OFFSETS, FIND_COORDINATOR, DESCRIBE_CLUSTER, DESCRIBE_PARTITIONS = 3, 2, 10, 60, 75
APART = Settings(objects="memory://", routing=Routing(tell_other_zones=False))
STRICT = Settings(objects="memory://", routing=Routing(enforce_owner=True))
PARTITIONS = 12


@promise("M3")
@pytest.mark.parametrize(
    ("client_id", "zone"),
    [
        ("zone_id=a", "a"),
        ("zone_id=use1-az1,app=orders", "use1-az1"),
        ("app=orders,zone_id=b", "b"),
        (" zone_id = b , app = x ", "b"),
        ("zone_id=a=b", "a=b"),
        ("zone_id=a,zone_id=b", "a"),
        ("zone_id=Zürich 1", "Zürich 1"),
        ("rdkafka,zone_id=a", "a"),
        ("", ""),
        ("rdkafka", ""),
        ("zone_id", ""),
        ("zone_id=", ""),
        ("zone_id= ,app=x", ""),
        ("zone_id=,zone_id=b", ""),
        ("ZONE_ID=a", ""),
        ("my_zone_id=a", ""),
        ("app=zone_id=a", ""),
        (",,=,==,", ""),
        ("=zone_id", ""),
    ],
)
def test_the_zone_of_a_client_id(client_id: str, zone: str) -> None:
    """`key=value` pairs with commas between; whatever else a client calls itself names no zone."""
    assert zone_of(client_id) == zone


@promise("M3")
@examples(deadline=None)
@given(st.text(), st.text(alphabet=st.characters(exclude_characters=",")), st.text())
def test_any_client_id_has_a_zone_or_none(before: str, zone: str, after: str) -> None:
    """No client id is an error, and a pair is found wherever it stands behind others that name no zone."""
    assert isinstance(zone_of(before), str)
    if "zone_id" not in before:
        assert zone_of(f"{before},zone_id={zone},{after}") == zone.strip()


def over_zones(
    test: Callable[..., Awaitable[None]], *, brokers: int = 5, zones: str = "ab", settings: Settings | None = None
) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), cluster(brokers, settings, zones) as callers:
            await test(*callers)

    asyncio.run(main())


async def told(caller: Caller, client_id: str) -> tuple[set[int], list[int], int]:
    """The brokers, the leaders of topic `t`, and the controller, as three APIs tell them alike."""
    caller.client_id = client_id
    metadata = await caller(METADATA, 12, topics=[{"name": "t", "topic_id": None}])
    described = await caller(DESCRIBE_CLUSTER, 1, endpoint_type=1)
    pages = await caller(DESCRIBE_PARTITIONS, 0, topics=[{"name": "t"}], response_partition_limit=2000, cursor=None)
    brokers = {b.node_id for b in metadata.brokers}
    leaders = [p.leader_id for p in metadata.topics[0].partitions]
    assert {b.broker_id for b in described.brokers} == brokers
    assert [p.leader_id for p in pages.topics[0].partitions] == leaders
    assert described.controller_id == metadata.controller_id
    assert {(b.node_id, b.rack) for b in metadata.brokers} == {(b, "ab"[(b - 1) % 2]) for b in brokers}
    assert all(p.replica_nodes == p.isr_nodes == (p.leader_id,) for p in metadata.topics[0].partitions)
    return brokers, leaders, metadata.controller_id


@promise("M3")
def test_a_client_with_a_zone_is_told_the_brokers_of_that_zone() -> None:
    """With zones apart, brokers, leaders and the controller come from the client's, the same from every broker."""

    async def test(*callers: Caller) -> None:
        await create(callers[0], partitions=PARTITIONS)
        for zone, nodes in (("a", {1, 3, 5}), ("b", {2, 4})):
            answers = [await told(caller, f"zone_id={zone},app=x") for caller in callers]
            assert all(answer == answers[0] for answer in answers)
            brokers, leaders, controller = answers[0]
            assert brokers == nodes
            assert set(leaders) == nodes, "twelve partitions are spread over two or three brokers"
            assert controller in nodes

    over_zones(test, settings=APART)


@promise("M3")
def test_everybody_is_told_where_there_is_no_zone_or_no_broker_in_it() -> None:
    """Without a zone, or with one that has no broker, a client is told all brokers."""

    async def test(*callers: Caller) -> None:
        await create(callers[0], partitions=PARTITIONS)
        answers = [await told(callers[1], client_id) for client_id in ("", "app", "zone_id=", "zone_id=mars")]
        assert all(answer == answers[0] for answer in answers)
        assert answers[0][0] == {1, 2, 3, 4, 5}

    over_zones(test)


@promise("M3")
def test_other_zones_are_told_and_not_led_to() -> None:
    """All brokers are told, since a coordinator may be any of them; leaders and the controller are of the zone."""

    async def test(*callers: Caller) -> None:
        await create(callers[0], partitions=PARTITIONS)
        brokers, leaders, controller = await told(callers[0], "zone_id=b")
        assert brokers == {1, 2, 3, 4, 5}
        assert set(leaders) == {2, 4}
        assert controller in {2, 4}

    over_zones(test)


@promise("M2", "M3")
def test_a_zone_that_loses_its_last_broker_falls_back() -> None:
    """Clients of a zone whose brokers have gone are sent to the others, and a partition keeps its leader."""

    async def test(*callers: Caller) -> None:
        await create(callers[0], partitions=PARTITIONS)
        _, before, _ = await told(callers[0], "zone_id=a")
        assert (await told(callers[0], "zone_id=b"))[0] == {2}
        await callers[1].node.stop()
        await callers[0].node.cluster.barrier()
        brokers, leaders, controller = await told(callers[0], "zone_id=b")
        assert brokers == {1, 3}
        assert leaders == before
        assert controller == 1

    over_zones(test, brokers=3, settings=APART)


@promise("M3")
def test_a_group_has_one_coordinator_for_all_zones() -> None:
    """FindCoordinator names the same broker to everybody, with an address for clients."""

    async def test(*callers: Caller) -> None:
        found = set()
        for i in range(20):
            answers = set()
            for caller in callers:
                for client_id in ("x", "zone_id=a", "zone_id=b"):
                    caller.client_id = client_id
                    [one] = (await caller(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[f"g{i}"])).coordinators
                    answers.add((one.node_id, one.host, one.port))
            [(node, host, port)] = answers
            assert (host, port) == (f"host{node}", 9092)
            found.add(node)
        assert len(found) > 2

    over_zones(test)


@promise("L9", "S3")
def test_the_listener_of_brokers_is_never_told() -> None:
    """A client of a listener that a broker does not have is told its first one for clients."""

    async def test(one: Caller) -> None:
        one.listener = "ELSEWHERE"
        [told] = (await one(METADATA, 12, topics=[])).brokers
        assert (told.host, told.port) == ("host1", 9092)

    over_zones(test, brokers=1)


async def at(caller: Caller, partition: int, *, acks: int = -1) -> tuple[Any, Any, Any]:
    """The error codes of a produce, a fetch and a look at the end."""
    data = batch(recs(b"x"))
    parts = [{"name": "t", "partition_data": [{"index": partition, "records": data}]}]
    answer = await caller(0, 9, acks=acks, timeout=10_000, topic_data=parts)
    produced = None if answer is None else answer.responses[0].partition_responses[0].error_code
    fetched = (await fetch(caller, 0, partition=partition)).error_code
    wanted = [{"name": "t", "partitions": [{"partition_index": partition, "timestamp": -1}]}]
    looked = (await caller(LIST_OFFSETS, 6, topics=wanted)).topics[0].partitions[0].error_code
    return produced, fetched, looked


@promise("M3")
def test_owners_are_enforced_only_where_asked() -> None:
    """With `routing.enforce_owner` others than the owner in the client's zone say NOT_LEADER_OR_FOLLOWER."""
    fine, elsewhere = (ErrorCode.none,) * 3, (ErrorCode.not_leader_or_follower,) * 3

    async def strict(*callers: Caller) -> None:
        await create(callers[0], partitions=3)
        for client_id in ("x", "zone_id=a", "zone_id=b", "zone_id=mars"):
            _, leaders, _ = await told(callers[0], client_id)
            for caller in callers:
                caller.client_id = client_id
                for partition, leader in enumerate(leaders):
                    owner = caller.node.settings.node == leader
                    assert await at(caller, partition) == (fine if owner else elsewhere)

    async def lenient(*callers: Caller) -> None:
        await create(callers[0])
        assert [await at(caller, 0) for caller in callers] == [fine] * len(callers)

    over_zones(strict, brokers=4, settings=STRICT)
    over_zones(lenient, brokers=3)


@promise("M3")
def test_a_producer_that_waits_for_no_answer_is_not_turned_away() -> None:
    """It would not hear of it, and its records would be lost."""

    async def test(*callers: Caller) -> None:
        await create(callers[0])
        _, [leader], _ = await told(callers[0], "x")
        other, owner = callers[leader % 3], callers[leader - 1]
        assert (await at(other, 0, acks=0))[0] is None
        for _ in range(200):
            if (await fetch(owner, 0)).high_watermark == 1:
                break
            await asyncio.sleep(0.01)
        assert (await fetch(owner, 0)).high_watermark == 1

    over_zones(test, brokers=3, settings=STRICT)


@promise("M2", "M3")
def test_a_new_owner_takes_over() -> None:
    """When an owner goes, the next one serves its partitions, also where owners are enforced."""

    async def test(*callers: Caller) -> None:
        await create(callers[0])
        _, [leader], _ = await told(callers[0], "x")
        owner = callers[leader - 1]
        owner.client_id = "x"
        assert (await produce(owner, batch(recs(b"1")))).error_code is ErrorCode.none
        await owner.node.stop()
        left = [caller for caller in callers if caller is not owner]
        for caller in left:
            await caller.node.cluster.barrier()
        _, [successor], _ = await told(left[0], "x")
        assert successor != leader
        [new] = [caller for caller in left if caller.node.settings.node == successor]
        new.client_id = "x"
        answer = await produce(new, batch(recs(b"2")))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 1)
        assert (await fetch(new, 0)).error_code is ErrorCode.none

    over_zones(test, brokers=3, settings=STRICT)
