"""Transactional requests, as short calls."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from tests.support.nodes import Caller

INIT, ADD_PARTITIONS, ADD_OFFSETS, END, STAGE = 22, 24, 25, 26, 28
DESCRIBE_PRODUCERS, DESCRIBE, LIST, FIND, FETCH_OFFSETS, COMMIT_OFFSETS = 61, 65, 66, 10, 9, 8
OK = ErrorCode.none
Who = tuple[int, int]
"""A producer id and an epoch."""


async def init(
    node: Caller,
    id: str | None = "tx",
    expected: Who = (-1, -1),
    version: int = 5,
    timeout_ms: int = 60_000,
    **more: Any,
) -> tuple[ErrorCode, Who]:
    """InitProducerId."""
    named = {"producer_id": expected[0], "producer_epoch": expected[1]} if version >= 3 else {}
    answer = await node(INIT, version, transactional_id=id, transaction_timeout=timeout_ms, **named, **more)
    return answer.error_code, (answer.producer_id, answer.producer_epoch)


async def started(node: Caller, id: str = "tx", **more: Any) -> Who:
    """A producer that has started."""
    code, who = await init(node, id, **more)
    assert code is OK
    return who


async def add(
    node: Caller, who: Who, partitions: dict[str, list[int]], id: str = "tx", version: int = 3
) -> dict[tuple[str, int], ErrorCode]:
    """AddPartitionsToTxn of a client."""
    topics = [{"name": name, "partitions": indexes} for name, indexes in partitions.items()]
    answer = await node(
        ADD_PARTITIONS,
        version,
        v3_and_below_transactional_id=id,
        v3_and_below_producer_id=who[0],
        v3_and_below_producer_epoch=who[1],
        v3_and_below_topics=topics,
    )
    return {
        (topic.name, partition.partition_index): partition.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    }


async def add_group(node: Caller, who: Who, group: str = "g", id: str = "tx", version: int = 4) -> ErrorCode:
    """AddOffsetsToTxn."""
    given = {"transactional_id": id, "producer_id": who[0], "producer_epoch": who[1], "group_id": group}
    code: ErrorCode = (await node(ADD_OFFSETS, version, **given)).error_code
    return code


async def stage(
    node: Caller, who: Who, offset: int, *, id: str = "tx", group: str = "g", version: int = 5, **more: Any
) -> ErrorCode:
    """TxnOffsetCommit of one partition."""
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "note"}
    given = {"transactional_id": id, "producer_id": who[0], "producer_epoch": who[1], "group_id": group}
    topics = [{"name": "t", "partitions": [partition]}]
    answer = await node(STAGE, version, topics=topics, **given, **more)
    code: ErrorCode = answer.topics[0].partitions[0].error_code
    return code


async def end(
    node: Caller, who: Who, *, commit: bool = True, id: str = "tx", version: int = 5
) -> tuple[ErrorCode, Who]:
    """EndTxn."""
    answer = await node(END, version, transactional_id=id, producer_id=who[0], producer_epoch=who[1], committed=commit)
    after = (answer.producer_id, answer.producer_epoch) if version >= 5 else (-1, -1)
    return answer.error_code, after


async def offset_of(node: Caller, group: str = "g", *, stable: bool = True, topics: Any = ...) -> Any:
    """OffsetFetch of one partition: the offset, or the error code."""
    wanted = [{"name": "t", "partition_indexes": [0]}] if topics is ... else topics
    answer = await node(FETCH_OFFSETS, 8, groups=[{"group_id": group, "topics": wanted}], require_stable=stable)
    [found] = answer.groups[0].topics[0].partitions
    return found.committed_offset if found.error_code is OK else found.error_code
