"""What settling and merging do about inputs that cannot be read: they leave them alone, and look at them again.

A stream settles up to its first damaged range, and a damaged file is not merged. All others go on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.errors import Damaged, ObjectMissing
from headwater.log.damage import BadRange, Damage, path_of
from headwater.log.wal import format as wal
from headwater.objects import ObjectStore
from headwater.state.streams.index import IndexEntry
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream
from headwater.types import Domain

if TYPE_CHECKING:
    import uuid

    from headwater.lake.tasks import DamagedInput

RECHECKED_AT_ONCE = 20
"""At most this many damaged ranges are read again in one round."""


class DamagedInputs:
    """The damaged inputs of the compactor's jobs."""

    def __init__(self, damage: Damage, store: ObjectStore) -> None:
        self._damage = damage
        self._store = store

    def __repr__(self) -> str:
        return f"<DamagedInputs: {self._damage!r}>"

    def stops(self, state: StreamsState) -> dict[int, int]:
        """By stream, the first offset that cannot be settled."""
        found: dict[int, int] = {}
        for bad in self._damage.ranges(state.domain):
            if state.streams[bad.stream].settled <= bad.start:
                found.setdefault(bad.stream, bad.start)  # ranges rise by offset
        return found

    def files(self, domain: Domain) -> set[str]:
        """The paths of damaged objects. Merging leaves files among them alone."""
        return {bad.path for bad in self._damage.ranges(domain)}

    def note(self, state: StreamsState, topic: uuid.UUID, inputs: Iterable[DamagedInput]) -> bool:
        """Enter what a job found, unless the index has changed since. Returns whether the next plan avoids it."""
        noted = False
        for found in inputs:
            for bad in _ranges(state, topic, found):
                self._damage.note(bad)
                noted = noted or self._damage.knows(bad.domain, bad.stream)
        return noted

    async def recheck(self, state: StreamsState) -> None:
        """Read damaged ranges again, and forget those that are whole by now."""
        due = [bad for bad in self._damage.ranges(state.domain) if self._damage.is_due(bad)]
        for bad in due[:RECHECKED_AT_ONCE]:
            if self._damage.recent(bad.domain, bad.stream, bad.start) is None and await self._is_whole(state, bad):
                self._damage.mended(bad.domain, bad.stream, bad.start, bad.end)

    async def _is_whole(self, state: StreamsState, bad: BadRange) -> bool:
        from headwater.log.segment.verify import verify_segment

        stream = state.streams[bad.stream]
        entry = stream.index[stream.index.find(bad.start)]
        try:
            if entry.in_wal:
                data = await self._store.get(bad.path, entry.position, entry.length)
                wal.sound_batches(data, 0, entry.length, entry.end - entry.start)
                return True
            checksum = state.tables[stream.topic].files[entry.file].footer_checksum
            groups = verify_segment(await self._store.get(bad.path), checksum)
            return not any(isinstance(group, Damaged) for group in groups)
        except (ObjectMissing, Damaged):
            return False


def _ranges(state: StreamsState, topic: uuid.UUID, found: DamagedInput) -> list[BadRange]:
    """The ranges of the log that an input has, by the index as it is now."""
    table, stream = state.tables.get(topic), state.streams.get(found.stream)
    entries: list[tuple[Stream, IndexEntry]] = []
    path = found.path
    if stream is not None:
        i = stream.index.find(found.start)
        entries = [(stream, stream.index[i])] if i < len(stream.index) else []
    elif table is not None:
        path = f"{table.root}/{path}"
        of_topic = [stream for stream in state.streams.values() if stream.topic == topic]
        entries = [(stream, entry) for stream in of_topic for entry in stream.index]
    return [
        BadRange(state.domain, stream.id, entry.start, entry.end, path, found.reason)
        for stream, entry in entries
        if path_of(state, stream, entry) == path
    ]
