"""One look has the entries, the bound and the aborted transactions of the same moment."""

import uuid

from headwater.log.looking import bound_of, look
from headwater.state.streams.aborted import AbortedTransaction
from headwater.state.streams.index import MARKER_BYTES
from headwater.state.streams.stream import Stream
from headwater.types import StreamId

PROMISES = ("K4", "K12")

A, B, C = 5, 6, 7


def stream() -> Stream:
    return Stream(StreamId(1), uuid.UUID(int=1), 0, append_time=False)


def write(to: Stream, count: int, producer: int | None = None) -> None:
    """A run of its own object, which the first producer of a transaction joins by."""
    if producer is not None:
        to.running.setdefault(producer, to.next_offset)
    to.size += 100
    to.next_offset += count
    to.index.append(to.next_offset, count, to.size, 9, 1, len(to.index) + 1, 10, 100, 0)


def spans(to: Stream, offset: int, committed: bool) -> list[tuple[int, int]]:
    return [(entry.start, entry.end) for entry in look(to, offset, committed, lambda _: True).entries]


def test_the_bound() -> None:
    """Readers of committed records get no entry that begins at the stable offset or behind it; others get all."""
    one = stream()
    write(one, 5)
    write(one, 5, A)
    write(one, 5)
    assert (bound_of(one, False), bound_of(one, True)) == (15, 5)
    assert spans(one, 0, True) == [(0, 5)]
    assert spans(one, 5, True) == spans(one, 12, True) == []
    assert spans(one, 0, False) == [(0, 5), (5, 10), (10, 15)]
    one.close(A, 1, 9, 9, commit=True)
    assert spans(one, 7, True) == spans(one, 7, False) == [(5, 10), (10, 15), (15, 16)]
    shown = look(one, 7, True, lambda _: True)
    assert (shown.bound, shown.end, shown.stable, shown.log_start, shown.aborted) == (16, 16, 16, 0, [])


def test_an_entry_may_reach_beyond_the_bound() -> None:
    one = stream()
    write(one, 10)
    one.running[A] = 6
    shown = look(one, 0, True, lambda _: True)
    assert ([entry.end for entry in shown.entries], shown.bound) == ([10], 6)


def test_the_aborted_transactions() -> None:
    """Those that began before the offset count too, those before the offset and behind the entries do not."""
    one = stream()
    write(one, 5, A)  # 0 to 4
    one.close(A, 1, 9, 9, commit=False)  # 5
    write(one, 4, B)  # 6 to 9
    write(one, 5, C)  # 10 to 14
    one.close(B, 1, 9, 9, commit=False)  # 15
    one.close(C, 1, 9, 9, commit=False)  # 16
    write(one, 3, A)  # 17 to 19

    def aborted(offset: int, entries: int = 99) -> list[tuple[int, int]]:
        left = iter(range(entries))
        shown = look(one, offset, True, lambda _: next(left, None) is not None)
        assert all(isinstance(found, AbortedTransaction) for found in shown.aborted)
        return [(found.producer, found.first) for found in shown.aborted]

    assert aborted(0) == [(A, 0), (B, 6), (C, 10)]
    assert aborted(5) == [(A, 0), (B, 6), (C, 10)], "the marker itself ends the transaction for readers"
    assert aborted(6) == aborted(12) == aborted(15) == [(B, 6), (C, 10)]
    assert aborted(16) == [(C, 10)]
    assert aborted(6, entries=1) == [(B, 6)], "the entries end before the next one begins"
    assert aborted(17) == []
    assert look(one, 0, False, lambda _: True).aborted == []


def test_bytes_for_readers_of_committed_records() -> None:
    """What a waiting fetch counts: bytes below the stable offset, a share of an entry that reaches beyond it."""
    one = stream()
    write(one, 5)
    write(one, 10)
    assert one.bytes_from(0) == one.bytes_from(0, committed=True) == 200
    one.running[A] = 7
    assert (one.bytes_from(0), one.bytes_from(0, committed=True)) == (200, 120)
    assert one.bytes_from(5, committed=True) == 20
    one.running[A] = 5
    assert (one.bytes_from(0, committed=True), one.bytes_from(5, committed=True)) == (100, 0)
    many = stream()
    write(many, 100_000)
    many.running[A] = 1
    assert many.bytes_from(0, committed=True) == 1, "a waiting fetch has to notice it"
    one.close(A, 1, 9, 9, commit=True)
    assert one.bytes_from(0, committed=True) == one.bytes_from(0) == 200 + MARKER_BYTES
