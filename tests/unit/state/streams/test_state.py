"""What `apply` makes of records in a domain of streams."""

import msgspec
import pytest

from headwater.errors import Halted
from headwater.replica.topics import stream_config
from headwater.state.commands.base import Check, Fence, TakeLease, Tick
from headwater.state.commands.cluster import CreateTopic
from headwater.state.commands.holds import TakeHold
from headwater.state.commands.streams import (
    Chunk,
    ConfigureStreams,
    CreateStreams,
    DropStreams,
    ExpireProducers,
    ForgetObjects,
    StreamConfig,
    TrimStreams,
)
from headwater.state.machine import DIGESTS_KEPT
from headwater.state.records import Command, Record
from headwater.state.results import Appended, ChunkResult, Done, Reason, Refused, Verdict
from headwater.state.streams.domain import HOUSEKEEPING
from headwater.state.streams.state import StreamsState
from headwater.types import CLUSTER, Domain, Position, WalId
from tests.support.promise import promise
from tests.support.scribe import FIRST_CHUNK, START_MS, TOPIC, Scribe

PROMISES = ("L1", "L3", "L6", "K3", "K11")

ONE = Domain(1)
A, B = 1, 2
PID = 500
OK = Verdict.ACCEPTED


@pytest.fixture
def scribe() -> Scribe:
    made = Scribe(StreamsState(ONE))
    made.streams(A, B)
    return made


def state_of(scribe: Scribe) -> StreamsState:
    assert isinstance(scribe.state, StreamsState)
    return scribe.state


def entries(scribe: Scribe, stream: int = A) -> list[tuple[int, int, int, int]]:
    """(start, end, position, length) of a stream's index."""
    return [(e.start, e.end, e.position, e.length) for e in state_of(scribe).streams[stream].index]


# --- appending -----------------------------------------------------------------------------------------


@promise("L1")
def test_offsets_follow_each_other(scribe: Scribe) -> None:
    """Offsets start at 0 and have no gaps; one object's run of a stream is one index entry."""
    first = scribe.append(1, A, [(100, 3, 50), (200, 2, 70), (50, 1, 60)])
    assert first == ChunkResult(0, 0, -1, None)
    assert scribe.append(1, A, [(10, 4, 10)]).first_offset == 6
    stream = state_of(scribe).streams[A]
    assert (stream.next_offset, stream.log_start, stream.size) == (10, 0, 100 + 200 + 50 + 10 + 4 * 4)
    assert entries(scribe) == [(0, 6, FIRST_CHUNK, 362), (6, 10, FIRST_CHUNK, 14)]
    assert [e.max_timestamp for e in stream.index] == [70, 10]
    assert stream.max_timestamp == 70
    assert [e.object for e in stream.index] == [WalId(1, 1), WalId(1, 2)]


@promise("L3")
def test_one_record_appends_to_many_streams(scribe: Scribe) -> None:
    """All chunks of an object take effect together; the object counts one reference per entry."""
    command = scribe.wal(Chunk(A, 200, [(10, 1, 5)], []), Chunk(B, 214, [(10, 2, 6), (10, 3, 4)], []))
    result = scribe.do(1, command)
    assert result == Appended([ChunkResult(0, 0, -1), ChunkResult(0, 0, -1)])
    found = state_of(scribe).objects.get(WalId(1, 1))
    assert found is not None
    assert (found.references, found.size, found.zone, found.dead_ms) == (2, command.size, "local", 0)


@promise("L1", "K11")
def test_a_refused_batch_in_the_middle_makes_two_entries(scribe: Scribe) -> None:
    """An entry names accepted bytes only; what was refused takes no offsets and is never read."""
    scribe.append(1, A, [(100, 2, 1)], [(PID, 0, 0)])
    result = scribe.append(
        1,
        A,
        [(10, 1, 5), (20, 2, 99), (30, 3, 7), (40, 4, 8)],
        [(-1, -1, -1), (PID, 0, 0), (PID, 0, 2), (-1, -1, -1)],
    )
    assert result.verdicts == [(OK, 2), (Verdict.DUPLICATE, 0), (OK, 3), (OK, 6)]
    assert entries(scribe)[1:] == [(2, 3, FIRST_CHUNK, 14), (3, 10, FIRST_CHUNK + 14 + 24, 34 + 44)]
    stream = state_of(scribe).streams[A]
    assert [e.max_timestamp for e in stream.index] == [1, 5, 8]
    assert stream.size == 104 + 14 + 34 + 44
    found = state_of(scribe).objects.get(WalId(1, 2))
    assert found is not None
    assert found.references == 2


