"""Idempotent producers, judged as Kafka judges them."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.state.results import Verdict
from headwater.state.streams.producers import MAX_EXPIRED, RECENT_BATCHES, SEQUENCES, Producers, last_sequence
from tests.support.promise import promise

PROMISES = ("K11",)

PID = 77
OFFSET = 1_000


class Story:
    """One stream's producers, judged and accepted as `apply` does it."""

    def __init__(self) -> None:
        self.producers = Producers()
        self.offset = OFFSET

    def send(
        self,
        first: int,
        records: int = 1,
        *,
        pid: int = PID,
        epoch: int = 0,
        writer: int = 1,
        shared: bool = False,
        now_ms: int = 0,
    ) -> tuple[Verdict, int]:
        refused = self.producers.take(pid, epoch, first, records, self.offset, writer=writer, shared=shared, ms=now_ms)
        if refused is not None:
            return refused
        self.offset += records
        return Verdict.ACCEPTED, self.offset - records


@promise("K11")
def test_duplicates_among_the_last_five_are_answered_with_their_first_offset() -> None:
    story = Story()
    sent = {}
    first = 0
    for records in (3, 1, 4, 1, 5, 9, 2):
        sent[first] = (records, story.send(first, records))
        first += records
    assert all(verdict is Verdict.ACCEPTED for _, (verdict, _) in sent.values())
    for i, (again, (records, (_, offset))) in enumerate(sent.items()):
        verdict, known = story.send(again, records)
        if i < len(sent) - RECENT_BATCHES:
            assert verdict is Verdict.OUT_OF_ORDER
        else:
            assert (verdict, known) == (Verdict.DUPLICATE, offset)
    assert story.send(first)[0] is Verdict.ACCEPTED


@promise("K11")
def test_a_duplicate_is_the_same_batch_and_no_other() -> None:
    """Same first sequence with another count, or a part of an old batch, is out of order."""
    story = Story()
    story.send(0, 10)
    story.send(10, 10)
    assert story.send(10, 9)[0] is Verdict.OUT_OF_ORDER
    assert story.send(10, 11)[0] is Verdict.OUT_OF_ORDER
    assert story.send(5, 5)[0] is Verdict.OUT_OF_ORDER
    assert story.send(0, 20)[0] is Verdict.OUT_OF_ORDER


@promise("K11")
def test_gaps() -> None:
    """The next batch must follow the last, and a producer nobody knows begins with 0."""
    story = Story()
    assert story.send(1)[0] is Verdict.OUT_OF_ORDER
    assert story.send(0, 5)[0] is Verdict.ACCEPTED
    for first in (4, 6, 100):
        assert story.send(first)[0] is Verdict.OUT_OF_ORDER
    assert story.send(5)[0] is Verdict.ACCEPTED
    assert story.send(0, 5, pid=PID + 1)[0] is Verdict.ACCEPTED


@promise("K11")
def test_epochs() -> None:
    """An older epoch is stale, a newer one begins with 0 and makes the one before stale."""
    story = Story()
    story.send(0, 5, epoch=3)
    assert story.send(5, epoch=2)[0] is Verdict.STALE_PRODUCER
    assert story.send(0, 5, epoch=2)[0] is Verdict.STALE_PRODUCER
    assert story.send(5, epoch=4)[0] is Verdict.OUT_OF_ORDER
    assert story.send(5, epoch=3)[0] is Verdict.ACCEPTED
    verdict, offset = story.send(0, 2, epoch=4)
    assert verdict is Verdict.ACCEPTED
    assert story.send(6, epoch=3)[0] is Verdict.STALE_PRODUCER
    assert story.send(0, 2, epoch=4) == (Verdict.DUPLICATE, offset)
    assert story.send(2, epoch=4)[0] is Verdict.ACCEPTED


@promise("K11")
def test_sequences_start_over() -> None:
    """After 2^31 - 1 comes 0, also in the middle of a batch."""
    assert last_sequence(SEQUENCES - 1, 1) == SEQUENCES - 1
    assert last_sequence(SEQUENCES - 1, 2) == 0
    assert last_sequence(SEQUENCES - 3, 10) == 6
    for before, crossing in ((3, 10), (3, 3), (1, 1), (5, 6)):
        story = Story()
        producers = story.producers
        producers.take(PID, 0, 0, SEQUENCES - before, 0, writer=1, shared=False, ms=0)
        verdict, offset = story.send(SEQUENCES - before, crossing)
        assert verdict is Verdict.ACCEPTED
        following = crossing - before
        assert story.send(SEQUENCES - before, crossing) == (Verdict.DUPLICATE, offset)
        assert story.send(following + 1)[0] is Verdict.OUT_OF_ORDER
        assert story.send(following)[0] is Verdict.ACCEPTED


