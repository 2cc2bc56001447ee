"""Topics that a link copies, as Kafka's clients see them: producers are refused, consumers read on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headwater.client.records import decode_batches
from headwater.log.batch import split_batches
from headwater.state.commands.links import LinkPhase
from headwater.state.results import UnitResult, UnitVerdict
from tests.support.batches import batch, data_of, values
from tests.support.links import link
from tests.support.nodes import Caller
from tests.support.promise import promise
from tests.support.transactions import Transactor
from tests.unit.broker.calling import PRODUCE, TOPIC, configs_of, create, fetch, produce, recs, run

PROMISES = ("N1",)

LIST_OFFSETS, ADD_PARTITIONS, CREATE_PARTITIONS = 2, 24, 37
REFUSED = "Topic 't' is copied by link 'old' and takes no other records. Promote it first: `headwater link promote`."


def epochs(records: Any) -> set[int]:
    """The leader epochs of fetched batches."""
    return {int.from_bytes(bytes(one[12:16]), "big", signed=True) for one in split_batches(data_of(records))}


async def offset_of(node: Caller, timestamp: int) -> tuple[int, int]:
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
    [found] = (await node(LIST_OFFSETS, 7, topics=topics)).topics[0].partitions
    assert found.error_code is ErrorCode.none
    return int(found.offset), int(found.leader_epoch)


@promise("N1")
@pytest.mark.parametrize("version", [3, 9, 13])
def test_producers_are_refused_until_it_is_promoted(version: int) -> None:
    """Plain batches, those of idempotent producers and of other partitions beside them; then the next offset."""

    async def test(one: Caller) -> None:
        found = await link(one.node, "t", 2)
        await create(one, "other")
        await found.copy(7, [b"a"])
        other = one.node.broker.by_name("other")
        assert other is not None
        names = [{"topic_id": t.id} for t in (other.topic, found.topic)] if version >= 13 else []
        other_name, name = names or [{"name": "other"}, {"name": "t"}]
        data = batch(recs(b"x"), producer=(50, 0, 0))
        topics = [
            {**other_name, "partition_data": [{"index": 0, "records": data}]},
            {**name, "partition_data": [{"index": 0, "records": data}, {"index": 1, "records": batch(recs(b"y"))}]},
        ]

        async def put() -> list[Any]:
            answer = await one(PRODUCE, version, acks=-1, timeout=10_000, transactional_id=None, topic_data=topics)
            return [part for topic in answer.responses for part in topic.partition_responses]

        accepted, *refused = await put()
        assert accepted.error_code is ErrorCode.none
        assert [part.error_code for part in refused] == [ErrorCode.invalid_request] * 2
        if version >= 8:
            assert {part.error_message for part in refused} == {REFUSED}
        assert [found.stream(p).next_offset for p in (0, 1)] == [8, 0]
        await found.change(LinkPhase.PROMOTED)
        _, first, second = await put()
        assert [(p.error_code, p.base_offset) for p in (first, second)] == [(ErrorCode.none, 8), (ErrorCode.none, 0)]

    run(test)


@promise("N1")
def test_consumers_read_at_the_offsets_of_the_source() -> None:
    """Over gaps; no leader epoch is told, before and after it is promoted."""

    async def test(one: Caller) -> None:
        found = await link(one.node, "t")
        copied = await found.copy(5, [b"a", b"b"])
        assert isinstance(copied, UnitResult) and copied.verdict is UnitVerdict.ACCEPTED, copied
        for _ in range(2):
            gap, answer = await fetch(one, 0), await fetch(one, 5)
            assert {(one_answer.error_code, one_answer.high_watermark) for one_answer in (gap, answer)} == {
                (ErrorCode.none, 7)
            }
            assert [one_batch.next_offset for one_batch in decode_batches(gap.records)] == [5], "a consumer passes it"
            assert values(answer.records) == [(5, b"a"), (6, b"b")]
            assert epochs(gap.records) == epochs(answer.records) == {-1}
            assert [await offset_of(one, timestamp) for timestamp in (-1, -2, -3)] == [(7, -1), (0, -1), (5, -1)]
            await found.change(LinkPhase.PROMOTED)
        await create(one, "plain")
        await produce(one, batch(recs(b"x")), "plain")
        assert epochs((await fetch(one, 0, "plain")).records) == {0}

    run(test)


@promise("N1", "K12")
def test_transactions_stay_out() -> None:
    """A partition cannot join, by a request or by its batch."""

    async def test(one: Caller) -> None:
        found = await link(one.node, "t")
        producer = await Transactor.at(one.node, "tx", 500)
        data = producer.batch(int(found.stream().id), recs(b"a"))
        parts = [{"topic_id": found.topic.id, "partition_data": [{"index": 0, "records": data}]}]
        answer = await one(PRODUCE, 13, acks=-1, timeout=10_000, transactional_id="tx", topic_data=parts)
        [refused] = answer.responses[0].partition_responses
        assert (refused.error_code, refused.error_message) == (ErrorCode.invalid_request, REFUSED)
        joined = await one(
            ADD_PARTITIONS, 3, v3_and_below_transactional_id="tx", v3_and_below_producer_id=500,
            v3_and_below_producer_epoch=0, v3_and_below_topics=[{"name": "t", "partitions": [0]}],
        )  # fmt: skip
        [topic] = joined.results_by_topic_v3_and_below
        [part] = topic.results_by_partition
        assert part.partition_error_code is ErrorCode.invalid_request
        assert found.stream().next_offset == 0

    run(test)


@promise("N1")
def test_describing_a_topic_names_its_link() -> None:
    """As a config that only brokers set; other topics do not have it."""

    async def test(one: Caller) -> None:
        found = await link(one.node, "t")
        await found.change(LinkPhase.STOPPED, "the source was truncated")
        shown = (await configs_of(one, TOPIC, "t"))["headwater.link"]
        assert shown.read_only and json.loads(shown.value) == {
            "link": "old", "source": "source", "phase": "stopped", "reason": "the source was truncated",
            "generation": found.linked.generation,
        }  # fmt: skip
        await create(one, "plain")
        assert "headwater.link" not in await configs_of(one, TOPIC, "plain")

    run(test)


@promise("N1")
def test_partitions_follow_the_source_until_it_is_promoted() -> None:
    """A partition that the source does not have would end the link."""

    async def test(one: Caller) -> None:
        found = await link(one.node, "t", 2)
        wanted = [{"name": "t", "count": 3, "assignments": None}]
        [refused] = (await one(CREATE_PARTITIONS, 3, topics=wanted)).results
        assert refused.error_code is ErrorCode.invalid_request
        assert "copied by link 'old', and its partitions are those of the source" in refused.error_message
        assert len(found.topic.streams) == 2
        await found.change(LinkPhase.PROMOTED)
        [grown] = (await one(CREATE_PARTITIONS, 3, topics=wanted)).results
        assert grown.error_code is ErrorCode.none and len(found.topic.streams) == 3

    run(test)
