"""`compression.type` of a topic, through the handlers."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from headwater.log.batch import codec_of, split_batches
from tests.support.batches import batch, values
from tests.support.nodes import Caller
from tests.support.promise import promise
from tests.unit.broker.calling import TOPIC, create, fetch, produce, recs, run
from tests.unit.broker.handlers.admin.test_configs import SET, change

PROMISES = ("K15",)

STORED = {"producer": None, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@promise("K15")
@pytest.mark.parametrize("wanted", STORED)
def test_batches_are_stored_in_the_topics_codec(wanted: str) -> None:
    """Whatever codec they came in, small or large, with their sequences."""

    async def test(one: Caller) -> None:
        await create(one, compression_type=wanted)
        sequence, contents = 0, []
        for size in (10, 100_000):
            for codec in range(5):
                data = batch(
                    recs(bytes(i * 7919 % 251 for i in range(size))), codec=codec, producer=(4000, 0, sequence)
                )
                answer = await produce(one, data)
                assert (answer.error_code, answer.base_offset) == (ErrorCode.none, sequence)
                assert (await produce(one, data)).base_offset == sequence, "a duplicate is known"
                sequence += 1
                contents.append(codec)
        for offset, codec in enumerate(contents):
            [first, *_] = split_batches((await fetch(one, offset)).records)
            stored = STORED[wanted]
            assert codec_of(first) == (codec if stored is None else stored)
        await change(one, TOPIC, "t", ("compression.type", SET, "uncompressed"))
        answer = await produce(one, batch(recs(b"last"), codec=4))
        assert values((await fetch(one, answer.base_offset)).records) == [(answer.base_offset, b"last")]

    run(test)


@promise("K15")
def test_a_batch_that_grows_too_large_is_refused() -> None:
    async def test(one: Caller) -> None:
        await create(one, compression_type="uncompressed", max_message_bytes="1000")
        for size in (5_000, 500_000):
            answer = await produce(one, batch(recs(b"x" * size), codec=4))
            assert answer.error_code is ErrorCode.message_too_large
        assert (await produce(one, batch(recs(b"x" * 500), codec=4))).base_offset == 0

    run(test)
