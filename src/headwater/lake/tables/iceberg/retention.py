"""Which snapshots of a table stay readable, and under which tags. No I/O.

The newest snapshots are kept by count and by age. In addition the last snapshot of every hour gets a tag, and is kept
as long as its tag. The first commit of a later hour sets the tag of an hour, so a tag never moves.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import SnapshotLogEntry

from headwater.lake.tables.follower import HOUR_MS, Expiry, Keeping

SLACK = 10
"""Snapshots beyond the number to keep are expired only when there are more than this many of them."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOUR = timedelta(hours=1)
_TAG = re.compile(r"hour-(\d{4}-\d\d-\d\dT\d\d)")


@dataclass(frozen=True, slots=True)
class Tidying:
    """Changes to tags and snapshots."""

    tagged: Mapping[str, int] = field(default_factory=dict)
    """New tags and their snapshots."""
    untagged: Collection[str] = ()
    expired: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.tagged or self.untagged or self.expired)


def hour_tag(ms: int) -> str:
    """The tag of the hour of a moment."""
    return f"hour-{_EPOCH + ms // HOUR_MS * _HOUR:%Y-%m-%dT%H}"


def after_commit(metadata: TableMetadataV2, keeping: Keeping, now_ms: int) -> Tidying:
    """The changes to make in the commit that adds the newest snapshot. `now_ms` is what retention takes for now."""
    tagged = _new_tag(metadata, keeping)
    untagged = _old_tags(metadata, keeping, now_ms)
    rest = _pinned(metadata, tagged, untagged)
    slack = min(SLACK, keeping.versions) if not untagged else 0  # a snapshot that lost its tag is by far the oldest
    expired: frozenset[int] = frozenset()
    if overdue(metadata, rest, keeping.versions + slack, keeping.since(now_ms)):
        expired = overdue(metadata, rest, keeping.versions, keeping.since(now_ms))
    return Tidying(tagged, untagged, expired)


def on_expiry(metadata: TableMetadataV2, keeping: Keeping, expiry: Expiry) -> Tidying:
    """The changes to make when nothing is committed. Tags stay, even if the expiry asks for fewer versions."""
    untagged = _old_tags(metadata, keeping, expiry.now_ms)
    keep = min(keeping.versions, expiry.keep or keeping.versions)
    since = max(keeping.since(expiry.now_ms), min(expiry.before_ms, expiry.now_ms))
    return Tidying({}, untagged, overdue(metadata, _pinned(metadata, {}, untagged), keep, since))


def overdue(metadata: TableMetadataV2, pinned: Collection[int], keep: int, since_ms: int) -> frozenset[int]:
    """Snapshots past their retention. The newest one and those with a tag or branch never are."""
    free = [s for s in metadata.snapshots if s.snapshot_id not in pinned]
    over = max(0, len(free) + 1 - max(1, keep))
    return frozenset(s.snapshot_id for i, s in enumerate(free) if i < over or s.timestamp_ms < since_ms)


def recent(metadata: TableMetadataV2) -> int:
    """How many snapshots are kept by number or age: the newest one, and all without a tag or branch."""
    pinned = _pinned(metadata, {}, ())
    return 1 + sum(s.snapshot_id not in pinned for s in metadata.snapshots)


def tidied(metadata: TableMetadataV2, tidying: Tidying, keeping: Keeping) -> TableMetadataV2:
    """The table after a tidying. Its history begins after the newest snapshot that is removed."""
    if not tidying:
        return metadata
    refs = {name: ref for name, ref in metadata.refs.items() if name not in tidying.untagged}
    refs |= {name: SnapshotRef.model_validate(tag(snapshot, keeping)) for name, snapshot in tidying.tagged.items()}
    told: list[SnapshotLogEntry] = []
    for entry in metadata.snapshot_log:
        told = [] if entry.snapshot_id in tidying.expired else [*told, entry]
    kept = [s for s in metadata.snapshots if s.snapshot_id not in tidying.expired]
    return metadata.model_copy(update={"snapshots": kept, "snapshot_log": told, "refs": refs})


def tag(snapshot: int, keeping: Keeping) -> dict[str, object]:
    """An hour's tag as metadata has it."""
    age = keeping.tag_hours * HOUR_MS
    return {"snapshot-id": snapshot, "type": SnapshotRefType.TAG, "max-ref-age-ms": age}


def _new_tag(metadata: TableMetadataV2, keeping: Keeping) -> dict[str, int]:
    """The tag of the hour that ended between the newest snapshot and the one before it."""
    newest = metadata.current_snapshot()
    before = metadata.snapshot_by_id(newest.parent_snapshot_id) if newest and newest.parent_snapshot_id else None
    if newest is None or before is None:
        return {}
    passed = newest.timestamp_ms // HOUR_MS - before.timestamp_ms // HOUR_MS
    return {hour_tag(before.timestamp_ms): before.snapshot_id} if 0 < passed <= keeping.tag_hours else {}


def _old_tags(metadata: TableMetadataV2, keeping: Keeping, now_ms: int) -> frozenset[str]:
    """Hour tags that are too old. Tags that Headwater did not set stay."""
    first = hour_tag(max(0, now_ms - keeping.tag_hours * HOUR_MS))
    return frozenset(name for name in metadata.refs if _TAG.fullmatch(name) and name < first)


def _pinned(metadata: TableMetadataV2, tagged: Mapping[str, int], untagged: Collection[str]) -> set[int]:
    stay = {ref.snapshot_id for name, ref in metadata.refs.items() if name not in untagged}
    return stay.union(tagged.values())
