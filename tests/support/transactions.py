"""Transactions by the commands that requests become: producers of both generations, and a writer of WAL objects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from headwater.app.node import Node
from headwater.log.batch import TRANSACTIONAL_BIT, check_batch
from headwater.log.wal import format as wal
from headwater.objects import ObjectStore
from headwater.replica.replica import Replica
from headwater.state.commands.streams import AppendUnits, Mode, TrimStreams, Unit, UnitChunk
from headwater.state.commands.transactions import EndTransaction, InitTransaction, JoinTransaction
from headwater.state.records import Command
from headwater.state.results import Appended, Judgement, Result, Transacted
from headwater.state.streams.state import StreamsState
from headwater.types import Domain, WalId
from tests.support.batches import NO_PRODUCER, Rec, batch
from tests.support.virtual_nodes import LAX, ONE

FIRST_PRODUCER = 5 << 32
"""Producer ids that would be the names of WAL objects of an epoch, if somebody mistook a marker for a run."""
TIMEOUT_MS = 1 << 30
"""No broker ends a transaction of a test."""
PLAIN = ""
Submit = Callable[[Command], Awaitable[Result]]
Sent = tuple[int, str, Sequence[Rec]]
"""Records of one batch: their stream, and their transactional id or `PLAIN`."""


def submitting(replica: Replica[StreamsState]) -> Submit:
    """Enters commands through a replica, each in a record of its own."""

    async def submit(command: Command) -> Result:
        [result] = await replica.submit([command])
        return result

    return submit


@dataclass(slots=True)
class Transactor:
    """A producer with a transactional id. It numbers its batches; the test sends them."""

    submit: Submit
    id: str
    producer: int
    epoch: int
    sequences: dict[int, int] = field(default_factory=dict)
    """The next sequence of each stream."""

    @classmethod
    async def start(cls, submit: Submit, id: str, fresh: int) -> Transactor:
        """The next producer of a transactional id. If it is the first, the test chooses its producer id."""
        made = cls(submit, id, -1, -1)
        await made._entered(InitTransaction(id, TIMEOUT_MS, fresh, -1, -1))
        return made

    @classmethod
    async def at(cls, node: Node, id: str, fresh: int) -> Transactor:
        """The same, through a node."""
        return await cls.start(submitting(node.domains[ONE]), id, fresh)

    async def join(self, *streams: int) -> None:
        """Make streams part of the transaction, as clients of the first generation do."""
        await self._entered(JoinTransaction(self.id, self.producer, self.epoch, streams, ()))

    def batch(self, stream: int, records: Sequence[Rec | bytes], codec: int = 0) -> bytes:
        """The next batch for a stream."""
        sequence = self.sequences.get(stream, 0)
        self.sequences[stream] = sequence + len(records)
        producer = (self.producer, self.epoch, sequence)
        return batch(records, producer=producer, attributes=TRANSACTIONAL_BIT, codec=codec)

    async def end(self, *, commit: bool, bump: bool = True) -> None:
        """End the transaction. With `bump` the next one has the next epoch, and sequences start anew."""
        await self._entered(EndTransaction(self.id, self.producer, self.epoch, commit, bump, self.producer + 1_000))
        if bump:
            self.sequences.clear()

    async def _entered(self, command: InitTransaction | JoinTransaction | EndTransaction) -> None:
        result = await self.submit(command)
        assert isinstance(result, Transacted) and result.judgement is Judgement.DONE, result
        self.producer, self.epoch = result.producer, result.epoch


Written = tuple[int, int, Rec]
"""Stream, offset and record."""


class ObjectWriter:
    """Writes plain and transactional batches in WAL objects of an epoch of its own, and notes what is committed."""

    def __init__(self, epoch: int, submit: Submit, store: ObjectStore, domain: Domain) -> None:
        self._epoch = epoch
        self._submit = submit
        self._store = store
        self._domain = domain
        self._objects = 0
        self._producers: dict[str, Transactor] = {}
        self._written: dict[str, list[Written]] = {}
        """What open transactions have written and is still in the log, by transactional id."""
        self.committed: dict[int, dict[int, Rec]] = {}
        """By stream and offset."""

    def __repr__(self) -> str:
        return f"<ObjectWriter of epoch {self._epoch}, {self._objects} objects>"

    @property
    def open(self) -> list[str]:
        """The ids whose transactions have begun and have not ended."""
        return list(self._written)

    def written(self, name: str) -> list[Written]:
        """What the open transaction of an id has written and is still in the log."""
        return list(self._written[name])

    def held(self) -> Iterator[tuple[int, int]]:
        """Stream and offset of the records of open transactions."""
        return ((stream, offset) for written in self._written.values() for stream, offset, _ in written)

    async def write(self, *parts: Sent, created_ms: int) -> list[int]:
        """Write batches in one WAL object; returns their offsets. A transaction begins with its first batch."""
        by_stream: dict[int, list[tuple[str, Sequence[Rec], bytes]]] = {}
        for stream, name, records in parts:
            by_stream.setdefault(stream, []).append((name, records, await self._encoded(stream, name, records)))
        self._objects += 1
        object_id, streams = WalId(self._epoch, self._objects), sorted(by_stream)
        batches = {s: [check_batch(data, LAX, 0) for _, _, data in by_stream[s]] for s in streams}
        image = wal.build(object_id, self._domain, created_ms, created_ms, [(s, batches[s]) for s in streams])
        await self._store.put(wal.path_of("local", self._domain, created_ms, object_id), image.pieces)
        chunks = [
            UnitChunk(
                stream,
                position,
                [(len(b.data), b.offsets, b.max_timestamp) for b in batches[stream]],
                [(b.producer_id, b.producer_epoch, b.base_sequence) for b in batches[stream]],
                bytes(Mode.JOINS if name else Mode.PLAIN for name, _, _ in by_stream[stream]),
            )
            for stream, position in zip(streams, image.positions, strict=True)
        ]
        result = await self._submit(AppendUnits(self._objects, image.size, created_ms, "local", [Unit([], chunks)]))
        assert isinstance(result, Appended), result
        first = {s: chunk.first_offset for s, chunk in zip(streams, result.chunks, strict=True)}
        assert all(chunk.verdicts is None for chunk in result.chunks), result
        found = []
        for stream, name, records in parts:
            found.append(first[stream])
            self._note(stream, name, records, first[stream])
            first[stream] += len(records)
        return found

    async def _encoded(self, stream: int, name: str, records: Sequence[Rec]) -> bytes:
        if not name:
            return batch(records, producer=NO_PRODUCER)
        if name not in self._producers:
            fresh = FIRST_PRODUCER + len(self._producers) + 1
            self._producers[name] = await Transactor.start(self._submit, name, fresh)
        self._written.setdefault(name, [])
        return self._producers[name].batch(stream, records, codec=4)

    def _note(self, stream: int, name: str, records: Sequence[Rec], first: int) -> None:
        for offset, record in enumerate(records, first):
            if name:
                self._written[name].append((stream, offset, record))
            else:
                self.committed.setdefault(stream, {})[offset] = record

    async def end(self, name: str, *, commit: bool) -> None:
        """End a transaction that has begun. The next one has the next epoch."""
        await self._producers[name].end(commit=commit)
        written = self._written.pop(name)
        for stream, offset, record in written if commit else ():
            self.committed.setdefault(stream, {})[offset] = record

    async def delete(self, stream: int, before: int, settled: int) -> None:
        """Delete records before an offset. Those that are not settled get into no table."""
        await self._submit(TrimStreams([(stream, before)]))
        gone = range(settled, before)
        kept = {at: rec for at, rec in self.committed.get(stream, {}).items() if at not in gone}
        self.committed[stream] = kept
        for written in self._written.values():
            written[:] = [one for one in written if one[0] != stream or one[1] not in gone]
