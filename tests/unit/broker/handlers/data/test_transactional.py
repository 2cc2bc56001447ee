"""Batches of transactions through Produce, and what Fetch and ListOffsets show of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headwater.log.batch import TRANSACTIONAL_BIT
from headwater.state.streams import transactions
from tests.support.batches import Rec, batch, data_of, values
from tests.support.nodes import Caller
from tests.support.promise import promise
from tests.support.transactions import Transactor
from tests.support.virtual_nodes import ONE
from tests.unit.broker.calling import FETCH, NOW, PRODUCE, create, recs, run

PROMISES = ("K3", "K4", "K5", "K12")

LIST_OFFSETS = 2
LATEST, MAX_TIMESTAMP = -1, -3
ALL = range(3, 14)


async def start(node: Caller, id: str = "tx", producer: int = 500, partitions: int = 1) -> tuple[Transactor, list[int]]:
    """A topic, its streams, and a producer with a transactional id."""
    await create(node, partitions=partitions)
    view = node.node.broker.by_name("t")
    assert view is not None
    return await Transactor.at(node.node, id, producer), list(view.topic.streams)


async def put(node: Caller, version: int, *data: bytes, id: str | None = "tx", acks: int = -1) -> list[ErrorCode]:
    """The codes of partitions from 0 on."""
    view = node.node.broker.by_name("t")
    assert view is not None
    topic = {"topic_id": view.topic.id} if version >= 13 else {"name": "t"}
    parts = [{"index": i, "records": one} for i, one in enumerate(data)]
    answer = await node(
        PRODUCE, version, acks=acks, timeout=10_000, transactional_id=id,
        topic_data=[{**topic, "partition_data": parts}],
    )  # fmt: skip
    return [p.error_code for p in answer.responses[0].partition_responses]


async def get(node: Caller, offset: int, isolation: int, partition: int = 0, **limits: Any) -> Any:
    """A partition's answer to a fetch."""
    wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    chosen = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1, **limits}
    response = await node(
        FETCH, 11, isolation_level=isolation, topics=[{"topic": "t", "partitions": [wanted]}], **chosen
    )
    return response.responses[0].partitions[0]


async def offset(node: Caller, isolation: int, timestamp: int) -> int:
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
    answer = await node(LIST_OFFSETS, 7, isolation_level=isolation, topics=topics)
    [found] = answer.topics[0].partitions
    assert found.error_code is ErrorCode.none
    return int(found.offset)


@promise("K12")
@pytest.mark.parametrize("version", ALL)
def test_a_partition_joins_by_its_batch_from_version_12_on(version: int) -> None:
    """Before that it has to join first; the error depends on what the client knows."""

    async def test(one: Caller) -> None:
        producer, [stream] = await start(one)
        data = producer.batch(stream, recs(b"a"))
        not_joined = ErrorCode.transaction_abortable if version >= 11 else ErrorCode.invalid_txn_state
        assert await put(one, version, data) == [ErrorCode.none if version >= 12 else not_joined]
        await producer.join(stream)
        assert await put(one, version, data) == [ErrorCode.none]
        compressed = producer.batch(stream, recs(b"b"), codec=4)
        assert await put(one, version, compressed) == [ErrorCode.none], "batches that are opened first join too"
        await producer.end(commit=True)
        stale = batch(recs(b"c"), attributes=TRANSACTIONAL_BIT, producer=(500, 0, 2))
        assert await put(one, version, stale) == [ErrorCode.invalid_producer_epoch]

    run(test)


@promise("K12")
def test_refusals() -> None:
    """Who the producer is, by the request, by its id, and by the ledger."""

    async def test(one: Caller) -> None:
        producer, [stream, _] = await start(one, partitions=2)
        await Transactor.at(one.node, "other", 600)
        data = producer.batch(stream, recs(b"a"))
        other = batch(recs(b"b"), attributes=TRANSACTIONAL_BIT, producer=(600, 0, 0))
        unknown = batch(recs(b"c"), attributes=TRANSACTIONAL_BIT, producer=(700, 0, 0))
        nobody = batch(recs(b"d"), attributes=TRANSACTIONAL_BIT)
        control = batch(recs(b"e"), attributes=TRANSACTIONAL_BIT | 0x20, producer=(500, 0, 0))
        mapping = ErrorCode.invalid_producer_id_mapping
        assert await put(one, 12, data, id=None) == [ErrorCode.transactional_id_authorization_failed]
        assert await put(one, 12, data, id="") == [ErrorCode.invalid_request]
        assert await put(one, 12, data, other) == [mapping, mapping], "a request is of one producer"
        assert await put(one, 12, other) == [mapping], "its id is another one"
        assert await put(one, 12, unknown) == [mapping]
        assert await put(one, 12, nobody, id=None) == [ErrorCode.transactional_id_authorization_failed]
        assert await put(one, 12, nobody) == [ErrorCode.none], "as in Kafka it is a plain one"
        assert await put(one, 12, control) == [ErrorCode.invalid_record]
        assert not one.node.domains[ONE].state.streams[stream].running
        assert await put(one, 12, data, batch(recs(b"plain")), acks=1) == [ErrorCode.none] * 2, "plain ones beside them"
        plain = batch(recs(b"f"), producer=(500, 0, 1))
        assert await put(one, 12, plain) == [ErrorCode.invalid_txn_state]

    run(test)


