"""Transactions written by commands of the ledger, as a broker submits them, with their batches in real WAL objects."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from headwater.log.batch import TRANSACTIONAL_BIT, check_batch
from headwater.log.wal import format as wal
from headwater.objects import ObjectStore
from headwater.state.commands.streams import AppendUnits, Mode, TrimStreams, Unit, UnitChunk
from headwater.state.commands.transactions import EndTransaction, InitTransaction
from headwater.state.records import Command
from headwater.state.results import Appended, Judgement, Result, Transacted
from headwater.types import Domain, WalId
from tests.support.batches import NO_PRODUCER, Rec, batch
from tests.support.virtual_nodes import LAX

FIRST_PRODUCER = 5 << 32
"""Producer ids that would be the names of WAL objects of an epoch, if somebody mistook a marker for a run."""
TIMEOUT_MS = 1 << 30
"""No broker ends a transaction of a test."""
PLAIN = ""
Sent = tuple[int, str, Sequence[Rec]]
"""Records of one batch: their stream, and their transactional id or `PLAIN`."""


@dataclass(slots=True)
class _Producer:
    producer: int
    epoch: int
    sequences: dict[int, int] = field(default_factory=dict)
    """By stream, the next sequence."""
    written: list[tuple[int, int, Rec]] = field(default_factory=list)
    """Stream, offset and record of all that the open transaction has written and that is still in the log."""
    open: bool = False


class Transactor:
    """Writes plain and transactional batches under an epoch of its own, and notes which records are committed."""

    def __init__(
        self, epoch: int, submit: Callable[[Command], Awaitable[Result]], store: ObjectStore, domain: Domain
    ) -> None:
        self._epoch = epoch
        self._submit = submit
        self._store = store
        self._domain = domain
        self._objects = 0
        self._producers: dict[str, _Producer] = {}
        self.committed: dict[int, dict[int, Rec]] = {}
        """By stream and offset."""

    def __repr__(self) -> str:
        return f"<Transactor of epoch {self._epoch}, {self._objects} objects>"

    @property
    def open(self) -> list[str]:
        """The ids whose transactions have begun and have not ended."""
        return [name for name, made in self._producers.items() if made.open]

    def held(self) -> Iterator[tuple[int, int]]:
        """Stream and offset of the records of open transactions."""
        return ((stream, offset) for made in self._producers.values() for stream, offset, _ in made.written)

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
        made = self._producers.get(name) or await self._init(name)
        sequence = made.sequences.get(stream, 0)
        made.sequences[stream] = sequence + len(records)
        made.open = True
        return batch(records, producer=(made.producer, made.epoch, sequence), attributes=TRANSACTIONAL_BIT, codec=4)

    async def _init(self, name: str) -> _Producer:
        fresh = FIRST_PRODUCER + len(self._producers) + 1
        result = await self._submit(InitTransaction(name, TIMEOUT_MS, fresh, -1, -1))
        assert isinstance(result, Transacted) and result.judgement is Judgement.DONE, result
        made = self._producers[name] = _Producer(result.producer, result.epoch)
        return made

    def _note(self, stream: int, name: str, records: Sequence[Rec], first: int) -> None:
        for offset, record in enumerate(records, first):
            if name:
                self._producers[name].written.append((stream, offset, record))
            else:
                self.committed.setdefault(stream, {})[offset] = record

    async def end(self, name: str, *, commit: bool) -> None:
        """End a transaction that has begun. The next one has the next epoch."""
        made = self._producers[name]
        result = await self._submit(EndTransaction(name, made.producer, made.epoch, commit, True, 0))
        assert isinstance(result, Transacted) and result.judgement is Judgement.DONE, result
        for stream, offset, record in made.written if commit else ():
            self.committed.setdefault(stream, {})[offset] = record
        self._producers[name] = _Producer(result.producer, result.epoch)

    async def delete(self, stream: int, before: int, settled: int) -> None:
        """Delete records before an offset. Those that are not settled get into no table."""
        await self._submit(TrimStreams([(stream, before)]))
        gone = range(settled, before)
        kept = {at: rec for at, rec in self.committed.get(stream, {}).items() if at not in gone}
        self.committed[stream] = kept
        for made in self._producers.values():
            made.written = [one for one in made.written if one[0] != stream or one[1] not in gone]
