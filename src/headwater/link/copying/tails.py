"""What the log here knows of the source's history: the leader epoch of the last batch that was copied.

A process that starts, or takes a partition over, has fetched nothing yet. The batches in WAL objects have the header
that the source gave them, with the leader epoch in it. With that epoch the source is asked whether it still has what
was copied. Batches that are settled are rows of a table, and have no epoch.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from headwater.errors import Damaged, ObjectMissing
from headwater.link.source.pieces import NO_EPOCH, epoch_of
from headwater.log.damage import path_of
from headwater.log.wal.format import batches_between
from headwater.objects import ObjectStore
from headwater.replica.replica import Replica
from headwater.state.streams.index import IndexEntry
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream
from headwater.types import StreamId

log = logging.getLogger("headwater.link")
READS = 4
"""Runs that a process reads at a time. Each has up to `links.flush_bytes`."""
MAX_GAPS = 1_000
"""Gaps at the end of the log that are passed over."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The last batch of a stream that is not a gap."""

    end: int
    """The offset behind it."""
    epoch: int


class Tails:
    """Reads the ends of streams, a few at a time."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._turns = asyncio.Semaphore(READS)

    def __repr__(self) -> str:
        return f"<Tails, {self._turns!r}>"

    async def of(self, replica: Replica[StreamsState], stream_id: StreamId) -> Tail | None:
        """The tail of a stream; None if it is empty, settled, or not readable.

        Raises `StoreUnavailable` if the store does not answer.
        """
        async with self._turns:
            stream = replica.state.streams.get(stream_id)
            entry = _last(stream) if stream is not None else None
            if stream is None or entry is None:
                return None
            path = path_of(replica.state, stream, entry)
            if not path:
                return None
            try:
                data = await self._store.get(path, entry.position, entry.length)
                batches = batches_between(data, 0, len(data))
            except (
                ObjectMissing,
                Damaged,
            ) as error:  # settled meanwhile, or damaged: readers will tell
                log.info("the end of a stream is not readable", extra={"stream": stream_id, "reason": str(error)})
                return None
        epoch = epoch_of(batches[-1]) if batches else NO_EPOCH
        return Tail(entry.end, epoch) if epoch != NO_EPOCH else None


def _last(stream: Stream) -> IndexEntry | None:
    """The last run of a stream, if it is in a WAL object. Gaps behind it are passed over."""
    index = stream.index
    for back in range(1, min(len(index), MAX_GAPS) + 1):
        entry = index[-back]
        if not entry.gap:
            return entry if entry.in_wal else None
    return None