@promise("K12")
def test_what_refusals_tell() -> None:
    """As Kafka's, they have a message for those who have not joined, and no start of the log."""

    async def test(one: Caller) -> None:
        producer, [stream, _] = await start(one, partitions=2)
        await Transactor.at(one.node, "other", 600)

        async def told(*data: bytes) -> list[tuple[bool, int]]:
            parts = [{"index": i, "records": some} for i, some in enumerate(data)]
            topics = [{"name": "t", "partition_data": parts}]
            fields = {"acks": -1, "timeout": 10_000, "transactional_id": "tx", "topic_data": topics}
            answers = (await one(PRODUCE, 11, **fields)).responses[0].partition_responses
            return [(answer.error_message is not None, answer.log_start_offset) for answer in answers]

        other = batch(recs(b"b"), attributes=TRANSACTIONAL_BIT, producer=(600, 0, 0))
        assert await told(producer.batch(stream, recs(b"a"))) == [(True, -1)], "it has not joined"
        assert await told(producer.batch(stream, recs(b"a")), other) == [(True, -1)] * 2, "two producers"
        await producer.join(stream)
        stale, gap = ((500, 1, 0), (500, 0, 9))
        assert await told(batch(recs(b"c"), attributes=TRANSACTIONAL_BIT, producer=stale)) == [(False, -1)]
        assert await told(batch(recs(b"c"), attributes=TRANSACTIONAL_BIT, producer=gap)) == [(False, 0)]

    run(test)


