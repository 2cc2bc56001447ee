"""The newest metadata of a table for engines that know only the table's root: DuckDB, ClickHouse.

They look below `<root>/metadata/`. `version-hint.text` has the name of the newest metadata file without its ending; an
engine that does not read it takes the file with the greatest number. Both find copies of metadata that the ledger has
made the table's. The hint is put last, so it never names a copy that is not there. Until then it names an older copy,
which is complete. A copy has the name of its original, so no name has two contents.

Delta's VACUUM deletes files outside of its log, copies and hint too: its rule is their age. So both are put again from
time to time, whether or not the table has changed.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.errors import ObjectMissing, Retriable
from headwater.lake.tables.follower import TableRef
from headwater.lake.tables.iceberg.objects import TableObjects, number_of

FOLDER = "metadata"
HINT = "version-hint.text"
ENDING = ".metadata.json"
SWEEP_EVERY = 10
"""The number of versions between two sweeps of copies."""


def copy_of(table: TableRef, location: str) -> str:
    """The path of the copy of a metadata file."""
    return f"{table.root}/{FOLDER}/{location.rpartition('/')[2]}"


def hint_of(table: TableRef, location: str) -> tuple[str, bytes]:
    """The path of the hint, and what is in it if a metadata file is the newest. DuckDB allows no newline in it."""
    name = location.rpartition("/")[2].removesuffix(ENDING)
    return f"{table.root}/{FOLDER}/{HINT}", name.encode()


class ByPath:
    """Writes copies and hints."""

    def __init__(self, objects: TableObjects) -> None:
        self._objects = objects

    def __repr__(self) -> str:
        return f"<ByPath of {self._objects!r}>"

    async def show(self, table: TableRef, location: str, earlier: Iterable[str]) -> None:
        """Put a copy of the metadata at `location`, then the hint. Copies of `earlier` metadata stay for readers."""
        store = self._objects.store
        try:
            data = await store.get(location)
        except ObjectMissing as error:
            raise Retriable(f"{location} is missing: the ledger has moved on, or run `headwater doctor`") from error
        await store.put(copy_of(table, location), [data])
        path, hint = hint_of(table, location)
        await store.put(path, [hint])
        newest = number_of(location)
        if newest % SWEEP_EVERY == 0:
            kept = {copy_of(table, name) for name in (location, *earlier)}
            await self._objects.sweep(
                f"{table.root}/{FOLDER}",
                lambda found: found.endswith(ENDING) and found not in kept and number_of(found) <= newest,
            )

    async def clear(self, table: TableRef) -> None:
        """Remove all copies and the hint. A table that begins anew counts from 1: an old copy would look newer."""
        await self._objects.sweep(f"{table.root}/{FOLDER}", lambda found: found.endswith((ENDING, HINT)))
