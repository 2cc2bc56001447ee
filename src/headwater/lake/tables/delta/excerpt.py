"""The part of a Delta log up to a journal sequence, for a copy whose follower is there.

The log of a table may be ahead of a copy of the ledger. Versions after what that ledger says stay out: their files may
not be in the copy, and the copy will write other versions with the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from headwater.errors import ObjectMissing
from headwater.lake.tables.delta.checkpoint import HINT
from headwater.lake.tables.delta.log import Listing, checkpoint_name, commit_name, log_directory, read_commit
from headwater.lake.tables.delta.table import sequence_in
from headwater.lake.tables.follower import TableRef
from headwater.objects import ObjectStore


class _Hint(msgspec.Struct):
    version: int


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Objects of a log that belong together."""

    paths: Sequence[str]
    hint: tuple[str, bytes] | None
    """Path and bytes of `_last_checkpoint`, if it names a checkpoint of the excerpt. Readers do without it, too."""


async def excerpt(store: ObjectStore, table: TableRef, upto: int) -> Excerpt:
    """The newest version that shows nothing after a journal sequence, with all older ones that can be read.

    Raises `ObjectMissing` if the log no longer has it. A table that does not exist has an empty excerpt.
    """
    directory = log_directory(table.root)
    listing = Listing.of([info.path.removeprefix(directory) async for info in store.scan(directory)])
    if listing.newest < 0 or not upto:
        return Excerpt((), None)
    newest = await _newest(store, table, listing, upto)
    names = [name for name, version in listing.names.items() if version <= newest]
    kept = Listing.of(names)
    if kept.newest < 0 or kept.oldest < 0:
        raise ObjectMissing(f"no object {directory}{commit_name(max(newest, 0))}")
    return Excerpt([f"{directory}{name}" for name in sorted(names)], await _hint(store, f"{directory}{HINT}", kept))


async def _newest(store: ObjectStore, table: TableRef, listing: Listing, upto: int) -> int:
    """The newest of Headwater's versions up to a sequence; -1 if there is none in the commits of the log."""
    version = listing.newest
    while version in listing.commits:
        path = f"{log_directory(table.root)}{commit_name(version)}"
        sequence = sequence_in(table, read_commit(path, await store.get(path)))
        if sequence is not None and sequence <= upto:
            return version
        version -= 1
    return -1


async def _hint(store: ObjectStore, path: str, kept: Listing) -> tuple[str, bytes] | None:
    try:
        data = await store.get(path)
        named = msgspec.json.decode(data, type=_Hint).version
    except (ObjectMissing, msgspec.MsgspecError):
        return None
    return (path, data) if checkpoint_name(named) in kept.names else None
