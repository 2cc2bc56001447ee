"""Parts of a scan: together they have each visible row once, whatever was written, settled and deleted."""

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.virtual import run
from headwater.query.snapshot import Offsets, RowsGone
from headwater.query.splits import MAX_SPLITS, Splits, _cut, _packed, plan
from headwater.query.splits import Range as Piece
from headwater.query.wanted import Wanted
from tests.support.scribe import TOPIC
from tests.unit.query.test_snapshot import APPEND_TIME, PLAIN, PLAIN_TIME, History, Row, steps

PROMISES = ("Q5",)


def planned(made: History, most: int, **wanted: Any) -> Splits:
    return plan(made.state, TOPIC, made.state.streams.values(), Wanted(**wanted), most)


async def read(made: History, found: Splits, **more: Any) -> list[Row]:
    rows: list[Row] = []
    for part in found.parts:
        numbers = [one.partition for one in part]
        assert len(set(numbers)) == len(numbers)
        rows += await made.rows(
            partitions=numbers,
            from_offsets={one.partition: one.offsets.start for one in part},
            until_offsets={one.partition: one.offsets.end for one in part},
            **more,
        )
    return sorted(rows)


@settings(max_examples=30, deadline=None)
@given(st.lists(steps, max_size=12), st.sampled_from([1, 60, 200, 1 << 20]))
def test_each_visible_row_is_in_one_part(history: list[Any], most: int) -> None:
    async def main() -> None:
        made = History()
        for step in history:
            await made.step(*step)
        found = planned(made, most)
        assert await read(made, found) == await made.rows()
        version = found.snapshot.version
        assert await read(made, planned(made, most, version=version), version=version) == await made.rows(
            version=version
        )

    run(main())


def test_new_records_are_not_in_the_parts() -> None:
    """All readers see the moment at which the scan was planned."""

    async def main() -> None:
        made = History()
        await made.step("write", [(PLAIN_TIME, PLAIN, 3, 5), (APPEND_TIME, PLAIN, 2, 5)])
        before, found = await made.rows(), planned(made, 1 << 20)
        assert len(found.parts) == 1, "small partitions are read together"
        await made.step("write", [(PLAIN_TIME, PLAIN, 3, 5)])
        await made.step("settle", 1)
        assert await read(made, found) == before != await made.rows()

    run(main())


def test_what_retention_removed_is_noticed() -> None:
    async def main() -> None:
        made = History()
        for _ in range(2):
            await made.step("write", [(PLAIN_TIME, PLAIN, 3, 5)])
            await made.step("settle", 1)
        await made.step("trim", PLAIN_TIME, 4)
        assert planned(made, 1).kept[0] == 0, "the table has what the log has not"
        assert len(await made.rows(kept={0: 0})) == 6
        await made.step("retire", 0)
        left = planned(made, 1).kept[0]
        assert left > 0
        with pytest.raises(RowsGone, match=f"partition 0 .* from offset 0 on, and complete from {left} on"):
            await made.rows(kept={0: 0})
        assert await made.rows(kept={0: left}) == await made.rows()
        bare = History()
        await bare.step("write", [(PLAIN_TIME, PLAIN, 3, 5)])
        await bare.step("trim", PLAIN_TIME, 2)
        assert planned(bare, 1).kept[0] == 2

    run(main())


def _ranges(pieces: list[tuple[int, int, int]], bounds: Offsets, most: int) -> list[tuple[int, int]]:
    made = [Piece(0, Offsets(start, end), size) for start, end, size in pieces]
    return [(cut.offsets.start, cut.offsets.end) for cut in _cut(0, bounds, made, most)]


def test_a_large_file_is_cut_by_its_offsets() -> None:
    assert _ranges([(0, 100, 400)], Offsets(0, 100), 100) == [(0, 25), (25, 50), (50, 75), (75, 100)]
    assert _ranges([(0, 2, 400)], Offsets(0, 2), 1) == [(0, 2)], "a record is not divided"
    assert _ranges([(0, 10, 5), (10, 20, 5), (20, 30, 5)], Offsets(0, 1 << 63), 10) == [(0, 20), (20, 30)]
    assert _ranges([(0, 30, 5), (0, 30, 5), (0, 30, 5)], Offsets(0, 40), 10) == [(0, 40)], (
        "files with several partitions"
    )


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20), st.integers(1, 100)), min_size=1, max_size=8),
    st.integers(1, 60),
)
def test_cuts_cover_the_bounds_without_a_gap(pieces: list[tuple[int, int, int]], most: int) -> None:
    bounds = Offsets(0, 80)
    found = _ranges([(start, start + count, size) for start, count, size in pieces], bounds, most)
    assert found[0][0] == 0 and found[-1][1] == 80
    assert all(end == start for (_, end), (start, _) in itertools.pairwise(found))
    assert all(start < end for start, end in found)


def test_the_number_of_parts_is_limited() -> None:
    pieces = [Piece(0, Offsets(i, i + 1), 10) for i in range(3 * MAX_SPLITS)]
    assert len(list(_packed(_cut(0, Offsets(0, len(pieces)), pieces, 30), 30))) == MAX_SPLITS
