"""Pieces become runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import CorruptBatch
from headwater.link.copying.runs import MAX_BATCHES, MAX_OFFSETS, runs_of
from headwater.link.source.pieces import Piece
from headwater.log.batch import NO_PRODUCER, Batch


def made(start: int, offsets: int, size: int = 10, *, gap: bool = False) -> Piece:
    found = None if gap else Batch(bytes(size), offsets, 0, 0, NO_PRODUCER, -1, -1)
    return Piece(start, start + offsets, found, 0)


shapes = st.lists(st.tuples(st.integers(1, 50), st.booleans(), st.integers(1, 100)), max_size=40)


@given(st.integers(0, 1000), shapes, st.integers(1, 300))
def test_runs_cover_the_pieces_exactly(end: int, shape: list[tuple[int, bool, int]], most: int) -> None:
    pieces, at = [], end
    for offsets, gap, size in shape:
        pieces.append(made(at, offsets, size, gap=gap))
        at += offsets
    found = runs_of(pieces, end, most)
    position = end
    for run in found.runs:
        assert run.end == position <= run.start and run.batches
        assert run.start + sum(batch.offsets for batch in run.batches) == run.next
        assert len(run.batches) == 1 or run.size <= most
        position = run.next
    assert found.end == position and found.next == at
    batches = [piece.batch for piece in pieces if piece.batch is not None]
    assert [batch for run in found.runs for batch in run.batches] == batches
    starts = [piece.start for piece in pieces if piece.batch is not None]
    placed = []
    for run in found.runs:
        offset = run.start
        for batch in run.batches:
            placed.append(offset)
            offset += batch.offsets
    assert placed == starts


def test_runs_have_limits() -> None:
    many = [made(i, 1) for i in range(MAX_BATCHES + 1)]
    assert [len(run.batches) for run in runs_of(many, 0, 1 << 30).runs] == [MAX_BATCHES, 1]
    wide = [made(0, 1 << 31), made(1 << 31, 1 << 31)]
    assert MAX_OFFSETS < (1 << 32) and len(runs_of(wide, 0, 1 << 30).runs) == 2


def test_pieces_that_do_not_follow_each_other_are_refused() -> None:
    with pytest.raises(CorruptBatch, match="begins at 5"):
        runs_of([made(6, 1)], 5, 100)
    with pytest.raises(CorruptBatch, match="begins at 7"):
        runs_of([made(5, 2), made(6, 1)], 5, 100)
    wrong = Piece(0, 3, Batch(b"x", 2, 0, 0, NO_PRODUCER, -1, -1), 0)
    with pytest.raises(CorruptBatch, match="has 2 offsets"):
        runs_of([wrong], 0, 100)
