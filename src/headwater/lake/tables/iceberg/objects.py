"""Reading and writing the objects of Iceberg tables: metadata, manifest lists, manifests.

The name of every object begins with a number that grows with each commit. A sweep with a version of the table removes
only objects that this version does not need and that are not newer than it. So a process that works with an outdated
version cannot remove objects of newer ones.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar
from urllib.parse import unquote

from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.snapshots import Snapshot

from headwater.clock import Chance
from headwater.errors import Damaged, Retriable
from headwater.lake.tables.follower import Batch, TableRef
from headwater.lake.tables.iceberg import manifests
from headwater.lake.tables.iceberg import metadata as model
from headwater.lake.tables.iceberg.io import MemoryFiles
from headwater.lake.tables.iceberg.manifests import Change, Names
from headwater.lake.tables.iceberg.schema import data_file
from headwater.objects import ObjectStore
from headwater.state.streams import tables

DELETES_AT_ONCE = 32
LISTS_CACHED = 2_000

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Cache(Generic[_K, _V]):
    """A small cache of immutable things; it keeps the newest few."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: OrderedDict[_K, _V] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Cache of {len(self._items)}>"

    def get(self, key: _K) -> _V | None:
        found = self._items.get(key)
        if found is not None:
            self._items.move_to_end(key)
        return found

    def put(self, key: _K, value: _V) -> None:
        self._items[key] = value
        self._items.move_to_end(key)
        if len(self._items) > self._limit:
            self._items.popitem(last=False)


