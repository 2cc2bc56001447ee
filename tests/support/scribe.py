"""Applies records to a state as correct writers would, and returns the results."""

import uuid
from collections.abc import Collection, Iterable, Sequence

from headwater.state.commands.streams import AppendWal, Chunk, CreateStreams, StreamConfig
from headwater.state.commands.tables import FileTyping, NewFile, SegmentRun
from headwater.state.machine import State
from headwater.state.records import Command, Record, decode, encode
from headwater.state.results import Appended, ChunkResult, Result
from headwater.state.streams.state import StreamsState
from headwater.types import Position

TOPIC = uuid.UUID(int=7)
START_MS = 1_700_000_000_000
FIRST_CHUNK = 93
PREFIX = 4

Producer = tuple[int, int, int]
Batch = tuple[int, int, int]


def untyped(files: Collection[NewFile]) -> list[FileTyping]:
    """What a command tells of files that are not decoded, and whose digests do not matter."""
    return [FileTyping(0, 0, 0, ())] * len(files)


def newest_of(state: State, runs: Iterable[SegmentRun]) -> list[int]:
    """The largest timestamp of each run, with those of aborted transactions. -1 if there is none."""
    assert isinstance(state, StreamsState)
    streams = state.streams
    return [
        max((e.max_timestamp for e in streams[r.stream].index if r.start < e.end <= r.end and not e.marker), default=-1)
        if r.stream in streams
        else -1
        for r in runs
    ]


class Scribe:
    """One state, and the counters of its writers. Records are encoded and decoded."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.counters: dict[int, int] = {}
        self.records: list[bytes] = []
        self.sequence = 0

    def write(
        self,
        epoch: int,
        *commands: Command,
        clock_ms: int = START_MS,
        steady_ms: int | None = None,
        counter: int | None = None,
    ) -> list[Result]:
        """Apply a record of an epoch with its next counter. Its steady clock shows what its wall clock does."""
        results = self.try_write(epoch, *commands, clock_ms=clock_ms, steady_ms=steady_ms, counter=counter)
        assert results is not None
        return results

    def try_write(
        self,
        epoch: int,
        *commands: Command,
        clock_ms: int = START_MS,
        steady_ms: int | None = None,
        counter: int | None = None,
    ) -> list[Result] | None:
        if counter is None:
            counter = self.counters[epoch] = self.counters.get(epoch, 0) + 1
        data = encode(Record(epoch, counter, clock_ms, clock_ms if steady_ms is None else steady_ms, list(commands)))
        self.records.append(data)
        return self.state.apply(Position(self.state.position + 1), decode(data))

    def do(self, epoch: int, command: Command, clock_ms: int = START_MS) -> Result:
        """Apply one command; returns its result."""
        [result] = self.write(epoch, command, clock_ms=clock_ms)
        return result

    def streams(self, *names: int, append_time: bool = False, epoch: int = 1) -> None:
        self.do(epoch, CreateStreams(TOPIC, 0, names, StreamConfig(append_time)))

    def wal(self, *chunks: Chunk, sequence: int | None = None, size: int | None = None) -> AppendWal:
        """A command for an object of these chunks."""
        if sequence is None:
            self.sequence += 1
            sequence = self.sequence
        end = max((c.position + sum(PREFIX + length for length, _, _ in c.batches) for c in chunks), default=93)
        return AppendWal(sequence, end + 4 if size is None else size, START_MS, "local", list(chunks))

    def append(
        self,
        epoch: int,
        stream: int,
        batches: Sequence[Batch],
        producers: Sequence[Producer] = (),
        clock_ms: int = START_MS,
    ) -> ChunkResult:
        """Append batches of (length, offsets, timestamp) to one stream, in an object of their own."""
        command = self.wal(Chunk(stream, FIRST_CHUNK, list(batches), list(producers)))
        result = self.do(epoch, command, clock_ms)
        assert isinstance(result, Appended), result
        return result.chunks[0]
