"""Where the index entries of an object end, if there are batches of transactions in it."""

from headwater.state.commands.base import SetLevel
from headwater.state.commands.streams import AppendUnits, Mode, Unit, UnitChunk
from headwater.state.commands.transactions import EndTransaction, InitTransaction
from headwater.state.machine import LEVEL, LEVELS
from headwater.state.results import Appended, Transacted, Verdict
from headwater.state.streams.state import StreamsState
from headwater.types import Domain
from tests.support.promise import promise
from tests.support.scribe import FIRST_CHUNK, START_MS, Scribe

PROMISES = ("L1", "T1")

A = 1
PLAIN = -1
UNKNOWN = 99


class Log:
    """One stream, and producers with a transactional id each."""

    def __init__(self, producers: int) -> None:
        self.state = StreamsState(Domain(1))
        self.scribe = Scribe(self.state)
        self.scribe.do(1, SetLevel(LEVEL, LEVELS[LEVEL]))
        self.scribe.streams(A)
        for producer in range(producers):
            result = self.scribe.do(1, InitTransaction(f"t{producer}", 60_000, producer, -1, -1))
            assert isinstance(result, Transacted)
        self._sequences: dict[int, int] = {}

    def append(self, *producers: int) -> list[Verdict]:
        """Append batches of two records each in one object; returns their verdicts."""
        made = []
        for producer in producers:
            sequence = self._sequences.get(producer, 0)
            self._sequences[producer] = sequence + 2
            made.append((producer, 0, sequence) if producer >= 0 else (-1, -1, -1))
        modes = bytes(Mode.JOINS if producer >= 0 else Mode.PLAIN for producer in producers)
        chunk = UnitChunk(A, FIRST_CHUNK, [(100, 2, START_MS)] * len(producers), made, modes)
        self.scribe.sequence += 1
        size = FIRST_CHUNK + 104 * len(producers) + 4
        result = self.scribe.do(1, AppendUnits(self.scribe.sequence, size, START_MS, "local", [Unit([], [chunk])]))
        assert isinstance(result, Appended)
        found = result.chunks[0].verdicts
        return [Verdict.ACCEPTED] * len(producers) if found is None else [verdict for verdict, _ in found]

    def entries(self) -> list[tuple[int, int]]:
        return [(entry.start, entry.end) for entry in self.state.streams[A].index]


@promise("T1")
def test_an_entry_ends_where_a_transaction_begins() -> None:
    """So the stable offset never lies inside an entry, and all before it can be settled."""
    log = Log(2)
    log.append(PLAIN, PLAIN, 0, PLAIN, 0, 1, 0, 1)
    assert log.entries() == [(0, 4), (4, 10), (10, 16)]
    stream = log.state.streams[A]
    assert stream.stable == 4
    log.scribe.do(1, EndTransaction("t0", 0, 0, True, True, 50))
    assert stream.stable == 10
    assert [(e.position, e.length) for e in stream.index][:3] == [(93, 208), (93 + 208, 312), (93 + 520, 312)]


@promise("L1")
def test_an_entry_goes_on_without_a_new_transaction() -> None:
    """Batches of a transaction that has begun before need no entries of their own."""
    log = Log(1)
    log.append(0)
    log.append(PLAIN, 0, PLAIN, 0)
    assert log.entries() == [(0, 2), (2, 10)]


@promise("L1")
def test_a_transaction_that_does_not_begin() -> None:
    """A refused batch ends the entry before it, as any refused batch does."""
    log = Log(0)
    assert log.append(PLAIN, UNKNOWN, PLAIN) == [Verdict.ACCEPTED, Verdict.NO_TRANSACTION, Verdict.ACCEPTED]
    assert log.entries() == [(0, 2), (2, 4)]
    assert [e.position for e in log.state.streams[A].index] == [93, 93 + 208]
    assert log.state.objects.get(log.state.streams[A].index[0].object) is not None
