"""Single records in the files of a table: by offset, or the newest one with a key.

The keys of files are known by an index of keys, where the topic has one, and by bloom filters for all other files.
Neither is trusted: a record counts only if it has the key itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headwater.background import each
from headwater.client.records import Record
from headwater.errors import QueryLimit
from headwater.log.segment.cache import Segment, SegmentCache
from headwater.objects import ObjectStore
from headwater.objects.reads import so_far
from headwater.query.lookups.files import KeyFiles, TableFiles
from headwater.query.lookups.indexed import KeyIndex, KeyIndexes
from headwater.query.lookups.runs import record_of
from headwater.state.streams.tables import DataFile
from headwater.threads import Offload, inline

READ_BYTES = 1 << 30
"""Bytes that one look-up may read from the store."""
MANY_ROWS = 65_536
"""Row groups with more rows are searched in a thread."""


def winner(hits: Mapping[int, Record]) -> int | None:
    """The partition whose record is the newest."""
    return max(hits, key=lambda partition: (hits[partition].timestamp, -partition), default=None)


def segment_of(root: str, file: DataFile) -> Segment:
    """A file as a segment."""
    return Segment(f"{root}/{file.name}", file.size, file.footer_checksum)


@dataclass(frozen=True, slots=True)
class Sought:
    """What is looked for in the files of a table, all of one moment."""

    root: str
    key: bytes
    hashed: int
    bounds: Mapping[int, int]
    """By partition that is looked at, the offset at which readers stop."""
    files: TableFiles
    ahead: Mapping[int, Collection[int]]
    """By partition, the numbers of files behind the record that was found in the WAL: those of bulk appends."""
    index: KeyIndex | None
    file_at: Callable[[int, int], int]
    """The number of the file that has an offset of a partition, or 0. It may be of a later moment."""
    fresh: bool
    """Whether nothing may come from memory."""


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """A row group that may have a key."""

    segment: Segment
    number: int
    partition: int
    last_offset: int
    newest_ms: int


class Settled:
    """Files of tables, with footers, filters, row groups and indexes in memory."""

    def __init__(self, store: ObjectStore, segments: SegmentCache, cache_bytes: int, offload: Offload) -> None:
        self._store = store
        self._segments = segments
        self._offload = offload
        self.files = KeyFiles(store, cache_bytes)
        self.indexes = KeyIndexes(store)

    def __repr__(self) -> str:
        return f"<Settled: {self.files!r}, {self.indexes!r}>"

    async def at(self, segment: Segment, partition: int, offset: int, fresh: bool) -> Record | None:
        """The record of a file at an offset."""
        if fresh:
            self._segments.forget(segment.path)
        footer = await self._segments.footer(segment)
        group = footer.find(partition, offset)
        if group is None or footer.groups[group].first_offset > offset:
            return None
        return record_of(await self._segments.rows(segment.path, footer, group), offset)

    async def search(self, sought: Sought, hits: dict[int, Record]) -> None:
        """Complete `hits`, which has by partition the records that are not settled.

        Partitions whose record cannot be the newest of all may be left out.
        """
        for partition, numbers in sought.ahead.items():
            files = [file for file in sought.files.files if file.number in numbers]
            groups = await self._groups(sought, files, {partition}, after=hits[partition].offset)
            await self._newest(sought, partition, groups.get(partition, ()), hits)
        best = winner(hits)
        if best is not None and sought.files.newest_ms < hits[best].timestamp:
            return
        wanted, searched = set(sought.bounds) - set(hits), sought.files.files
        if sought.index is not None:
            offsets = await self.indexes.find(sought.index, sought.hashed, lenient=sought.fresh)
            if offsets is not None:
                searched = tuple(file for file in searched if file.added > sought.index.cursor)
                for partition in sorted(wanted & set(offsets)):
                    await self._indexed(sought, partition, offsets[partition], hits)
        rest = [file for file in searched if any(_covers(sought, file, partition) for partition in wanted)]
        found = await self._groups(sought, rest, wanted)
        for partition in set(found) & set(hits):
            await self._newest(sought, partition, found.pop(partition), hits)
        for partition, places in sorted(found.items(), key=lambda item: -_newest_ms(item[1])):
            best = winner(hits)
            if best is not None and _newest_ms(places) < hits[best].timestamp:
                return
            await self._newest(sought, partition, places, hits)

    # --- by the index ----------------------------------------------------------------------------------

    async def _indexed(self, sought: Sought, partition: int, offsets: Sequence[int], hits: dict[int, Record]) -> None:
        """Of the offsets that may have the key, the greatest one that has it."""
        for offset in offsets:
            if offset < sought.bounds[partition]:
                record = await self._row(sought, partition, offset)
                if record is not None and record.key == sought.key:
                    hits[partition] = record
                    return

    async def _row(self, sought: Sought, partition: int, offset: int) -> Record | None:
        """The record at an offset, if one of the table's files has it."""
        hint = sought.file_at(partition, offset)
        likely = [file for file in sought.files.files if file.number == hint]
        others = [
            file
            for file in sought.files.files
            if file.number != hint
            and _covers(sought, file, partition)
            and file.first_offset <= offset <= file.last_offset
        ]
        for file in likely or others:
            check_limit()
            record = await self.at(segment_of(sought.root, file), partition, offset, sought.fresh)
            if record is not None:
                return record
        return None

    # --- by filters ------------------------------------------------------------------------------------

    async def _groups(
        self, sought: Sought, files: Iterable[DataFile], partitions: Collection[int], after: int = -1
    ) -> dict[int, list[GroupPlace]]:
        """By partition, the row groups behind an offset that may have the key, the greatest offsets first."""
        bounds = sought.bounds

        async def look(file: DataFile) -> list[GroupPlace]:
            check_limit()
            segment = segment_of(sought.root, file)
            if sought.fresh:
                self.files.forget(segment.path)
            known = await self.files.get(segment)
            numbers = await known.may_have(
                sought.hashed,
                lambda one: (
                    one.partition in partitions and one.first_offset < bounds[one.partition] and one.last_offset > after
                ),
                self._store,
                segment.path,
            )
            chosen = [(number, known.groups[number]) for number in numbers]
            return [
                GroupPlace(segment, number, facts.partition, facts.last_offset, facts.max_timestamp)
                for number, facts in chosen
            ]

        found: dict[int, list[GroupPlace]] = {}
        for places in await each(look, files):
            for place in places:
                found.setdefault(place.partition, []).append(place)
        for places in found.values():
            places.sort(key=lambda place: -place.last_offset)
        return found

    async def _newest(
        self, sought: Sought, partition: int, places: Sequence[GroupPlace], hits: dict[int, Record]
    ) -> None:
        """Look for a newer record of a partition than the one that is known."""
        for place in places:
            known = hits.get(partition)
            if known is not None and place.last_offset <= known.offset:
                return
            record = await self._newest_in(place, sought)
            if record is not None and (known is None or record.offset > known.offset):
                hits[partition] = record

    async def _newest_in(self, place: GroupPlace, sought: Sought) -> Record | None:
        """The newest record of a row group that has the key."""
        check_limit()
        if sought.fresh:
            self._segments.forget(place.segment.path)
        footer = await self._segments.footer(place.segment)
        rows = await self._segments.rows(place.segment.path, footer, place.number)
        run = self._offload if len(rows) > MANY_ROWS else inline
        offset = await run(rows.last_with_key, sought.key, sought.bounds[place.partition])
        return record_of(rows, offset) if offset is not None else None


def check_limit() -> None:
    """Raise `QueryLimit` if the look-up has read too much."""
    if so_far().bytes > READ_BYTES:
        raise QueryLimit(f"the look-up has read {READ_BYTES} bytes and is not done: name a partition, or ask by SQL")


def _newest_ms(places: Sequence[GroupPlace]) -> int:
    return max(place.newest_ms for place in places)


def _covers(sought: Sought, file: DataFile, partition: int) -> bool:
    """Whether a file may have rows of a partition that may be read."""
    return file.first_partition <= partition <= file.last_partition and file.first_offset < sought.bounds[partition]