@promise("L1", "K11")
@pytest.mark.parametrize("refused", [(0,), (2,), (0, 2), (0, 1), (1, 2), (0, 1, 2)])
def test_refused_at_the_edges(scribe: Scribe, refused: tuple[int, ...]) -> None:
    producers = [(PID, 0, 7) if i in refused else (-1, -1, -1) for i in range(3)]
    result = scribe.append(1, A, [(10, 1, 5), (10, 1, 5), (10, 1, 5)], producers)
    assert result.verdicts is not None
    assert [verdict is OK for verdict, _ in result.verdicts] == [i not in refused for i in range(3)]
    assert sum(end - start for start, end, _, _ in entries(scribe)) == 3 - len(refused)
    taken = {FIRST_CHUNK + 14 * i for i in range(3) if i not in refused}
    assert taken == {at for _, _, position, length in entries(scribe) for at in range(position, position + length, 14)}


@promise("L3")
def test_nothing_accepted_leaves_no_trace(scribe: Scribe) -> None:
    """An object of which nothing was accepted is not in the state, so its writer may remove it."""
    before = state_of(scribe).streams[A].next_offset
    assert scribe.append(1, A, [(10, 1, 5)], [(PID, 0, 9)]).verdicts == [(Verdict.OUT_OF_ORDER, 0)]
    assert state_of(scribe).streams[A].next_offset == before
    assert entries(scribe) == []
    assert state_of(scribe).objects.get(WalId(1, 1)) is None


@promise("K11")
def test_a_producer_over_batches_records_and_writers(scribe: Scribe) -> None:
    """Sequences are judged in ledger order, in one record, over two, and from two writers."""
    in_one = scribe.append(1, A, [(10, 2, 5), (10, 3, 5), (10, 2, 5)], [(PID, 0, 0), (PID, 0, 2), (PID, 0, 0)])
    assert in_one.verdicts == [(OK, 0), (OK, 2), (Verdict.DUPLICATE, 0)]
    assert scribe.append(1, A, [(10, 1, 5)], [(PID, 0, 5)]).first_offset == 5
    scribe.sequence = 0
    from_other = scribe.append(2, A, [(10, 1, 5), (10, 2, 5)], [(PID, 0, 5), (PID, 0, 6)])
    assert from_other.verdicts == [(Verdict.DUPLICATE, 5), (OK, 6)]
    assert scribe.append(2, A, [(10, 1, 5)], [(PID, 0, 20)]).verdicts == [(Verdict.OUT_OF_ORDER, 0)]
    scribe.sequence = 10
    assert scribe.append(1, A, [(10, 1, 5)], [(PID, 0, 20)]).verdicts == [(Verdict.MOVED, 0)]
    assert scribe.append(1, A, [(10, 1, 5)], [(PID, 1, 0)]).first_offset == 8
    assert scribe.append(1, A, [(10, 1, 5)], [(PID, 0, 8)]).verdicts == [(Verdict.STALE_PRODUCER, 0)]
    assert scribe.append(1, B, [(10, 1, 5)], [(PID, 0, 0)]).first_offset == 0, "each stream has its own"


@promise("K11", "M2")
def test_unknown_producers_may_have_moved(scribe: Scribe) -> None:
    """With one writer ever a gap is an error; once another wrote or was fenced, it may be a move."""
    assert scribe.append(1, A, [(10, 1, 5)], [(PID, 0, 4)]).verdicts == [(Verdict.OUT_OF_ORDER, 0)]
    scribe.do(1, Fence(9))
    assert scribe.append(1, A, [(10, 1, 5)], [(PID, 0, 4)]).verdicts == [(Verdict.MOVED, 0)]


