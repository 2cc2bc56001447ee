"""Batches are opened in the order they came, large ones in threads, and stored in their topic's codec."""

from __future__ import annotations

import asyncio
import gc
import mmap
import random
from typing import Any

import pytest

from harness.virtual import VirtualClock
from headwater.errors import HeadwaterError, Overloaded, TooLarge
from headwater.log.batch import Batch, BatchRules, check_batch, codec_of, recompressed, unchecked
from headwater.log.kernels import switch
from headwater.log.write import budget, opening
from headwater.log.write.budget import Budget
from headwater.log.write.opening import JOB_BYTES, NO_LIMIT, SMALL, TURN_BYTES, Opening, Target, Wanted, Work, prepare
from headwater.log.write.part import Outcome, Part
from headwater.threads import Threads, Turns
from headwater.wire import codecs
from headwater.wire.codecs import GZIP, LZ4, NAMES, NONE, SNAPPY, ZSTD
from tests.support.batches import Rec, batch, values
from tests.support.promise import promise

PROMISES = ("K15", "S4")

NOW = 1_700_000_000_000
RULES = BatchRules(1 << 20, 1 << 24, 1 << 62, 1 << 62, False, False)
TARGET = Target(NONE, -1, 1 << 20, 1 << 24)
CHECK = Work(RULES, NOW, None)
WIDE = Work(BatchRules(1 << 22, 1 << 24, 1 << 62, 1 << 62, False, False), NOW, None)
CONNECTION = "a connection"


class Line:
    """In place of a writer and of a caller: notes what comes."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.failures: list[tuple[int, HeadwaterError]] = []
        self.budget = Budget(1 << 30)
        self.passed: list[Batch] = []

    def append(self, part: Part) -> None:
        self.parts.append(part)

    def accepted(self, number: int, offset: int, log_start: int, append_ms: int) -> None:
        raise AssertionError("nothing is accepted here")

    def decided(self, number: int, outcome: Outcome | HeadwaterError) -> None:
        raise AssertionError("nothing is decided here")

    @property
    def numbers(self) -> list[int]:
        return [part.number for part in self.parts]

    def of(self, usual: Any, huge: Any = None) -> Opening:
        return Opening(usual, huge or usual, self.budget, self.passed.append, VirtualClock())

    def wanted(self, part: Part, work: Work) -> Wanted:
        writer: Any = self
        return Wanted(part, work, writer, lambda error: self.failures.append((part.number, error)))


def made(size: int = 10, codec: int = ZSTD, number: int = 0) -> bytes:
    return batch([b"%d" % number + random.Random(number).randbytes(size)], codec=codec)


def part(line: Line, number: int, size: int = 10, codec: int = ZSTD, stream: int = 1) -> Part:
    return Part(stream, check_batch(made(size, codec, number), RULES, NOW), line, number)


def raw(line: Line, number: int, data: bytes, stream: int = 1) -> Part:
    return Part(stream, unchecked(data), line, number)


async def until_done(opened: Opening) -> None:
    while opened._lines:
        await asyncio.sleep(0.001)


class Gates:
    """An offload whose calls wait until they are let go."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[None]] = []

    async def __call__(self, call: Any, *arguments: Any) -> Any:
        gate = asyncio.get_running_loop().create_future()
        self.waiting.append(gate)
        await gate
        return call(*arguments)

    def let_go(self) -> None:
        for gate in self.waiting:
            if not gate.done():
                gate.set_result(None)


@promise("K15")
@pytest.mark.parametrize("codec", NAMES)
@pytest.mark.parametrize("other", NAMES)
def test_only_the_codec_changes(codec: int, other: int) -> None:
    """Offsets, timestamps, keys, headers and the producer's fields stay; the CRC is right."""
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


@promise("K15")
def test_size_counts_after_recompression() -> None:
    """A batch that becomes too large for its topic is refused."""
    small = check_batch(batch([b"x" * 5000], codec=ZSTD), RULES, NOW)
    with pytest.raises(TooLarge, match="once it is recompressed; the topic allows 1000"):
        prepare(small, Work(None, NOW, Target(NONE, -1, 1000, 1 << 20)), NO_LIMIT)
    same, opened = prepare(small, Work(None, NOW, Target(ZSTD, 3, 10, 1 << 20)), NO_LIMIT)
    assert same is small and not opened, "one in the right codec is left alone"


