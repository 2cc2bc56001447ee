"""What a link makes of the bytes of a fetch: batches as they are, and gaps."""

import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.client.model import Fetched
from headwater.client.records import NO_PRODUCER, Record, decode_batches
from headwater.link.source.errors import SourceDamaged, SourceUnreadable
from headwater.link.source.pieces import NO_EPOCH, Piece, epoch_of, pieces
from headwater.log.batch import APPEND_TIME_BIT, CONTROL_BIT, HEADER_BYTES, TRANSACTIONAL_BIT, offsets_of, sound_offsets
from headwater.wire.codecs import decompress
from tests.support.batches import Rec, batch
from tests.support.source_logs import ABORT, COMMIT, SourceLog, at_offset, marker, sparse_batch

A, B = 5, 6
CODECS = range(5)
recs = st.builds(
    Rec,
    value=st.none() | st.binary(max_size=40),
    key=st.none() | st.binary(max_size=8),
    timestamp=st.integers(1_000, 1_000_000),
    headers=st.lists(st.tuples(st.binary(max_size=3), st.none() | st.binary(max_size=3)), max_size=2).map(tuple),
)


def shape(found: list[Piece]) -> list[tuple[int, int, bool]]:
    return [(piece.start, piece.next, piece.batch is not None) for piece in found]


def served(piece: Piece) -> list[Record]:
    """The records of a piece as they are read here: at the offset of the piece, without producer and transaction."""
    assert piece.batch is not None
    batch = piece.batch
    assert (batch.producer_id, batch.transactional) == (NO_PRODUCER, False)
    assert sound_offsets(batch.data) == batch.offsets == piece.next - piece.start
    [decoded] = decode_batches(at_offset(batch.data, piece.start, 0))
    times = [r.timestamp for r in decoded.records]
    assert times and max(times) <= batch.max_timestamp
    return list(decoded.records)


@st.composite
def source_logs(draw: st.DrawFn) -> SourceLog:
    """Partitions with everything in them that a source may have."""
    log = SourceLog(draw(st.integers(0, 3)))
    log.end = log.log_start
    steps = ["plain", "sparse", "empty", "transaction", "end", "hole", "epoch"]
    for step in draw(st.lists(st.sampled_from(steps), max_size=14)):
        producer = draw(st.sampled_from([A, B]))
        if step == "hole":
            log.skip(draw(st.integers(1, 4)))
        elif step == "epoch":
            log.epoch += 1
        elif step == "end":
            if producer in log.open:
                log.finish(producer, draw(st.sampled_from([ABORT, COMMIT])))
        else:
            count = draw(st.integers(1, 5))
            deltas = range(count)
            kept = [] if step == "empty" else [d for d in deltas if step != "sparse" or draw(st.booleans())]
            log.append(
                [(delta, draw(recs)) for delta in kept],
                count,
                producer=draw(st.sampled_from([-1, producer])) if step != "transaction" else producer,
                transactional=step == "transaction",
                codec=draw(st.sampled_from(CODECS)),
            )
    return log


def copied(log: SourceLog, position: int, max_bytes: int) -> tuple[list[Piece], int]:
    """All pieces of a partition, fetch by fetch, and the position behind them."""
    found: list[Piece] = []
    while True:
        more = pieces(log.fetch(position, max_bytes), position)
        if not more:
            return found, position
        for piece in more:
            assert piece.start == position < piece.next
            position = piece.next
        found += more


@given(source_logs(), st.data())
def test_pieces_hold_the_committed_records(log: SourceLog, data: st.DataObject) -> None:
    """From any position, in fetches of any size, batch by batch what a reader gets record by record."""
    position = data.draw(st.integers(log.log_start, log.stable))
    found, end = copied(log, position, data.draw(st.integers(1, 600)))
    records = [r for piece in found if piece.batch is not None for r in served(piece)]
    assert records == log.committed(position)
    last = max([one.next for one in log.batches if one.start < log.stable], default=position)
    assert end == max(position, last)
    whole = {one.data for one in log.batches}
    for piece in found:
        if piece.batch is not None and piece.start > position:
            assert at_offset(piece.batch.data, piece.start, epoch_of(piece.batch.data)) in whole
        assert 0 <= piece.epoch <= log.epoch
    assert [p.epoch for p in found] == sorted(p.epoch for p in found)


@given(source_logs(), st.data())
def test_a_batch_is_kept_byte_for_byte(log: SourceLog, data: st.DataObject) -> None:
    """Its compression, its producer and its leader epoch too, wherever the position is no offset within it."""
    position = data.draw(st.sampled_from([log.log_start, *(one.next for one in log.batches if one.next <= log.stable)]))
    kept = {piece.start: piece.batch.data for piece in copied(log, position, 10_000)[0] if piece.batch is not None}
    assert kept == {one.start: one.data for one in log.batches if one.start in kept}