@promise("K3")
def test_unknown_streams(scribe: Scribe) -> None:
    """Batches of a stream that is not there, or no more, are refused one by one; the others stand."""
    scribe.do(1, DropStreams((B,)))
    result = scribe.do(
        1,
        scribe.wal(Chunk(A, 200, [(10, 1, 5)], []), Chunk(B, 214, [(10, 2, 6), (9, 1, 1)], []), Chunk(9, 240, [], [])),
    )
    assert isinstance(result, Appended)
    assert result.chunks[0] == ChunkResult(0, 0, -1)
    assert result.chunks[1].verdicts == [(Verdict.NO_STREAM, -1)] * 2
    assert result.chunks[2].verdicts == []
    found = state_of(scribe).objects.get(WalId(1, 1))
    assert found is not None
    assert found.references == 1


@promise("K3")
def test_log_append_time(scribe: Scribe) -> None:
    """Such a topic's records carry the domain's time at their commit, and the index says so."""
    scribe.do(1, ConfigureStreams((A, 999), StreamConfig(append_time=True)))
    result = scribe.append(1, A, [(10, 1, 5), (10, 1, 1 << 60)], clock_ms=START_MS + 10)
    assert result.append_ms == START_MS + 10
    scribe.do(1, ConfigureStreams((A,), StreamConfig(append_time=False)))
    assert scribe.append(1, A, [(10, 1, 7)]).append_ms == -1
    found = list(state_of(scribe).streams[A].index)
    assert [(e.append_time, e.max_timestamp) for e in found] == [(True, START_MS + 10), (False, 7)]
    assert stream_config({"message.timestamp.type": "LogAppendTime"}, {}) == StreamConfig(True)
    assert stream_config({}, {}) == stream_config({"message.timestamp.type": "CreateTime"}, {}) == StreamConfig(False)


U64 = (1 << 64) - 1
GOOD = Chunk(A, FIRST_CHUNK, [(10, 1, 5)], [])


def malformed() -> dict[str, Command]:
    wal = Scribe(StreamsState(ONE)).wal
    return {
        "no size": wal(GOOD, size=0),
        "negative size": wal(GOOD, size=-5),
        "too large": wal(GOOD, size=1 << 32),
        "negative sequence": wal(GOOD, sequence=-1),
        "huge sequence": wal(GOOD, sequence=1 << 32),
        "far sequence": wal(GOOD, sequence=5_000_000),
        "known sequence": wal(GOOD, sequence=1),
        "beyond the end": wal(GOOD, size=FIRST_CHUNK + 13),
        "at zero": wal(Chunk(A, 0, [(10, 1, 5)], []), size=100),
        "before zero": wal(Chunk(A, -50, [(10, 1, 5)], []), size=100),
        "no length": wal(Chunk(A, FIRST_CHUNK, [(0, 1, 5)], []), size=1000),
        "negative length": wal(Chunk(A, FIRST_CHUNK, [(-5, 1, 5)], []), size=1000),
        "no offsets": wal(Chunk(A, FIRST_CHUNK, [(10, 0, 5)], [])),
        "negative offsets": wal(Chunk(A, FIRST_CHUNK, [(10, -1, 5)], [])),
        "too many offsets": wal(Chunk(A, FIRST_CHUNK, [(10, 1 << 32, 5)], [])),
        "too many offsets in sum": wal(Chunk(A, FIRST_CHUNK, [(10, 1 << 31, 5), (10, 1 << 31, 5)], [])),
        "absurd timestamp": wal(Chunk(A, FIRST_CHUNK, [(10, 1, U64)], [])),
        "a producer too few": wal(Chunk(A, FIRST_CHUNK, [(10, 1, 5), (10, 1, 5)], [(PID, 0, 0)])),
        "a producer too many": wal(Chunk(A, FIRST_CHUNK, [(10, 1, 5)], [(PID, 0, 0), (PID, 0, 1)])),
        "absurd creation": msgspec.structs.replace(wal(GOOD), created_ms=U64),
        "a flaw after good chunks": wal(GOOD, Chunk(B, FIRST_CHUNK, [(10, 0, 5)], [])),
        "stream id 0": CreateStreams(TOPIC, 0, (5, 0), StreamConfig(False)),
        "negative stream id": CreateStreams(TOPIC, 0, (5, -1), StreamConfig(False)),
        "huge stream id": CreateStreams(TOPIC, 0, (5, U64), StreamConfig(False)),
        "fence of nobody": Fence(0),
        "lease without a name": TakeLease("", 10),
        "lease without a duration": TakeLease("x", 0),
        "lease with a long name": TakeLease("x" * 401, 10),
        "forgetting without the lease": ForgetObjects(1, [(1, 1)]),
    }


