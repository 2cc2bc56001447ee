"""What must hold of transactions, at every moment and in the end.

The rules follow Jepsen's Kafka workload: no record of an aborted transaction is read, a transaction ends everywhere or
nowhere, nothing that was committed is lost or doubled, no poll skips a record or goes back, and no transaction reads
what a later one wrote.
"""

from __future__ import annotations

import graphlib
from collections import Counter
from collections.abc import Iterable

from headwater.app.doctor.report import Report
from headwater.app.doctor.transactions import check_transactions
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream
from tests.simulation.clients import Violation
from tests.simulation.transacting import Key, Truth, Value, key_of
from tests.simulation.transaction_readers import Reader, Rules, records_of, take

PLACES = (0, 1)
_Standing = bool | None
"""Of a transaction in one stream: committed, aborted, or open."""


def check_moment(truth: Truth, state: StreamsState) -> None:
    """Check a broker's state between two of its steps: no transaction is torn, and the doctor is content."""
    report = Report()
    check_transactions(state, report)
    if report.findings:
        raise Violation(str(report.findings[0]))
    standing: dict[Key, tuple[int, _Standing]] = {}
    for stream in state.streams.values():
        for key, ended in _endings(truth, state, stream):
            first, known = standing.setdefault(key, (int(stream.id), ended))
            if known != ended:
                raise Violation(f"{key} is torn: {_word(known)} in stream {first}, {_word(ended)} in {stream.id}")
    for key, (_, ended) in standing.items():
        if ended is True and key in truth.aborted:
            raise Violation(f"{key} was aborted, and is committed")
        if ended is False and key in truth.committed:
            raise Violation(f"{key} was committed, and is aborted")


def _word(ended: _Standing) -> str:
    return "open" if ended is None else "committed" if ended else "aborted"


def _endings(truth: Truth, state: StreamsState, stream: Stream) -> Iterable[tuple[Key, _Standing]]:
    """How each transaction with records in a stream stands there, by the next marker of its producer."""
    table, name = state.tables.get(stream.topic), int(stream.id)
    running: dict[int, dict[Key, None]] = {}
    for entry in stream.index:
        if entry.marker:
            for key in running.pop(entry.producer, {}):
                yield key, entry.commits
        elif entry.file and table is not None:
            rows = truth.files[table.files[entry.file].name]
            for at in range(entry.start, entry.end):
                value = rows.get((name, at))
                if value is not None and (found := key_of(value)) is not None:
                    yield found, True
        elif entry.in_wal:
            for _, batch in truth.batches(entry.object, entry.position, entry.length, entry.start):
                for value in batch.values:
                    if (found := key_of(value)) is not None:
                        running.setdefault(batch.producer, {})[found] = None
    for keys in running.values():
        for key in keys:
            yield key, None


class Verdict:
    """The check of all that clients were told, when everything has come to rest."""

    def __init__(self, truth: Truth, state: StreamsState, streams: list[int]) -> None:
        self.truth = truth
        self.state = state
        self.streams = streams
        self.finals = {stream: self._final(state.streams[stream]) for stream in streams}

    def check(self, readers: list[Reader], asides: list[Reader]) -> int:
        """Check everything. Returns how many records there are."""
        if self.state.transactions.opened():
            raise Violation(f"{self.state.transactions.opened()} never ended")
        check_moment(self.truth, self.state)
        for reader in readers:
            self._check_reader(reader)
        found = Counter(value for final in self.finals.values() for value in final.values())
        doubled = [value for value, count in found.items() if count > 1]
        if doubled:
            raise Violation(f"{doubled[0]} is there {found[doubled[0]]} times")
        committed = [reader for reader in readers if reader.committed]
        everything = set(found) | {value for reader in committed for value in reader.seen.values()}
        aside = {value for reader in asides for value in reader.seen.values()}
        self._check_transactions(everything, aside)
        self._check_outputs(everything)
        self._check_cycles(everything)
        return len(everything)

    def _final(self, stream: Stream) -> dict[int, Value]:
        """The committed records of a stream as a reader that begins now gets them."""
        found: dict[int, Value] = {}
        at = stream.log_start
        if stream.stable != stream.next_offset:
            raise Violation(f"{stream} is stable up to {stream.stable} only")
        while at < stream.stable:
            read = Rules.after_reading(take(self.state, stream, at, 50), self.state)
            found.update(records_of(self.truth, read))
            if read.end == at:
                raise Violation(f"stream {stream.id}: no reader gets past {at}")
            at = read.end
        return found

    def _check_reader(self, reader: Reader) -> None:
        """Readers of committed records got what is there. Others got that, and perhaps more."""
        stream, final = self.state.streams[reader.stream], self.finals[reader.stream]
        for first, last in reader.polled:
            for at in range(max(first, stream.log_start), last):
                got, there = reader.seen.get(at), final.get(at)
                if got != there and (reader.committed or there is not None):
                    raise Violation(f"stream {reader.stream} offset {at}: a reader got {got}, {there} is there")
        if reader.position < stream.stable:
            raise Violation(f"the reader of stream {reader.stream} sticks at {reader.position}")

    def _check_transactions(self, everything: set[Value], aside: set[Value]) -> None:
        truth = self.truth
        for key, streams in truth.written.items():
            written = {value for stream in self.streams for value in streams.get(stream, ())}
            there = written & everything
            others = {value for values in streams.values() for value in values} & aside
            if key in truth.aborted and (there or others):
                raise Violation(f"{key} was aborted, and {min(there or others)} was read")
            if key in truth.committed and there != written:
                raise Violation(f"{key} was committed, and {written - there} is lost")
            if key not in truth.committed and (there or others) and there != written:
                raise Violation(f"{key} is torn: {there | others} of {written}")
        lost = [v for v in truth.plain if v not in everything]
        if lost:
            raise Violation(f"{lost[0]} was acknowledged and is lost")

    def _check_outputs(self, everything: set[Value]) -> None:
        """Every input up to the committed offset has one output."""
        for place in PLACES:
            done = Rules.stable_offset(self.state, self.truth.input, place)
            outputs = Counter(value[1] for value in everything if value[0] == place)
            twice = [n for n, count in outputs.items() if count > 1]
            if twice:
                raise Violation(f"input {twice[0]} of place {place} was worked on {outputs[twice[0]]} times")
            wanted = set(range(done or 0))
            if outputs.keys() != wanted:
                raise Violation(f"place {place} is at {done}, without or beyond it: {sorted(outputs.keys() ^ wanted)}")

    def _check_cycles(self, everything: set[Value]) -> None:
        """No transaction read what was aborted, or what depends on itself."""
        committed = {key for value in everything if (key := key_of(value)) is not None}
        for key, others in self.truth.reads.items():
            wrong = [other for other in others if other in self.truth.aborted or other == key]
            if wrong:
                raise Violation(f"{key} read what {wrong[0]} wrote, which was aborted or its own")
        graph = {key: others & committed for key, others in self.truth.reads.items() if key in committed}
        try:
            graphlib.TopologicalSorter(graph).prepare()
        except graphlib.CycleError as cycle:
            raise Violation(f"transactions read each other: {cycle.args[1]}") from None
