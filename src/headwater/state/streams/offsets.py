"""Writing committed offsets of a group. Commits with and without transactions share this."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterable, Sequence

from headwater.state.streams.domain import StreamsDomain
from headwater.state.streams.stored.groups import MAX_GROUPS, MAX_NAME, MAX_OFFSETS, NO_KIND, Committed, StoredGroup

Offset = tuple[bytes, int, int, int, str]
"""(topic, partition, offset, leader epoch, metadata)"""


def group_named(state: StreamsDomain, name: str) -> StoredGroup | None:
    """A group, which is created if it does not exist. `None` if there are too many groups."""
    group = state.groups.get(name)
    if group is None and len(state.groups) < MAX_GROUPS:
        group = StoredGroup(name, NO_KIND, b"", {}, {}, state.clock_ms, 0)
        state.groups.put(group)
    return group


def flaw_of(state: StreamsDomain, name: str, offsets: Sequence[Offset]) -> str:
    """Why offsets cannot be committed; empty if they can. Staged offsets count like committed ones."""
    if len(name) > MAX_NAME:
        return f"a group's name has {len(name)} characters; the limit is {MAX_NAME}"
    if any(len(topic) != 16 or partition < 0 for topic, partition, *_ in offsets):
        return "an offset has an invalid topic id or partition"
    if state.groups.get(name) is None and len(state.groups) >= MAX_GROUPS:
        return f"there are {MAX_GROUPS} groups already"
    if _count_after(state, name, offsets) > MAX_OFFSETS:
        return f"the group {name!r} would have over {MAX_OFFSETS} committed offsets"
    return ""


def commit(state: StreamsDomain, name: str, offsets: Iterable[tuple[uuid.UUID, int, int, int, str]]) -> None:
    """Commit offsets that were checked before."""
    group = group_named(state, name)
    assert group is not None
    digest = state.digest
    for topic, partition, offset, leader_epoch, metadata in offsets:
        partitions = group.offsets.setdefault(topic, {})
        group.count += partition not in partitions
        partitions[partition] = Committed(offset, leader_epoch, metadata, state.clock_ms)
        digest = zlib.crc32(b"%d %d" % (partition, offset), digest)
    state.digest = digest


def _count_after(state: StreamsDomain, name: str, offsets: Sequence[Offset]) -> int:
    """How many offsets a group has after a commit. Offsets that are replaced, or staged again, do not count twice."""
    group = state.groups.get(name)
    count = (group.count if group is not None else 0) + state.transactions.staged_count(name)
    if count + len(offsets) <= MAX_OFFSETS:
        return count + len(offsets)  # at most so many: no need to look at each
    known = group.offsets if group is not None else {}
    named = {(uuid.UUID(bytes=topic), partition) for topic, partition, *_ in offsets}
    staged = state.transactions.is_staged
    return count + sum(p not in known.get(topic, ()) and not staged(name, topic, p) for topic, p in named)
