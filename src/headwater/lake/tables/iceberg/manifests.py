"""Manifests: the files that a snapshot shows. Plain functions over files in memory.

The Iceberg sequence number of a snapshot is the journal sequence up to which it goes. So a manifest that is older than
a file's entry in the journal cannot name the file, and only few manifests are read to remove a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pyiceberg.manifest import (
    DataFile,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
)

from headwater.errors import Damaged
from headwater.lake.tables.iceberg.io import BytesInput, MemoryFiles
from headwater.lake.tables.iceberg.schema import SCHEMA, SPEC

FULL = 1_000
"""The largest number of entries of a manifest. A manifest with this many is not merged any more."""
SMALL_MANIFESTS = 20
"""If there are more manifests that are not full, the smallest of them are merged."""
MERGED_AT_ONCE = 16

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Change:
    """The changes of a snapshot to the files of the table."""

    added: Sequence[DataFile]
    removed: frozenset[str]
    """Locations of the removed files."""
    since: int
    """The journal sequence that added the oldest of the removed files."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The manifests that a change has to open."""

    manifests: Sequence[ManifestFile]
    """The manifests of the parent snapshot that still name live files."""
    suspects: frozenset[str]
    """Locations of manifests that may name a removed file."""
    merging: frozenset[str]

    @property
    def opened(self) -> list[str]:
        """Locations of the manifests to fetch."""
        return sorted(self.suspects | self.merging)


@dataclass(slots=True)
class Names:
    """The names of one commit's new files."""

    snapshot: int
    sequence: int
    make: Callable[[str], str]
    """Makes the location of a manifest from its kind."""
    written: int = field(default=0)

    def manifest(self) -> str:
        """A location for one more manifest."""
        self.written += 1
        return self.make(f"m{self.written}")


def read_list(location: str, data: bytes) -> list[ManifestFile]:
    """A manifest list's manifests."""
    return list(read_manifest_list(BytesInput(location, data)))


def read_entries(manifest: ManifestFile, io: MemoryFiles) -> list[ManifestEntry]:
    """A manifest's live entries, with the sequence numbers they inherit."""
    return manifest.fetch_manifest_entry(io, discard_deleted=True)


def plan(parent: Iterable[ManifestFile], change: Change) -> Plan:
    """Decide which manifests to open."""
    manifests = [manifest for manifest in parent if _live(manifest)]
    suspects: frozenset[str] = frozenset()
    if change.removed:
        suspects = frozenset(m.manifest_path for m in manifests if m.sequence_number >= change.since)
    small = sorted((m for m in manifests if _live(m) < FULL), key=_live)
    merging = small[:MERGED_AT_ONCE] if len(small) > SMALL_MANIFESTS else []
    return Plan(manifests, suspects, frozenset(m.manifest_path for m in merging))


def apply(
    change: Change, plan: Plan, opened: MemoryFiles, io: MemoryFiles, names: Names
) -> tuple[list[ManifestFile], list[ManifestEntry]]:
    """Write the new manifests into `io`; returns the manifests of the snapshot and the entries that it removed."""
    kept: list[ManifestFile] = []
    rest: list[ManifestEntry] = []
    gone: list[ManifestEntry] = []
    for manifest in plan.manifests:
        if manifest.manifest_path not in opened.files:
            kept.append(manifest)
            continue
        entries = read_entries(manifest, opened)
        leaving = [entry for entry in entries if entry.data_file.file_path in change.removed]
        if not leaving and manifest.manifest_path not in plan.merging:
            kept.append(manifest)
            continue
        gone += leaving
        rest += [entry for entry in entries if entry.data_file.file_path not in change.removed]
    missing = change.removed - {entry.data_file.file_path for entry in gone}
    if missing:
        raise Damaged(f"the table does not show {min(missing)}, which is to be removed; run `headwater doctor`")
    added = [_new_entry(file) for file in change.added]
    found: list[ManifestFile] = []
    for entries, write in (
        (added, ManifestWriter.add),
        (gone, ManifestWriter.delete),
        (rest, ManifestWriter.existing),
    ):
        found += [_write(io, names, chunk, write) for chunk in _chunks(entries)]
    return found + kept, gone


def write_list(io: MemoryFiles, location: str, names: Names, parent: int | None, manifests: list[ManifestFile]) -> None:
    """Write a snapshot's manifest list."""
    output = io.new_output(location)
    with write_manifest_list(2, output, names.snapshot, parent, names.sequence, "deflate") as writer:
        writer.add_manifests(manifests)


def _live(manifest: ManifestFile) -> int:
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def _new_entry(file: DataFile) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED, snapshot_id=None, sequence_number=None, data_file=file
    )


def _write(
    io: MemoryFiles,
    names: Names,
    entries: Sequence[ManifestEntry],
    write: Callable[[ManifestWriter, ManifestEntry], ManifestWriter],
) -> ManifestFile:
    output = io.new_output(names.manifest())
    with write_manifest(2, SPEC, SCHEMA, output, names.snapshot, "deflate") as writer:
        for entry in entries:
            write(writer, entry)
    return writer.to_manifest_file()


def _chunks(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    for at in range(0, len(items), FULL):
        yield items[at : at + FULL]
