"""What one call of the reader takes: WAL objects, each once, and the batches of index entries in them."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.errors import HeadwaterError
from headwater.log.batch import empty_batches, offsets_of, with_append_time
from headwater.log.marker import marker_batch
from headwater.log.wal import format as wal
from headwater.log.wal.cache import AbsentWal, CachedWal, WalCache
from headwater.state.streams.index import IndexEntry
from headwater.state.streams.state import StreamsState
from headwater.types import Buffer, Domain, WalId

MAX_ENTRIES_PER_CALL = 20_000


class Hit(Exception):
    """A read begins in a damaged range."""

    def __init__(self, start: int, end: int, reason: str) -> None:
        super().__init__(reason)
        self.start = start
        self.end = end


@dataclass(slots=True)
class Objects:
    """The WAL objects of one call."""

    cache: WalCache
    bytes_left: int
    entries_left: int = MAX_ENTRIES_PER_CALL
    held: dict[tuple[Domain, WalId], CachedWal] = field(default_factory=dict)
    wanted: dict[Domain, dict[WalId, str]] = field(default_factory=dict)
    sizes: dict[tuple[Domain, WalId], int] = field(default_factory=dict)
    """How much of each object that is not in memory is wanted."""
    failures: dict[Domain, HeadwaterError] = field(default_factory=dict)

    def take(self, state: StreamsState, entry: IndexEntry) -> bool:
        """Whether the call can use the object of an entry. One that is not in memory is noted for `load`.

        A marker and a gap have no object.
        """
        if not entry.in_wal:
            return True
        domain, object_id = state.domain, entry.object
        if (domain, object_id) in self.held:
            return True
        if (domain, object_id) in self.sizes:
            self.sizes[(domain, object_id)] += entry.length
            return True
        cached = self.cache.get(domain, object_id)
        known = state.objects.get(object_id) if cached is None else None
        if cached is None and known is None:
            cached = AbsentWal(f"the metadata does not know the object {object_id}")
        if cached is not None:
            self.held[(domain, object_id)] = cached
            return True
        assert known is not None
        if self.wanted and known.size > self.bytes_left:
            return False
        self.bytes_left -= known.size
        path = wal.path_of(known.zone, domain, known.created_ms, object_id)
        self.wanted.setdefault(domain, {})[object_id] = path
        self.sizes[(domain, object_id)] = entry.length
        return True

    async def load(self) -> None:
        """Get the objects that are not in memory. A failure is kept for the entries that need them."""
        for domain, wanted in self.wanted.items():
            try:
                loaded = await self.cache.load(domain, list(wanted.items()))
            except HeadwaterError as error:
                self.failures[domain] = error
                continue
            for object_id, cached in zip(wanted, loaded, strict=True):
                cached.expect(self.sizes[(domain, object_id)])
                self.held[(domain, object_id)] = cached

    def of(self, domain: Domain, entries: list[IndexEntry]) -> list[CachedWal | None]:
        """The objects of the first entries, as far as they could be loaded, None for a marker and for a gap.

        Raises if there is none.
        """
        found: list[CachedWal | None] = []
        for entry in entries:
            cached = self.held.get((domain, entry.object)) if entry.in_wal else None
            if cached is None and entry.in_wal:
                break
            found.append(cached)
        if entries and not found:
            raise self.failures[domain]
        return found


def parts(entry: IndexEntry, cached: CachedWal | None) -> list[tuple[int, list[Buffer], tuple[int, str] | None]]:
    """The batches of an entry with the offset of the first, or a damaged range with its end and the reason."""
    if cached is None:
        return [(entry.start, [marker_batch(entry)] if entry.marker else empty_batches(entry.start, entry.end), None)]
    try:
        batches = cached.batches(entry.position, entry.position + entry.length, entry.end - entry.start)
    except wal.DamagedRun as error:
        start = entry.start + sum(map(offsets_of, error.before))
        end = entry.end - sum(map(offsets_of, error.behind))
        before, behind = _stamped(entry, error.before), _stamped(entry, error.behind)
        return [(entry.start, before, None), (start, [], (end, str(error))), (end, behind, None)]
    return [(entry.start, _stamped(entry, batches), None)]


def _stamped(entry: IndexEntry, batches: list[Buffer]) -> list[Buffer]:
    """The batches as the topic serves them. A new CRC is only made for batches that were checked."""
    return [with_append_time(batch, entry.max_timestamp) for batch in batches] if entry.append_time else batches
