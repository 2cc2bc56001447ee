"""Which batches of a WAL run become rows, when some of them belong to aborted transactions."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.log.batch import TRANSACTIONAL_BIT
from headwater.log.segment.decode import AbortedRange, Run, decode_runs
from tests.support.batches import NO_PRODUCER, Rec, batch
from tests.support.promise import promise
from tests.support.soak import examples

PROMISES = ("T1",)

LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class Sent:
    """A batch at an offset; a marker if it has no records."""

    start: int
    producer: int
    transactional: bool
    records: int
    codec: int = 0

    def encoded(self) -> bytes:
        producer = NO_PRODUCER if self.producer < 0 else (self.producer, 0, 0)
        records = [Rec(b"%d" % (self.start + i)) for i in range(self.records)]
        attributes = TRANSACTIONAL_BIT if self.transactional else 0
        made = batch(records, producer=producer, attributes=attributes, codec=self.codec)
        return struct.pack(">I", len(made)) + made


def offsets_of(runs: Sequence[Run], aborted: Sequence[AbortedRange], first: int = 0) -> list[int]:
    pieces = decode_runs(0, runs, first, LIMIT, None, aborted)
    return [row["offset"] for piece in pieces for row in piece.to_pylist()]


def runs_of(sent: Sequence[Sent], cuts: set[int]) -> list[Run]:
    """Batches as runs that end at markers, and before the batches whose places are in `cuts`."""
    runs: list[tuple[bytes, int, int]] = []
    cut = True
    for i, one in enumerate(sent):
        if not one.records:
            cut = True
            continue
        if cut or i in cuts:
            runs.append((b"", one.start, -1))
        runs[-1] = (runs[-1][0] + one.encoded(), runs[-1][1], -1)
        cut = False
    return list(runs)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Sent], list[AbortedRange]]:
    """Batches of three transactional producers and of others, and the transactions that were aborted."""
    sent: list[Sent] = []
    aborted: list[AbortedRange] = []
    running: dict[int, int] = {}
    offset = draw(st.integers(0, 5))
    for _ in range(draw(st.integers(0, 25))):
        match draw(st.sampled_from(["write", "write", "write", "plain", "end"])):
            case "end" if running:
                producer = draw(st.sampled_from(sorted(running)))
                first = running.pop(producer)
                if draw(st.booleans()):
                    aborted.append((producer, first, offset))
                sent.append(Sent(offset, producer, True, 0))
                offset += 1
                continue
            case "write":
                producer, transactional = draw(st.sampled_from([3, 7, (1 << 40) + 7])), True
                running.setdefault(producer, offset)
            case _:
                producer, transactional = draw(st.sampled_from([-1, 9, 7])), False
        count = draw(st.integers(1, 3))
        sent.append(Sent(offset, producer, transactional, count, draw(st.sampled_from([0, 0, 4]))))
        offset += count
    return sent, draw(st.permutations(aborted))


@promise("T1")
@settings(deadline=None, max_examples=examples(300))
@given(history=histories(), cuts=st.sets(st.integers(0, 25)), first=st.integers(0, 12))
def test_aborted_records_are_dropped(
    history: tuple[list[Sent], list[AbortedRange]], cuts: set[int], first: int
) -> None:
    """Exactly the transactional batches of a producer from its first record up to its marker."""
    sent, aborted = history
    wanted = [
        one.start + i
        for one in sent
        for i in range(one.records)
        if one.start + i >= first
        and not any(p == one.producer and one.transactional and a <= one.start < m for p, a, m in aborted)
    ]
    assert offsets_of(runs_of(sent, cuts), aborted, first) == wanted


@promise("T1")
def test_without_rows() -> None:
    """A run that is aborted as a whole has no piece, and none is needed for the bytes of its records."""
    run = Sent(4, 7, True, 3, 4).encoded()
    assert offsets_of([(run, 4, -1)], [(7, 4, 7)]) == []
    assert offsets_of([(run, 4, -1)], [(7, 0, 4)]) == [4, 5, 6]
    assert offsets_of([], [(7, 4, 7)]) == []


@promise("T1")
def test_log_append_time() -> None:
    """Topics with log-append time drop the same batches."""
    runs = [(Sent(0, 7, True, 2).encoded(), 0, 55), (Sent(3, 7, True, 1).encoded(), 3, 66)]
    [piece] = decode_runs(0, runs, 0, LIMIT, None, [(7, 0, 2)])
    assert [(row["offset"], row["timestamp_ms"]) for row in piece.to_pylist()] == [(3, 66)]
