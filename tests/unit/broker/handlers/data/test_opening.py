"""Requests whose batches are opened in threads: order, errors, look-ups by time."""

import asyncio
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headwater.log.batch import first_at
from headwater.settings.settings import Limits, Settings
from headwater.wire.codecs import GZIP, LZ4, NONE, SNAPPY, ZSTD
from tests.support.batches import Rec, batch
from tests.support.nodes import Caller
from tests.support.promise import promise
from tests.unit.broker.calling import NOW, create, fetch, produce, run

PROMISES = ("K3", "S4")

LIST_OFFSETS = 2
SETTINGS = Settings(objects="memory://", limits=Limits(opened_batch_bytes=8 << 20))


def sized(number: int, size: int, codec: int) -> bytes:
    return batch([Rec(b"%d-" % number + bytes(size), timestamp=NOW + number)], codec=codec, producer=(7, 0, number))


@promise("K11")
def test_an_idempotent_producer_mixes_batches_of_all_sizes() -> None:
    """Whatever has to be opened and where, its batches arrive in order; those of others do not wait."""

    async def test(one: Caller) -> None:
        await create(one, partitions=2)
        sizes = [100, 3 << 20, 100, 6 << 20, 200 << 10, 100, 3 << 20, 3 << 20, 100, 100]
        codecs = [NONE, ZSTD, NONE, GZIP, LZ4, SNAPPY, ZSTD, ZSTD, ZSTD, NONE]
        waiting = [
            asyncio.create_task(produce(one, sized(i, size, codec)))
            for i, (size, codec) in enumerate(zip(sizes, codecs, strict=True))
        ]
        answers = await asyncio.gather(*waiting)
        assert [(a.error_code, a.base_offset) for a in answers] == [(ErrorCode.none, i) for i in range(len(sizes))]
        assert one.node.broker.budget.used == 0
        assert one.node.broker.stats.produced_records == len(sizes)

    run(test)


@promise("S4")
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_bomb_is_refused_and_changes_nothing(codec: int) -> None:
    """The error is that of Kafka for a batch that is too large."""

    async def test(one: Caller) -> None:
        await create(one)
        answer = await produce(one, batch([Rec(bytes(9 << 20), timestamp=NOW)], codec=codec))
        assert answer.error_code is ErrorCode.message_too_large
        assert "more" in answer.error_message
        assert (await fetch(one, 0)).high_watermark == 0
        assert one.node.broker.budget.used == 0 and one.node.broker.stats.produced_records == 0

    run(test, settings=SETTINGS)


@promise("K3")
def test_records_that_are_refused_one_by_one() -> None:
    """A batch that a thread checked has the same answer as any other."""

    async def test(one: Caller) -> None:
        await create(one, cleanup_policy="compact")
        records = [Rec(bytes(1 << 20), key=b"k", timestamp=NOW), Rec(b"", key=None, timestamp=NOW)]
        answer = await produce(one, batch(records, codec=ZSTD))
        assert answer.error_code is ErrorCode.invalid_record and answer.log_start_offset == 0
        assert [error.batch_index for error in answer.record_errors] == [1]

    run(test)


@promise("S4")
def test_a_look_up_by_time_opens_its_batch_elsewhere() -> None:
    """Not on the event loop."""

    async def test(one: Caller) -> None:
        await create(one)
        records = [Rec(bytes(1 << 20), timestamp=NOW + i) for i in range(3)]
        assert (await produce(one, batch(records, codec=ZSTD))).error_code is ErrorCode.none
        calls: list[Any] = []

        async def offload(call: Any, *arguments: Any) -> Any:
            calls.append(call)
            return call(*arguments)

        one.node.broker.reader._offload = offload  # type: ignore[assignment]
        wanted = [{"partition_index": 0, "timestamp": NOW + 1, "current_leader_epoch": -1}]
        answer = await one(LIST_OFFSETS, 7, replica_id=-1, topics=[{"name": "t", "partitions": wanted}])
        [found] = answer.topics[0].partitions
        assert (found.offset, calls) == (1, [first_at])

    run(test)