@promise("L3")
@pytest.mark.parametrize("name", malformed())
def test_malformed_commands_change_nothing(scribe: Scribe, name: str) -> None:
    """A command that no sound writer sends is refused whole, wherever the flaw is."""
    scribe.append(1, A, [(10, 1, 5)], [(PID, 0, 0)])
    state = state_of(scribe)

    def without_position() -> list[object]:
        image = msgspec.msgpack.decode(state.image())
        image[3][0] = image[3][1] = None  # the position and the writers' counters move with every record
        return list(image)

    before = without_position()
    result = scribe.do(1, malformed()[name])
    assert isinstance(result, Refused)
    assert result.reason in (Reason.INVALID, Reason.STALE)
    assert without_position() == before
    assert scribe.append(1, A, [(10, 1, 5)], [(PID, 0, 1)]).first_offset == 1


@promise("K7")
def test_creating_streams_is_idempotent(scribe: Scribe) -> None:
    """A stream that exists keeps what it has."""
    scribe.append(1, A, [(10, 1, 5)])
    scribe.do(1, CreateStreams(TOPIC, 0, (A, B, 3), StreamConfig(append_time=True)))
    streams = state_of(scribe).streams
    assert [(s.partition, s.append_time, s.next_offset) for s in streams.values()] == [
        (0, False, 1), (1, False, 0), (2, True, 0),
    ]  # fmt: skip


# --- trimming and dropping -----------------------------------------------------------------------------


def dead(scribe: Scribe) -> list[WalId]:
    return [object_id for object_id, _ in state_of(scribe).objects.dead()]


@promise("L6")
def test_trims(scribe: Scribe) -> None:
    """Log starts move forward only and never past the end; entries wholly below go, with their objects."""
    for _ in range(3):
        scribe.append(1, A, [(10, 10, 5)])
    stream = state_of(scribe).streams[A]
    for start, moved, log_start, left in (
        (5, 1, 5, 3), (5, 0, 5, 3), (3, 0, 5, 3), (31, 0, 5, 3), (-1, 0, 5, 3), (10, 1, 10, 2), (29, 1, 29, 1),
        (30, 1, 30, 0),
    ):  # fmt: skip
        assert scribe.do(1, TrimStreams([(A, start), (999, start)])) == Done(moved)
        assert (stream.log_start, len(stream.index)) == (log_start, left)
    assert dead(scribe) == [WalId(1, 1), WalId(1, 2), WalId(1, 3)]
    assert scribe.append(1, A, [(10, 1, 5)]).first_offset == 30
    assert stream.max_timestamp == 5


@promise("L3")
def test_an_object_lives_as_long_as_one_stream_needs_it(scribe: Scribe) -> None:
    scribe.do(1, scribe.wal(Chunk(A, 200, [(10, 1, 5)], []), Chunk(B, 214, [(10, 2, 6)], [])))
    scribe.do(1, TrimStreams([(A, 1)]), START_MS + 1)
    assert dead(scribe) == []
    scribe.do(1, DropStreams((B, B, 12345)), START_MS + 2)
    assert dead(scribe) == [WalId(1, 1)]
    found = state_of(scribe).objects.get(WalId(1, 1))
    assert found is not None
    assert (found.references, found.dead_ms) == (0, START_MS + 2)
    assert B not in state_of(scribe).streams