@promise("K15")
def test_order_is_kept_around_a_batch_that_takes_long() -> None:
    """Also by batches that need nothing done; other connections do not wait."""

    async def main() -> None:
        line, gates = Line(), Gates()
        opened = line.of(gates)
        recompress, nothing = Work(None, NOW, TARGET), Work(None, NOW, None)
        opened.append(CONNECTION, line.wanted(part(line, 0), recompress))
        assert line.numbers == [0], "a small one is done at once"
        opened.append(CONNECTION, line.wanted(part(line, 1, 2 * SMALL), recompress))
        opened.append(CONNECTION, line.wanted(part(line, 2), recompress))
        opened.append(CONNECTION, line.wanted(part(line, 3, codec=NONE, stream=2), nothing))
        opened.append("another", line.wanted(part(line, 9, codec=NONE), nothing))
        opened.append(CONNECTION, line.wanted(raw(line, 4, made(codec=GZIP, number=4)), CHECK))
        assert line.numbers == [0, 9]
        assert opened.busy(CONNECTION) and not opened.busy("another")
        assert line.budget.used == sum(len(p.batch.data) for p in opened._line_of) > SMALL
        while opened.busy(CONNECTION):
            gates.let_go()
            await asyncio.sleep(0)
        assert line.numbers == [0, 9, 1, 2, 3, 4]
        assert [codec_of(p.batch.data) for p in line.parts] == [NONE] * 5 + [GZIP]
        plain = [recompressed(p.batch.data, NONE, 0, 1 << 20) for p in line.parts]
        assert [values(data)[0][1][:1] for data in plain] == [b"0", b"9", b"1", b"2", b"3", b"4"]
        assert line.budget.used == 0 and [b.offsets for b in line.passed] == [1] * 6

    asyncio.run(main())


@promise("K15")
def test_one_that_is_refused_does_not_hold_up_the_next() -> None:
    async def main() -> None:
        line = Line()
        gates = Gates()
        opened = line.of(gates)
        narrow = Work(None, NOW, Target(NONE, -1, 100, 1 << 20))
        spoiled = bytearray(made(2 * SMALL))
        spoiled[-1] ^= 1
        opened.append(CONNECTION, line.wanted(part(line, 0, 200), narrow))
        opened.append(CONNECTION, line.wanted(part(line, 1, 2 * SMALL), narrow))
        opened.append(CONNECTION, line.wanted(raw(line, 2, bytes(spoiled)), CHECK))
        opened.append(CONNECTION, line.wanted(raw(line, 3, b"short"), CHECK))
        opened.append(CONNECTION, line.wanted(part(line, 4, 10), narrow))
        while opened.busy(CONNECTION):
            gates.let_go()
            await asyncio.sleep(0)
        assert [number for number, _ in line.failures] == [0, 1, 2, 3]
        assert "CRC" in str(line.failures[2][1]) and "5 bytes" in str(line.failures[3][1])
        assert line.numbers == [4] and line.budget.used == 0

    asyncio.run(main())


