"""CreateTopics, CreatePartitions and DeleteTopics refuse what Apache Kafka refuses, in its words."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.support.nodes import Caller
from tests.support.promise import promise
from tests.unit.broker.calling import CREATE, create, run

PROMISES = ("K7",)

METADATA, DELETE, PARTITIONS = 3, 20, 37
NONE = ErrorCode.none
ASSIGNED = {"num_partitions": -1, "replication_factor": -1}


def assigned(*parts: tuple[int, list[int]]) -> dict[str, Any]:
    return {**ASSIGNED, "assignments": [{"partition_index": i, "broker_ids": nodes} for i, nodes in parts]}


def configured(*configs: tuple[str, str | None]) -> dict[str, Any]:
    return {"configs": [{"name": name, "value": value} for name, value in configs]}


@promise("K7")
@pytest.mark.parametrize(
    ("name", "fields", "code", "text"),
    [
        ("", {}, ErrorCode.invalid_topic_exception, "Topic name is invalid: the empty string is not allowed"),
        ("..", {}, ErrorCode.invalid_topic_exception, "'..' is not allowed"),
        ("a b", {}, ErrorCode.invalid_topic_exception, "contains one or more characters other than ASCII"),
        ("x" * 250, {}, ErrorCode.invalid_topic_exception, "is longer than the max allowed length 249"),
        ("old.one", {}, ErrorCode.topic_already_exists, "Topic 'old.one' already exists."),
        ("old_one", {}, ErrorCode.invalid_topic_exception, "Topic 'old_one' collides with existing topic: old.one"),
        ("n", {"replication_factor": 0}, ErrorCode.invalid_replication_factor, "Replication factor must be larger"),
        ("n", {"replication_factor": -2}, ErrorCode.invalid_replication_factor, "Replication factor must be larger"),
        ("n", {"num_partitions": 0}, ErrorCode.invalid_partitions, "invalid non-positive value"),
        ("n", {"num_partitions": -2}, ErrorCode.invalid_partitions, "invalid non-positive value"),
        ("n", {"num_partitions": 10_001}, ErrorCode.invalid_partitions, "at most 10000 partitions"),
        ("n", {**assigned((0, [1])), "replication_factor": 1}, ErrorCode.invalid_request, "replication factor was not"),
        ("n", {**assigned((0, [1])), "num_partitions": 1}, ErrorCode.invalid_request, "numPartitions was not set"),
        ("n", assigned((0, [1]), (2, [1])), ErrorCode.invalid_replica_assignment, "consecutive 0-based integer"),
        ("n", assigned((0, [1]), (0, [1])), ErrorCode.invalid_replica_assignment, "Found multiple manual partition"),
        ("n", assigned((0, [7])), ErrorCode.invalid_replica_assignment, "broker 7, but no such broker is registered"),
        ("n", assigned((0, [1, 1])), ErrorCode.invalid_replica_assignment, "the broker 1 more than once"),
        ("n", assigned((0, [])), ErrorCode.invalid_replica_assignment, "an empty replica list"),
        ("n", configured(("no", "1")), ErrorCode.invalid_config, "Unknown topic config name: no"),
        ("n", configured(("retention.ms", None)), ErrorCode.invalid_config, "Null value not supported for topic"),
        ("n", configured(("retention.ms", "x")), ErrorCode.invalid_config, "Not a number of type LONG"),
        ("n", configured(("segment.bytes", "x")), ErrorCode.invalid_config, "Not a number of type INT"),
        ("n", configured(("min.compaction.lag.ms", "9"), ("max.compaction.lag.ms", "8")), ErrorCode.invalid_config,
         "conflict topic config setting"),
        ("n", configured(("headwater.dlq.topic", "n")), ErrorCode.invalid_config, "its own dead-letter topic"),
        ("n", configured(("headwater.dlq.topic", "missing")), ErrorCode.invalid_config, "create it first"),
        ("n", configured(("headwater.table.flatten", "true")), ErrorCode.invalid_config, "set headwater.value.schema"),
    ],
)  # fmt: skip
def test_refused_creations(name: str, fields: dict[str, Any], code: ErrorCode, text: str) -> None:
    """Also where only validation is asked for; nothing is created."""

    async def test(one: Caller) -> None:
        await create(one, "old.one")
        wanted = {"name": name, "num_partitions": 1, "replication_factor": 1, **fields}
        for validate_only in (True, False):
            [answer] = (await one(CREATE, 7, topics=[wanted], validate_only=validate_only)).topics
            assert answer.error_code is code
            assert text in (answer.error_message or "")
            assert (answer.num_partitions, answer.replication_factor) == (-1, -1)
        assert list(one.node.cluster.state.names) == ["old.one"]

    run(test)


@promise("K7")
@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({"num_partitions": 3, "replication_factor": -1}, 3),
        ({"num_partitions": -1, "replication_factor": 1}, 1),
        ({"num_partitions": 2, "replication_factor": 3}, 2),
        (assigned((1, [1]), (0, [1])), 2),
    ],
)
def test_accepted_creations(fields: dict[str, Any], count: int) -> None:
    """Every topic has one replica, whatever was asked for; validation alone creates nothing."""

    async def test(one: Caller) -> None:
        for validate_only in (True, False):
            [answer] = (await one(CREATE, 7, topics=[{"name": "n", **fields}], validate_only=validate_only)).topics
            assert (answer.error_code, answer.error_message) == (NONE, None)
            assert (answer.num_partitions, answer.replication_factor) == (count, 1)
            assert ("n" in one.node.cluster.state.names) is not validate_only
        assert len(one.node.cluster.state.names["n"].streams) == count

    run(test)


@promise("K7")
def test_one_bad_topic_does_not_stop_the_others() -> None:
    """A name that comes twice is refused once."""

    async def test(one: Caller) -> None:
        topic = {"num_partitions": 1, "replication_factor": 1}
        names = ["good", "twice", "?", "twice"]
        answers = (await one(CREATE, 7, topics=[{"name": name, **topic} for name in names])).topics
        assert {a.name: a.error_code for a in answers} == {
            "good": NONE,
            "twice": ErrorCode.invalid_request,
            "?": ErrorCode.invalid_topic_exception,
        }
        assert len(answers) == 3
        assert list(one.node.cluster.state.names) == ["good"]

    run(test)


@promise("K7")
def test_creation_keeps_configs_without_effect() -> None:
    """Kafka Streams names such configs, and the answer has them."""

    async def test(one: Caller) -> None:
        configs = [{"name": "segment.bytes", "value": "52428800"}, {"name": "retention.ms", "value": "-1"}]
        wanted = {"name": "n", "num_partitions": 1, "replication_factor": 1, "configs": configs}
        [answer] = (await one(CREATE, 7, topics=[wanted])).topics
        shown = {config.name: config.value for config in answer.configs}
        assert (shown["segment.bytes"], shown["retention.ms"]) == ("52428800", "-1")
        assert one.node.cluster.state.names["n"].configs == {"segment.bytes": "52428800", "retention.ms": "-1"}

    run(test)


@promise("K2", "K7")
def test_names_that_are_alike_are_not_created_on_demand_either() -> None:
    async def test(one: Caller) -> None:
        await create(one, "a.b")
        answer = await one(METADATA, 12, topics=[{"name": "a_b", "topic_id": None}], allow_auto_topic_creation=True)
        assert answer.topics[0].error_code is ErrorCode.invalid_topic_exception

    run(test)


@promise("K7")
@pytest.mark.parametrize(
    ("name", "count", "assignments", "code", "text"),
    [
        ("t", 2, None, ErrorCode.invalid_partitions, "Topic already has 2 partition(s)."),
        ("t", 1, None, ErrorCode.invalid_partitions, "currently has 2 partition(s); 1 would not be an increase."),
        ("t", -1, None, ErrorCode.invalid_partitions, "-1 would not be an increase."),
        ("t", 10_001, None, ErrorCode.invalid_partitions, "at most 10000 partitions"),
        ("no", 3, None, ErrorCode.unknown_topic_or_partition, ""),
        ("t", 4, [[1]], ErrorCode.invalid_replica_assignment, "2 additional partition(s), but only 1 assignment(s)"),
        ("t", 3, [[1], [1]], ErrorCode.invalid_replica_assignment, "1 additional partition(s), but 2 assignment(s)"),
        ("t", 3, [[9]], ErrorCode.invalid_replica_assignment, "broker 9, but no such broker is registered."),
        ("t", 3, [[1, 1]], ErrorCode.invalid_replica_assignment, "the broker 1 more than once."),
        ("t", 3, [[]], ErrorCode.invalid_replica_assignment, "an empty replica list."),
        ("t", 4, [[1], [1]], NONE, ""),
        ("t", 4, None, NONE, ""),
    ],
)
def test_growth(name: str, count: int, assignments: list[list[int]] | None, code: ErrorCode, text: str) -> None:
    """Validation alone changes nothing."""

    async def test(one: Caller) -> None:
        await create(one, partitions=2)
        given = None if assignments is None else [{"broker_ids": nodes} for nodes in assignments]
        wanted = [{"name": name, "count": count, "assignments": given}]
        for validate_only in (True, False):
            [answer] = (await one(PARTITIONS, 3, topics=wanted, validate_only=validate_only, timeout=1000)).results
            assert answer.error_code is code
            assert text in (answer.error_message or "")
            grown = code is NONE and not validate_only
            assert len(one.node.cluster.state.names["t"].streams) == (count if grown else 2)

    run(test)


@promise("K7")
def test_growing_a_topic_twice_in_one_request() -> None:
    async def test(one: Caller) -> None:
        await create(one)
        wanted = [{"name": "t", "count": count, "assignments": None} for count in (2, 3)]
        [answer] = (await one(PARTITIONS, 3, topics=wanted, timeout=1000)).results
        assert answer.error_code is ErrorCode.invalid_request
        assert len(one.node.cluster.state.names["t"].streams) == 1

    run(test)


@promise("K7")
def test_deletions() -> None:
    async def test(one: Caller) -> None:
        await create(one, "a")
        await create(one, "b")
        ids = {name: topic.id for name, topic in one.node.cluster.state.names.items()}

        async def delete(*wanted: tuple[str | None, uuid.UUID | None]) -> list[ErrorCode]:
            topics = [{"name": name, "topic_id": topic_id} for name, topic_id in wanted]
            return [r.error_code for r in (await one(DELETE, 6, topics=topics, timeout=1000)).responses]

        invalid = ErrorCode.invalid_request
        assert await delete(("a", ids["a"]), (None, None), ("b", None), ("b", None)) == [invalid] * 3
        assert await delete(("no", None)) == [ErrorCode.unknown_topic_or_partition]
        assert await delete((None, uuid.uuid4())) == [ErrorCode.unknown_topic_id]
        assert sorted(one.node.cluster.state.names) == ["a", "b"]
        assert await delete((None, ids["a"]), ("b", None)) == [NONE, NONE]
        assert await delete((None, ids["a"])) == [ErrorCode.unknown_topic_id]
        assert not one.node.cluster.state.names

    run(test)