@promise("L3")
def test_forgetting_needs_the_lease(scribe: Scribe) -> None:
    """Only the holder's word counts, only with its number, and only for dead objects."""
    scribe.append(1, A, [(10, 1, 5)])
    scribe.append(1, A, [(10, 1, 5)])
    scribe.do(1, TrimStreams([(A, 1)]))
    forget = [(1, 1), (1, 2), (1, 77), (5, 5)]
    refused = Refused(Reason.STALE, "the writer does not hold the housekeeping lease")
    assert scribe.do(1, ForgetObjects(1, forget)) == refused
    number = scribe.do(1, TakeLease(HOUSEKEEPING, 1000))
    assert isinstance(number, Done)
    for epoch, lease in ((2, number.value), (1, number.value + 1)):
        assert isinstance(scribe.do(epoch, ForgetObjects(lease, forget)), Refused)
    assert scribe.do(1, ForgetObjects(number.value, forget)) == Done(1)
    assert state_of(scribe).objects.get(WalId(1, 1)) is None
    assert state_of(scribe).objects.get(WalId(1, 2)) is not None


@promise("K6")
def test_bytes_from(scribe: Scribe) -> None:
    """How much a log holds from an offset on."""
    for length in (100, 200, 300):
        scribe.append(1, A, [(length, 10, 5)])
    stream = state_of(scribe).streams[A]
    assert [stream.bytes_from(o) for o in (0, 9, 10, 25, 30)] == [612, 612, 508, 304, 0]
    scribe.do(1, TrimStreams([(A, 10)]))
    assert stream.bytes_from(0) == 508


@promise("K4")
def test_listeners_hear_of_every_change(scribe: Scribe) -> None:
    """A long poll wakes when its stream grows, is trimmed or goes, and for nothing else."""
    heard: list[int] = []
    state_of(scribe).on_append = heard.append
    scribe.append(1, A, [(10, 1, 5)])
    scribe.append(1, B, [(10, 1, 5)], [(PID, 0, 9)])
    scribe.do(1, TrimStreams([(A, 1), (B, 0)]))
    scribe.do(1, DropStreams((B, 99)))
    assert heard == [A, A, B]


@promise("K11")
def test_producers_expire(scribe: Scribe) -> None:
    scribe.append(1, A, [(10, 1, 5)], [(PID, 0, 0)], clock_ms=START_MS)
    scribe.append(1, B, [(10, 1, 5)], [(PID, 0, 0)], clock_ms=START_MS + 100)
    assert scribe.do(1, ExpireProducers(START_MS + 1)) == Done(1)
    assert scribe.append(1, A, [(10, 1, 5)], [(PID, 0, 9)]).verdicts is None
    assert scribe.append(1, B, [(10, 1, 5)], [(PID, 0, 9)]).verdicts == [(Verdict.OUT_OF_ORDER, 0)]


# --- who may write, and in which order -------------------------------------------------------------------


@promise("M1")
def test_repeated_records_are_dropped(scribe: Scribe) -> None:
    """A counter that was seen changes nothing, however often it comes."""
    command = scribe.wal(GOOD)
    assert scribe.try_write(1, command, counter=7) is not None
    before = state_of(scribe).streams[A].next_offset
    for counter in (7, 7, 6, 1):
        assert scribe.try_write(1, command, counter=counter) is None
        assert state_of(scribe).position == len(scribe.records)
    assert state_of(scribe).streams[A].next_offset == before
    assert state_of(scribe).counter(1) == 7
    assert scribe.try_write(2, Tick(), counter=1) is not None, "counters are each writer's own"


@promise("M2")
def test_nothing_behind_the_fence_of_oneself(scribe: Scribe) -> None:
    """A process that leaves may have other commands in the same record. Nobody would undo what they did."""
    results = scribe.write(3, Tick(), Fence(3), TakeHold(), TakeLease("x", 1000))
    assert results == [Done(), Done(), Refused(Reason.FENCED), Refused(Reason.FENCED)]
    assert state_of(scribe).held.get(3) is None
    assert state_of(scribe).lease("x") is None


@promise("L3", "M2")
def test_fenced_writers(scribe: Scribe) -> None:
    """From the fence on nothing of that epoch counts, also if it was never seen here before."""
    scribe.append(1, A, [(10, 1, 5)])
    scribe.do(2, TakeLease("x", 1000))
    scribe.write(3, Fence(2), Fence(8))
    assert state_of(scribe).lease("x") is None
    for epoch in (2, 8, 0):
        image = state_of(scribe).image()
        assert scribe.write(epoch, Tick(), scribe.wal(GOOD)) == [Refused(Reason.FENCED)] * 2
        assert msgspec.msgpack.decode(state_of(scribe).image())[4] == msgspec.msgpack.decode(image)[4]
    assert list(state_of(scribe).fenced_epochs()) == [2, 8]
    assert sorted(state_of(scribe).writers()) == [1, 3]
    assert scribe.write(1, Tick()) == [Done()]


