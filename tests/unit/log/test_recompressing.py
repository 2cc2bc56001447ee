"""K15: batches in their topic's codec, each stream's in the order they came."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from headwater.errors import BatchTooLarge, HeadwaterError
from headwater.log.batch import BatchRules, check_batch, codec_of, recompressed
from headwater.log.parts import Outcome, Part
from headwater.log.recompressing import LARGE, Recompression, Target, apply
from headwater.wire.codecs import NAMES, NONE, ZSTD
from tests.support.batches import Rec, batch, values

NOW = 1_700_000_000_000
RULES = BatchRules(1 << 20, 1 << 20, 1 << 62, 1 << 62, False, False)
TARGET = Target(NONE, -1, 1 << 20, 1 << 20)


class Line:
    """In place of a writer and of a caller: notes what comes."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.failures: list[tuple[int, HeadwaterError]] = []

    def append(self, part: Part) -> None:
        self.parts.append(part)

    def accepted(self, number: int, offset: int, log_start: int, append_ms: int) -> None:
        raise AssertionError("nobody accepts anything here")

    def decided(self, number: int, outcome: Outcome | HeadwaterError) -> None:
        assert isinstance(outcome, HeadwaterError)
        self.failures.append((number, outcome))


def part(line: Line, number: int, size: int = 10, codec: int = ZSTD, stream: int = 1) -> Part:
    content = b"%d" % number + random.Random(number).randbytes(size)
    return Part(stream, check_batch(batch([content], codec=codec), RULES, NOW), line, number)


@pytest.mark.parametrize("codec", NAMES)
@pytest.mark.parametrize("other", NAMES)
def test_only_the_codec_changes(codec: int, other: int) -> None:
    """K15: offsets, timestamps, keys, headers and the producer's fields stay; the CRC is right."""
    records = [
        Rec(b"value" * 100, key=b"key", timestamp=NOW + 5, headers=((b"h", b"1"), (b"h", None))),
        Rec(None, timestamp=NOW),
        Rec(b"", key=b"", timestamp=NOW + 9),
    ]
    data = batch(records, codec=codec, producer=(4000, 3, 17))
    made = check_batch(recompressed(data, other, -1 if other == 1 else 3, 1 << 20), RULES, NOW)
    assert codec_of(made.data) == other
    before = check_batch(data, RULES, NOW)
    for name in ("offsets", "min_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence"):
        assert getattr(made, name) == getattr(before, name)
    assert recompressed(made.data, 0, 0, 1 << 20) == recompressed(data, 0, 0, 1 << 20)


def test_size_counts_after_recompression() -> None:
    """K15: a batch that becomes too large for its topic is refused."""
    small = check_batch(batch([b"x" * 5000], codec=ZSTD), RULES, NOW)
    with pytest.raises(BatchTooLarge, match="once it is recompressed; the topic allows 1000"):
        apply(small, Target(NONE, -1, 1000, 1 << 20))
    assert apply(small, Target(ZSTD, 3, 10, 1 << 20)) is small, "one in the right codec is left alone"


def test_order_is_kept_around_a_batch_that_takes_long() -> None:
    """K15: also by batches that need no new codec; other streams do not wait."""

    async def main() -> None:
        line = Line()
        gates: list[asyncio.Future[None]] = []

        async def offload(call: Any, *arguments: Any) -> Any:
            gate = asyncio.get_running_loop().create_future()
            gates.append(gate)
            await gate
            return call(*arguments)

        recompression = Recompression(offload)
        writer: Any = line
        recompression.append(writer, part(line, 0), TARGET)
        assert [p.number for p in line.parts] == [0], "a small one is done at once"
        recompression.append(writer, part(line, 1, 2 * LARGE), TARGET)
        recompression.append(writer, part(line, 2), TARGET)
        recompression.append(writer, part(line, 3, codec=NONE), None)
        recompression.append(writer, part(line, 9, codec=NONE, stream=2), None)
        assert [p.number for p in line.parts] == [0, 9]
        assert recompression.waiting
        while recompression.waiting:
            await asyncio.sleep(0)
            for gate in gates:
                if not gate.done():
                    gate.set_result(None)
        assert [p.number for p in line.parts] == [0, 9, 1, 2, 3]
        assert all(codec_of(p.batch.data) == NONE for p in line.parts)
        assert [values(p.batch.data)[0][1][:1] for p in line.parts] == [b"0", b"9", b"1", b"2", b"3"]

    asyncio.run(main())


def test_one_that_cannot_be_recompressed_does_not_hold_up_the_next() -> None:
    """K15"""

    async def main() -> None:
        line = Line()

        async def offload(call: Any, *arguments: Any) -> Any:
            await asyncio.sleep(0)
            return call(*arguments)

        recompression = Recompression(offload)
        writer: Any = line
        narrow = Target(NONE, -1, 100, 1 << 20)
        recompression.append(writer, part(line, 0, 200), narrow)
        recompression.append(writer, part(line, 1, 2 * LARGE), narrow)
        recompression.append(writer, part(line, 2, 10), narrow)
        while recompression.waiting or len(line.failures) < 2:
            await asyncio.sleep(0)
        assert sorted(number for number, _ in line.failures) == [0, 1]
        assert [p.number for p in line.parts] == [2]

    asyncio.run(main())
