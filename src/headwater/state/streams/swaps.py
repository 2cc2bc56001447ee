"""Replacing index entries and entering the change into the journal. Settling and bulk appends share this.

Functions that raise a `Flaw` only check. A command changes nothing before all its checks have passed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

import msgspec

from headwater.state.commands.columns import FIRST_COLUMN
from headwater.state.commands.tables import KEY_COLUMN, Bounds, FileTyping, NewFile, SegmentRun
from headwater.state.results import Done, Reason, Refused, Result
from headwater.state.streams.domain import U32_MAX, StreamsDomain
from headwater.state.streams.index import MAX_GROUPS, IndexEntry, SettledEntry
from headwater.state.streams.stored.typed import DIGEST_MASK, NO_COLUMNS, TypedTable
from headwater.state.streams.stream import Stream
from headwater.state.streams.tables import DataFile, TopicTable

MAX_BOUNDS = 64
"""Columns of a file with bounds."""
MAX_BOUND_BYTES = 256


class Swap:
    """The change of one stream: `entries` replace the index entries from `first` up to, not including, `last`."""

    __slots__ = ("entries", "first", "last", "stream")

    def __init__(self, stream: Stream, first: int, last: int, entries: list[SettledEntry]) -> None:
        self.stream = stream
        self.first = first
        self.last = last
        self.entries = entries


class Flaw(Exception):
    """Why a command is refused. The judge of the command catches it and returns the refusal."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.refusal = Refused(reason, detail)


def numbered(state: StreamsDomain, files: Sequence[NewFile]) -> list[DataFile]:
    """Check new files and give them the next numbers."""
    found = []
    for i, file in enumerate(files, state.last_file + 1):
        if file.rows < 1 or file.size < 1 or not 0 < file.groups <= MAX_GROUPS or not file.name:
            raise Flaw(Reason.INVALID, f"file {file.name!r} cannot have {file.rows} rows in {file.groups} row groups")
        if i > U32_MAX:
            raise Flaw(Reason.INVALID, "no file numbers are left")
        found.append(msgspec.convert((i, *msgspec.structs.astuple(file), 0, 0, 0, 0, 0, 0, 0), DataFile))
    return found


def check_typings(state: StreamsDomain, topic: uuid.UUID, files: list[DataFile], typings: Sequence[FileTyping]) -> None:
    """Check what is told of new files."""
    if len(typings) != len(files):
        raise Flaw(Reason.INVALID, "the numbers of files and of their typings differ")
    columns = state.typed[topic].columns if topic in state.typed else NO_COLUMNS
    newest, last_id = columns.version, columns.last_id
    for file, typing in zip(files, typings, strict=True):
        if not 0 <= typing.digest <= DIGEST_MASK or not 0 <= typing.failures <= file.rows:
            raise Flaw(Reason.INVALID, f"file {file.name!r} cannot have {typing}")
        if not 0 <= typing.version <= newest:
            raise Flaw(Reason.INVALID, f"file {file.name!r} has columns of version {typing.version}, not {newest}")
        _check_bounds(file, typing.bounds, last_id)


def _check_bounds(file: DataFile, bounds: Sequence[Bounds], last_id: int) -> None:
    """Check bounds of a file in a table whose columns have ids up to `last_id`."""
    if len(bounds) > MAX_BOUNDS:
        raise Flaw(Reason.INVALID, f"file {file.name!r} has bounds of {len(bounds)} columns, more than {MAX_BOUNDS}")
    before = 0
    for one in bounds:
        known = one.column == KEY_COLUMN or FIRST_COLUMN <= one.column <= last_id
        if not known or one.column <= before or not 0 <= one.nulls <= file.rows:
            raise Flaw(Reason.INVALID, f"file {file.name!r} cannot have bounds of column {one.column}")
        if max(len(one.lower or b""), len(one.upper or b"")) > MAX_BOUND_BYTES:
            raise Flaw(Reason.INVALID, f"file {file.name!r}: a bound of column {one.column} is too long")
        before = one.column


def note_typings(state: StreamsDomain, topic: uuid.UUID, files: list[DataFile], typings: Sequence[FileTyping]) -> None:
    """Keep what is told of new files."""
    if typings:
        typed = state.typed.setdefault(topic, TypedTable())
        typed.files.update((file.number, typing) for file, typing in zip(files, typings, strict=True))
        state.roll("typings", [(one.digest, one.version, one.failures, _plain(one.bounds)) for one in typings])


def _plain(bounds: Sequence[Bounds]) -> list[tuple[object, ...]]:
    return [msgspec.structs.astuple(one) for one in bounds]


def check_run(name: int, run: SegmentRun, expected: int, files: list[DataFile]) -> None:
    """Check that a run begins at `expected` and is in row groups of one of the files, or has no file."""
    if run.start != expected or not 0 < run.end - run.start <= U32_MAX:
        raise Flaw(Reason.INVALID, f"stream {name}: the runs do not follow one another")
    if not -1 <= run.file < len(files):
        raise Flaw(Reason.INVALID, f"stream {name}: no file {run.file}")
    if run.file >= 0 and not 0 <= run.first_group < run.first_group + run.groups <= files[run.file].groups:
        raise Flaw(Reason.INVALID, f"stream {name}: no row groups {run.first_group} and on")


def check_all_used(files: list[DataFile], swaps: list[Swap]) -> None:
    """Check that at least one new index entry names each file."""
    used = {entry.file for swap in swaps for entry in swap.entries}
    unused = [file.name for file in files if file.number not in used]
    if unused:
        raise Flaw(Reason.INVALID, f"no index entry names the file {unused[0]}")


def release(state: StreamsDomain, stream: Stream, entries: Iterable[IndexEntry]) -> None:
    """Release the references of entries that left the index."""
    for entry in entries:
        if entry.file:
            state.tables[stream.topic].files[entry.file].references -= 1
        elif entry.in_wal:
            state.objects.release(entry.object, state.clock_ms)


def new_table(state: StreamsDomain, topic: uuid.UUID, root: str) -> TopicTable:
    """The table of a topic that has none. A lost end of the ledger may have had one: its versions are left out."""
    table = state.tables[topic] = TopicTable(topic, root)
    if state.lives:
        table.skip(state.last_file)
    return table


def carry_out(state: StreamsDomain, swap: Swap, files: list[DataFile]) -> None:
    """Replace a stream's index entries and count the references."""
    stream = swap.stream
    release(state, stream, [stream.index[i] for i in range(swap.first, swap.last)])
    stream.index.replace(swap.first, swap.last, swap.entries)
    stream.index.restart_running_maximum(swap.first + len(swap.entries))
    numbers = {file.number: file for file in files}
    for entry in swap.entries:
        if entry.file:
            numbers[entry.file].references += 1


def enter(
    state: StreamsDomain,
    table: TopicTable,
    files: list[DataFile],
    removed: Sequence[int],
    ends: Sequence[tuple[int, int]],
    *,
    replaces: bool,
) -> Result:
    """Enter a change into the table's journal. Returns its sequence."""
    state.last_file += len(files)
    entry = table.record(state.clock_ms, state.date_ms, files, removed, ends, replaces=replaces)
    state.roll("journal", entry.sequence, entry.added, entry.removed, entry.ends)
    return Done(entry.sequence)


def note_end(state: StreamsDomain, stream: Stream) -> None:
    """Enter the new settled end into the journal after rows of a bulk append joined the settled part by themselves."""
    table = state.tables[stream.topic]
    enter(state, table, [], (), [(stream.partition, stream.settled)], replaces=False)