@promise("K11")
def test_expiry_and_after() -> None:
    """An expired producer may go on where it is, under its epoch or from 0 under any; others may not."""
    story = Story()
    story.send(0, 5, now_ms=100)
    story.send(0, 5, pid=PID + 1, now_ms=200)
    assert story.producers.oldest_ms == 100
    assert story.producers.expire(100, ()) == 0
    assert story.producers.expire(101, ()) == 1
    assert story.producers.oldest_ms == 200
    assert len(story.producers) == 1
    assert story.send(5, epoch=1)[0] is Verdict.OUT_OF_ORDER
    assert story.send(5, epoch=0)[0] is Verdict.ACCEPTED
    assert story.send(7, epoch=0)[0] is Verdict.OUT_OF_ORDER, "once it is known again the rules hold"
    assert story.send(6, epoch=0)[0] is Verdict.ACCEPTED


@promise("K11")
def test_an_expired_producer_begins_anew() -> None:
    story = Story()
    story.send(0, 5, epoch=2, now_ms=100)
    story.producers.expire(1_000, ())
    assert story.producers.oldest_ms > 1 << 60
    assert story.send(0, 5, epoch=3)[0] is Verdict.ACCEPTED
    assert story.send(5, epoch=2)[0] is Verdict.STALE_PRODUCER


@promise("K11")
def test_few_expired_are_remembered() -> None:
    """A bound on what producers that came and went can make grow; the oldest are forgotten first."""
    story = Story()
    for pid in range(MAX_EXPIRED + 10):
        story.send(0, 5, pid=pid, now_ms=pid)
    for before in range(0, MAX_EXPIRED + 11, 50):
        story.producers.expire(before, ())
    story.producers.expire(1 << 40, ())
    _, expired = story.producers.pack()
    assert [pid for pid, _ in expired] == list(range(10, MAX_EXPIRED + 10))
    assert story.send(5, pid=3)[0] is Verdict.OUT_OF_ORDER
    assert story.send(5, pid=10)[0] is Verdict.ACCEPTED


@promise("K11", "M2")
def test_moved_or_out_of_order() -> None:
    """A gap is MOVED if the missing batches may be on their way through another process."""
    story = Story()
    assert story.send(5, shared=True)[0] is Verdict.MOVED
    assert story.send(5, shared=False)[0] is Verdict.OUT_OF_ORDER
    story.send(0, 5, writer=1)
    assert story.send(7, writer=1, shared=True)[0] is Verdict.OUT_OF_ORDER
    assert story.send(7, writer=2, shared=True)[0] is Verdict.MOVED
    assert story.send(5, writer=2, shared=True)[0] is Verdict.ACCEPTED
    assert story.send(9, writer=2, shared=True)[0] is Verdict.OUT_OF_ORDER
    assert story.send(9, writer=1, shared=True)[0] is Verdict.MOVED


@promise("K11", "M2")
def test_a_new_epoch_that_moved() -> None:
    """The first batches of a newer epoch may be on their way through another process too."""
    story = Story()
    story.send(0, 5, epoch=0, writer=1)
    assert story.send(3, epoch=1, writer=1, shared=True)[0] is Verdict.MOVED
    assert story.send(3, epoch=1, writer=1, shared=False)[0] is Verdict.OUT_OF_ORDER
    assert story.send(0, 3, epoch=1, writer=2, shared=True)[0] is Verdict.ACCEPTED
    assert story.send(3, epoch=1, writer=1, shared=True)[0] is Verdict.ACCEPTED


@promise("K11", "M1")
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.integers(0, 2),
            st.integers(0, 12),
            st.integers(1, 4),
            st.integers(1, 2),
            st.booleans(),
        ),
        max_size=40,
    ),
    st.lists(st.integers(0, 40), max_size=2),
)
def test_a_checkpoint_changes_no_verdict(
    sends: list[tuple[int, int, int, int, int, bool]], expiries: list[int]
) -> None:
    """Producers that were packed and unpacked judge like those that were not."""
    one, other = Story(), Story()
    for i, (pid, epoch, first, records, writer, shared) in enumerate(sends):
        if i in expiries:
            assert one.producers.expire(i - 3, ()) == other.producers.expire(i - 3, ())
        other.producers = Producers.unpack(*other.producers.pack())
        assert one.producers.pack() == other.producers.pack()
        assert one.send(first, records, pid=pid, epoch=epoch, writer=writer, shared=shared, now_ms=i) == other.send(
            first, records, pid=pid, epoch=epoch, writer=writer, shared=shared, now_ms=i
        )
