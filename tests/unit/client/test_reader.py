"""Which records a reader leaves out: those of control batches, and those of aborted transactions."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

from headwater.client.model import Fetched
from headwater.client.reader import Reader, without_aborted
from headwater.client.records import NO_PRODUCER, Batch, Record, decode_batches
from headwater.log.batch import TRANSACTIONAL_BIT, join_patched
from headwater.log.marker import marker_batch
from headwater.state.streams.index import OffsetIndex
from headwater.types import Buffer
from tests.support.batches import batch
from tests.support.promise import promise

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


@promise("K12")
def test_markers_have_no_records() -> None:
    """Not for readers of all records either; and they say whose transaction ended, and how."""
    commit, abort = decode_batches(marker(A, commit=True) + marker(B, commit=False))
    assert (commit.control, commit.records, commit.producer, commit.aborts) == (True, (), A, False)
    assert (abort.control, abort.records, abort.producer, abort.aborts) == (True, (), B, True)
    [plain] = decode_batches(batch([b"x"], producer=(A, 0, 0)))
    assert (plain.control, plain.producer, plain.aborts) == (False, NO_PRODUCER, False)


@promise("K12")
def test_aborted_transactions_are_left_out() -> None:
    """From their first offset to their marker, of their producer, and not of its next transaction."""
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


class Broker:
    """A client whose only partition answers fetches from a list, and then with nothing new."""

    def __init__(self, *answers: Fetched) -> None:
        self.answers = list(answers)
        self.asked: list[bool] = []

    async def retrying(self, attempt: Callable[[], Awaitable[Any]], **_: object) -> Any:
        return await attempt()

    async def by_leader(self, topic: str, partitions: list[int]) -> list[tuple[None, None, list[int]]]:
        return [(None, None, partitions)]

    async def fetch_many(self, topic: str, offsets: dict[int, int], *, committed: bool, **_: object) -> dict[int, Any]:
        self.asked.append(committed)
        return {0: self.answers.pop(0)}


@promise("K12")
def test_a_reader_of_committed_records() -> None:
    """It asks for them, and goes on behind what it leaves out until it reaches its end."""
    log = [data(A, b"a0"), data(B, b"b1"), marker(A, commit=False)]
    rest = [marker(B, commit=True), batch([b"plain 4"])]
    told = [
        Fetched(bytes(join_patched(log, 0)), 5, 0, ((A, 0),)),
        Fetched(b"", 5, 0),
        Fetched(bytes(join_patched(rest, 3)), 5, 0),
    ]
    for committed in (True, False):
        client = Broker(*(told if committed else [replace(one, aborted=()) for one in told]))
        reader = Reader(client, "t", {0: 0}, {0: 5}, committed=committed)  # type: ignore[arg-type]

        async def everything(reader: Reader = reader) -> list[bytes | None]:
            return [record.value async for chunk in reader.chunks() for record in chunk.records]

        expected = [b"b1", b"plain 4"] if committed else [b"a0", b"b1", b"plain 4"]
        assert asyncio.run(everything()) == expected
        assert client.asked == [committed] * 3
        assert reader.positions == {0: 5}
