"""Functions from table metadata to new table metadata: commits and expiries. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyiceberg.exceptions import ValidationError
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadataUtil, TableMetadataV2
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import MetadataLogEntry, Operation, Snapshot, SnapshotLogEntry, Summary

from headwater.errors import Damaged
from headwater.lake.tables.follower import Batch, Standing, TableRef, Version
from headwater.lake.tables.iceberg.schema import (
    JOURNAL_FIRST,
    JOURNAL_LAST,
    JOURNAL_SEQUENCE,
    ORDER,
    SCHEMA,
    SETTLED_ENDS,
    SPEC,
    properties,
)

METADATA_LOG = 10
"""The number of earlier metadata files that a metadata file names. They are kept."""


def new_table(table: TableRef, root_url: str, metadata_url: str) -> TableMetadataV2:
    """A table without a snapshot. It is not stored before it has one."""
    return TableMetadataV2.model_validate(
        {
            "location": root_url,
            "table-uuid": table.topic,
            "last-updated-ms": 0,
            "last-column-id": SCHEMA.highest_field_id,
            "schemas": [SCHEMA],
            "current-schema-id": SCHEMA.schema_id,
            "partition-specs": [SPEC],
            "default-spec-id": SPEC.spec_id,
            "last-partition-id": SPEC.last_assigned_field_id,
            "sort-orders": [ORDER],
            "default-sort-order-id": ORDER.order_id,
            "properties": properties(table, metadata_url),
        }
    )


def parse(path: str, data: bytes) -> TableMetadataV2:
    """Decode a metadata file that Headwater wrote."""
    try:
        found = TableMetadataUtil.parse_raw(data.decode())
    except (ValidationError, UnicodeDecodeError) as error:
        raise Damaged(f"{path} is not table metadata: {error}; run `headwater doctor`") from error
    if not isinstance(found, TableMetadataV2):
        raise Damaged(f"{path} is of format version {found.format_version}; run `headwater doctor`")
    return found


def cursor(metadata: TableMetadataV2) -> int:
    """The newest journal sequence that is part of the table."""
    return int(metadata.properties[JOURNAL_SEQUENCE])


def sequence_of(snapshot: Snapshot) -> int:
    """The journal sequence that a snapshot shows; 0 if Headwater did not write it."""
    noted = snapshot.summary.get(JOURNAL_LAST) if snapshot.summary is not None else None
    return int(noted or 0)


def standing(metadata: TableMetadataV2, location: str) -> Standing:
    """The progress of a table, and its readable versions.

    Tags keep single old snapshots. These are listed one by one, so that files between them can be deleted.
    """
    shown = sorted(sequence for s in metadata.snapshots if (sequence := sequence_of(s)))
    oldest = shown[0] if shown else 0
    pinned = {ref.snapshot_id for ref in metadata.refs.values()} - {metadata.current_snapshot_id}
    recent = min((sequence_of(s) for s in metadata.snapshots if s.snapshot_id not in pinned), default=0)
    before = tuple(sequence for sequence in shown if sequence < recent)
    return Standing(cursor(metadata), oldest, location, recent if before else 0, before)


def versions(metadata: TableMetadataV2) -> list[Version]:
    """The readable snapshots that repeat the journal."""
    tags: dict[int, list[str]] = {}
    for name, ref in metadata.refs.items():
        if ref.snapshot_ref_type is SnapshotRefType.TAG:
            tags.setdefault(ref.snapshot_id, []).append(name)
    found = []
    for s in metadata.snapshots:
        if s.summary is not None and sequence_of(s):
            first = int(s.summary.get(JOURNAL_FIRST) or 0)
            named = tuple(sorted(tags.get(s.snapshot_id, ())))
            found.append(Version(s.snapshot_id, first, sequence_of(s), s.summary.operation.value, named))
    return found


def operation(batch: Batch, added: int, removed: int) -> Operation:
    """The operation of a batch's snapshot. A merge changes files, not rows."""
    if batch.entries and all(entry.replaces for entry in batch.entries):
        return Operation.REPLACE
    if not removed:
        return Operation.APPEND
    return Operation.OVERWRITE if added else Operation.DELETE


def summary(batch: Batch, before: Mapping[str, str], added: Sequence[DataFile], removed: Sequence[DataFile]) -> Summary:
    """The summary of a snapshot. Totals are computed from those of its parent."""
    found = journal_notes(batch)
    for total, plus, minus, of in _COUNTS:
        more, fewer = sum(map(of, added)), sum(map(of, removed))
        if more:
            found[plus] = str(more)
        if fewer:
            found[minus] = str(fewer)
        found[total] = str(int(before.get(total) or 0) + more - fewer)
    for total in ("total-delete-files", "total-position-deletes", "total-equality-deletes"):
        found[total] = "0"
    return Summary(operation(batch, len(added), len(removed)), **found)


def journal_notes(batch: Batch) -> dict[str, str]:
    """The journal facts in a snapshot: its range, and the settled end of every partition that moved."""
    ends = {str(partition): end for entry in batch.entries for partition, end in entry.ends}
    return {
        JOURNAL_FIRST: str(batch.after + 1),
        JOURNAL_LAST: str(batch.upto),
        SETTLED_ENDS: json.dumps(ends, separators=(",", ":")),
    }


def with_snapshot(metadata: TableMetadataV2, previous_url: str, snapshot: Snapshot, sequence: int) -> TableMetadataV2:
    """The table with one more snapshot. `previous_url` is the location of `metadata`, if it is stored."""
    ms = snapshot.timestamp_ms
    main = SnapshotRef.model_validate({"snapshot-id": snapshot.snapshot_id, "type": SnapshotRefType.BRANCH})
    logged = SnapshotLogEntry.model_validate({"snapshot-id": snapshot.snapshot_id, "timestamp-ms": ms})
    return metadata.model_copy(
        update={
            "last_updated_ms": ms,
            "last_sequence_number": snapshot.sequence_number,
            "current_snapshot_id": snapshot.snapshot_id,
            "snapshots": [*metadata.snapshots, snapshot],
            "snapshot_log": [*metadata.snapshot_log, logged],
            "refs": {**metadata.refs, MAIN_BRANCH: main},
            "properties": {**metadata.properties, JOURNAL_SEQUENCE: str(sequence)},
            "metadata_log": _log(metadata, previous_url),
        }
    )


def succeeded(metadata: TableMetadataV2, previous_url: str) -> TableMetadataV2:
    """The same table in a new metadata file."""
    return metadata.model_copy(update={"metadata_log": _log(metadata, previous_url)})


def _log(metadata: TableMetadataV2, previous_url: str) -> list[MetadataLogEntry]:
    if not previous_url:
        return []
    entry = {"metadata-file": previous_url, "timestamp-ms": metadata.last_updated_ms}
    return [*metadata.metadata_log, MetadataLogEntry.model_validate(entry)][-METADATA_LOG:]


def _one(file: DataFile) -> int:
    return 1


def _rows(file: DataFile) -> int:
    return file.record_count


def _size(file: DataFile) -> int:
    return file.file_size_in_bytes


_COUNTS = (
    ("total-data-files", "added-data-files", "deleted-data-files", _one),
    ("total-records", "added-records", "deleted-records", _rows),
    ("total-files-size", "added-files-size", "removed-files-size", _size),
)
