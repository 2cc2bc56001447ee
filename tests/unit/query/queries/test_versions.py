"""What `AsOf` means: versions, times, hours and offsets."""

import uuid

import pytest

from headwater.errors import BadInput
from headwater.query.asking import PRESENT, AsOf
from headwater.query.queries.versions import wanted_of
from headwater.state.streams.tables import DataFile, Follower, JournalEntry, TopicTable

HOUR = 3_600_000
NOON = 19_000 * 24 * HOUR + 12 * HOUR
"""2022-01-08, 12:00."""


def _table(times: dict[int, int]) -> TopicTable:
    table = TopicTable(uuid.UUID(int=1), "tables/t")
    table.journal = [JournalEntry(sequence, ms, ms, False, (), (), ()) for sequence, ms in times.items()]
    table.last_sequence = max(times, default=0)
    return table


def test_as_of() -> None:
    table = _table({1: NOON, 2: NOON + 5, 3: NOON + HOUR, 4: NOON + 3 * HOUR})
    assert wanted_of(table, PRESENT).version is None
    assert wanted_of(table, AsOf(version=2)).version == 2
    times = {NOON - 1: 0, NOON: 1, NOON + 4: 1, NOON + 5: 2, NOON + 2 * HOUR: 3, NOON + 9 * HOUR: 4}
    assert {ms: wanted_of(table, AsOf(at_ms=ms)).version for ms in times} == times
    for tag, version in {"2022-01-08T12": 2, "hour-2022-01-08T13": 3, "2022-01-08T15": 4}.items():
        assert wanted_of(table, AsOf(tag=tag)).version == version
    assert wanted_of(table, AsOf(offsets={1: 7})).until_offsets == {1: 7}
    assert wanted_of(None, AsOf(at_ms=5)).version == 0


def _file(number: int, added: int, created_ms: int, removed: int = 0, ended_ms: int = 0) -> DataFile:
    return DataFile(
        number, f"{number}", 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, added, removed, 0, 0, created_ms, ended_ms, 0
    )  # fmt: skip


def test_hours_that_the_journal_has_forgotten() -> None:
    """A follower keeps their last versions under tags. What they added or removed tells when they were made."""
    table = _table({300: NOON + 20 * HOUR, 301: NOON + 21 * HOUR})
    table.followers["iceberg"] = Follower(301, 5, "", 290, (5, 9, 40, 55))
    table.files = {
        1: _file(1, 5, NOON + 7),
        2: _file(2, 9, NOON + HOUR, 40, NOON + 2 * HOUR),
        3: _file(3, 8, NOON + 5 * HOUR),  # a version that is not kept
    }
    for tag, version in {"2022-01-08T12": 5, "2022-01-08T13": 9, "2022-01-08T14": None, "2022-01-08T17": None}.items():
        if version is None:
            with pytest.raises(BadInput, match="no version of that hour is known"):
                wanted_of(table, AsOf(tag=tag))
        else:
            assert wanted_of(table, AsOf(tag=tag)).version == version
    table.files[4] = _file(4, 55, NOON + 6 * HOUR)
    assert wanted_of(table, AsOf(tag="2022-01-08T14")).version == 40, "the version after it has a time now"
    assert wanted_of(table, AsOf(tag="2022-01-08T18")).version == 55


@pytest.mark.parametrize(
    ("as_of", "message"),
    [
        (AsOf(version=1, tag="2022-01-08T12"), "name one of them"),
        (AsOf(tag="2022-01-08T14"), "no version of that hour is known"),
        (AsOf(tag="2022-13-08T14"), "is not an hour"),
        (AsOf(tag="main"), "not an hour's tag"),
        (AsOf(offsets={0: -1}), "neither can be negative"),
        (AsOf(at_ms=NOON - 1), "no longer known: the oldest is 7"),
    ],
)
def test_what_there_is_not(as_of: AsOf, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        wanted_of(_table({7: NOON, 8: NOON + 5}), as_of)
