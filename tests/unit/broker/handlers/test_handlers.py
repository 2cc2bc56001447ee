"""What the handlers answer, over two brokers that share a ledger."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headwater.settings.settings import Limits, Settings
from tests.support.batches import Rec, batch, values
from tests.support.nodes import Caller, cluster
from tests.support.promise import promise

PROMISES = ("K2", "K3", "K4", "K5", "K6", "K7", "K11", "L6")

PRODUCE, FETCH, LIST, METADATA, OFFSET_FETCH, CREATE, DELETE, TRIM, INIT, EPOCHS = 0, 1, 2, 3, 9, 19, 20, 21, 22, 23
DESCRIBE_CONFIGS, PARTITIONS, ALTER, DESCRIBE_CLUSTER, DESCRIBE_PARTITIONS = 32, 37, 44, 60, 75
NOW = int(time.time() * 1000)


def run(test: Callable[..., Awaitable[None]], count: int = 2, settings: Settings | None = None) -> None:
    async def main() -> None:
        async with cluster(count, settings) as callers:
            async with asyncio.timeout(30):
                await test(*callers)

    asyncio.run(main())


async def create(node: Caller, name: str = "t", partitions: int = 1, **configs: str) -> None:
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 3,
        "configs": [{"name": k.replace("_", "."), "value": v} for k, v in configs.items()],
    }
    response = await node(CREATE, 7, topics=[topic])
    assert response.topics[0].error_code is ErrorCode.none, response.topics[0].error_message


async def produce(node: Caller, data: bytes, topic: str = "t", partition: int = 0, acks: int = -1) -> Any:
    parts = [{"name": topic, "partition_data": [{"index": partition, "records": data}]}]
    response = await node(PRODUCE, 9, acks=acks, timeout=10_000, topic_data=parts)
    return response.responses[0].partition_responses[0] if response is not None else None


async def fetch(node: Caller, offset: int, topic: str = "t", partition: int = 0, **more: Any) -> Any:
    limits = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1, **more}
    wanted = {
        "partition": partition,
        "fetch_offset": offset,
        "partition_max_bytes": limits.pop("partition_bytes", 1 << 20),
    }
    response = await node(FETCH, 11, topics=[{"topic": topic, "partitions": [wanted]}], **limits)
    return response.responses[0].partitions[0]


async def list_offset(node: Caller, timestamp: int, topic: str = "t") -> tuple[int, int]:
    wanted = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
    response = await node(LIST, 7, topics=wanted)
    found = response.topics[0].partitions[0]
    assert found.error_code is ErrorCode.none
    return found.offset, found.timestamp


def recs(*contents: bytes, at: int = NOW) -> list[Rec]:
    return [Rec(c, timestamp=at + i) for i, c in enumerate(contents)]


def test_what_one_broker_acknowledged_the_other_serves_at_once() -> None:
    async def test(one: Caller, two: Caller) -> None:
        await create(one, partitions=2)
        for i in range(20):
            answer = await produce(one, batch(recs(b"%d" % i)))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.none, i)
            assert values((await fetch(two, i)).records) == [(i, b"%d" % i)]
            assert await list_offset(two, -1) == (i + 1, -1)

    run(test)


def test_fetch_limits_and_the_first_batch_rule() -> None:
    async def test(one: Caller, two: Caller) -> None:
        await create(one)
        for _i in range(5):
            await produce(one, batch(recs(*[b"x" * 100] * 10)))
        size = len(batch(recs(*[b"x" * 100] * 10)))
        assert len(values((await fetch(one, 0, max_bytes=1)).records)) == 10
        assert len(values((await fetch(one, 0, partition_bytes=1)).records)) == 10
        assert len(values((await fetch(one, 0, partition_bytes=2 * size)).records)) == 20
        middle = values((await fetch(two, 25)).records)
        assert middle[0][0] == 20 and middle[-1][0] == 49, "whole batches, from the one that holds the offset"

    run(test)


def test_out_of_range_and_unknown() -> None:
    async def test(one: Caller, two: Caller) -> None:
        await create(one)
        await produce(one, batch(recs(b"a", b"b")))
        for offset in (-1, 3, 1 << 62):
            assert (await fetch(two, offset)).error_code is ErrorCode.offset_out_of_range
        empty = await fetch(two, 2)
        assert (empty.error_code, empty.high_watermark, empty.log_start_offset) == (ErrorCode.none, 2, 0)
        assert (await fetch(two, 0, topic="no")).error_code is ErrorCode.unknown_topic_or_partition
        assert (await fetch(two, 0, partition=7)).error_code is ErrorCode.unknown_topic_or_partition
        assert (await produce(two, batch(recs(b"a")), topic="no")).error_code is ErrorCode.unknown_topic_or_partition
        assert (await produce(two, batch(recs(b"a")), partition=-1)).error_code is ErrorCode.unknown_topic_or_partition
        assert (await produce(two, batch(recs(b"a")), acks=2)).error_code is ErrorCode.invalid_required_acks
        by_id = await one(
            FETCH, 16, max_wait=0, min_bytes=1, session_epoch=-1,
            topics=[{"topic_id": uuid.uuid4(), "partitions": [{"partition": 0, "fetch_offset": 0}]}],
        )  # fmt: skip
        assert by_id.responses[0].partitions[0].error_code is ErrorCode.unknown_topic_id

    run(test)


@promise("K10")
def test_topics_without_offsets_to_tell_come_last() -> None:
    """OffsetFetch answers in the order of Apache Kafka: first what can be told, then the errors."""

    async def test(one: Caller, _: Caller) -> None:
        await create(one)
        [known] = (await one(METADATA, 12, topics=[{"name": "t"}])).topics
        unknown = uuid.uuid4()
        wanted = [{"topic_id": id, "partition_indexes": [0]} for id in (unknown, known.topic_id)]
        [group] = (await one(OFFSET_FETCH, 10, groups=[{"group_id": "g", "topics": wanted}])).groups
        assert [topic.topic_id for topic in group.topics] == [known.topic_id, unknown]
        assert group.topics[1].partitions[0].error_code is ErrorCode.unknown_topic_id

    run(test)


@promise("L6")
def test_a_broker_that_has_not_heard_of_a_topic_looks_at_its_records_too() -> None:
    """An offset that exists is not out of range at a broker that had to look for the topic first."""

    async def test(one: Caller, two: Caller) -> None:
        for replica in (two.node.cluster, *two.node.domains.values()):
            replica._duties[0].cancel()  # it no longer follows by itself
        await create(one)
        await produce(one, batch(recs(b"a", b"b", b"c")))
        end = await fetch(two, 3)
        assert (end.error_code, end.high_watermark) == (ErrorCode.none, 3)

    run(test)


def test_long_poll_wakes_on_an_append_through_the_other_broker() -> None:
    async def test(one: Caller, two: Caller) -> None:
        await create(one)
        waiting = asyncio.create_task(fetch(two, 0, max_wait=20_000))
        await asyncio.sleep(0)
        await produce(one, batch(recs(b"a")))
        assert values((await waiting).records) == [(0, b"a")]
        more = asyncio.create_task(fetch(two, 0, max_wait=20_000, min_bytes=200))
        await produce(one, batch(recs(b"b" * 200)))
        assert [offset for offset, _ in values((await more).records)] == [0, 1]

    run(test)


@promise("K3")
def test_a_fetch_at_the_end_looks_at_the_ledger_only_if_no_records_come() -> None:
    """What this broker knows is answered at once; what it was not told of is found by a look."""

    async def test(one: Caller, two: Caller) -> None:
        await create(one)
        await two.node.cluster.barrier()
        looks = []
        for replica in one.node.domains.values():
            look = replica._look
            replica._look = lambda look=look: looks.append(1) or look()  # type: ignore[method-assign, misc, func-returns-value]
        waiting = asyncio.create_task(fetch(one, 0, max_wait=20_000))
        await asyncio.sleep(0)
        await produce(one, batch(recs(b"a")))
        assert values((await waiting).records) == [(0, b"a")]
        assert not looks
        for replica in two.node.domains.values():
            await replica.barrier()
            replica._duties[0].cancel()  # it no longer follows by itself
        await produce(one, batch(recs(b"b")))
        assert values((await fetch(two, 1, max_wait=20_000)).records) == [(1, b"b")]

    run(test)


def test_fetch_sessions() -> None:
    async def test(one: Caller) -> None:
        await create(one, partitions=3)
        topic = one.node.cluster.state.names["t"].id
        limits = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20}

        async def ask(session: int, epoch: int, wanted: list[tuple[int, int]], forget: list[int] | None = None) -> Any:
            partitions = [
                {"partition": p, "fetch_offset": o, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
                for p, o in wanted
            ]
            return await one(
                FETCH, 16, session_id=session, session_epoch=epoch, **limits,
                topics=[{"topic_id": topic, "partitions": partitions}] if wanted else [],
                forgotten_topics_data=[{"topic_id": topic, "partitions": forget}] if forget else [],
            )  # fmt: skip

        def told(response: Any) -> list[int]:
            return [p.partition_index for t in response.responses for p in t.partitions]

        first = await ask(0, 0, [(0, 0), (1, 0), (2, 0)])
        assert first.session_id > 0 and told(first) == [0, 1, 2]
        assert told(await ask(first.session_id, 1, [])) == [], "nothing new"
        await produce(one, batch(recs(b"a")), partition=1)
        second = await ask(first.session_id, 2, [])
        assert told(second) == [1] and values(second.responses[0].partitions[0].records) == [(0, b"a")]
        assert told(await ask(first.session_id, 3, [(1, 1)])) == []
        await produce(one, batch(recs(b"b")), partition=2)
        assert told(await ask(first.session_id, 4, [], forget=[2])) == []
        assert (await ask(first.session_id, 9, [])).error_code is ErrorCode.invalid_fetch_session_epoch
        assert (await ask(12345, 5, [])).error_code is ErrorCode.fetch_session_id_not_found
        closed = await ask(first.session_id, -1, [])
        assert closed.session_id == 0
        assert (await ask(first.session_id, 5, [])).error_code is ErrorCode.fetch_session_id_not_found

    run(test, 1)


def test_sessions_are_bounded() -> None:
    async def test(one: Caller) -> None:
        await create(one)
        wanted = [{"topic": "t", "partitions": [{"partition": 0, "fetch_offset": 0}]}]
        for _ in range(20):
            await one(FETCH, 11, max_wait=0, session_id=0, session_epoch=0, topics=wanted)
        assert len(one.node.broker.sessions) == 5

    run(test, 1, Settings(objects="memory://", limits=Limits(fetch_sessions=5)))


def test_offsets_by_time_are_exact_with_disordered_clocks() -> None:
    async def test(one: Caller, two: Caller) -> None:
        await create(one)
        stamps = [5, 3, 9, 4, 4, 12, 1, 12, 2]
        for codec, i in zip((0, 1, 4), range(0, 9, 3), strict=True):
            chunk = [Rec(b"x", timestamp=NOW + s) for s in stamps[i : i + 3]]
            await produce(one, batch(chunk, codec=codec))
        for wanted in range(14):
            expected = next(((i, NOW + s) for i, s in enumerate(stamps) if s >= wanted), (-1, -1))
            assert await list_offset(two, NOW + wanted) == expected
        assert await list_offset(two, -3) == (5, NOW + 12)
        assert await list_offset(two, -2) == (0, -1)

    run(test)


def test_delete_records_moves_the_start() -> None:
    async def test(one: Caller, two: Caller) -> None:
        await create(one)
        for _ in range(3):
            await produce(one, batch(recs(b"a", b"b")))

        async def trim(offset: int) -> Any:
            wanted = [{"name": "t", "partitions": [{"partition_index": 0, "offset": offset}]}]
            return (await two(TRIM, 2, timeout=1000, topics=wanted)).topics[0].partitions[0]

        assert (await trim(3)).low_watermark == 3
        assert await list_offset(one, -2) == (3, -1)
        assert (await fetch(one, 2)).error_code is ErrorCode.offset_out_of_range
        assert values((await fetch(one, 3)).records)[-1][0] == 5
        assert (await trim(1)).low_watermark == 3, "never back"
        assert (await trim(7)).error_code is ErrorCode.offset_out_of_range
        assert (await trim(-1)).low_watermark == 6
        assert (await produce(one, batch(recs(b"c")))).base_offset == 6

    run(test)


@promise("K3", "K11")
def test_the_append_time_of_a_repeated_batch() -> None:
    """It is that of the first append, wherever the batch is sent again."""

    async def test(one: Caller, two: Caller) -> None:
        await create(one, message_timestamp_type="LogAppendTime")
        data = batch([Rec(b"a", timestamp=5), Rec(b"b", timestamp=5)], producer=(7, 0, 0))
        first = await produce(one, data)
        later = first
        while later.log_append_time == first.log_append_time:
            later = await produce(one, batch([Rec(b"x", timestamp=5)]))
        for node in (one, two):
            again = await produce(node, data)
            assert (again.base_offset, again.log_append_time) == (0, first.log_append_time)

    run(test)


def test_log_append_time() -> None:
    async def test(one: Caller, two: Caller) -> None:
        await create(one, message_timestamp_type="LogAppendTime")
        answer = await produce(one, batch([Rec(b"a", timestamp=5)]))
        stamp = int(answer.log_append_time.timestamp() * 1000)
        assert abs(stamp - time.time() * 1000) < 60_000
        assert await list_offset(two, stamp) == (0, stamp)
        assert await list_offset(two, stamp + 1) == (-1, -1)

    run(test)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (batch(recs(b"a"), crc=1), ErrorCode.corrupt_message),
        (batch(recs(b"a"), magic=1), ErrorCode.invalid_record),
        (batch(recs(b"a"), attributes=5), ErrorCode.invalid_record),
        (batch(recs(b"a"), attributes=0x20), ErrorCode.invalid_record),
        (batch(recs(b"a"), count=2), ErrorCode.invalid_record),
        (batch(recs(b"a"), body=b"junk"), ErrorCode.invalid_record),
        (batch(recs(b"a")) + b"x", ErrorCode.invalid_record),
        (b"", ErrorCode.invalid_record),
        (batch(recs(b"x" * 2000)), ErrorCode.message_too_large),
        (batch([Rec(b"a", timestamp=NOW + 7_200_000)]), ErrorCode.invalid_timestamp),
    ],
    ids=["crc", "magic", "codec", "control", "count", "junk", "longer", "empty", "large", "future"],
)
def test_bad_batches_are_refused_and_change_nothing(data: bytes, code: ErrorCode) -> None:
    async def test(one: Caller) -> None:
        await create(one, max_message_bytes="1500")
        assert (await produce(one, data)).error_code is code
        assert await list_offset(one, -1) == (0, -1)

    run(test, 1)


def test_idempotent_producers_across_brokers() -> None:
    async def test(one: Caller, two: Caller) -> None:
        await create(one)
        first, second = await one(INIT, 4, transaction_timeout=0), await two(INIT, 4, transaction_timeout=0)
        assert first.producer_id != second.producer_id
        assert (await one(INIT, 4, transactional_id="x", transaction_timeout=0)).error_code is not ErrorCode.none

        def data(sequence: int, epoch: int = 0) -> bytes:
            return batch(recs(b"a", b"b"), producer=(first.producer_id, epoch, sequence))

        assert (await produce(one, data(0))).base_offset == 0
        assert (await produce(two, data(2))).base_offset == 2
        assert (await produce(one, data(0))).base_offset == 0, "a retry at either broker is recognised"
        assert (await produce(two, data(0))).base_offset == 0
        assert (await produce(one, data(2))).base_offset == 2
        assert (await produce(one, data(8))).error_code is ErrorCode.not_leader_or_follower
        assert (await produce(two, data(8))).error_code is ErrorCode.out_of_order_sequence_number
        assert (await produce(two, data(0, epoch=1))).base_offset == 4
        assert (await produce(one, data(4))).error_code is ErrorCode.invalid_producer_epoch
        assert await list_offset(one, -1) == (6, -1)

    run(test)


def test_topics_and_configs() -> None:
    async def test(one: Caller, two: Caller) -> None:
        await create(one, "a.b", 3, retention_ms="1000")
        again = await two(CREATE, 7, topics=[{"name": "a.b", "num_partitions": 1, "replication_factor": 1}])
        assert again.topics[0].error_code is ErrorCode.topic_already_exists
        for name, code in (
            ("bad name", ErrorCode.invalid_topic_exception),
            ("x" * 250, ErrorCode.invalid_topic_exception),
        ):
            bad = await two(CREATE, 7, topics=[{"name": name, "num_partitions": 1, "replication_factor": 1}])
            assert bad.topics[0].error_code is code
        for config in ({"name": "no.such", "value": "1"}, {"name": "retention.ms", "value": "soon"}):
            bad = await two(
                CREATE, 7, topics=[{"name": "c", "num_partitions": 1, "replication_factor": 1, "configs": [config]}]
            )
            assert bad.topics[0].error_code is ErrorCode.invalid_config
        resource = {"resource_type": 2, "resource_name": "a.b"}
        described = (await two(DESCRIBE_CONFIGS, 4, resources=[{**resource, "configuration_keys": None}])).results[0]
        shown = {c.name: c.value for c in described.configs}
        assert shown["retention.ms"] == "1000" and shown["max.message.bytes"] == "1048588"
        change = [
            {"name": "retention.ms", "config_operation": 1, "value": None},
            {"name": "cleanup.policy", "config_operation": 2, "value": "compact"},
        ]
        altered = await one(ALTER, 1, resources=[{**resource, "configs": change}])
        assert altered.responses[0].error_code is ErrorCode.none
        assert one.node.cluster.state.names["a.b"].configs == {"cleanup.policy": "delete,compact"}
        grown = await two(PARTITIONS, 3, topics=[{"name": "a.b", "count": 5, "assignments": None}], timeout=1000)
        assert grown.results[0].error_code is ErrorCode.none
        shrunk = await two(PARTITIONS, 3, topics=[{"name": "a.b", "count": 2, "assignments": None}], timeout=1000)
        assert shrunk.results[0].error_code is ErrorCode.invalid_partitions
        paged = await one(DESCRIBE_PARTITIONS, 0, topics=[{"name": "a.b"}], response_partition_limit=3)
        assert len(paged.topics[0].partitions) == 3 and paged.next_cursor.partition_index == 3
        gone = await one(DELETE, 6, topics=[{"name": "a.b", "topic_id": None}], timeout=1000)
        assert gone.responses[0].error_code is ErrorCode.none
        missing = await two(DELETE, 6, topics=[{"name": "a.b", "topic_id": None}], timeout=1000)
        assert missing.responses[0].error_code is ErrorCode.unknown_topic_or_partition
        await create(two, "a.b", 1)
        assert (await produce(one, batch(recs(b"new")), topic="a.b")).base_offset == 0

    run(test)


def test_metadata_names_the_listener_that_was_asked_and_spreads_leaders() -> None:
    async def test(one: Caller, two: Caller) -> None:
        await create(one, partitions=50)
        answer = await two(METADATA, 12, topics=[{"name": "t", "topic_id": None}])
        assert {(b.node_id, b.host, b.port) for b in answer.brokers} == {(1, "host1", 9092), (2, "host2", 9092)}
        leaders = [p.leader_id for p in answer.topics[0].partitions]
        assert {leaders.count(1), leaders.count(2)} <= set(range(10, 41))
        assert leaders == [p.leader_id for p in (await one(METADATA, 12, topics=None)).topics[-1].partitions]
        one.listener = "OUTSIDE"
        outside = await one(DESCRIBE_CLUSTER, 1, endpoint_type=1)
        assert {(b.host, b.port) for b in outside.brokers} == {("out1", 19092), ("out2", 19092)}
        assert outside.cluster_id == answer.cluster_id
        by_id = await one(METADATA, 12, topics=[{"name": None, "topic_id": answer.topics[0].topic_id}])
        assert by_id.topics[0].name == "t"

    run(test)


def test_topics_are_created_on_demand_only_where_allowed() -> None:
    async def test(one: Caller) -> None:
        wanted = [{"name": "auto", "topic_id": None}]
        refused = await one(METADATA, 12, topics=wanted, allow_auto_topic_creation=False)
        assert refused.topics[0].error_code is ErrorCode.unknown_topic_or_partition
        making = await one(METADATA, 12, topics=wanted, allow_auto_topic_creation=True)
        assert making.topics[0].error_code is ErrorCode.unknown_topic_or_partition, "as in Kafka: clients ask again"
        made = await one(METADATA, 12, topics=wanted, allow_auto_topic_creation=True)
        assert made.topics[0].error_code is ErrorCode.none and len(made.topics[0].partitions) == 1
        assert [broker.rack for broker in made.brokers] == [None], "there is none unless a zone is set"
        odd = await one(METADATA, 12, topics=[{"name": "no/slash", "topic_id": None}])
        assert odd.topics[0].error_code is ErrorCode.invalid_topic_exception

    run(test, 1)


def test_leader_epochs() -> None:
    async def test(one: Caller) -> None:
        await create(one)
        await produce(one, batch(recs(b"a", b"b")))
        wanted = [{"topic": "t", "partitions": [{"partition": 0, "current_leader_epoch": 0, "leader_epoch": 0}]}]
        answer = (await one(EPOCHS, 4, topics=wanted)).topics[0].partitions[0]
        assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (ErrorCode.none, 0, 2)
        wanted = [{"topic": "t", "partitions": [{"partition": 0, "current_leader_epoch": 5, "leader_epoch": 0}]}]
        assert (await one(EPOCHS, 4, topics=wanted)).topics[0].partitions[
            0
        ].error_code is ErrorCode.unknown_leader_epoch

    run(test, 1)


def test_acks_0_gets_no_answer_but_is_written() -> None:
    async def test(one: Caller) -> None:
        await create(one)
        assert await produce(one, batch(recs(b"a")), acks=0) is None
        assert await list_offset(one, -1) == (1, -1)

    run(test, 1)
