"""Look-ups in an index of keys: one small read of each run, whatever the number of segments."""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass

from headwater.errors import Damaged, ObjectMissing
from headwater.lake.tables.keys.format import Manifest, Run, between, unpack_blocks, unpack_manifest
from headwater.lake.tables.keys.table import NAME
from headwater.objects import ObjectStore, reads
from headwater.state.streams.tables import TopicTable

log = logging.getLogger("headwater.lookups")
MAX_MANIFESTS = 16
"""Manifests in memory."""
MAX_FENCES = 16 << 20
"""Bytes of manifests in memory. The newest one is kept in any case."""
READ_AT_ONCE = 16
"""Blocks of a run that one read takes. A key has more only if it has tens of thousands of records."""


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """The index of a table at one moment."""

    root: str
    location: str
    cursor: int
    """Segments that came into the table up to this version are in the index."""


def index_of(table: TopicTable | None) -> KeyIndex | None:
    """The index of a table, if it has one."""
    known = table.followers.get(NAME) if table is not None else None
    if table is None or known is None or not known.location:
        return None
    return KeyIndex(table.root, known.location, known.cursor)


class KeyIndexes:
    """Indexes of keys in the store, with the manifests that were used most recently."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._manifests: OrderedDict[str, tuple[Manifest, int]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<KeyIndexes, {len(self._manifests)} manifests>"

    async def find(self, index: KeyIndex, hashed: int, *, lenient: bool) -> dict[int, list[int]] | None:
        """By partition, the offsets of records that may have a key, the greatest first.

        With `lenient` an index that cannot be read is None. A restored backup has none until it is made anew.
        """
        try:
            manifest = await self._manifest(index.location)
            found: dict[int, list[int]] = {}
            for run in manifest.runs:
                await self._in_run(index.root, run, hashed, found)
        except (ObjectMissing, Damaged) as error:
            if not lenient:
                raise
            log.warning("an index of keys is not used", extra={"index": index.location, "reason": str(error)})
            return None
        return {partition: sorted(offsets, reverse=True) for partition, offsets in found.items()}

    async def _manifest(self, location: str) -> Manifest:
        held = self._manifests.get(location)
        if held is not None:
            self._manifests.move_to_end(location)
            return held[0]
        data = await self._store.get(location)
        reads.note(len(data))
        manifest = unpack_manifest(location, data)
        self._manifests[location] = (manifest, len(data))
        while len(self._manifests) > 1 and (
            len(self._manifests) > MAX_MANIFESTS or sum(size for _, size in self._manifests.values()) > MAX_FENCES
        ):
            self._manifests.popitem(last=False)
        return manifest

    async def _in_run(self, root: str, run: Run, hashed: int, found: dict[int, list[int]]) -> None:
        for part in run.parts:
            blocks = part.blocks_between(hashed, hashed)
            if blocks is None:
                continue
            for first in range(blocks[0], blocks[1] + 1, READ_AT_ONCE):
                path, last = f"{root}/{part.name}", min(first + READ_AT_ONCE - 1, blocks[1])
                start, length = part.place(first, last)
                data = await self._store.get(path, start, length)
                reads.note(len(data))
                if len(data) != length:
                    raise Damaged(f"{path} ends before {start + length}")
                for rows in unpack_blocks(path, data):
                    _, partitions, offsets = between(rows, hashed, hashed)
                    for partition, offset in zip(partitions.tolist(), offsets.tolist(), strict=True):
                        found.setdefault(partition, []).append(offset)
