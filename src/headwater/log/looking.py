"""One look at a stream: what a reader finds from an offset on, where it has to stop, and what it has to leave out.

All of it is taken in one step, before anything is awaited. Settling forgets aborted transactions, and a list that was
taken later than the entries would let aborted records through.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headwater.state.streams.aborted import AbortedTransaction
from headwater.state.streams.index import IndexEntry
from headwater.state.streams.stream import Stream


@dataclass(frozen=True, slots=True)
class Look:
    """What a stream showed at one moment."""

    entries: list[IndexEntry]
    """From the one that holds the offset on. The last one may reach beyond the bound; no batch does."""
    bound: int
    """Where the reader stops."""
    end: int
    stable: int
    log_start: int
    leader_epoch: int
    """What the batches say to clients."""
    aborted: list[AbortedTransaction]
    """Whose records in these entries readers of committed records leave out. Empty for other readers."""


def bound_of(stream: Stream, committed: bool) -> int:
    """Where a reader stops: at the end of the log, or at the first record of the oldest open transaction."""
    return stream.stable if committed else stream.end


def look(stream: Stream, offset: int, committed: bool, admit: Callable[[IndexEntry], bool]) -> Look:
    """The entries from an offset on, as long as `admit` takes them, with all that belongs to them."""
    bound, index = bound_of(stream, committed), stream.index
    entries: list[IndexEntry] = []
    for i in range(index.find(offset), len(index)):
        entry = index[i]
        if entry.start >= bound or not admit(entry):
            break
        entries.append(entry)
    aborted: list[AbortedTransaction] = []
    if committed and entries and len(stream.aborted):
        aborted = stream.aborted.between(offset, min(bound, entries[-1].end))
    return Look(entries, bound, stream.end, stream.stable, stream.log_start, stream.leader_epoch, aborted)
