"""Reads a table's metadata back with pyiceberg, as anybody else would."""

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import StaticTable

from headwater.lake.tables.iceberg.io import MemoryFiles
from headwater.objects.memory import MemoryStore
from tests.unit.lake.tables.iceberg.story import ROOT


def read(store: MemoryStore, location: str) -> StaticTable:
    """A table of objects in memory."""
    io = MemoryFiles({f"{store.url}/{path}": data for path, data in store.objects.items()})
    url = f"{store.url}/{location}"
    metadata = FromInputFile.table_metadata(io.new_input(url))
    return StaticTable(("static", url), metadata, url, io, NoopCatalog("static"))


def shown(table: StaticTable, snapshot: int | None = None) -> set[str]:
    """The files that a snapshot shows, as the journal names them."""
    if table.metadata.current_snapshot() is None:
        return set()
    found = [task.file.file_path for task in table.scan(snapshot_id=snapshot).plan_files()]
    assert len(found) == len(set(found))
    return {path.partition(f"{ROOT}/")[2] for path in found}


def entries(table: StaticTable, *, deleted: bool = False) -> list[tuple[ManifestFile, ManifestEntry]]:
    """Every entry of the newest snapshot's manifests."""
    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    return [
        (manifest, entry)
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=not deleted)
    ]
