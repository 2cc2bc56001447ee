"""Index entries that become others, and the journal entry that goes with them: what settling and bulk appends share.

Everything that raises a `Flaw` only looks; nothing is changed before all of it has passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from headwater.metadata.commands import NewFile, SegmentRun
from headwater.metadata.index import MAX_GROUPS, IndexEntry, SettledEntry
from headwater.metadata.results import Done, Reason, Refused, Result
from headwater.metadata.tables import DataFile, TopicTable

if TYPE_CHECKING:
    from headwater.metadata.streams import Stream, StreamsState

U32_MAX = (1 << 32) - 1


class Swap:
    """What happens to one stream: entries from `first` to `last` become others."""

    __slots__ = ("entries", "first", "last", "stream")

    def __init__(self, stream: Stream, first: int, last: int, entries: list[SettledEntry]) -> None:
        self.stream = stream
        self.first = first
        self.last = last
        self.entries = entries


class Flaw(Exception):
    """Why a command cannot stand. Whoever judges it turns this into a refusal."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.refusal = Refused(reason, detail)


def numbered(state: StreamsState, files: Sequence[NewFile]) -> list[DataFile]:
    """The files with the numbers they are about to get."""
    found = []
    for i, file in enumerate(files, state.last_file + 1):
        if file.rows < 1 or file.size < 1 or not 0 < file.groups <= MAX_GROUPS or not file.name:
            raise Flaw(Reason.INVALID, f"file {file.name!r} of {file.rows} rows in {file.groups} row groups")
        if i > U32_MAX:
            raise Flaw(Reason.INVALID, "no file numbers are left")
        found.append(msgspec.convert((i, *msgspec.structs.astuple(file), 0, 0, 0, 0), DataFile))
    return found


def check_run(name: int, run: SegmentRun, expected: int, files: list[DataFile]) -> None:
    """A run begins where it is expected and lies in row groups of one of the files, or nowhere."""
    if run.start != expected or not 0 < run.end - run.start <= U32_MAX:
        raise Flaw(Reason.INVALID, f"stream {name}: runs that do not follow one another")
    if not -1 <= run.file < len(files):
        raise Flaw(Reason.INVALID, f"stream {name}: no file {run.file}")
    if run.file >= 0 and not 0 <= run.first_group < run.first_group + run.groups <= files[run.file].groups:
        raise Flaw(Reason.INVALID, f"stream {name}: no row groups {run.first_group} and on")


def check_all_used(files: list[DataFile], swaps: list[Swap]) -> None:
    """No file may be entered that no offset lies in."""
    used = {entry.file for swap in swaps for entry in swap.entries}
    unused = [file.name for file in files if file.number not in used]
    if unused:
        raise Flaw(Reason.INVALID, f"no offsets lie in {unused[0]}")


def release(state: StreamsState, stream: Stream, entries: Iterable[IndexEntry]) -> None:
    """Entries left the index: what they named has one reference fewer."""
    for entry in entries:
        if entry.file:
            state.tables[stream.topic].files[entry.file].references -= 1
        elif entry.in_wal:
            state.objects.release(entry.object, state.clock_ms)


def carry_out(state: StreamsState, swap: Swap, files: list[DataFile]) -> None:
    """Put a stream's new entries in the place of its old ones, and count who names what."""
    stream = swap.stream
    release(state, stream, [stream.index[i] for i in range(swap.first, swap.last)])
    stream.index.replace(swap.first, swap.last, swap.entries)
    numbers = {file.number: file for file in files}
    for entry in swap.entries:
        if entry.file:
            numbers[entry.file].references += 1


def enter(
    state: StreamsState,
    table: TopicTable,
    files: list[DataFile],
    removed: Sequence[int],
    ends: Sequence[tuple[int, int]],
    *,
    replaces: bool,
) -> Result:
    """Enter a change into the table's journal. Yields its sequence."""
    state.last_file += len(files)
    entry = table.record(state.clock_ms, files, removed, ends, replaces=replaces)
    state._roll("journal", entry.sequence, entry.added, entry.removed, entry.ends)
    return Done(entry.sequence)
