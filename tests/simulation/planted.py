"""Defects put in on purpose. The simulation must find each of them, or it proves nothing."""

from __future__ import annotations

import asyncio

from headwater.errors import HeadwaterError
from headwater.log.writer import Writer, _Flush
from headwater.metadata.base import EpochSet
from headwater.metadata.commands import Chunk, Record
from headwater.metadata.index import ENTRY_BYTES
from headwater.metadata.results import ChunkResult, Result
from headwater.metadata.streams import PREFIX_BYTES, Stream, StreamsState
from headwater.types import Position
from tests.simulation.run import Planted


class AckBeforeRecord(Writer):
    """Acknowledges when the object is stored, before the record stands, with the offsets it expects."""

    async def _finish(self, flush: _Flush, committing: asyncio.Future[list[Result]]) -> None:
        for stream, parts in flush.chunks:
            known = self._replica.state.streams.get(stream)
            offset = known.next_offset if known is not None else 0
            for part in parts:
                self._holding.decided(part)
                part.caller.accepted(part.number, offset, 0, -1)
                offset += part.batch.offsets
        try:
            await committing
        except HeadwaterError:
            return


class EntryOverRefused(StreamsState):
    """Gives a chunk one index entry over all its bytes, also those of batches it refused."""

    def _append_chunk(self, epoch: int, sequence: int, stream: Stream, chunk: Chunk) -> ChunkResult:
        entries = len(stream.index)
        result = super()._append_chunk(epoch, sequence, stream, chunk)
        added = [stream.index[i] for i in range(entries, len(stream.index))]
        if not added or result.verdicts is None:
            return result
        stream.index = type(stream.index)(stream.index.pack()[: entries * ENTRY_BYTES])
        length = sum(PREFIX_BYTES + size for size, _, _ in chunk.batches)
        stream.size += length - sum(entry.length for entry in added)
        stream.index.append(
            end=added[-1].end,
            span=added[-1].end - added[0].start,
            cumulative_size=stream.size,
            max_timestamp=max(entry.max_timestamp for entry in added),
            object_epoch=epoch,
            object_sequence=sequence,
            position=chunk.position,
            length=length,
            flags=added[0].flags,
        )
        return result


class FenceIgnored(StreamsState):
    """Takes what fenced epochs append."""

    def apply(self, position: Position, record: Record) -> list[Result] | None:
        standing, self._fenced = self._fenced, EpochSet()
        try:
            return super().apply(position, record)
        finally:
            for epoch in self.fenced_epochs():
                standing.add(epoch)
            self._fenced = standing


class OffsetsLeftOut(StreamsState):
    """Keeps committed offsets out of its checkpoints."""

    def restore(self, image: bytes) -> None:
        super().restore(image)
        for group in self.groups:
            group.offsets.clear()
            group.count = 0


PLANTED = {
    "ack before the record": Planted(make_writer=AckBeforeRecord),
    "an index entry over a refused batch": Planted(make_streams=EntryOverRefused),
    "a fence ignored": Planted(make_streams=FenceIgnored),
    "offsets left out of a checkpoint": Planted(make_streams=OffsetsLeftOut),
}
