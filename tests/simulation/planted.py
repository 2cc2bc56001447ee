"""Defects put in on purpose. The simulation must find each of them, or it proves nothing."""

from __future__ import annotations

import asyncio
import dataclasses

from headwater.errors import HeadwaterError
from headwater.log.write.writer import Writer, _Flush
from headwater.state.commands.streams import AppendWal
from headwater.state.machine import EpochSet
from headwater.state.records import Record
from headwater.state.results import Appended, Result
from headwater.state.streams import append
from headwater.state.streams.index import ENTRY_BYTES
from headwater.state.streams.state import StreamsState
from headwater.types import Position, WalId
from tests.simulation.run import Planted


class AckBeforeRecord(Writer):
    """Acknowledges when the object is stored, before the record stands, with the offsets it expects."""

    async def _finish(self, flush: _Flush, committing: asyncio.Future[list[Result]]) -> None:
        for stream, parts in flush.layout.chunks:
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


def _entry_over_refused(state: StreamsState, epoch: int, command: AppendWal) -> Result:
    """Gives a chunk one index entry over all its bytes, also those of batches it refused."""
    before = {
        chunk.stream: len(state.streams[chunk.stream].index)
        for chunk in command.chunks
        if chunk.stream in state.streams
    }
    result = append.PART.commands[AppendWal](state, epoch, command)
    if not isinstance(result, Appended):
        return result
    for chunk, verdict in zip(command.chunks, result.chunks, strict=True):
        stream = state.streams.get(chunk.stream)
        if stream is None or verdict.verdicts is None:
            continue
        entries = before[chunk.stream]
        added = [stream.index[i] for i in range(entries, len(stream.index))]
        if not added:
            continue
        stream.index = type(stream.index)(stream.index.pack()[: entries * ENTRY_BYTES])
        length = sum(append.PREFIX_BYTES + size for size, _, _ in chunk.batches)
        stream.size += length - sum(entry.length for entry in added)
        stream.index.append(
            end=added[-1].end,
            span=added[-1].end - added[0].start,
            cumulative_size=stream.size,
            max_timestamp=max(entry.max_timestamp for entry in added),
            object_epoch=epoch,
            object_sequence=command.sequence,
            position=chunk.position,
            length=length,
            flags=added[0].flags,
        )
    return result


class EntryOverRefused(StreamsState):
    """Judges appends by `_entry_over_refused`."""

    PARTS = tuple(
        dataclasses.replace(part, commands={**part.commands, AppendWal: _entry_over_refused})
        if part is append.PART
        else part
        for part in StreamsState.PARTS
    )


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


class DeletedAhead(StreamsState):
    """Lets objects be deleted that the newest checkpoint needs."""

    def ripe_objects(self, before_ms: int) -> list[WalId]:
        return super().ripe_objects(self.clock_ms)


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
    "objects deleted ahead of the checkpoint": Planted(make_streams=DeletedAhead),
    "offsets left out of a checkpoint": Planted(make_streams=OffsetsLeftOut),
}
