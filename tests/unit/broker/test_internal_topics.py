"""Kafka's internal topics, which exist for clients only."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from headwater.replica.internal_topics import PARTITIONS
from tests.support.batches import batch
from tests.support.nodes import Caller
from tests.unit.broker.calling import CREATE, DESCRIBE_CONFIGS, TOPIC, create, fetch, produce, recs, run

PROMISES = ("K2", "K5", "K7")

LIST, METADATA, COMMIT, OFFSETS, DELETE, GROW, RESOURCES, DESCRIBE_TOPICS, ALTER = 2, 3, 8, 9, 20, 37, 74, 75, 44
NAME, OTHER = "__consumer_offsets", "__transaction_state"


async def described(node: Caller, *names: str) -> list[Any]:
    wanted = [{"name": name, "topic_id": None} for name in names] or None
    return list((await node(METADATA, 12, topics=wanted, allow_auto_topic_creation=True)).topics)


def test_clients_find_them() -> None:
    """Every broker lists both as internal, with the same ids, whether all topics are asked for, a name or an id."""

    async def test(one: Caller, two: Caller) -> None:
        await create(one)
        everything = await described(one)
        assert [(t.name, t.is_internal, len(t.partitions)) for t in everything] == [
            (NAME, True, PARTITIONS), (OTHER, True, PARTITIONS), ("t", False, 1),
        ]  # fmt: skip
        ids = {t.name: t.topic_id for t in everything}
        assert {t.name: t.topic_id for t in await described(two, NAME, OTHER)} == {n: ids[n] for n in (NAME, OTHER)}
        [by_id] = (await two(METADATA, 12, topics=[{"name": None, "topic_id": ids[NAME]}])).topics
        assert (by_id.name, by_id.error_code) == (NAME, ErrorCode.none)
        assert all(p.leader_id in (1, 2) and p.isr_nodes == (p.leader_id,) for p in by_id.partitions)
        paged = await one(DESCRIBE_TOPICS, 0, topics=[], response_partition_limit=60, cursor=None)
        assert [(t.name, len(t.partitions)) for t in paged.topics] == [(NAME, 50), (OTHER, 10)]
        assert (paged.next_cursor.topic_name, paged.next_cursor.partition_index) == (OTHER, 10)
        names = (await one(RESOURCES, 1, resource_types=[TOPIC])).config_resources
        assert [resource.resource_name for resource in names] == [NAME, OTHER, "t"]
        assert not one.node.cluster.state.names.keys() & {NAME, OTHER}, "nothing was created"

    run(test, 2)


def test_their_log_is_empty() -> None:
    """Fetches wait and find nothing, offsets are 0, and a group can commit that."""

    async def test(one: Caller) -> None:
        found = await fetch(one, 0, NAME, 49)
        assert (found.error_code, found.high_watermark, found.log_start_offset) == (ErrorCode.none, 0, 0)
        assert not found.records
        assert (await fetch(one, 1, NAME)).error_code is ErrorCode.offset_out_of_range
        assert (await fetch(one, 0, NAME, 50)).error_code is ErrorCode.unknown_topic_or_partition
        for timestamp, offset in ((-1, 0), (-2, 0), (-3, -1), (0, -1)):
            wanted = [{"partition_index": 3, "timestamp": timestamp, "current_leader_epoch": -1}]
            [topic] = (await one(LIST, 7, topics=[{"name": OTHER, "partitions": wanted}])).topics
            assert (topic.partitions[0].error_code, topic.partitions[0].offset) == (ErrorCode.none, offset)
        position = [{"name": NAME, "partitions": [{"partition_index": 2, "committed_offset": 0}]}]
        done = await one(COMMIT, 8, group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=position)
        assert done.topics[0].partitions[0].error_code is ErrorCode.none
        [group] = (await one(OFFSETS, 8, groups=[{"group_id": "g", "topics": None}])).groups
        assert [(t.name, t.partitions[0].committed_offset) for t in group.topics] == [(NAME, 0)]

    run(test)


def test_they_cannot_be_changed() -> None:
    """Neither records nor partitions nor configs are added, and the names are taken."""

    async def test(one: Caller) -> None:
        refused = await produce(one, batch(recs(b"x")), NAME)
        assert (refused.error_code, refused.base_offset) == (ErrorCode.invalid_topic_exception, -1)
        for name, code in (
            (NAME, ErrorCode.topic_already_exists),
            ("__consumer.offsets", ErrorCode.invalid_topic_exception),
        ):
            topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
            assert (await one(CREATE, 7, topics=[topic])).topics[0].error_code is code
        grown = await one(GROW, 3, topics=[{"name": NAME, "count": 60, "assignments": None}], timeout=1)
        assert grown.results[0].error_code is ErrorCode.policy_violation
        internal_id = (await described(one, NAME))[0].topic_id
        for which in ({"name": NAME, "topic_id": None}, {"name": None, "topic_id": internal_id}):
            [gone] = (await one(DELETE, 6, topics=[which], timeout=1)).responses
            assert gone.error_code is ErrorCode.policy_violation and "is internal" in gone.error_message
        change = [{"name": "retention.ms", "config_operation": 0, "value": "1"}]
        resource = {"resource_type": TOPIC, "resource_name": OTHER, "configs": change}
        [altered] = (await one(ALTER, 1, resources=[resource])).responses
        assert altered.error_code is ErrorCode.policy_violation
        asked = [{"resource_type": TOPIC, "resource_name": OTHER, "configuration_keys": None}]
        [shown] = (await one(DESCRIBE_CONFIGS, 4, resources=asked)).results
        assert {c.name: c.value for c in shown.configs}["cleanup.policy"] == "compact"
        assert all(c.read_only for c in shown.configs)

    run(test)


def test_a_real_topic_of_that_name_wins() -> None:
    """A build without internal topics may have created one. It keeps its id, its records and its partitions."""

    async def test(one: Caller) -> None:
        [empty] = await described(one, NAME)
        await one.node.broker.topics.create(NAME, 2, {})
        assert (await produce(one, batch(recs(b"x")), NAME)).base_offset == 0
        assert (await fetch(one, 0, NAME)).records
        [real] = await described(one, NAME)
        assert (real.is_internal, len(real.partitions)) == (True, 2) and real.topic_id != empty.topic_id
        [hidden] = (await one(METADATA, 12, topics=[{"name": None, "topic_id": empty.topic_id}])).topics
        assert hidden.error_code is ErrorCode.unknown_topic_id
        [gone] = (await one(DELETE, 6, topics=[{"name": NAME, "topic_id": None}], timeout=1)).responses
        assert gone.error_code is ErrorCode.none
        assert (await described(one, NAME))[0].topic_id == empty.topic_id

    run(test)
