"""The Iceberg table of a topic, with the ledger as its catalog.

A commit writes manifests, a manifest list and a metadata file as new objects below `<root>/_iceberg/`, and returns the
location of the metadata. The caller's command `Follow` makes it the table. If that is refused, the objects are orphans.
Afterwards `announce` shows it to engines that know only the root (`by_path.py`).
"""

from __future__ import annotations

import logging

from pyiceberg.table.metadata import TableMetadataV2

from headwater.clock import Chance, SystemChance
from headwater.errors import ObjectMissing, Retriable
from headwater.lake.tables.follower import Batch, Expiry, Keeping, Standing, TableRef, Version
from headwater.lake.tables.iceberg import columns, retention
from headwater.lake.tables.iceberg import metadata as model
from headwater.lake.tables.iceberg.by_path import ByPath
from headwater.lake.tables.iceberg.objects import Cache, TableObjects, number_of
from headwater.objects import ObjectStore

log = logging.getLogger("headwater.iceberg")
FOLDER = "_iceberg"
SWEEP_EVERY = 10
"""The number of commits between two sweeps of objects."""
METADATA_CACHED = 64
_BY_SETTINGS = Expiry()


class IcebergFollower:
    """See `TableFollower`."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        keep_versions: int = 50,
        max_age_ms: int = 0,
        tag_hours: int = 0,
        chance: Chance | None = None,
    ) -> None:
        self.name = "iceberg"
        self._chance = chance or SystemChance()
        self._objects = TableObjects(store, self._chance)
        self._by_path = ByPath(self._objects)
        self._keeping = Keeping(keep_versions, max_age_ms, tag_hours)
        self._metadata: Cache[str, TableMetadataV2] = Cache(METADATA_CACHED)

    def __repr__(self) -> str:
        return f"<IcebergFollower of {self._objects.store!r}>"

    async def standing(self, table: TableRef, location: str) -> Standing:
        if not location:
            return Standing(0, 0, "")
        return model.standing(await self._load(location), location)

    async def commit(self, table: TableRef, location: str, batch: Batch) -> Standing:
        metadata = await self._load(location) if location else self._new(table)
        if location and model.cursor(metadata) >= batch.upto:
            return model.standing(metadata, location)
        if model.cursor(metadata) != batch.after:
            raise Retriable(f"{table.root} is at {model.cursor(metadata)}, not at {batch.after}: start from there")
        if location and number_of(location) % SWEEP_EVERY == 0:
            await self._sweep_if_possible(table, location, metadata)
        if not location:
            await self._by_path.clear(table)
        version = number_of(location) + 1 if location else 1
        metadata = columns.evolved(metadata, batch)
        snapshot, files = await self._objects.new_snapshot(table, _folder(table), version, batch.upto, metadata, batch)
        previous = self._objects.url(location) if location else ""
        after = model.with_snapshot(metadata, previous, snapshot, batch.upto)
        after = retention.tidied(after, retention.after_commit(after, self._keeping, batch.now_ms), self._keeping)
        after = columns.without_old_schemas(after)
        return await self._publish(table, version, after, files)

    async def versions(self, table: TableRef, location: str) -> list[Version]:
        return model.versions(await self._load(location)) if location else []

    async def expire(self, table: TableRef, location: str, expiry: Expiry = _BY_SETTINGS) -> Standing:
        if not location:
            return Standing(0, 0, "")
        metadata = await self._load(location)
        await self._sweep(table, location, metadata)
        tidying = retention.on_expiry(metadata, self._keeping, expiry)
        if not tidying:
            return model.standing(metadata, location)
        after = retention.tidied(metadata, tidying, self._keeping)
        after = columns.without_old_schemas(model.succeeded(after, self._objects.url(location)))
        return await self._publish(table, number_of(location) + 1, after, {})

    async def shown(self, table: TableRef, location: str) -> frozenset[str]:
        return await self._objects.shown(table, await self._load(location)) if location else frozenset()

    async def announce(self, table: TableRef, location: str) -> None:
        if location:
            earlier = (await self._load(location)).metadata_log
            await self._by_path.show(table, location, [entry.metadata_file for entry in earlier])

    async def close(self) -> None:
        """Nothing to release."""

    async def drop(self, table: TableRef, location: str) -> None:
        await self._by_path.clear(table)
        await self._objects.sweep(_folder(table), lambda path: True)

    def _new(self, table: TableRef) -> TableMetadataV2:
        return model.new_table(table, self._objects.url(table.root), self._objects.url(_folder(table)))

    async def _load(self, location: str) -> TableMetadataV2:
        found = self._metadata.get(location)
        if found is None:
            try:
                data = await self._objects.store.get(location)
            except ObjectMissing as error:
                raise Retriable(f"{location} is missing: the ledger has moved on, or run `headwater doctor`") from error
            found = model.parse(location, data)
            self._metadata.put(location, found)
        return found

    async def _publish(
        self, table: TableRef, version: int, metadata: TableMetadataV2, files: dict[str, bytes]
    ) -> Standing:
        location = f"{_folder(table)}/{version:05d}-{self._chance.uuid()}.metadata.json"
        await self._objects.put({**files, location: metadata.model_dump_json().encode()})
        self._metadata.put(location, metadata)
        return model.standing(metadata, location)

    async def _sweep_if_possible(self, table: TableRef, location: str, metadata: TableMetadataV2) -> None:
        try:
            await self._sweep(table, location, metadata)
        except Retriable as error:  # a table whose old objects cannot be deleted can still be written
            log.warning("objects are left for later", extra={"table": table.root, "reason": str(error)})

    async def _sweep(self, table: TableRef, location: str, metadata: TableMetadataV2) -> None:
        """Delete objects that the version at `location` does not need, unless they are newer than that version."""
        needed = await self._objects.needed_by(metadata)
        needed |= {location, *(self._objects.path(entry.metadata_file) for entry in metadata.metadata_log)}
        newest = number_of(location)
        await self._objects.sweep(_folder(table), lambda path: path not in needed and number_of(path) <= newest)


def _folder(table: TableRef) -> str:
    return f"{table.root}/{FOLDER}"
