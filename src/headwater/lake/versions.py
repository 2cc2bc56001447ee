"""Versions of a topic's table: how versions, offsets and the followers' own versions map to each other.

A version is a journal sequence: the table after that many changes. As of a version, each partition is settled up to an
offset, which never decreases. So the records between two versions are one range of offsets per partition, whatever was
merged in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headwater.errors import BadInput, NotFound
from headwater.lake.tables.follower import Version
from headwater.log.segment.cache import Segment, SegmentCache
from headwater.objects import ObjectStore
from headwater.state.streams.tables import DataFile, JournalEntry, TopicTable
from headwater.types import Buffer

CHUNK_BYTES = 1 << 20
CACHE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of a partition, `[start, end)`."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Changes:
    """The records that were added to a table after one version, up to another."""

    after: int
    upto: int
    ranges: Sequence[OffsetRange]
    operations: Mapping[str, int]
    """How many settles, merges and retirements are between the versions."""

    @property
    def predicate(self) -> str:
        """The ranges as an SQL condition, for readers of any later version."""
        parts = [f"(`partition` = {r.partition} AND `offset` >= {r.start} AND `offset` < {r.end})" for r in self.ranges]
        return " OR ".join(parts) or "FALSE"


@dataclass(frozen=True, slots=True)
class Span:
    """The follower's versions that show changes: those after `after`, up to and including `upto`."""

    after: int | None
    """`None`: from the beginning."""
    upto: int


def history(table: TopicTable) -> list[tuple[JournalEntry, dict[int, int]]]:
    """Every version in the journal, with the settled end of each partition as of then."""
    ends, found = dict(table.passed), []
    for entry in table.journal:
        ends = {**ends, **dict(entry.ends)}
        found.append((entry, ends))
    return found


def files_at(table: TopicTable, version: int) -> list[DataFile]:
    """The files of a version, by number. Raises if there is no such version, or if some of its files were deleted."""
    if not 0 <= version <= table.last_sequence:
        raise NotFound(f"there is no version {version}: the newest is {table.last_sequence}")
    later = table.entries_after(version)
    if later is None:
        raise NotFound(f"version {version} has expired: the oldest that is known is {table.first_version}")
    new = {number for entry in later for number in entry.added}
    if any(number not in table.files and number not in new for entry in later for number in entry.removed):
        raise NotFound(f"version {version} has expired: some of its files are deleted")
    found = (file for file in table.files.values() if file.added <= version < (file.removed or version + 1))
    return sorted(found, key=lambda file: file.number)


def changes(table: TopicTable, after: int, upto: int | None = None) -> Changes:
    """The changes between two versions. Without `upto`, up to the newest."""
    last = table.last_sequence if upto is None else upto
    for version in (after, last):
        if version > table.last_sequence:
            raise BadInput(f"there is no version {version} yet: the newest is {table.last_sequence}")
        if version < table.first_version:
            raise BadInput(f"the journal no longer reaches version {version}: the oldest is {table.first_version}")
    if after > last:
        raise BadInput(f"version {after} is newer than version {last}: there are no changes between them")
    before, then = table.ends_at(after), table.ends_at(last)
    ranges = [OffsetRange(p, before.get(p, 0), end) for p, end in sorted(then.items()) if end > before.get(p, 0)]
    between = (table.entries_after(after) or [])[: last - after]
    return Changes(after, last, ranges, Counter(entry.operation for entry in between))


def span(versions: Iterable[Version], after: int, upto: int) -> Span | None:
    """The versions of a follower with exactly the changes between two versions of the table; None if it lacks some.

    The follower must have all versions in between. None may both add and remove rows, since readers of changes would
    skip it.
    """
    by_sequence = {version.sequence: version for version in versions}
    if upto not in by_sequence:
        return None
    at = upto
    while at > after:
        version = by_sequence.get(at)
        if version is None or version.operation == "overwrite":
            return None
        at = version.first - 1
    if at != after or (after and after not in by_sequence):
        return None
    return Span(by_sequence[after].number if after else None, by_sequence[upto].number)


def holding(table: TopicTable, ranges: Iterable[OffsetRange]) -> list[DataFile]:
    """The table's current files that may contain rows of these ranges."""
    wanted = list(ranges)
    return [file for file in table.live() if any(_may_hold(file, r) for r in wanted)]


def _may_hold(file: DataFile, r: OffsetRange) -> bool:
    here = file.first_partition <= r.partition <= file.last_partition
    return here and file.first_offset < r.end and r.start <= file.last_offset


async def read(
    store: ObjectStore, table: TopicTable, ranges: Iterable[OffsetRange]
) -> AsyncIterator[tuple[int, Buffer]]:
    """The records of these ranges from the table's current files: partition and record batches, in order."""
    cache, root = SegmentCache(store, CACHE_BYTES), table.root
    for r in sorted(ranges, key=lambda r: r.partition):
        groups = []
        for file in holding(table, [r]):
            path = f"{root}/{file.name}"
            footer = await cache.footer(Segment(path, file.size, file.footer_checksum))
            for i, group in enumerate(footer.groups):
                if group.partition == r.partition and group.first_offset < r.end and r.start <= group.last_offset:
                    groups.append((group.first_offset, path, footer, i))
        for first, path, footer, i in sorted(groups, key=lambda group: group[0]):
            rows = await cache.rows(path, footer, i)
            at, end = max(r.start, first), min(r.end, footer.groups[i].last_offset + 1)
            while at < end:
                encoded = rows.encode(at, end, CHUNK_BYTES, True)
                yield r.partition, encoded.records
                at = encoded.next_offset