@promise("K15")
def test_an_unexpected_failure_does_not_hold_up_the_next(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client is told, the log has it, and the connection goes on."""

    async def main() -> None:
        line, gates = Line(), Gates()
        opened = line.of(gates)
        for number in (0, 1):
            opened.append(CONNECTION, line.wanted(part(line, number, 2 * SMALL), Work(None, NOW, TARGET)))

        def boom(*arguments: Any) -> bytes:
            monkeypatch.undo()
            raise RuntimeError("planted")

        monkeypatch.setattr(opening, "recompressed", boom)
        while opened.busy(CONNECTION):
            gates.let_go()
            await asyncio.sleep(0)
        [(number, error)] = line.failures
        assert number == 0 and "planted" in str(error)
        assert line.numbers == [1]

    asyncio.run(main())
    assert "a batch cannot be opened" in caplog.text


@promise("S4")
def test_a_batch_whose_request_was_answered_is_dropped() -> None:
    """While it waits, and while a thread opens it."""

    async def main() -> None:
        line, gates = Line(), Gates()
        opened = line.of(gates)
        parts = [raw(line, number, made(2 * SMALL, number=number)) for number in range(4)]
        for one in parts:
            opened.append(CONNECTION, line.wanted(one, CHECK))
        await asyncio.sleep(0)
        assert len(gates.waiting) == 1
        assert opened.withdraw(parts[0]) and opened.withdraw(parts[2])
        assert line.budget.used == len(parts[1].batch.data) + len(parts[3].batch.data)
        assert not opened.withdraw(parts[0])
        while opened.busy(CONNECTION):
            gates.let_go()
            await asyncio.sleep(0)
        assert line.numbers == [1, 3] and line.budget.used == 0
        assert not opened.withdraw(parts[1])

    asyncio.run(main())


@promise("S4")
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_bytes_opened_in_a_turn_of_the_event_loop(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty bombs, and many small batches: the event loop opens little, and jobs in threads are bounded."""
    loop_opened: list[int] = []
    jobs: list[int] = []
    inside: list[int] = []
    real = codecs.decompress

    def counting(codec: int, data: Any, limit: int) -> Any:
        found = real(codec, data, limit)
        (inside or loop_opened).append(len(found))
        return found

    monkeypatch.setattr("headwater.log.batch.decompress", counting)
    monkeypatch.setattr(budget, "BURST_BYTES", 1 << 40)

    async def thread(call: Any, *arguments: Any) -> Any:
        await asyncio.sleep(0)
        inside.append(0)
        try:
            return call(*arguments)
        finally:
            jobs.append(sum(inside))
            inside.clear()

    async def main() -> None:
        line = Line()
        opened = line.of(thread)
        bomb = batch([bytes(12 << 20)], codec=codec)
        small = batch([bytes(SMALL - 100)], codec=codec)
        assert len(bomb) < 1 << 20
        for number in range(20):
            opened.append(number % 5, line.wanted(raw(line, number, bomb), CHECK))
            opened.append("other", line.wanted(raw(line, 1000 + number, small), CHECK))
        assert sum(loop_opened) <= TURN_BYTES + SMALL
        assert len(small) * opening.RATIO > SMALL or sum(loop_opened) > TURN_BYTES // 4, "small ones are done at once"
        await until_done(opened)
        assert sorted(line.numbers) == [*range(20), *range(1000, 1020)]
        for connection in range(5):
            assert [n for n in line.numbers if n < 1000 and n % 5 == connection] == [*range(connection, 20, 5)]
        assert max(jobs) < 13 << 20, "one bomb at a time"
        assert sum(job > 2 * JOB_BYTES for job in jobs) == 20
        assert line.numbers.index(1019) < 30, "they do not wait for the bombs of others"

    asyncio.run(main())


@promise("S4")
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_batch_that_opens_to_more_than_the_limit_is_refused(codec: int) -> None:
    """With a clear error, and only that one."""

    async def main() -> None:
        line = Line()
        usual, huge = Threads(1, "usual"), Threads(1, "huge")
        opened = line.of(usual.run, huge.run)
        opened.append(CONNECTION, line.wanted(raw(line, 0, batch([bytes(17 << 20)], codec=codec)), CHECK))
        opened.append(CONNECTION, line.wanted(raw(line, 1, made(codec=codec)), CHECK))
        await until_done(opened)
        [(number, error)] = line.failures
        assert number == 0 and isinstance(error, TooLarge) and "decompresses to more" in str(error)
        assert line.numbers == [1] and line.budget.used == 0
        await usual.close()
        await huge.close()

    asyncio.run(main())


@promise("S4")
def test_many_records_before_the_kernels_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain Python takes long for small records; a thread does it."""

    async def main() -> None:
        line, gates = Line(), Gates()
        opened = line.of(gates)
        many = batch([b""] * 2_000)
        assert len(many) < SMALL // 4
        opened.append(0, line.wanted(raw(line, 0, many), CHECK))
        assert opened.busy(0) and not line.parts
        monkeypatch.setattr(switch, "produce_rows", lambda frame, version: None)
        opened.append(1, line.wanted(raw(line, 1, many), CHECK))
        assert not opened.busy(1) and line.numbers == [1]
        while opened.busy(0):
            gates.let_go()
            await asyncio.sleep(0)
        assert line.numbers == [1, 0]

    monkeypatch.setattr(switch, "produce_rows", switch._no_rows)
    asyncio.run(main())


@promise("S4")
def test_one_batch_is_refused_in_a_turn_of_the_event_loop() -> None:
    """Plain Python looks for what is wrong with the records."""

    async def main() -> None:
        line, gates = Line(), Gates()
        opened = line.of(gates)
        strict = Work(BatchRules(1 << 20, 1 << 24, 1_000, 1_000, False, False), NOW, None)
        early = batch([Rec(b"x", timestamp=NOW - 5_000)])
        for number in range(3):
            opened.append(number, line.wanted(raw(line, number, early), strict))
        assert [number for number, _ in line.failures] == [0]
        assert [opened.busy(number) for number in range(3)] == [False, True, True]
        await asyncio.sleep(0)
        gates.let_go()
        await until_done(opened)
        assert [number for number, _ in line.failures] == [0, 1, 2]

    asyncio.run(main())


@promise("S4")
def test_who_opened_far_more_than_was_sent_waits_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bomb costs its sender. What it is refused costs little; a batch of usual data is taken all the same."""
    opened_bytes: list[int] = []
    real = codecs.decompress

    def counting(codec: int, data: Any, limit: int) -> Any:
        found = real(codec, data, limit)
        opened_bytes.append(len(found))
        return found

    monkeypatch.setattr("headwater.log.batch.decompress", counting)
    bomb = batch([bytes(12 << 20)], codec=ZSTD)

    async def main() -> None:
        line = Line()

        async def thread(call: Any, *arguments: Any) -> Any:
            return call(*arguments)

        opened = line.of(thread)
        now = 0.0
        opened.expansion = budget.Expansion(lambda: now)
        for number in range(20):
            opened.append(number, line.wanted(raw(line, number, bomb), CHECK), "User:bad")
            await until_done(opened)
        taken = len(line.parts)
        assert 3 < taken < 8 and sum(opened_bytes) < 2 * budget.BURST_BYTES
        assert {type(error) for _, error in line.failures} == {Overloaded} and opened.expansion.refused == 20 - taken
        opened.append("a", line.wanted(raw(line, 100, made(3 << 19)), WIDE), "User:bad")
        opened.append("b", line.wanted(raw(line, 101, bomb), CHECK), "User:good")
        await until_done(opened)
        assert line.numbers[-2:] == [100, 101]
        now += 2 * budget.BURST_BYTES / budget.BYTES_PER_SECOND
        opened.append("a", line.wanted(raw(line, 102, bomb), CHECK), "User:bad")
        await until_done(opened)
        assert line.numbers[-1] == 102, "it is over with time"

    asyncio.run(main())


@promise("S4")
@pytest.mark.parametrize("spoiled", [False, True])
def test_what_is_refused_keeps_nothing_that_was_opened(spoiled: bool) -> None:
    """Errors keep the variables of their frames, and those of a job are part of a cycle."""
    data = batch([bytes(12 << 20)], codec=ZSTD)
    work = Work(BatchRules(1 << 20, 10 << 20, 1 << 62, 1 << 62, False, False), NOW, None)
    if spoiled:
        data, work = (
            batch([Rec(bytes(12 << 20), timestamp=NOW - 5_000)], codec=ZSTD),
            Work(BatchRules(1 << 20, 1 << 24, 1_000, 1_000, False, False), NOW, None),
        )
    gc.collect()
    gc.disable()
    try:
        before = sum(type(one) is mmap.mmap for one in gc.get_objects())
        for room in (JOB_BYTES, NO_LIMIT):
            [(outcome, opened)] = opening._prepare_some([(unchecked(data), work)], room)
            assert isinstance(outcome, HeadwaterError) and opened >= JOB_BYTES
            assert outcome.__traceback__ is None and outcome.__cause__ is None and not outcome.__context__
        assert sum(type(one) is mmap.mmap for one in gc.get_objects()) == before
    finally:
        gc.enable()


@promise("S4")
@pytest.mark.parametrize(("codec", "level"), [(ZSTD, 22), (ZSTD, 12), (GZIP, -1), (GZIP, 9), (LZ4, 17)])
def test_what_is_slow_to_compress_is_not_done_by_the_event_loop(codec: int, level: int) -> None:
    """The level is a config of the topic. What takes long alone does not hold up usual batches of others."""

    async def main() -> None:
        line, usual, huge = Line(), Gates(), Gates()
        opened = line.of(usual, huge)
        slow = Work(RULES, NOW, Target(codec, level, 1 << 20, 1 << 24))
        opened.append(0, line.wanted(raw(line, 0, made(SMALL // 2, NONE)), slow))
        assert opened.busy(0) and not line.parts
        opened.append(1, line.wanted(raw(line, 1, made(900_000, NONE)), slow))
        while not huge.waiting and opened.busy(1):
            usual.let_go()
            await asyncio.sleep(0)
        assert bool(huge.waiting) is (slow.weight(unchecked(made(10, NONE))) > 20)
        while opened.busy(0) or opened.busy(1):
            usual.let_go()
            huge.let_go()
            await asyncio.sleep(0)
        assert sorted(line.numbers) == [0, 1] and not line.failures

    asyncio.run(main())


@promise("S4")
def test_callers_take_turns_in_a_thread() -> None:
    """Whoever has many connections has one turn like the others."""

    async def main() -> None:
        line = Line()
        usual = Threads(1, "usual", Turns())
        opened = line.of(usual.run)
        for number in range(50):
            opened.append(number, line.wanted(raw(line, number, made(2 * SMALL, number=number)), CHECK), "User:many")
        opened.append("x", line.wanted(raw(line, 100, made(2 * SMALL)), CHECK), "User:one")
        await until_done(opened)
        assert line.numbers.index(100) < 10
        await usual.close()

    asyncio.run(main())