def test_markers_and_aborted_transactions_are_one_gap() -> None:
    log = SourceLog()
    log.append([(0, Rec(b"a"))], 1, producer=A, transactional=True)
    log.append([(0, Rec(b"b"))], 2, producer=B, transactional=True)
    log.finish(A, ABORT)
    log.finish(B, COMMIT)
    log.append([(0, Rec(b"next"))], 1, producer=A, transactional=True)
    log.finish(A, COMMIT)
    found = pieces(log.fetch(0, 1 << 20), 0)
    assert shape(found) == [(0, 1, False), (1, 3, True), (3, 5, False), (5, 6, True), (6, 7, False)]


def test_an_open_transaction_ends_the_pieces() -> None:
    """Also where a broker sends more than it says is stable."""
    log = SourceLog()
    log.append([(0, Rec(b"plain"))], 1)
    log.append([(0, Rec(b"open"))], 1, producer=A, transactional=True)
    log.append([(0, Rec(b"behind"))], 1)
    assert shape(pieces(log.fetch(0, 1 << 20), 0)) == [(0, 1, True)]
    everything = b"".join(one.data for one in log.batches)
    assert shape(pieces(Fetched(everything, 3, 0, (), 1), 0)) == [(0, 1, True)]
    assert pieces(Fetched(everything, 3, 0, (), 0), 0) == []
    assert shape(pieces(Fetched(everything, 3, 0), 0)) == [(0, 1, True), (1, 2, True), (2, 3, True)]


def test_a_gap_has_the_epoch_of_the_batch_that_ends_it() -> None:
    """The epoch of the batch before it may end within the gap; the source would seem truncated."""
    log = SourceLog()
    log.append([(0, Rec(b"a"))], 1)
    log.epoch = 4
    log.skip(3)
    log.append([(0, Rec(b"b"))], 1)
    log.epoch = 7
    log.append([], 2)
    found = pieces(log.fetch(0, 1 << 20), 0)
    assert [(*one, piece.epoch) for one, piece in zip(shape(found), found, strict=True)] == [
        (0, 1, True, 0),
        (1, 4, False, 4),
        (4, 5, True, 4),
        (5, 7, False, 7),
    ]


def test_an_emptied_marker_ends_its_transaction() -> None:
    """Compaction may empty the marker of an aborted transaction; the next transaction of the producer is copied."""
    emptied = sparse_batch([], 1, attributes=TRANSACTIONAL_BIT | CONTROL_BIT, producer=(A, 0, -1))
    own = batch([b"x"], attributes=TRANSACTIONAL_BIT, producer=(A, 0, 0))
    data = at_offset(own, 0, 1) + at_offset(emptied, 1, 1) + at_offset(own, 2, 1) + at_offset(marker(A, COMMIT), 3, 1)
    assert shape(pieces(Fetched(data, 4, 0, ((A, 0),), 4), 0)) == [(0, 2, False), (2, 3, True), (3, 4, False)]


def test_batches_before_the_position_are_passed_over() -> None:
    """But not the ends of their transactions."""
    own = batch([b"x"], attributes=TRANSACTIONAL_BIT, producer=(A, 0, 0))
    data = at_offset(own, 0, 1) + at_offset(marker(A, ABORT), 1, 1) + at_offset(own, 2, 1)
    assert shape(pieces(Fetched(data, 3, 0, ((A, 0),), 3), 2)) == [(2, 3, True)]
    assert pieces(Fetched(data, 3, 0, ((A, 0),), 3), 3) == []


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_begins_before_the_position(codec: int) -> None:
    """It is copied from there on, in its codec, with its producer's sequence and the newest time of what is left."""
    records = [(0, Rec(b"a", timestamp=9_000)), (2, Rec(None, b"k", 5_000, ((b"\xff", None),))), (5, Rec(b"c"))]
    newest = 1_700_000_000_000
    one = sparse_batch(records, 7, codec=codec, attributes=TRANSACTIONAL_BIT, producer=(A, 3, 0x7FFFFFFE))
    fetched = Fetched(at_offset(one, 100, 9), 107, 100)
    for position, left in ((101, 2), (102, 2), (103, 1), (105, 1)):
        [piece] = pieces(fetched, position)
        assert piece.batch is not None
        assert (piece.start, piece.next, piece.epoch, piece.batch.offsets) == (position, 107, 9, 107 - position)
        head = struct.unpack_from(">qiibIhiqqqhii", piece.batch.data)
        assert head[0] == position
        assert head[5] == TRANSACTIONAL_BIT | codec
        assert head[8:] == (newest, A, 3, (0x7FFFFFFE + position - 100) % (1 << 31), left)
        assert [(r.offset, r.timestamp) for r in served(piece)] == [(102, 5_000), (105, newest)][-left:]
        opened = bytes(decompress(codec, memoryview(piece.batch.data)[HEADER_BYTES:], 1 << 20))
        assert (b"\x02\xff\x01" in opened) is (left == 2), "a header's name that is not UTF-8, and its null"
    assert shape(pieces(fetched, 106)) == [(106, 107, False)], "none of its records is left"


