"""Merges keep files of one partition apart, if they are large enough for that."""

from headwater.lake.merging import mergeable
from headwater.lake.planning import Limits
from tests.support.promise import promise
from tests.unit.lake.test_recutting import LIMITS, Table

PROMISES = ("T17",)

SHARING = Limits(file_bytes=48_000, small_file_bytes=8_000, partition_bytes=0)


def runs(made: Table, limits: Limits = LIMITS) -> list[list[int]]:
    found = mergeable(made.table, list(made.state.streams.values()), limits)
    return [[file.number for file in run] for run in found]


@promise("T17")
def test_large_files_of_a_partition_are_merged_with_each_other() -> None:
    """And those of all partitions in one job."""
    made = Table(2)
    own = Limits(file_bytes=48_000, small_file_bytes=8_000, partition_bytes=5_000, read_bytes=0)
    for _ in range(8):
        made.settle([5_000, 5_500], own)
    assert runs(made, own) == [list(range(1, 17, 2)), list(range(2, 17, 2))]
    job = made.plan(own)
    assert [task.sources and len(task.parts) for part in job.tasks for task in part.files] == [1, 1]
    made.carry_out(job)
    assert [(file.first_partition, file.rows) for file in made.live()] == [(0, 40_000), (1, 44_000)]


@promise("T17")
def test_small_files_of_a_partition_go_with_the_others() -> None:
    """Many partitions with little must not have many small files each."""
    made = Table(4)
    for number in range(8):
        made.settle([1_000 if partition == number % 4 else 0 for partition in range(4)])
    assert runs(made) == [list(range(1, 9))]
    made.finish()
    assert len(made.live()) == 1


@promise("T17")
def test_a_large_file_between_small_ones() -> None:
    """Small files are merged across it only if it has none of their partitions."""
    for between, expected in ([0, 9_000], [[1, 2, 3, 4, 6, 7, 8, 9]]), ([9_000, 0], []):
        made = Table(2)
        for number in range(9):
            made.settle(between if number == 4 else [1_000, 0])
        assert runs(made) == expected, between
        assert runs(made, SHARING) == expected, between


@promise("T17")
def test_files_of_one_partition_are_merged_whatever_their_size() -> None:
    """Large and small ones in turn would otherwise keep each other from being merged."""
    for partitions in (1, 3):
        made = Table(partitions)
        for number in range(10):
            made.settle([2_000 if number % 2 else 6_000, *[0] * (partitions - 1)])
        assert runs(made) == [list(range(1, 11))]
