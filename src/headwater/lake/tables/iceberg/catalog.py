"""The Iceberg table of a topic in an external catalog: any that pyiceberg supports.

The follower writes manifests itself, as `lake/tables/iceberg/table.py` does. The commit is one call to the catalog: it
adds the snapshot, moves `main` from the parent snapshot, and sets the journal sequence as a table property. Of two
writers the catalog refuses the second, which starts again from the committed table. So nothing is lost or doubled.

The tables are in the namespace `topics`, or in the one that the property `headwater.namespace` names, under their
topics' names. A catalog that does not allow a name (Hive and Glue allow no dots) refuses it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from headwater.clock import Chance, SystemChance
from headwater.errors import HeadwaterError, OutcomeUnknown, Retriable, StoreUnavailable
from headwater.lake.tables.follower import Batch, Expiry, Keeping, Standing, TableRef, Version, foreign_commit
from headwater.lake.tables.iceberg import columns, retention
from headwater.lake.tables.iceberg import metadata as model
from headwater.lake.tables.iceberg.objects import TableObjects, number_of
from headwater.lake.tables.iceberg.schema import JOURNAL_LAST, JOURNAL_SEQUENCE, ORDER, SCHEMA, SPEC, properties
from headwater.objects import ObjectStore
from headwater.threads import Threads

log = logging.getLogger("headwater.iceberg")
NAMESPACE = "topics"
NAMESPACE_PROPERTY = "headwater.namespace"
_BY_SETTINGS = Expiry()

_T = TypeVar("_T")


class CatalogFollower:
    """See `TableFollower`. `properties` are pyiceberg's: `type`, `uri`, `warehouse`, credentials and so on."""

    def __init__(
        self,
        name: str,
        properties: Mapping[str, str],
        store: ObjectStore,
        *,
        keep_versions: int = 50,
        max_age_ms: int = 0,
        tag_hours: int = 0,
        chance: Chance | None = None,
    ) -> None:
        self.name = name
        self._properties = {key: value for key, value in properties.items() if key != NAMESPACE_PROPERTY}
        self._namespace = properties.get(NAMESPACE_PROPERTY, NAMESPACE)
        self._objects = TableObjects(store, chance or SystemChance())
        self._keeping = Keeping(keep_versions, max_age_ms, tag_hours)
        self._threads = Threads(1, f"catalog-{name}")
        self._catalog: Catalog | None = None

    def __repr__(self) -> str:
        return f"<CatalogFollower {self.name}>"

    async def standing(self, table: TableRef, location: str) -> Standing:
        found = await self._ask(self._load, table)
        return _standing(found) if found is not None else Standing(0, 0, "")

    async def commit(self, table: TableRef, location: str, batch: Batch) -> Standing:
        found = await self._ask(self._load_or_create, table)
        metadata = _metadata(found)
        if model.cursor(metadata) >= batch.upto:
            return _standing(found)
        if model.cursor(metadata) != batch.after:
            raise Retriable(
                f"{table.name} in catalog {self.name} is at {model.cursor(metadata)}, not at {batch.after}: "
                "start again from there"
            )
        if retention.recent(metadata) == self._keeping.versions:  # as after each expiry
            await self._sweep_if_possible(table, metadata)
        sequence = max(batch.upto, metadata.last_sequence_number + 1)
        wanted = columns.wanted_schema(metadata, batch)
        snapshot, files = await self._objects.new_snapshot(
            table, self._folder(table), sequence, sequence, columns.evolved(metadata, batch), batch
        )
        await self._objects.put(files)
        return _standing(await self._write(found, self._updates(metadata, snapshot, batch, wanted)))

    async def shown(self, table: TableRef, location: str) -> frozenset[str]:
        found = await self._ask(self._load, table)
        return await self._objects.shown(table, _metadata(found)) if found is not None else frozenset()

    async def versions(self, table: TableRef, location: str) -> list[Version]:
        found = await self._ask(self._load, table)
        return model.versions(_metadata(found)) if found is not None else []

    async def expire(self, table: TableRef, location: str, expiry: Expiry = _BY_SETTINGS) -> Standing:
        found = await self._ask(self._load, table)
        if found is None:
            return Standing(0, 0, "")
        tidying = retention.on_expiry(_metadata(found), self._keeping, expiry)
        if tidying:
            found = await self._write(found, tuple(self._tidying(tidying)))
        await self._sweep(table, _metadata(found))
        return _standing(found)

    async def announce(self, table: TableRef, location: str) -> None:
        """Readers find the table in its catalog."""

    async def drop(self, table: TableRef, location: str) -> None:
        if await self._ask(self._load, table) is not None:
            await self._ask(self._drop, table)
        await self._objects.sweep(self._folder(table), lambda path: True)

    async def close(self) -> None:
        """Close the catalog. Idempotent."""
        catalog, self._catalog = self._catalog, None
        if catalog is not None:
            catalog.close()
        await self._threads.close()

    # --- the catalog -----------------------------------------------------------------------------------------

    async def _ask(self, call: Callable[[TableRef], _T], table: TableRef) -> _T:
        """Call the catalog in a thread. Every error is a `StoreUnavailable`: the caller tries again later."""
        try:
            return await self._threads.run(call, table)
        except HeadwaterError:
            raise
        except Exception as error:  # every catalog has exceptions of its own
            raise StoreUnavailable(f"catalog {self.name}: {type(error).__name__}: {error}") from error

    async def _write(self, found: Table, updates: tuple[TableUpdate, ...]) -> Table:
        """One commit, without pyiceberg's retries. The catalog accepts it only on top of the snapshot that was read."""
        metadata = _metadata(found)
        requirements: tuple[TableRequirement, ...] = (
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": metadata.current_snapshot_id}),
        )
        try:
            await self._threads.run(found._do_commit, updates, requirements)
        except CommitFailedException as error:
            raise Retriable(f"catalog {self.name}: another writer was first: {error}") from error
        except Exception as error:  # every catalog has exceptions of its own
            raise OutcomeUnknown(f"catalog {self.name}: {type(error).__name__}: {error}") from error
        return found

    def _open(self) -> Catalog:
        if self._catalog is None:
            self._catalog = load_catalog(self.name, **self._properties)
        return self._catalog

    def _load(self, table: TableRef) -> Table | None:
        """The table; None if it does not exist. Raises if it is not this topic's, or if another writer changed it."""
        try:
            found = self._open().load_table((self._namespace, table.name))
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        what = f"{self._namespace}.{table.name} in catalog {self.name}"
        if found.metadata.properties.get("headwater.topic.id") != str(table.topic):
            raise foreign_commit(f"{what} is not this topic's table", "Drop or rename it")
        snapshot = found.metadata.current_snapshot()
        noted = snapshot.summary.get(JOURNAL_LAST) if snapshot is not None and snapshot.summary is not None else "0"
        if noted is None:
            raise foreign_commit(
                f"another writer committed snapshot {found.metadata.current_snapshot_id} to {what}", _repair(found)
            )
        if noted != found.metadata.properties.get(JOURNAL_SEQUENCE):
            raise foreign_commit(f"another writer took {what} back to journal sequence {noted}", _repair(found))
        return found

    def _load_or_create(self, table: TableRef) -> Table:
        found = self._load(table)
        if found is not None:
            return found
        catalog, folder = self._open(), self._objects.url(self._folder(table))
        catalog.create_namespace_if_not_exists(self._namespace)
        try:
            return catalog.create_table(
                (self._namespace, table.name),
                schema=SCHEMA,
                location=self._objects.url(table.root),
                partition_spec=SPEC,
                sort_order=ORDER,
                properties={
                    **properties(table, folder),
                    "format-version": "2",
                    "write.metadata.delete-after-commit.enabled": "true",
                    "write.metadata.previous-versions-max": str(model.METADATA_LOG),
                },
            )
        except TableAlreadyExistsError as error:
            raise Retriable(f"catalog {self.name}: {error}") from error

    def _drop(self, table: TableRef) -> None:
        try:
            self._open().drop_table((self._namespace, table.name))
        except NoSuchTableError:
            return

    def _updates(
        self,
        metadata: TableMetadataV2,
        snapshot: Snapshot,
        batch: Batch,
        wanted: tuple[Schema, dict[str, str]] | None,
    ) -> tuple[TableUpdate, ...]:
        """The updates of a commit. A new schema comes before the snapshot that has it."""
        schema, noted = wanted or (None, {})
        growth: tuple[TableUpdate, ...] = ()
        if schema is not None:
            newest = SetCurrentSchemaUpdate.model_validate({"schema-id": -1})
            growth = (AddSchemaUpdate.model_validate({"schema": schema}), newest)
        main = {"ref-name": MAIN_BRANCH, "type": SnapshotRefType.BRANCH, "snapshot-id": snapshot.snapshot_id}
        updates: tuple[TableUpdate, ...] = (
            AddSnapshotUpdate(snapshot=snapshot),
            SetSnapshotRefUpdate.model_validate(main),
            SetPropertiesUpdate(updates={**noted, JOURNAL_SEQUENCE: str(batch.upto)}),
        )
        after = model.with_snapshot(metadata, "", snapshot, batch.upto)
        return (*growth, *updates, *self._tidying(retention.after_commit(after, self._keeping, batch.now_ms)))

    def _tidying(self, tidying: retention.Tidying) -> Iterator[TableUpdate]:
        """Updates of a tidying: tags first, then the snapshots that they no longer keep."""
        for name, snapshot in tidying.tagged.items():
            tag = {"ref-name": name, **retention.tag(snapshot, self._keeping)}
            yield SetSnapshotRefUpdate.model_validate(tag)
        for name in sorted(tidying.untagged):
            yield RemoveSnapshotRefUpdate.model_validate({"ref-name": name})
        if tidying.expired:
            yield RemoveSnapshotsUpdate.model_validate({"snapshot-ids": sorted(tidying.expired)})

    # --- sweeping ------------------------------------------------------------------------------------------------

    async def _sweep_if_possible(self, table: TableRef, metadata: TableMetadataV2) -> None:
        try:
            await self._sweep(table, metadata)
        except Retriable as error:  # a table whose old objects cannot be deleted can still be written
            log.warning("objects are left for later", extra={"table": table.root, "reason": str(error)})

    async def _sweep(self, table: TableRef, metadata: TableMetadataV2) -> None:
        """Delete manifests that no snapshot needs. Metadata files belong to the catalog."""
        needed, newest = await self._objects.needed_by(metadata), metadata.last_sequence_number
        await self._objects.sweep(
            self._folder(table),
            lambda path: path.endswith(".avro") and path not in needed and number_of(path) <= newest,
        )

    def _folder(self, table: TableRef) -> str:
        return f"{table.root}/_iceberg-{self.name}"


def _repair(found: Table) -> str:
    """How to get a table back to what Headwater wrote last."""
    noted = found.metadata.properties.get(JOURNAL_SEQUENCE)
    for snapshot in found.metadata.snapshots:
        if snapshot.summary is not None and snapshot.summary.get(JOURNAL_LAST) == noted:
            return (
                f"Make snapshot {snapshot.snapshot_id} the current one again (`set_current_snapshot` in Spark), "
                "or drop the table without its files to have it written anew"
            )
    return "Drop the table without its files to have it written anew"


def _metadata(found: Table) -> TableMetadataV2:
    if not isinstance(found.metadata, TableMetadataV2):
        raise foreign_commit(
            f"{found.name()} is of format version {found.metadata.format_version}, not 2",
            "Drop it without its files to have it written anew",
        )
    return found.metadata


def _standing(found: Table) -> Standing:
    return model.standing(_metadata(found), "")
