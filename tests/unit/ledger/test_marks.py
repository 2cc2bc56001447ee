"""Marks: what is written is read back, and a torn slot costs one mark."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from headwater.ledger.marks import SLOT_BYTES, SLOTS, End, Mark, MarkFile, decode, encode, read_files
from tests.support.promise import promise

PROMISES = ("M1",)

ENDS = st.builds(End, st.integers(0, 1 << 62), st.integers(0, 1 << 62), st.integers(0, (1 << 32) - 1))
MARKS = st.builds(
    Mark,
    cluster=st.text(max_size=22),
    place=st.just("/data/ledger.db-mark"),
    life=st.sampled_from(["", "ab" * 16]),
    ends=st.dictionaries(st.integers(0, 3), ENDS, max_size=3),
    epoch=st.integers(1, 1 << 40),
    producer=st.integers(1, 1 << 40),
    number=st.integers(0, 1 << 40),
)


def mark(time_ms: int, domain: int = 1) -> Mark:
    return Mark("c", "p", "", {domain: End(time_ms, time_ms, 0)}, 1, 1, 0)


@promise("M1")
@given(st.lists(MARKS, max_size=4))
def test_what_is_written_is_read(marks: list[Mark]) -> None:
    data = b"".join(map(encode, marks))
    assert len(data) == SLOT_BYTES * len(marks)
    assert decode(data) == marks


@promise("M1")
def test_a_torn_slot_costs_one_mark() -> None:
    """Whichever byte is wrong: the others are read, and it is not read as another mark."""
    one, two = mark(5), mark(7)
    whole = encode(one) + encode(two)
    for at in range(SLOT_BYTES):
        torn = bytearray(whole)
        torn[at] ^= 0x41
        assert decode(bytes(torn)) in ([two], [one, two]), at
    for size in range(0, len(whole), 7):
        assert decode(whole[:size]) in ([], [one], [one, two])
    assert decode(bytes(SLOT_BYTES)) == decode(b"") == []


def test_more_bytes_than_slots_are_not_read() -> None:
    assert len(decode(encode(mark(1)) * (SLOTS + 3))) == SLOTS


def test_a_file_has_a_slot_for_each_process(tmp_path: Path) -> None:
    path = tmp_path / "above" / "mark"
    assert read_files([path]) == []
    files = [MarkFile(path), MarkFile(path)]
    files[0].write(3, mark(5))
    files[1].write(SLOTS + 4, mark(6))
    files[0].write(3, mark(7))
    assert read_files([path, path]) == [mark(7), mark(6)] * 2
    assert path.stat().st_size == SLOTS * SLOT_BYTES and path.stat().st_mode & 0o777 == 0o600
    files[1].replace(mark(9))
    assert read_files([path]) == [mark(9)]
    files[1].write(1, mark(10))
    assert read_files([path]) == [mark(9), mark(10)]
    for file in files:
        file.close()


def test_which_mark_is_behind() -> None:
    assert mark(5).is_behind(mark(6)) and not mark(6).is_behind(mark(6)) and not mark(7).is_behind(mark(6))
    assert mark(7).is_behind(mark(6, domain=2)), "it says nothing of that domain"
