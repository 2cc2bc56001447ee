"""The doctor's checks of stored bytes: WAL objects, and with `--deep` all pages of all segments.

Each finding names the object, the topic, the partition and the offsets that cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from headwater.app.doctor.report import Report
from headwater.background import each
from headwater.errors import Damaged, HeadwaterError, ObjectMissing
from headwater.ledger.contract import Ledger
from headwater.log.batch import offsets_of
from headwater.log.segment.verify import GroupRows, verify_segment
from headwater.log.wal import format as wal
from headwater.objects import ObjectStore
from headwater.replica.checkpoint import load_state, replay
from headwater.replica.domains import new_state
from headwater.state.cluster.state import ClusterState
from headwater.state.streams.index import IndexEntry
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored.typed import DIGEST_MASK
from headwater.state.streams.stream import Stream
from headwater.state.streams.tables import DataFile, TopicTable
from headwater.types import WalId

AT_ONCE = 4
"""Objects that are in memory at a time. A segment has up to some hundred megabytes."""


@dataclass(slots=True)
class Progress:
    """What has been read of what has to be read. `tell` is called after every object."""

    tell: Callable[[Progress], None] | None = None
    objects: int = 0
    bytes: int = 0
    all_objects: int = 0
    all_bytes: int = 0

    def expect(self, sizes: list[int]) -> None:
        self.all_objects += len(sizes)
        self.all_bytes += sum(sizes)

    def advance(self, size: int) -> None:
        self.objects += 1
        self.bytes += size
        if self.tell is not None:
            self.tell(self)

    def __str__(self) -> str:
        gigabytes = f"{self.bytes / 1e9:.2f} of {self.all_bytes / 1e9:.2f} GB"
        return f"read {self.objects} of {self.all_objects} objects, {gigabytes}"


@dataclass(slots=True)
class ObjectCheck:
    """Checks the objects of one domain."""

    ledger: Ledger
    store: ObjectStore
    cluster: ClusterState
    state: StreamsState
    report: Report
    progress: Progress = field(default_factory=Progress)
    _missing: list[tuple[WalId, str]] = field(default_factory=list)

    async def wal(self) -> None:
        """Check that live objects are complete and contain what the index says. Orphans are counted, not reported."""
        named: dict[WalId, list[tuple[Stream, IndexEntry]]] = {}
        for stream in self.state.streams.values():
            for entry in stream.index:
                if entry.in_wal:
                    named.setdefault(entry.object, []).append((stream, entry))
        live = {object_id: known for object_id in named if (known := self.state.objects.get(object_id)) is not None}
        self.progress.expect([known.size for known in live.values()])

        async def look(object_id: WalId) -> None:
            known = live[object_id]
            path = wal.path_of(known.zone, self.state.domain, known.created_ms, object_id)
            self.report.count("objects")
            await self._object(object_id, path, known.size, named[object_id])
            self.progress.advance(known.size)

        await each(look, live, AT_ONCE)
        if self._missing:
            await self._report_missing(named)
        await self._count_orphans()

    async def _object(self, object_id: WalId, path: str, size: int, named: list[tuple[Stream, IndexEntry]]) -> None:
        try:
            data = await self.store.get(path)
        except ObjectMissing:
            self._missing.append((object_id, path))
            return
        except HeadwaterError as error:
            for stream, entry in named:
                self._add("objects", path, stream, entry.start, entry.end, error)
            return
        if wal.is_other(data, object_id, self.state.domain):
            self.report.add("objects", path, "is not the object that the metadata names")
            return
        sound = True
        for stream, entry in named:
            try:
                position, offsets = entry.position, entry.end - entry.start
                wal.sound_batches(data, position, position + entry.length, offsets)
            except wal.DamagedRun as error:
                sound = False
                start = entry.start + sum(map(offsets_of, error.before))
                end = entry.end - sum(map(offsets_of, error.behind))
                self._add("objects", path, stream, start, end, error)
        if sound:
            self._check_frame(path, data, size, named)

    def _check_frame(self, path: str, data: bytes, size: int, named: list[tuple[Stream, IndexEntry]]) -> None:
        """Check the parts of an object that no reader needs, and that its chunks are those of the index."""
        try:
            chunks: dict[int, list[wal.WalChunk]] = {}
            for chunk in wal.parse(data).chunks:
                chunks.setdefault(chunk.stream, []).append(chunk)
        except Damaged as error:
            self.report.add("objects", path, f"all records can be read, but: {error}")
            return
        if len(data) != size:
            self.report.add("objects", path, f"has {len(data)} bytes, not {size}")
        for stream, entry in named:
            first, last = entry.position, entry.position + entry.length
            if not any(c.position <= first and last <= c.position + c.length for c in chunks.get(stream.id, [])):
                self._add("objects", path, stream, entry.start, entry.end, "the index names bytes of another stream")

    async def _report_missing(self, named: dict[WalId, list[tuple[Stream, IndexEntry]]]) -> None:
        """Report missing objects, unless they were deleted because nothing needs them any more."""
        fresh = new_state(self.state.domain)
        await load_state(self.ledger, self.store, fresh)
        await replay(self.ledger, fresh)
        for object_id, path in self._missing:
            known = fresh.objects.get(object_id) if isinstance(fresh, StreamsState) else None
            if known is not None and known.references > 0:
                for stream, entry in named[object_id]:
                    self._add("objects", path, stream, entry.start, entry.end, "the object is missing")

    async def _count_orphans(self) -> None:
        orphans = 0
        async for info in self.store.scan(wal.ROOT):
            object_id = wal.id_of_path(info.path)
            if f"/domain={self.state.domain}/" in info.path and object_id is not None:
                orphans += self.state.objects.get(object_id) is None
        if orphans:
            self.report.notes.append(f"{orphans} WAL objects in domain {self.state.domain} are named by no record")

    # --- segments ----------------------------------------------------------------------------------------

    async def segments(self) -> None:
        """Decode every page of every segment that a table or the log needs, and compare it with the index."""
        named: dict[tuple[bytes, int], list[tuple[Stream, IndexEntry]]] = {}
        for stream in self.state.streams.values():
            for entry in stream.index:
                if entry.file:
                    named.setdefault((stream.topic.bytes, entry.file), []).append((stream, entry))
        needed = [
            (table, file)
            for table in self.state.tables.values()
            for file in table.files.values()
            if not table.dropped and (not file.removed or file.references)
        ]
        self.progress.expect([file.size for _, file in needed])

        async def look(found: tuple[TopicTable, DataFile]) -> None:
            table, file = found
            await self._segment(table, file, named.get((table.topic.bytes, file.number), []))
            self.progress.advance(file.size)

        await each(look, needed, AT_ONCE)

    async def _segment(self, table: TopicTable, file: DataFile, named: list[tuple[Stream, IndexEntry]]) -> None:
        path = f"{table.root}/{file.name}"
        try:
            groups = verify_segment(await self.store.get(path), file.footer_checksum)
        except ObjectMissing:
            return  # the check of sizes reports it
        except HeadwaterError as error:
            for stream, entry in named:
                self._add("segments", path, stream, entry.start, entry.end, error)
            if not named:
                self.report.add("segments", path, error)
            return
        self.report.count("row groups", len(groups))
        reported = False
        for stream, entry in named:
            for problem in _problems(stream, entry, groups):
                reported = True
                self._add("segments", path, stream, entry.start, entry.end, problem)
        if reported:
            return
        flaws = [str(group) for group in groups if isinstance(group, Damaged)]
        rows = sum(group.rows for group in groups if isinstance(group, GroupRows))
        if not flaws and (rows, len(groups)) != (file.rows, file.groups):
            flaws = [f"has {rows} rows in {len(groups)} row groups, not {file.rows} in {file.groups}"]
        typed = self.state.typed.get(table.topic)
        expected = typed.files.get(file.number) if typed is not None else None
        total = sum(group.digest for group in groups if isinstance(group, GroupRows)) & DIGEST_MASK
        if not flaws and expected is not None and total != expected.digest:
            flaws = ["has other rows than the ledger knows: their digests differ"]
        for flaw in flaws:
            self.report.add("segments", path, flaw)

    def _add(self, check: str, path: str, stream: Stream, start: int, end: int, problem: object) -> None:
        topic = self.cluster.topics.get(stream.topic)
        name = f"{topic.name}-{stream.partition}" if topic is not None else f"stream {stream.id}"
        self.report.add(check, path, f"{name}, offsets {start} to {end - 1}: {problem}")


def _problems(stream: Stream, entry: IndexEntry, groups: list[GroupRows | Damaged]) -> list[str]:
    """What is wrong with the row groups that an index entry names."""
    found = []
    after = entry.start - 1
    for number in entry.groups:
        group = groups[number] if number < len(groups) else Damaged(f"there is no row group {number}")
        if isinstance(group, Damaged):
            found.append(str(group))
            continue
        if group.partition != stream.partition or not after < group.first_offset <= group.last_offset < entry.end:
            found.append(
                f"row group {number} has offsets {group.first_offset} to {group.last_offset} "
                f"of partition {group.partition}"
            )
        after = max(after, group.last_offset)
    return found
