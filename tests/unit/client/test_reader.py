"""Which records a reader leaves out: those of control batches, and those of aborted transactions."""

from collections.abc import Iterator

from headwater.client.reader import without_aborted
from headwater.client.records import NO_PRODUCER, Batch, Record, decode_batches
from headwater.log.batch import TRANSACTIONAL_BIT, join_patched
from headwater.log.marker import marker_batch
from headwater.state.streams.index import OffsetIndex
from headwater.types import Buffer
from tests.support.batches import batch

A, B = 5, 6


def data(producer: int, value: bytes) -> bytes:
    return batch([value], attributes=TRANSACTIONAL_BIT, producer=(producer, 0, 0))


def marker(producer: int, *, commit: bool) -> bytes:
    index = OffsetIndex()
    index.mark(0, 0, 1, producer, 0, commit=commit)
    return marker_batch(index[0])


def read(batches: list[Buffer], aborted: list[tuple[int, int]], first: int = 0) -> Iterator[bytes | None]:
    for one in without_aborted(decode_batches(bytes(join_patched(batches, first))), aborted):
        yield from (record.value for record in one.records)


def test_markers_have_no_records() -> None:
    """K12: not for readers of all records either; and they say whose transaction ended, and how."""
    commit, abort = decode_batches(marker(A, commit=True) + marker(B, commit=False))
    assert (commit.control, commit.records, commit.producer, commit.aborts) == (True, (), A, False)
    assert (abort.control, abort.records, abort.producer, abort.aborts) == (True, (), B, True)
    [plain] = decode_batches(batch([b"x"], producer=(A, 0, 0)))
    assert (plain.control, plain.producer, plain.aborts) == (False, NO_PRODUCER, False)


def test_aborted_transactions_are_left_out() -> None:
    """K12: from their first offset to their marker, of their producer, and not of its next transaction."""
    log = [
        data(A, b"a0"), data(B, b"b1"), batch([b"plain 2"], producer=(A, 0, 9)), data(A, b"a3"),
        marker(A, commit=False), data(A, b"a5"), marker(B, commit=True), data(B, b"b7"), marker(A, commit=True),
        marker(B, commit=False),
    ]  # fmt: skip
    assert list(read(log, [(A, 0), (B, 7)])) == [b"b1", b"plain 2", b"a5"]
    assert list(read(log, [])) == [b"a0", b"b1", b"plain 2", b"a3", b"a5", b"b7"]
    assert list(read(log[3:], [(B, 7), (A, 0)], first=3)) == [b"a5"], "one began before the fetch, in any order"


def test_records_that_are_left_out_leave_their_offsets() -> None:
    """A reader goes on behind them."""
    [one] = without_aborted([Batch(3, 5, False, (Record(3, 0, None, b"x"),), A)], [(A, 3)])
    assert (one.base_offset, one.next_offset, one.records) == (3, 5, ())
