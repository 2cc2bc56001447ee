"""The state of a Delta table, and checkpoints of it: classic ones, in a single Parquet file. No I/O."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.errors import Damaged
from headwater.lake.tables.delta.log import Action, Add, DomainMetadata, Format, MetaData, Remove, TableProtocol, Txn

RETENTION_MS = 3600 * 1000
"""How long a checkpoint lists a removed file, for readers that are about to open it. VACUUM skips the directory of the
data files, so this can be short, and checkpoints stay small."""
HINT = "_last_checkpoint"
_TEXTS = pa.map_(pa.string(), pa.string())
_FORMAT = pa.struct({"provider": pa.string(), "options": _TEXTS})
_CHECKPOINT = pa.schema(
    {
        "protocol": pa.struct(
            {
                "minReaderVersion": pa.int32(),
                "minWriterVersion": pa.int32(),
                "readerFeatures": pa.list_(pa.string()),
                "writerFeatures": pa.list_(pa.string()),
            }
        ),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "name": pa.string(),
                "description": pa.string(),
                "format": _FORMAT,
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _TEXTS,
                "createdTime": pa.int64(),
            }
        ),
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "domainMetadata": pa.struct({"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()}),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
                "tags": _TEXTS,
            }
        ),
        "remove": pa.struct(
            {
                "path": pa.string(),
                "deletionTimestamp": pa.int64(),
                "dataChange": pa.bool_(),
                "extendedFileMetadata": pa.bool_(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
            }
        ),
    }
)
_KINDS: dict[str, type[msgspec.Struct]] = {
    "protocol": TableProtocol,
    "metaData": MetaData,
    "txn": Txn,
    "domainMetadata": DomainMetadata,
    "add": Add,
    "remove": Remove,
}
_STRUCTS: list[type[msgspec.Struct]] = [Action, *_KINDS.values()]
_ATTRIBUTES = {f.encode_name: f.name for kind in _STRUCTS for f in msgspec.structs.fields(kind)}


@dataclass(slots=True)
class TableState:
    """The state of a version: the fold of its log."""

    protocol: TableProtocol | None = None
    meta: MetaData | None = None
    txns: dict[str, Txn] = field(default_factory=dict)
    adds: dict[str, Add] = field(default_factory=dict)
    removes: dict[str, Remove] = field(default_factory=dict)
    domains: dict[str, DomainMetadata] = field(default_factory=dict)

    def apply(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if action.add is not None:
                self.adds[action.add.path] = action.add
                self.removes.pop(action.add.path, None)
            elif action.remove is not None:
                self.adds.pop(action.remove.path, None)
                self.removes[action.remove.path] = action.remove
            elif action.txn is not None:
                self.txns[action.txn.app_id] = action.txn
            elif action.meta_data is not None:
                self.meta = action.meta_data
            elif action.protocol is not None:
                self.protocol = action.protocol
            elif action.domain_metadata is not None:
                self.domains[action.domain_metadata.domain] = action.domain_metadata

    def actions(self, removed_after: int) -> list[Action]:
        """The state as the actions of a checkpoint, without files that were removed up to a time."""
        head = [Action(protocol=self.protocol), Action(meta_data=self.meta)]
        rest = [Action(txn=txn) for txn in self.txns.values()]
        rest += [Action(domain_metadata=domain) for domain in self.domains.values() if not domain.removed]
        rest += [Action(add=msgspec.structs.replace(add, data_change=False)) for add in self.adds.values()]
        rest += [
            Action(remove=msgspec.structs.replace(remove, data_change=False))
            for remove in self.removes.values()
            if (remove.deletion_timestamp or 0) > removed_after
        ]
        return head + rest


def encode_checkpoint(actions: Sequence[Action]) -> bytes:
    """A classic checkpoint in one Parquet file. It is built column by column, since a table may have many files."""
    batches = []
    for name in _CHECKPOINT.names:
        items = [item for action in actions if (item := getattr(action, _ATTRIBUTES[name])) is not None]
        columns = [_structs(items, c.type) if c.name == name else pa.nulls(len(items), c.type) for c in _CHECKPOINT]
        batches.append(pa.record_batch(columns, schema=_CHECKPOINT))
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_batches(batches), sink, compression="snappy")
    return sink.getvalue()


def _structs(items: Sequence[object], kind: Any) -> Any:
    columns = [
        pa.array([_plain(getattr(item, _ATTRIBUTES[inner.name])) for item in items], inner.type) for inner in kind
    ]
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _plain(value: object) -> object:
    """Arrow takes maps as lists of pairs."""
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, Format):
        return {"provider": value.provider, "options": list(value.options.items())}
    return value


def decode_checkpoint(path: str, data: bytes) -> list[Action]:
    """The actions of a classic checkpoint, of Headwater or of another engine."""
    try:
        table = pq.read_table(io.BytesIO(data))
        actions = []
        for name, kind in _KINDS.items():
            if name in table.column_names:
                attribute = _ATTRIBUTES[name]
                actions += [Action(**{attribute: item}) for item in _items(table.column(name).combine_chunks(), kind)]
        return actions
    except (pa.ArrowException, TypeError, KeyError) as error:
        raise Damaged(f"{path} is not a checkpoint of a Delta table: {error}") from error


def _items(column: Any, kind: type[msgspec.Struct]) -> Iterator[Any]:
    present = column.filter(column.is_valid())
    there = {inner.name for inner in present.type}
    known = [f for f in msgspec.structs.fields(kind) if f.encode_name in there]
    names = [f.name for f in known]
    columns = [present.field(f.encode_name).to_pylist(maps_as_pydicts="strict") for f in known]
    for row in zip(*columns, strict=True):
        values = dict(zip(names, row, strict=True))
        if kind is MetaData:
            values["format"] = Format(**values["format"])
        yield kind(**values)


def encode_hint(version: int, actions: Sequence[Action], size: int) -> bytes:
    """The content of `_last_checkpoint`."""
    adds = sum(action.add is not None for action in actions)
    facts = {"version": version, "size": len(actions), "sizeInBytes": size, "numOfAddFiles": adds}
    return msgspec.json.encode(facts)
