"""The format of the Delta log: names of its files, and its actions. No I/O.

The log of a table is `_delta_log/`. It has one JSON file per version, for some versions a checkpoint with the whole
state, and `_last_checkpoint`, a hint at the newest checkpoint. It follows Delta's protocol, reader version 1 and writer
version 2, so every engine reads it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote

import msgspec

from headwater.errors import Damaged
from headwater.state.streams.tables import DataFile

CHECKPOINT_EVERY = 10
_WRITABLE_FEATURES = {"appendOnly", "invariants", "domainMetadata", "vacuumProtocolCheck", "timestampNtz"}
"""Features that another writer may switch on without a change to how Headwater writes."""
_NAME = re.compile(r"\.?(\d{20})\.(.+)")


# --- actions -----------------------------------------------------------------------------------------


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


class Add(_Part, frozen=True, kw_only=True):
    """A file becomes part of the table."""

    path: str
    partition_values: dict[str, str | None]
    size: int
    modification_time: int
    data_change: bool
    stats: str | None = None
    tags: dict[str, str | None] | None = None


class Remove(_Part, frozen=True, kw_only=True):
    """A file is no longer part of the table."""

    path: str
    deletion_timestamp: int | None = None
    data_change: bool
    extended_file_metadata: bool | None = None
    partition_values: dict[str, str | None] | None = None
    size: int | None = None


class Txn(_Part, frozen=True, kw_only=True):
    """The progress of an application: here the journal sequence."""

    app_id: str
    version: int
    last_updated: int | None = None


class Format(_Part, frozen=True, kw_only=True):
    """What the data files are."""

    provider: str
    options: dict[str, str | None]


class MetaData(_Part, frozen=True, kw_only=True):
    """The table's name, columns and properties."""

    id: str
    name: str | None = None
    description: str | None = None
    format: Format
    schema_string: str
    partition_columns: list[str]
    configuration: dict[str, str | None]
    created_time: int | None = None


class TableProtocol(_Part, frozen=True, kw_only=True):
    """What a reader and a writer must understand."""

    min_reader_version: int
    min_writer_version: int
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None


class DomainMetadata(_Part, frozen=True, kw_only=True):
    """Data that another engine stores with the table."""

    domain: str
    configuration: str
    removed: bool


class CommitInfo(_Part, frozen=True, kw_only=True):
    """Who did what, for people."""

    timestamp: int | None = None
    operation: str | None = None
    operation_parameters: dict[str, object] | None = None
    engine_info: str | None = None
    is_blind_append: bool | None = None


class Action(_Part, frozen=True, kw_only=True):
    """One line of a commit: exactly one of the fields is set."""

    commit_info: CommitInfo | None = None
    txn: Txn | None = None
    protocol: TableProtocol | None = None
    meta_data: MetaData | None = None
    add: Add | None = None
    remove: Remove | None = None
    cdc: dict[str, object] | None = None
    domain_metadata: DomainMetadata | None = None


_LINE = msgspec.json.Decoder(Action)


def encode_commit(actions: Iterable[Action]) -> bytes:
    """A version's file."""
    return b"".join(msgspec.json.encode(action) + b"\n" for action in actions)


def read_commit(path: str, data: bytes) -> Iterator[Action]:
    """The inverse of `encode_commit`, also for commits of other writers. Lines are decoded one at a time, on demand."""
    try:
        for line in io.BytesIO(data):
            if line.strip():
                yield _LINE.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Damaged(f"{path} is not a commit of a Delta table: {error}") from error


# --- what a topic table says -------------------------------------------------------------------------


def _field(name: str, kind: object, *, nullable: bool = True) -> dict[str, object]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {}}


_HEADER = {"type": "struct", "fields": [_field("key", "string", nullable=False), _field("value", "binary")]}
COLUMNS = [
    _field("partition", "integer", nullable=False),
    _field("offset", "long", nullable=False),
    _field("timestamp_ms", "long", nullable=False),
    _field("timestamp", "timestamp"),
    _field("key", "binary"),
    _field("value", "binary"),
    _field("headers", {"type": "array", "elementType": _HEADER, "containsNull": True}),
    _field("headers_raw", "binary"),
    _field("attributes", "integer", nullable=False),
    _field("producer_id", "long", nullable=False),
    _field("producer_epoch", "integer", nullable=False),
    _field("sequence", "integer", nullable=False),
]
PROTOCOL = TableProtocol(min_reader_version=1, min_writer_version=2)
CONFIGURATION: dict[str, str | None] = {
    "delta.checkpointInterval": str(CHECKPOINT_EVERY),
    "delta.logRetentionDuration": "interval 3650 days",
    "delta.deletedFileRetentionDuration": "interval 3650 days",
    "delta.enableExpiredLogCleanup": "false",
}