@promise("K12")
def test_an_older_level_takes_no_batches_of_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them reaches a writer, whose command the other processes would not know."""

    async def test(one: Caller) -> None:
        producer, [stream] = await start(one)
        data = producer.batch(stream, recs(b"a"))
        one.node.domains[ONE].state.level = transactions.LEVEL - 1
        flushes = sum(writer.flushes for writer in one.node.writers.all())
        assert await put(one, 12, data) == [ErrorCode.invalid_txn_state]
        assert sum(writer.flushes for writer in one.node.writers.all()) == flushes

    run(test)


@promise("K4")
def test_isolation() -> None:
    """Both isolations get the stable offset; only readers of committed records stop there and learn of aborts."""

    async def test(one: Caller) -> None:
        producer, [stream] = await start(one)
        later = await Transactor.at(one.node, "later", 600)
        assert await put(one, 12, batch(recs(b"0", b"1")), id=None) == [ErrorCode.none]
        assert await put(one, 12, producer.batch(stream, recs(b"2"))) == [ErrorCode.none]
        assert await put(one, 12, later.batch(stream, recs(b"3")), id="later") == [ErrorCode.none]
        dirty, clean = await get(one, 0, 0), await get(one, 0, 1)
        assert (dirty.high_watermark, dirty.last_stable_offset, dirty.aborted_transactions) == (4, 2, None)
        assert (clean.high_watermark, clean.last_stable_offset, clean.aborted_transactions) == (4, 2, ())
        assert values(dirty.records) == [(i, b"%d" % i) for i in range(4)]
        assert values(clean.records) == [(0, b"0"), (1, b"1")]
        beyond = await get(one, 3, 1)
        assert (beyond.error_code, beyond.records, beyond.aborted_transactions) == (ErrorCode.none, b"", ())
        outside = await get(one, 5, 1)
        assert (outside.error_code, outside.aborted_transactions) == (ErrorCode.offset_out_of_range, None)
        await producer.end(commit=False)
        clean = await get(one, 0, 1)
        assert clean.last_stable_offset == 3
        assert [(a.producer_id, a.first_offset) for a in clean.aborted_transactions] == [(500, 2)]
        assert values(clean.records) == [(i, b"%d" % i) for i in range(3)]
        await later.end(commit=True)
        for isolation in (0, 1):
            found = await get(one, 0, isolation)
            assert (found.last_stable_offset, found.high_watermark) == (6, 6)
            assert values(data_of(found.records)) == [(i, b"%d" % i) for i in range(4)]
        assert [a.first_offset for a in (await get(one, 3, 1)).aborted_transactions] == [2], "its marker is at 4"
        assert (await get(one, 5, 1)).aborted_transactions == ()

    run(test)


@promise("K4")
@pytest.mark.parametrize("commit", [True, False])
def test_a_waiting_fetch_is_woken_by_the_end_of_a_transaction(commit: bool) -> None:
    """The batches of an open transaction do not count, however many arrive; its end does."""

    async def test(one: Caller) -> None:
        producer, [stream] = await start(one)
        waiting = asyncio.create_task(get(one, 0, 1, max_wait=25_000))
        while not one.node.domains[ONE]._watches:
            await asyncio.sleep(0)
        for value in (b"0", b"1"):
            assert await put(one, 12, producer.batch(stream, recs(value))) == [ErrorCode.none]
        assert len(values((await get(one, 0, 0)).records)) == 2
        assert not waiting.done()
        await producer.end(commit=commit)
        found = await waiting
        assert values(data_of(found.records)) == [(0, b"0"), (1, b"1")]
        assert [a.producer_id for a in found.aborted_transactions] == ([] if commit else [500])

    run(test)


@promise("K4")
def test_a_fetch_learns_of_ends_at_other_brokers() -> None:
    """An offset beyond the local stable offset looks at the ledger before the answer is empty."""

    async def test(one: Caller, two: Caller) -> None:
        producer, [stream] = await start(one)
        assert await put(one, 12, producer.batch(stream, recs(b"0"))) == [ErrorCode.none]
        assert (await get(two, 0, 1)).last_stable_offset == 0
        await producer.end(commit=True)
        found = await get(two, 0, 1)
        assert (values(data_of(found.records)), found.last_stable_offset) == ([(0, b"0")], 2)

    run(test, 2)


@promise("K4")
def test_sessions() -> None:
    """An incremental fetch tells a partition again when its stable offset moves, with the aborted ones."""

    async def test(one: Caller) -> None:
        producer, [stream] = await start(one)
        options = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 1}
        wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        first = await one(FETCH, 11, session_epoch=0, topics=[{"topic": "t", "partitions": [wanted]}], **options)

        async def again(epoch: int) -> Any:
            answer = await one(FETCH, 11, session_id=first.session_id, session_epoch=epoch, topics=[], **options)
            return answer.responses[0].partitions[0] if answer.responses else None

        assert await again(1) is None
        assert await put(one, 12, producer.batch(stream, recs(b"0"))) == [ErrorCode.none]
        told = await again(2)
        assert (told.high_watermark, told.last_stable_offset, told.records) == (1, 0, b"")
        assert await again(3) is None
        await producer.end(commit=False)
        told = await again(4)
        assert (told.high_watermark, told.last_stable_offset) == (2, 2)
        assert [(a.producer_id, a.first_offset) for a in told.aborted_transactions] == [(500, 0)]

    run(test)


@promise("K5")
def test_list_offsets() -> None:
    """For readers of committed records the log ends at the stable offset."""

    async def test(one: Caller) -> None:
        producer, [stream] = await start(one)
        assert await put(one, 12, batch([Rec(b"0", None, NOW)]), id=None) == [ErrorCode.none]
        assert await put(one, 12, producer.batch(stream, [Rec(b"1", None, NOW + 5)])) == [ErrorCode.none]
        assert [await offset(one, isolation, LATEST) for isolation in (0, 1)] == [2, 1]
        assert [await offset(one, isolation, NOW) for isolation in (0, 1)] == [0, 0]
        assert [await offset(one, isolation, NOW + 1) for isolation in (0, 1)] == [1, -1]
        assert [await offset(one, isolation, MAX_TIMESTAMP) for isolation in (0, 1)] == [1, -1]
        await producer.end(commit=True)
        assert [await offset(one, isolation, LATEST) for isolation in (0, 1)] == [3, 3]
        assert [await offset(one, isolation, NOW + 1) for isolation in (0, 1)] == [1, 1]
        assert [await offset(one, isolation, MAX_TIMESTAMP) for isolation in (0, 1)] == [1, 1]

    run(test)


@promise("K12")
def test_trimming_into_an_open_transaction() -> None:
    """The stable offset is never before the start of the log, and what is behind it stays hidden."""

    async def test(one: Caller) -> None:
        producer, [stream] = await start(one)
        assert await put(one, 12, producer.batch(stream, recs(b"0", b"1", b"2"))) == [ErrorCode.none]
        trim = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 2}]}]
        await one(21, 2, topics=trim, timeout=10_000)
        found = await get(one, 2, 1)
        assert (found.error_code, found.last_stable_offset, found.records) == (ErrorCode.none, 2, b"")
        await producer.end(commit=True)
        assert [v for _, v in values(data_of((await get(one, 2, 1)).records))] == [b"0", b"1", b"2"], "a whole batch"

    run(test)
