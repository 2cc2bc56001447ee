"""The metadata of an Iceberg table for a copy of the object store at another place.

Iceberg names files by absolute URLs, in metadata, manifest lists and manifests. A copy keeps the paths below the
store's root, and every URL gets the root of the copy. Everything else stays as it is: ids, sequences, tags.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Container, Mapping
from typing import Any

import msgspec
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile, write_manifest, write_manifest_list
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.snapshots import Snapshot

from headwater.errors import Damaged, ObjectMissing
from headwater.lake.tables.follower import TableRef
from headwater.lake.tables.iceberg import by_path
from headwater.lake.tables.iceberg import metadata as model
from headwater.lake.tables.iceberg.io import BytesOutput, MemoryFiles
from headwater.lake.tables.iceberg.manifests import read_list
from headwater.lake.tables.iceberg.schema import SCHEMA, SPEC
from headwater.objects import ObjectStore

_FILE_PATH = 1
"""The place of the path in a `DataFile`, which has no setter for it."""


class Relocation:
    """Reads tables of a store, and yields their objects as a copy of the store has to have them."""

    def __init__(self, store: ObjectStore, url: str, size_in_copy: Callable[[str], int | None]) -> None:
        """`url` is that of the copy's root, as tables write it. `size_in_copy` is the size of an object that the copy
        has already, for this url; else None."""
        self._store = store
        self._url = url
        self._size_in_copy = size_in_copy

    def __repr__(self) -> str:
        return f"<Relocation of {self._store!r} to {self._url}>"

    async def objects(self, table: TableRef, location: str) -> AsyncIterator[tuple[str, bytes | None]]:
        """The path of every metadata object of a version, and its new bytes, or None if the copy has it already.

        What names others comes after them. Raises `ObjectMissing` if the version was deleted meanwhile. Earlier
        files of metadata are history only: those that are gone are not named in the copy.
        """
        data = await self._store.get(location)
        metadata = model.parse(location, data)
        base = _base_of(table, metadata, location)
        sizes: dict[str, int] = {}
        for snapshot in metadata.snapshots:
            async for path, moved in self._snapshot(snapshot, base, sizes):
                yield path, moved
        gone: set[str] = set()
        for entry in metadata.metadata_log:
            path = _inside(entry.metadata_file, base)
            try:
                earlier = None if self._size_in_copy(path) is not None else await self._store.get(path)
            except ObjectMissing:
                gone.add(entry.metadata_file)
                continue
            yield path, None if earlier is None else self._json(earlier, base, gone)
        moved = self._json(data, base, gone)
        yield location, None if self._size_in_copy(location) is not None else moved
        path = by_path.copy_of(table, location)
        yield path, None if self._size_in_copy(path) is not None else moved
        yield by_path.hint_of(table, location)  # its name says nothing about its bytes

    async def _snapshot(
        self, snapshot: Snapshot, base: str, sizes: dict[str, int]
    ) -> AsyncIterator[tuple[str, bytes | None]]:
        """A snapshot's manifests, then its list. `sizes` has the new sizes of manifests that were yielded before."""
        location = snapshot.manifest_list
        path = _inside(location, base)
        listed = read_list(location, await self._store.get(path))
        for manifest in listed:
            name = _inside(manifest.manifest_path, base)
            if name in sizes:
                continue
            known = self._size_in_copy(name)
            moved = self._manifest(manifest, await self._store.get(name), base) if known is None else None
            sizes[name] = known if moved is None and known is not None else len(moved or b"")
            yield name, moved
        if self._size_in_copy(path) is not None:
            yield path, None
        else:
            yield path, self._list(snapshot, listed, base, sizes)

    def _manifest(self, manifest: ManifestFile, data: bytes, base: str) -> bytes:
        url = self._moved(manifest.manifest_path, base)
        files: dict[str, bytes] = {}
        found = manifest.fetch_manifest_entry(MemoryFiles({manifest.manifest_path: data}), discard_deleted=False)
        with write_manifest(
            2, SPEC, SCHEMA, BytesOutput(url, files), manifest.added_snapshot_id or 0, "deflate"
        ) as writer:
            for entry in found:
                writer.add_entry(self._entry(entry, base))
        return files[url]

    def _entry(self, entry: ManifestEntry, base: str) -> ManifestEntry:
        file: DataFile = entry.data_file
        file[_FILE_PATH] = self._moved(file.file_path, base)
        return entry

    def _list(self, snapshot: Snapshot, listed: list[ManifestFile], base: str, sizes: Mapping[str, int]) -> bytes:
        url = self._moved(snapshot.manifest_list, base)
        files: dict[str, bytes] = {}
        with write_manifest_list(
            2,
            BytesOutput(url, files),
            snapshot.snapshot_id,
            snapshot.parent_snapshot_id,
            snapshot.sequence_number or 0,
            "deflate",
        ) as writer:
            writer.add_manifests([self._listed(one, base, sizes) for one in listed])
        return files[url]

    def _listed(self, one: ManifestFile, base: str, sizes: Mapping[str, int]) -> ManifestFile:
        return ManifestFile.from_args(
            manifest_path=self._moved(one.manifest_path, base),
            manifest_length=sizes[_inside(one.manifest_path, base)],
            partition_spec_id=one.partition_spec_id,
            content=one.content,
            sequence_number=one.sequence_number,
            min_sequence_number=one.min_sequence_number,
            added_snapshot_id=one.added_snapshot_id,
            added_files_count=one.added_files_count,
            existing_files_count=one.existing_files_count,
            deleted_files_count=one.deleted_files_count,
            added_rows_count=one.added_rows_count,
            existing_rows_count=one.existing_rows_count,
            deleted_rows_count=one.deleted_rows_count,
            partitions=one.partitions,
            key_metadata=one.key_metadata,
        )

    def _json(self, data: bytes, base: str, gone: Container[str]) -> bytes:
        """A metadata file, moved. Of its earlier ones it does not name those that are gone."""
        document = msgspec.json.decode(data, type=dict[str, Any])
        log = document.get("metadata-log", ())
        document["metadata-log"] = [entry for entry in log if entry["metadata-file"] not in gone]
        return msgspec.json.encode(self._walked(document, base))

    def _walked(self, value: object, base: str) -> object:
        """Every string in a document that names something below the root, moved."""
        if isinstance(value, dict):
            return {name: self._walked(item, base) for name, item in value.items()}
        if isinstance(value, list):
            return [self._walked(item, base) for item in value]
        if isinstance(value, str) and value.startswith(f"{base}/"):
            return self._moved(value, base)
        return value

    def _moved(self, url: str, base: str) -> str:
        return f"{self._url}/{_inside(url, base)}"


def _base_of(table: TableRef, metadata: TableMetadataV2, location: str) -> str:
    """The root of the store when the table was written."""
    base = metadata.location.removesuffix(f"/{table.root}")
    if base == metadata.location:
        raise Damaged(f"{location} is of a table at {metadata.location}, which does not end in {table.root}")
    return base


def _inside(url: str, base: str) -> str:
    """The path of an object below the root."""
    if not url.startswith(f"{base}/"):
        raise Damaged(f"{url} is outside {base}")
    return url[len(base) + 1 :]