@promise("M2")
def test_leases(scribe: Scribe) -> None:
    """One holder at a time, with a number that rises with every new one; it ends by time or by a fence."""
    assert scribe.do(1, TakeLease("x", 1000)) == Done(1)
    assert scribe.do(1, TakeLease("y", 1000)) == Done(2)
    assert isinstance(scribe.do(2, TakeLease("x", 1000), START_MS + 999), Refused)
    assert scribe.do(1, TakeLease("x", 1000), START_MS + 999) == Done(1), "extended under its number"
    assert isinstance(scribe.do(2, TakeLease("x", 1000), START_MS + 1998), Refused)
    assert scribe.do(2, TakeLease("x", 1000), START_MS + 1999) == Done(3)
    scribe.do(1, Fence(2))
    assert scribe.do(1, TakeLease("x", 1000)) == Done(4)


@promise("M1")
def test_records_come_in_order() -> None:
    state = StreamsState(ONE)
    record = Record(1, 1, START_MS, 0, [Tick()])
    state.apply(Position(5), record)
    for position in (5, 4, 0):
        with pytest.raises(Halted):
            state.apply(Position(position), record)


# --- halting -----------------------------------------------------------------------------------------


@promise("M1")
def test_a_digest_that_differs_halts(scribe: Scribe) -> None:
    """A replica whose results are others than the writer's must not go on."""
    state = state_of(scribe)
    scribe.append(1, A, [(10, 1, 5)])
    position, digest = state.position, state.digest
    assert scribe.do(1, Check(position, digest)) == Done()
    assert scribe.do(1, Check(position + 1000, digest + 1)) == Done(), "a position that is not here yet says nothing"
    with pytest.raises(Halted, match="digest"):
        scribe.do(1, Check(position, digest ^ 1))


@promise("M1")
def test_digests_are_forgotten_in_time(scribe: Scribe) -> None:
    """What is too old to compare is let pass."""
    position = state_of(scribe).position
    for _ in range(DIGESTS_KEPT):
        scribe.do(1, Tick())
    assert scribe.do(1, Check(position, 12345)) == Done()


@promise("M1")
def test_digests_tell_results_apart() -> None:
    """Two states that judged one batch differently have different digests."""
    digests = set()
    for producers in ([], [(PID, 0, 0)], [(PID, 0, 5)]):
        scribe = Scribe(StreamsState(ONE))
        scribe.streams(A)
        scribe.append(1, A, [(10, 1, 5)], [(PID, 0, 0)])
        scribe.append(1, A, [(10, 1, 5)], producers)
        digests.add(scribe.state.digest)
    assert len(digests) == 2


@promise("M1")
def test_a_command_of_another_domain_halts(scribe: Scribe) -> None:
    """A command of another kind of domain is never guessed at."""
    with pytest.raises(Halted, match="is not a command of domain"):
        scribe.do(1, CreateTopic(TOPIC, "t", 1, {}, CLUSTER))


@promise("M1")
def test_image_round_trip(scribe: Scribe) -> None:
    """A restored state is the state, down to what it answers next."""
    scribe.append(1, A, [(10, 1, 5), (20, 2, 9)], [(PID, 0, 0), (-1, -1, -1)])
    scribe.append(2, B, [(10, 1, 5)])
    scribe.append(1, B, [(10, 1, 5)])
    scribe.do(2, TakeLease("x", 1000))
    scribe.write(1, Fence(5), TrimStreams([(B, 1)]), ExpireProducers(START_MS + 1))
    image = state_of(scribe).image()
    other = Scribe(StreamsState(ONE))
    other.state.restore(image)
    assert other.state.image() == image
    other.counters, other.sequence = dict(scribe.counters), scribe.sequence
    for one in (scribe, other):
        assert one.append(1, A, [(10, 1, 5)], [(PID, 0, 1)]).first_offset == 3
    assert other.state.image() == state_of(scribe).image()
    assert other.state.digest == state_of(scribe).digest
