"""ListTransactions, DescribeTransactions and DescribeProducers."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from headwater.state.commands.streams import AppendUnits, Mode, Unit, UnitChunk
from headwater.state.results import Appended
from tests.support.nodes import Caller
from tests.support.promise import promise
from tests.unit.broker.calling import create, run
from tests.unit.broker.handlers.transactions.calls import (
    DESCRIBE,
    DESCRIBE_PRODUCERS,
    LIST,
    OK,
    Who,
    add,
    end,
    stage,
    started,
)

PROMISES = ("K12",)


async def listed(node: Caller, version: int = 2, **filters: Any) -> dict[str, str]:
    """The states by id."""
    answer = await node(LIST, version, **{"duration_filter": -1, "transactional_id_pattern": None, **filters})
    assert answer.error_code is OK
    return {state.transactional_id: state.transaction_state for state in answer.transaction_states}


async def described(node: Caller, id: str) -> Any:
    """The state of one id."""
    [state] = (await node(DESCRIBE, 0, transactional_ids=[id])).transaction_states
    return state


@promise("K12")
def test_every_broker_tells_the_transactions_placed_with_it() -> None:
    """The lists add up, and none has what another has."""

    async def test(*nodes: Caller) -> None:
        ids = [f"tx-{number}" for number in range(30)]
        for id in ids:
            await started(nodes[0], id)
        told = [set(await listed(node)) for node in nodes]
        assert sorted(id for of_one in told for id in of_one) == sorted(ids)
        assert all(told)

    run(test, 3)


@promise("K12")
def test_filters() -> None:
    """By state, producer id, duration and pattern; states that nobody knows are told."""

    async def test(node: Caller) -> None:
        await create(node)
        ids = {id: await started(node, id) for id in ("empty", "open", "done", "gone")}
        for id in ("open", "done", "gone"):
            assert await add(node, ids[id], {"t": [0]}, id) == {("t", 0): OK}
        await end(node, ids["done"], id="done", version=3)
        await end(node, ids["gone"], id="gone", commit=False, version=3)
        names = {"empty": "Empty", "open": "Ongoing", "done": "CompleteCommit", "gone": "CompleteAbort"}
        for version in range(3):
            assert await listed(node, version) == names
        assert await listed(node, state_filters=["Ongoing", "Empty"]) == {"empty": "Empty", "open": "Ongoing"}
        assert await listed(node, state_filters=["PrepareCommit", "Dead"]) == {}
        assert set(await listed(node, producer_id_filters=[ids["done"][0], 12345])) == {"done"}
        assert set(await listed(node, transactional_id_pattern="d.*ne")) == {"done"}
        assert set(await listed(node, transactional_id_pattern="on")) == set()
        assert set(await listed(node, transactional_id_pattern="")) == set(names)
        assert set(await listed(node, duration_filter=3_600_000)) == {"empty"}  # as in Kafka, it began at no time
        answer = await node(LIST, 2, state_filters=["No", "Ongoing", "No"], duration_filter=-1)
        assert list(answer.unknown_state_filters) == ["No"] and len(answer.transaction_states) == 1
        bad = await node(LIST, 2, duration_filter=-1, transactional_id_pattern="(")
        assert bad.error_code is ErrorCode.invalid_regular_expression

    run(test)


@promise("K12")
def test_a_transaction_is_described_by_any_broker() -> None:
    """State, time-out, start, producer and partitions."""

    async def test(one: Caller, two: Caller) -> None:
        await create(one, partitions=3)
        await create(one, "u")
        who = await started(one, timeout_ms=7_000)
        empty = await described(two, "tx")
        assert (empty.error_code, empty.transaction_state, list(empty.topics)) == (OK, "Empty", [])
        assert empty.transaction_start_time is None
        await add(one, who, {"t": [2, 0], "u": [0]})
        for node in (one, two):
            found = await described(node, "tx")
            assert (found.transaction_state, found.producer_id, found.producer_epoch) == ("Ongoing", *who)
            assert [(topic.topic, list(topic.partitions)) for topic in found.topics] == [("t", [0, 2]), ("u", [0])]
            assert found.transaction_timeout.total_seconds() == 7
            assert abs(found.transaction_start_time.timestamp() * 1000 - node.node.cluster.state.clock_ms) < 3_600_000
        unknown = await described(one, "none")
        assert unknown.error_code is ErrorCode.transactional_id_not_found
        assert unknown.transaction_start_time.timestamp() == 0, "as Kafka says it"
        assert (await described(one, "")).error_code is ErrorCode.invalid_request

    run(test, 2)


@promise("K6", "K12")
def test_producers_are_told_with_the_start_of_their_transactions() -> None:
    async def test(node: Caller) -> None:
        await create(node)
        who = await started(node)
        replica = node.node.broker.transactions.replica
        view = node.node.broker.by_name("t")
        assert view is not None

        async def append(producer: Who, sequence: int, mode: Mode, number: int) -> None:
            chunk = UnitChunk(view.topic.streams[0], 10, [(100, 2, 1)], [(*producer, sequence)], bytes([mode]))
            [result] = await replica.submit([AppendUnits(number, 200, 1, "local", [Unit([], [chunk])])])
            assert isinstance(result, Appended) and result.chunks[0].verdicts is None

        async def starts() -> dict[int, int]:
            topics = [{"name": "t", "partition_indexes": [0]}]
            [topic] = (await node(DESCRIBE_PRODUCERS, 0, topics=topics)).topics
            return {one.producer_id: one.current_txn_start_offset for one in topic.partitions[0].active_producers}

        await append((who[0] + 1, 0), 0, Mode.PLAIN, 1_000)
        await append(who, 0, Mode.JOINS, 1_001)
        await append(who, 2, Mode.JOINS, 1_002)
        assert await starts() == {who[0] + 1: -1, who[0]: 2}
        assert (await described(node, "tx")).transaction_state == "Ongoing"
        assert (await end(node, who))[0] is OK
        assert await starts() == {who[0] + 1: -1, who[0]: -1}

    run(test)


@promise("S4")
def test_what_is_named_twice_is_told_once() -> None:
    """A small request cannot ask for the same long answer many times."""

    async def test(node: Caller) -> None:
        await create(node, partitions=2)
        who = await started(node)
        await add(node, who, {"t": [0, 1]})
        answer = await node(DESCRIBE, 0, transactional_ids=["tx", "none", "tx"])
        assert [state.transactional_id for state in answer.transaction_states] == ["tx", "none"]
        topics = [{"name": "t", "partition_indexes": [1, 1]}, {"name": "t", "partition_indexes": [0, 1]}]
        [told] = (await node(DESCRIBE_PRODUCERS, 0, topics=topics)).topics
        assert [partition.partition_index for partition in told.partitions] == [1, 0]

    run(test)


@promise("K12")
def test_a_transaction_of_offsets_alone_has_no_partitions() -> None:
    async def test(node: Caller) -> None:
        await create(node)
        who = await started(node)
        assert await stage(node, who, 1) is OK
        found = await described(node, "tx")
        assert (found.transaction_state, list(found.topics)) == ("Ongoing", [])

    run(test)


@promise("K12")
def test_a_partition_that_is_not_there_is_told_with_a_message() -> None:
    """As in Kafka."""

    async def test(node: Caller) -> None:
        await create(node)
        topics = [{"name": "t", "partition_indexes": [0, 7]}, {"name": "none", "partition_indexes": [0]}]
        answer = await node(DESCRIBE_PRODUCERS, 0, topics=topics)
        found = [(p.error_code, bool(p.error_message)) for topic in answer.topics for p in topic.partitions]
        unknown = (ErrorCode.unknown_topic_or_partition, True)
        assert found == [(OK, False), unknown, unknown]

    run(test)
