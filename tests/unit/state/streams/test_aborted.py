"""The list of aborted transactions against a plain one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.state.streams.aborted import Aborted, AbortedTransaction

PROMISES = ("K12",)


@st.composite
def histories(draw: st.DrawFn) -> list[AbortedTransaction]:
    """Transactions of one stream that begin and end in any order; those that were aborted."""
    running: dict[int, int] = {}
    found = []
    steps = draw(st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.booleans())))
    for offset, (producer, ends, commit) in enumerate(steps):
        if ends and producer in running:
            first, marker = running.pop(producer), offset
            if not commit:
                stable = next(iter(running.values()), offset + 1)
                found.append(AbortedTransaction(producer, first, marker, stable))
        else:
            running.setdefault(producer, offset)
    return found


@given(histories(), st.integers(0, 60), st.integers(0, 60))
def test_the_list_is_as_a_plain_one(entries: list[AbortedTransaction], at: int, bound: int) -> None:
    aborted = Aborted()
    for entry in entries:
        aborted.add(entry.producer, entry.first, entry.marker, entry.stable)
    assert list(aborted) == list(Aborted(aborted.pack())) == entries
    assert aborted.between(at, bound) == [e for e in entries if e.marker >= at and e.first < bound]
    aborted.forget(at)
    assert list(aborted) == [e for e in entries if e.marker >= at]
    assert repr(aborted) == f"<Aborted: {len(aborted)} transactions>"


def test_a_transaction_that_began_before_the_offset_is_found() -> None:
    """A fetch may begin in the middle of an aborted transaction."""
    aborted = Aborted()
    aborted.add(7, 0, 9, 10)
    assert [entry.first for entry in aborted.between(5, 6)] == [0]
    assert aborted.between(10, 20) == []


def test_bytes_that_are_no_entries_are_refused() -> None:
    with pytest.raises(ValueError, match="whole number"):
        Aborted(bytes(33))
