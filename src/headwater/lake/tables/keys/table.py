"""The index of keys of a topic, as a follower of the journal: every commit adds a run, and few runs stay.

A commit reads the keys of new segments, writes them as a run, merges runs if there are too many, and writes a manifest.
The caller's command `Follow` makes it the index. If that is refused, the objects are orphans. A manifest that is gone,
as in a restored backup, means that the index is made anew.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from headwater.clock import Chance, SystemChance
from headwater.errors import Damaged, ObjectMissing, Retriable
from headwater.lake.tables.follower import Batch, Expiry, Standing, TableRef, Version
from headwater.lake.tables.keys import format as keys
from headwater.lake.tables.keys.format import Manifest, Part, Run
from headwater.log.segment.encode import hashed_keys
from headwater.log.segment.read import open_segment
from headwater.objects import ObjectStore
from headwater.state.streams.tables import DataFile
from headwater.threads import Offload, inline
from headwater.types import Buffer

if TYPE_CHECKING:
    from headwater.lake.tables.keys.format import Rows

log = logging.getLogger("headwater.keys")
NAME = "keys"
FOLDER = "_keys"
MAX_RUNS = 6
"""A look-up reads one block of each run."""
RATIO = 3
"""A run is merged with the newer ones if these have a third of its rows."""
PART_ROWS = 1 << 21
"""Rows of an object: 40 MB."""
SLICE_ROWS = 1 << 20
"""Rows that are held while runs are merged, about."""
SWEEP_EVERY = 10
LAST_HASH = (1 << 64) - 1


class KeyIndexFollower:
    """See `TableFollower`. Nothing of an older version can be read, so no segment is kept for it."""

    name = NAME

    def __init__(self, store: ObjectStore, offload: Offload = inline, chance: Chance | None = None) -> None:
        self._store = store
        self._offload = offload
        self._chance = chance or SystemChance()

    def __repr__(self) -> str:
        return f"<KeyIndexFollower of {self._store!r}>"

    async def standing(self, table: TableRef, location: str) -> Standing:
        found = await self._load(location)
        return Standing(found.cursor, found.cursor, location) if found is not None else Standing(0, 0, "")

    async def commit(self, table: TableRef, location: str, batch: Batch) -> Standing:
        found = await self._load(location)
        if found is not None and found.cursor >= batch.upto:
            return Standing(found.cursor, found.cursor, location)
        if (found.cursor if found is not None else 0) != batch.after:
            raise Retriable(f"the keys of {table.root} are not at {batch.after}: start from there")
        version = number_of(location) + 1
        if found is not None and version % SWEEP_EVERY == 0:
            await self._sweep(table, location, found)
        whole = not batch.entries or batch.after == 0
        new = [batch.files[n] for entry in batch.entries if not entry.moves for n in entry.added]
        runs = [] if whole or found is None else list(found.runs)
        writer = _Writer(self._store, table, version, self._chance, self._offload)
        made = await writer.run(self._rows(table, batch.live if whole else new))
        runs = await self._merged([*runs, made] if made.rows else runs, writer, batch.live)
        path = f"{table.root}/{FOLDER}/{version:08d}-{self._chance.uuid().hex}.manifest"
        await self._store.put(path, [keys.pack_manifest(Manifest(keys.VERSION, batch.upto, runs))])
        return Standing(batch.upto, batch.upto, path)

    async def shown(self, table: TableRef, location: str) -> frozenset[str]:
        return frozenset()

    async def versions(self, table: TableRef, location: str) -> list[Version]:
        return []

    async def expire(self, table: TableRef, location: str, expiry: Expiry) -> Standing:
        found = await self._load(location)
        if found is None:
            return Standing(0, 0, "")
        await self._sweep(table, location, found)
        return Standing(found.cursor, found.cursor, location)

    async def announce(self, table: TableRef, location: str) -> None:
        """Only Headwater reads an index of keys."""

    async def drop(self, table: TableRef, location: str) -> None:
        async for info in self._store.scan(f"{table.root}/{FOLDER}/"):
            await self._store.delete(info.path)

    async def close(self) -> None:
        """Nothing to release."""

    async def _load(self, location: str) -> Manifest | None:
        try:
            return keys.unpack_manifest(location, await self._store.get(location)) if location else None
        except (ObjectMissing, Damaged) as error:
            log.warning("an index of keys is made anew", extra={"manifest": location, "reason": str(error)})
            return None

    async def _sweep(self, table: TableRef, location: str, found: Manifest) -> None:
        """Delete objects that the version at `location` does not need, unless they are newer than that version."""
        needed = {f"{table.root}/{part.name}" for run in found.runs for part in run.parts} | {location}
        newest = number_of(location)
        async for info in self._store.scan(f"{table.root}/{FOLDER}/"):
            if info.path not in needed and number_of(info.path) < newest:
                await self._store.delete(info.path)

    # --- rows ------------------------------------------------------------------------------------------

    async def _rows(self, table: TableRef, files: Sequence[DataFile]) -> AsyncIterator[Rows]:
        """The keys of segments, in ordered pieces of about `SLICE_ROWS` rows. The pieces are not in order."""
        held: list[Rows] = []
        count = 0
        for file in files:
            async for rows in self._file(f"{table.root}/{file.name}", file):
                held.append(rows)
                count += len(rows[0])
                if count >= SLICE_ROWS:
                    yield await self._offload(_sorted, held)
                    held, count = [], 0
        if count:
            yield await self._offload(_sorted, held)

    async def _file(self, path: str, file: DataFile) -> AsyncIterator[Rows]:
        async def read(start: int, length: int) -> Buffer:
            try:
                return await self._store.get(path, start, length)
            except ObjectMissing:
                raise Retriable(f"{path} is gone: the table has moved on") from None

        footer = await open_segment(file.size, read, file.footer_checksum)
        for group, facts in enumerate(footer.groups):
            names = ["offset", "key"]
            ranges = [(start, await read(start, length)) for start, length in footer.ranges(group, names)]
            columns = await self._offload(footer.columns, group, names, ranges)
            offsets, hashes = await self._offload(hashed_keys, columns)
            yield keys.of_partition(facts.partition, hashes, offsets)

    async def _merged(self, runs: list[Run], writer: _Writer, live: Sequence[DataFile]) -> list[Run]:
        """Few runs, the largest first: newer ones are merged into an older one that is not much larger."""
        keep = len(runs) - 1
        total = runs[-1].rows if runs else 0
        while keep > 0 and (runs[keep - 1].rows <= RATIO * total or keep > MAX_RUNS - 1):
            keep -= 1
            total += runs[keep].rows
        if keep >= len(runs) - 1:
            return runs
        made = await writer.merge(runs[keep:], min((file.first_offset for file in live), default=0))
        return [*runs[:keep], made] if made.rows else runs[:keep]


async def read_run(store: ObjectStore, root: str, run: Run, low: int, high: int) -> list[Rows]:
    """The rows of a run whose hashes are from `low` to `high`, by one read of each part that may have some."""
    found = []
    for part in run.parts:
        blocks = part.blocks_between(low, high)
        if blocks is None:
            continue
        path, (start, length) = f"{root}/{part.name}", part.place(*blocks)
        data = await store.get(path, start, length)
        if len(data) != length:
            raise Damaged(f"{path} ends before {start + length}")
        found += [keys.between(rows, low, high) for rows in keys.unpack_blocks(path, data)]
    return found


class _Writer:
    """Writes runs of one version of an index."""

    def __init__(self, store: ObjectStore, table: TableRef, version: int, chance: Chance, offload: Offload) -> None:
        self._store = store
        self._table = table
        self._version = version
        self._chance = chance
        self._offload = offload

    async def run(self, pieces: AsyncIterator[Rows]) -> Run:
        """A run of rows. Every piece is in order, but not all of them together: they are runs first, and are merged."""
        runs = [Run(await self._parts(_only(piece))) async for piece in pieces]
        return await self.merge(runs) if len(runs) > 1 else runs[0] if runs else Run([])

    async def merge(self, runs: Sequence[Run], floor: int = 0) -> Run:
        """One run of several. Rows before the offset `floor` are in no segment any more."""
        return Run(await self._parts(self._slices(runs, floor)))

    async def _slices(self, runs: Sequence[Run], floor: int) -> AsyncIterator[Rows]:
        """The rows of several runs in order, a part of all hashes at a time."""
        count = -(-sum(run.rows for run in runs) // SLICE_ROWS)
        for i in range(count):
            low, high = i * (LAST_HASH + 1) // count, (i + 1) * (LAST_HASH + 1) // count - 1
            held = [rows for run in runs for rows in await read_run(self._store, self._table.root, run, low, high)]
            yield await self._offload(_sorted, held, floor)

    async def _parts(self, pieces: AsyncIterator[Rows]) -> list[Part]:
        """Ordered rows as parts. All blocks but the last one of a part are full."""
        parts: list[Part] = []
        held: list[Rows] = []
        count = 0
        async for piece in pieces:
            held.append(piece)
            count += len(piece[0])
            while count >= PART_ROWS:
                rows = keys.joined(held)
                parts.append(await self._part(keys.sliced(rows, 0, PART_ROWS)))
                held, count = [keys.sliced(rows, PART_ROWS, count)], count - PART_ROWS
        if count:
            parts.append(await self._part(keys.joined(held)))
        return parts

    async def _part(self, rows: Rows) -> Part:
        blocks, firsts = await self._offload(keys.pack_blocks, rows)
        name = f"{FOLDER}/{self._version:08d}-{self._chance.uuid().hex}.run"
        await self._store.put(f"{self._table.root}/{name}", blocks)
        return Part(name, len(rows[0]), firsts, int(rows[0][-1]))


async def _only(rows: Rows) -> AsyncIterator[Rows]:
    yield rows


def _sorted(pieces: Sequence[Rows], floor: int = 0) -> Rows:
    return keys.ordered(keys.from_offset(keys.joined(pieces), floor))


def number_of(path: str) -> int:
    """The number of the version that wrote an object; 0 for no path."""
    digits = path.rpartition("/")[2].partition("-")[0]
    return int(digits) if digits.isdecimal() else 0