def table_metadata(table_id: str, name: str, ms: int) -> MetaData:
    """The columns of a segment, and properties that keep engines from damaging the table."""
    return MetaData(
        id=table_id,
        name=name,
        format=Format(provider="parquet", options={}),
        schema_string=msgspec.json.encode({"type": "struct", "fields": COLUMNS}).decode(),
        partition_columns=[],
        configuration=CONFIGURATION,
        created_time=ms,
    )


def action_path(name: str) -> str:
    """The name of a data file in the Delta log: a relative URI."""
    return quote(name, safe="/=")


def add_action(file: DataFile, stats: str, *, data_change: bool) -> Add:
    return Add(
        path=action_path(file.name),
        partition_values={},
        size=file.size,
        modification_time=file.created_ms,
        data_change=data_change,
        stats=stats,
    )


def remove_action(path: str, size: int | None, ms: int, *, data_change: bool) -> Remove:
    return Remove(
        path=path,
        deletion_timestamp=ms,
        data_change=data_change,
        extended_file_metadata=True,
        partition_values={},
        size=size,
    )


def objection(actions: Iterable[Action]) -> str | None:
    """Why Headwater cannot commit after a foreign commit; `None` if the commit is harmless."""
    for action in actions:
        if action.add is not None or action.remove is not None or action.cdc is not None:
            return "it changed data"
        if action.protocol is not None and not _writable(action.protocol):
            return f"it raised the protocol to {action.protocol}"
        if action.meta_data is not None and not _fits(action.meta_data):
            return "it changed the columns"
    return None


def _writable(protocol: TableProtocol) -> bool:
    if protocol.min_writer_version == 7:
        return set(protocol.writer_features or ()) <= _WRITABLE_FEATURES
    return protocol.min_writer_version <= PROTOCOL.min_writer_version


class _Column(msgspec.Struct):
    name: str
    type: object


class _Schema(msgspec.Struct):
    fields: list[_Column]


def _fits(meta: MetaData) -> bool:
    """Whether Headwater's files still match the columns of the table. Columns that others add are null in them."""
    try:
        schema = msgspec.json.decode(meta.schema_string, type=_Schema)
    except msgspec.MsgspecError:
        return False
    there = {column.name: column.type for column in schema.fields}
    return not meta.partition_columns and all(there.get(str(c["name"])) == c["type"] for c in COLUMNS)


# --- the directory -----------------------------------------------------------------------------------


def log_directory(root: str) -> str:
    return f"{root}/_delta_log/"


def commit_name(version: int) -> str:
    return f"{version:020d}.json"


def checkpoint_name(version: int) -> str:
    return f"{version:020d}.checkpoint.parquet"


@dataclass(frozen=True, slots=True)
class Listing:
    """The files in a log's directory."""

    commits: frozenset[int]
    checkpoints: frozenset[int]
    names: Mapping[str, int]
    """Every file that belongs to a version, including kinds that Headwater does not write."""

    @classmethod
    def of(cls, names: Iterable[str]) -> Listing:
        found = {name: int(match[1]) for name in names if (match := _NAME.fullmatch(name))}
        commits = frozenset(v for name, v in found.items() if name == commit_name(v))
        checkpoints = frozenset(v for name, v in found.items() if name == checkpoint_name(v))
        return cls(commits, checkpoints, found)

    def grown(self, name: str) -> Listing:
        """The listing with one file more."""
        return Listing.of([*self.names, name])

    def without(self, names: Iterable[str]) -> Listing:
        """The listing with some files less."""
        return Listing.of(self.names.keys() - set(names))

    @property
    def newest(self) -> int:
        """The newest version; -1 if there is no table."""
        return max(self.commits, default=-1)

    @property
    def newest_checkpoint(self) -> int:
        """The newest checkpoint that a version can be read from; -1 if there is none."""
        return self.checkpoint_up_to(self.newest)

    def checkpoint_up_to(self, version: int) -> int:
        """The newest checkpoint that a version can be read from; -1 if there is none."""
        return max((v for v in self.checkpoints if v <= version), default=-1)

    @property
    def checkpoint_due(self) -> bool:
        return self.newest // CHECKPOINT_EVERY > max(self.newest_checkpoint, 0) // CHECKPOINT_EVERY

    @property
    def oldest(self) -> int:
        """The oldest version that can be read: all commits, or a checkpoint and all commits after it, exist.

        -1 if there is none.
        """
        first = self.newest
        while first - 1 in self.commits:
            first -= 1
        if first <= 0:
            return first
        return min((v for v in self.checkpoints if first - 1 <= v <= self.newest), default=-1)

    def obsolete(self, keep: int) -> list[str]:
        """Files that none of the newest `keep` versions needs, the oldest first."""
        base = max((v for v in self.checkpoints if v <= self.newest - keep + 1), default=0)
        return sorted((name for name, v in self.names.items() if v < base), key=lambda name: (self.names[name], name))
