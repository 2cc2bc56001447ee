"""The part of the state for typed columns of tables: their history, and what files have.

`Settle`, `Replace` and `Fill`, which tell what files have, are judged elsewhere. Here are the columns themselves.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Sequence

import msgspec

from headwater.state.commands.columns import AddColumns, Column, WantDecoded, grown, walk
from headwater.state.machine import Part
from headwater.state.results import Done, Reason, Refused, Result
from headwater.state.streams.domain import COMPACTION, StreamsDomain
from headwater.state.streams.stored.typed import Columns, ColumnsVersion, TypedImage, TypedTable
from headwater.state.streams.swaps import Flaw

MAX_COLUMNS = 10_000
"""Columns of a table, with those inside of columns."""
MAX_DEPTH = 64
MAX_NAME = 1_000
MAX_DOC = 1_000
MAX_ID = (1 << 31) - 1
LOG_COLUMNS = frozenset(
    (
        *("partition", "offset", "timestamp_ms", "timestamp", "key", "value", "headers", "headers_raw"),
        *("attributes", "producer_id", "producer_epoch", "sequence"),
    )
)
"""The names of the log's columns, which no typed column of the table may have."""
_PLAIN = frozenset(
    ("boolean", "long", "double", "date", "timestamp", "timestamptz", "string", "binary", "json")
)  # fmt: skip
"""The kinds that both table formats have."""
_DECIMAL = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)", re.ASCII)
_MAX_PRECISION = 38


def add_columns(state: StreamsDomain, epoch: int, command: AddColumns) -> Result:
    """See `AddColumns`."""
    if not state.holds(epoch, COMPACTION, command.lease):
        return Refused(Reason.STALE, "the writer does not hold the compaction lease")
    table = state.tables.get(command.topic)
    if table.dropped if table is not None else not _has_streams(state, command.topic):
        return Refused(Reason.UNKNOWN, "the topic does not exist, or is being deleted")
    known = state.typed.get(command.topic, TypedTable())
    before = known.columns
    if command.expected != before.version:
        return Refused(Reason.STALE, f"the columns are at version {before.version}")
    try:
        columns = _added(before, command)
    except Flaw as flaw:
        return flaw.refusal
    last_id = max(column.id for addition in command.added for column in walk([addition.column]))
    version = ColumnsVersion(last_id, table.last_sequence if table is not None else 0)
    known.columns = Columns(columns, (*before.versions, version))
    state.typed[command.topic] = known
    state.roll("columns", command.topic, known.columns.version, last_id)
    return Done(known.columns.version)


def want_decoded(state: StreamsDomain, epoch: int, command: WantDecoded) -> Result:
    """See `WantDecoded`."""
    table = state.tables.get(command.topic)
    if table is None or table.dropped:
        return Refused(Reason.UNKNOWN, "the topic has no table")
    typed = state.typed.setdefault(command.topic, TypedTable())
    typed.failed_up_to = state.last_file
    if command.everything:
        typed.all_up_to = state.last_file
    waiting = sum(1 for _ in typed.undecoded(table.live()))
    state.roll("decode", command.topic, command.everything, waiting)
    return Done(waiting)


# --- the checks ----------------------------------------------------------------------------------------


def _has_streams(state: StreamsDomain, topic: uuid.UUID) -> bool:
    return any(stream.topic == topic for stream in state.streams.values())


def _added(before: Columns, command: AddColumns) -> tuple[Column, ...]:
    """Check additions; returns all columns."""
    if _depth([addition.column for addition in command.added]) > MAX_DEPTH:
        raise Flaw(Reason.INVALID, f"columns are {MAX_DEPTH} levels deep at most")
    new = [column for addition in command.added for column in walk([addition.column])]
    if not new:
        raise Flaw(Reason.INVALID, "the command adds no column")
    known = {column.id: column for column in walk(before.newest)}
    if len(known) + len(new) > MAX_COLUMNS:
        raise Flaw(Reason.INVALID, f"a table has {MAX_COLUMNS} columns at most")
    if len({column.id for column in new}) != len(new):
        raise Flaw(Reason.INVALID, "two columns have the same id")
    for column in new:
        if not before.last_id < column.id <= MAX_ID:
            raise Flaw(Reason.INVALID, f"column {column.name!r}: its id is {column.id}, the last one {before.last_id}")
        _check_column(column)
    for addition in command.added:
        if addition.parent and (addition.parent not in known or known[addition.parent].kind != "struct"):
            raise Flaw(Reason.INVALID, f"there is no struct {addition.parent}")
    columns = grown(before.newest, command.added)
    if _depth(columns) > MAX_DEPTH:
        raise Flaw(Reason.INVALID, f"columns are {MAX_DEPTH} levels deep at most")
    _check_names(columns, LOG_COLUMNS)
    for column in walk(columns):
        _check_names(column.children)
    return columns


def _check_column(column: Column) -> None:
    if not 0 < len(column.name) <= MAX_NAME or len(column.doc) > MAX_DOC:
        raise Flaw(Reason.INVALID, f"column {column.id} has no name, or its name or comment is too long")
    names = tuple(child.name for child in column.children)
    if column.kind == "struct":
        sound = bool(names)
    elif column.kind == "list":
        sound = names == ("element",)
    elif column.kind == "map":
        sound = names == ("key", "value")
    else:
        sound = not names and _is_plain(column.kind)
    if not sound:
        raise Flaw(Reason.INVALID, f"column {column.name!r} cannot be {column.kind!r} with {len(names)} fields")


def _is_plain(kind: str) -> bool:
    decimal = _DECIMAL.fullmatch(kind)
    if decimal is not None:
        return 0 <= int(decimal[2]) <= int(decimal[1]) <= _MAX_PRECISION and int(decimal[1]) > 0
    return kind in _PLAIN


def _check_names(columns: Sequence[Column], taken: Collection[str] = ()) -> None:
    seen = set(taken)
    for column in columns:
        if column.name in seen:
            raise Flaw(Reason.INVALID, f"there is a column {column.name!r} already")
        seen.add(column.name)


def _depth(columns: Sequence[Column]) -> int:
    """The levels of columns, without recursion: the columns may be too deep for it."""
    level, depth = list(columns), 0
    while level:
        level, depth = [child for column in level for child in column.children], depth + 1
    return depth


# --- hooks and image -----------------------------------------------------------------------------------


def _dropped(state: StreamsDomain, names: Sequence[int]) -> None:
    """Forget the columns of topics without a table. Those of a table go with it."""
    for topic in dict.fromkeys(state.streams[name].topic for name in names if name in state.streams):
        if topic not in state.tables:
            state.typed.pop(topic, None)


class TypedTablesImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The typed columns of a domain inside a checkpoint."""

    tables: list[TypedImage]


def _pack(state: StreamsDomain) -> TypedTablesImage:
    return TypedTablesImage([typed.pack(topic) for topic, typed in state.typed.items()])


def _unpack(state: StreamsDomain, image: TypedTablesImage) -> None:
    state.typed = {uuid.UUID(bytes=table.topic): TypedTable.unpack(table) for table in image.tables}


PART: Part[StreamsDomain, TypedTablesImage] = Part(
    name="typed",
    commands={AddColumns: add_columns, WantDecoded: want_decoded},
    format=1,
    image=TypedTablesImage,
    pack=_pack,
    unpack=_unpack,
    empty=lambda: TypedTablesImage([]),
    dropped=_dropped,
)