class TableObjects:
    """Metadata objects of topic tables. Tables name them by URL, the store by path."""

    def __init__(self, store: ObjectStore, chance: Chance) -> None:
        self.store = store
        self._chance = chance
        self._base = table_url(store)
        self._lists: Cache[str, tuple[str, ...]] = Cache(LISTS_CACHED)

    def __repr__(self) -> str:
        return f"<TableObjects of {self.store!r}>"

    def url(self, path: str) -> str:
        """The URL of an object, as tables name it."""
        return f"{self._base}/{path}"

    def path(self, url: str) -> str:
        """The inverse of `url`. Java writes local paths with one slash."""
        if url.startswith("file:/") and not url.startswith("file://"):
            url = f"file://{url.removeprefix('file:')}"
        if not url.startswith(f"{self._base}/"):
            raise Damaged(f"{url} is outside {self._base}")
        return url[len(self._base) + 1 :]

    async def new_snapshot(
        self, table: TableRef, folder: str, number: int, sequence: int, metadata: TableMetadataV2, batch: Batch
    ) -> tuple[Snapshot, dict[str, bytes]]:
        """A batch as a snapshot on top of the newest one, and its new files, which the caller has to store."""
        parent = metadata.current_snapshot()
        listed = await self._manifests(parent)
        change = await self._change(table, listed, batch)
        plan = manifests.plan(listed, change)
        names, io = self._names(folder, number, sequence), MemoryFiles({})
        found, gone = manifests.apply(change, plan, MemoryFiles(await self._fetch(plan.opened)), io, names)
        list_url = names.make("list")
        manifests.write_list(io, list_url, names, parent.snapshot_id if parent else None, found)
        self._lists.put(list_url, tuple(m.manifest_path for m in found))
        before = parent.summary.additional_properties if parent and parent.summary else {}
        snapshot = Snapshot.model_validate(
            {
                "snapshot-id": names.snapshot,
                "parent-snapshot-id": parent.snapshot_id if parent else None,
                "sequence-number": sequence,
                "timestamp-ms": max(batch.ms, metadata.last_updated_ms),
                "manifest-list": list_url,
                "summary": model.summary(batch, before, change.added, [entry.data_file for entry in gone]),
                "schema-id": metadata.current_schema_id,
            }
        )
        return snapshot, {self.path(url): data for url, data in io.files.items()}

    async def put(self, files: Mapping[str, bytes]) -> None:
        """Store files by path, in any order: nothing refers to them yet."""
        await _all(self.store.put(path, [data]) for path, data in files.items())

    async def needed_by(self, metadata: TableMetadataV2) -> set[str]:
        """The paths of every manifest list and manifest that a snapshot needs."""
        lists = [snapshot.manifest_list for snapshot in metadata.snapshots]
        unknown = await self._fetch(url for url in lists if self._lists.get(url) is None)
        for url, data in unknown.items():
            self._lists.put(url, tuple(m.manifest_path for m in manifests.read_list(url, data)))
        named = {manifest for url in lists for manifest in self._lists.get(url) or ()}
        return {self.path(url) for url in named.union(lists)}

    async def sweep(self, folder: str, needless: Callable[[str], bool]) -> None:
        """Delete objects below a folder for which `needless` is true."""
        found = [info.path async for info in self.store.scan(f"{folder}/") if needless(info.path)]
        for at in range(0, len(found), DELETES_AT_ONCE):
            await _all(self.store.delete(path) for path in found[at : at + DELETES_AT_ONCE])

    async def _change(self, table: TableRef, listed: list[ManifestFile], batch: Batch) -> Change:
        root = self.url(table.root)
        if batch.entries:
            added = {number for entry in batch.entries for number in entry.added}
            removed = {number for entry in batch.entries for number in entry.removed}
            gone = [batch.files[number] for number in sorted(removed - added)]
            return Change(
                [_data_file(batch, batch.files[number], root) for number in sorted(added - removed)],
                frozenset(f"{root}/{file.name}" for file in gone),
                min((file.added for file in gone), default=0),
            )
        shown = await self._shown(listed)
        live = {f"{root}/{file.name}": file for file in batch.live}
        new = [_data_file(batch, file, root) for url, file in live.items() if url not in shown]
        return Change(new, frozenset(shown - live.keys()), 0)

    async def _shown(self, listed: list[ManifestFile]) -> set[str]:
        fetched = MemoryFiles(await self._fetch([manifest.manifest_path for manifest in listed]))
        return {e.data_file.file_path for manifest in listed for e in manifests.read_entries(manifest, fetched)}

    async def shown(self, table: TableRef, metadata: TableMetadataV2) -> frozenset[str]:
        """The data files of the current snapshot, named below the table's root."""
        listed = await self._manifests(metadata.current_snapshot())
        return frozenset(url.removeprefix(f"{self.url(table.root)}/") for url in await self._shown(listed))

    def _names(self, folder: str, number: int, sequence: int) -> Names:
        chance = self._chance.uuid()
        snapshot = (chance.int >> 64) & ((1 << 63) - 1)
        return Names(snapshot, sequence, lambda kind: f"{self.url(folder)}/{number:05d}-{kind}-{chance}.avro")

    async def _manifests(self, snapshot: Snapshot | None) -> list[ManifestFile]:
        if snapshot is None:
            return []
        url = snapshot.manifest_list
        return manifests.read_list(url, (await self._fetch([url]))[url])

    async def _fetch(self, urls: Iterable[str]) -> dict[str, bytes]:
        wanted = list(urls)
        if not wanted:
            return {}
        found = {}
        for url, data in zip(wanted, await self.store.get_many([self.path(u) for u in wanted]), strict=True):
            if data is None:
                raise Retriable(f"{url} is missing: the table has changed; if this repeats, run `headwater doctor`")
            found[url] = data
        return found


def _data_file(batch: Batch, file: tables.DataFile, root: str) -> DataFile:
    return data_file(file, root, batch.bounds.get(file.number, ()))


def table_url(store: ObjectStore) -> str:
    """The store's URL as table formats write it."""
    return as_written(store.url)


def as_written(url: str) -> str:
    """A store's URL as table formats write it: without percent signs in local paths, which no engine decodes."""
    url = unquote(url) if url.startswith("file:") else url
    return url if url.endswith("://") else url.rstrip("/")


def number_of(path: str) -> int:
    """The number at the beginning of an object's name. An object with another name counts as too new to remove."""
    number = path.rpartition("/")[2].partition("-")[0]
    return int(number) if number.isdigit() else 1 << 62


async def _all(calls: Iterable[Awaitable[None]]) -> None:
    """Wait for all calls, then raise the error of the first one that failed."""
    for result in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