def test_a_batch_with_append_time_keeps_it() -> None:
    one = batch([b"a", b"b"], attributes=APPEND_TIME_BIT, max_timestamp=77)
    [piece] = pieces(Fetched(at_offset(one, 0, 0), 2, 0), 1)
    assert piece.batch is not None
    assert piece.batch.max_timestamp == 77
    assert [r.timestamp for r in served(piece)] == [77]


def test_times_of_a_batch_come_from_its_header() -> None:
    """But not the time at which Kafka's cleaner wants to remove tombstones."""
    data = at_offset(batch([Rec(b"a", timestamp=50), Rec(b"b", timestamp=90)]), 0, 0)
    [piece] = pieces(Fetched(data, 2, 0), 0)
    assert piece.batch is not None
    assert (piece.batch.min_timestamp, piece.batch.max_timestamp) == (50, 90)
    data = at_offset(batch([Rec(b"a", timestamp=50), Rec(b"b", timestamp=90)], attributes=0x40), 0, 0)
    [piece] = pieces(Fetched(data, 2, 0), 0)
    assert piece.batch is not None
    assert (piece.batch.min_timestamp, piece.batch.max_timestamp) == (90, 90)


def test_a_batch_cut_short_is_left_for_the_next_fetch() -> None:
    data = at_offset(batch([b"a"]), 0, 0) + at_offset(batch([b"b"]), 1, 0)
    for cut in range(1, 69):
        assert shape(pieces(Fetched(data[:-cut], 2, 0), 0)) == [(0, 1, True)]
    assert pieces(Fetched(b"", 2, 0), 0) == []
    with pytest.raises(SourceUnreadable, match="whole"):
        pieces(Fetched(data[:60], 2, 0), 0)


OLD = struct.pack(">qiIbbi", 0, 14, 0, 0, 0, -1) + struct.pack(">i", -1)
"""A message of format 0 without key and value, without its checksum."""


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (OLD, "the old record format 0"),
        (at_offset(batch([b"a"], magic=1), 0, 0), "the old record format 1"),
        (at_offset(batch([b"a"], magic=3), 0, 0), "no record format 3"),
        (struct.pack(">qi", 0, 4) + bytes(100), "length of 4"),
        (at_offset(batch([b"a"]), 0, 0)[:8] + struct.pack(">iib", 20, 0, 2) + bytes(60), "32 bytes"),
        (at_offset(batch([b"a"], attributes=6), 0, 0), "codec, 6"),
        (at_offset(batch([b"a"], last_delta=-1), 0, 0), "impossible"),
        (at_offset(batch([b"a"], count=2, last_delta=0), 0, 0), "impossible"),
        (at_offset(batch([b"a"]), -1, 0), "impossible"),
        (at_offset(batch([b"a"]), 5, 0) + at_offset(batch([b"b"]), 5, 0), "impossible"),
    ],
)
def test_what_cannot_be_copied_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(SourceUnreadable, match=why):
        pieces(Fetched(data, 9, 0), 0)


@pytest.mark.parametrize("body", [b"", b"\x02", b"\x0c\x00\x00\x08\x01\x01\x00", b"\x0c\x00\x00\x00\x01\x01\x00x"])
def test_broken_records_are_refused_where_they_are_looked_at(body: bytes) -> None:
    """Here: a batch that begins before the position."""
    data = at_offset(batch([b"a"], body=body, last_delta=3), 0, 0)
    with pytest.raises(SourceUnreadable):
        pieces(Fetched(data, 4, 0), 1)


def test_a_batch_that_opens_to_too_much_is_refused() -> None:
    data = at_offset(batch([b"a" * 1_000, b"b"], codec=4), 0, 0)
    with pytest.raises(SourceUnreadable):
        pieces(Fetched(data, 2, 0), 1, max_opened_bytes=500)
    assert offsets_of(data) == 2


def test_a_damaged_batch_is_fetched_again() -> None:
    """Every bit that its CRC covers counts."""
    sound = at_offset(batch([b"a"]), 0, 0)
    for at in range(17, len(sound)):
        data = bytearray(sound)
        data[at] ^= 0x10
        with pytest.raises(SourceDamaged):
            pieces(Fetched(bytes(data), 1, 0), 0)


def test_pieces_of_a_source_without_epochs() -> None:
    fetched: Any = replace(Fetched(at_offset(batch([b"a"]), 0, -1), 1, 0))
    assert [piece.epoch for piece in pieces(fetched, 0)] == [NO_EPOCH]
