"""The part of `apply` that turns WAL runs into segments: the moment of truth of settling.

A command is judged as a whole before anything changes. It rests on the compaction lease, and on the index as the plan
saw it: whatever moved in between (a trim, another settle, a deleted topic) refuses it, and the plan is made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.metadata.commands import Follow, ForgetFiles, Merge, NewFile, SegmentRun, Settle, Unfollow, WantSettled
from headwater.metadata.index import MAX_GROUPS, IndexEntry, SettledEntry
from headwater.metadata.results import Done, Reason, Refused, Result
from headwater.metadata.tables import DataFile, Follower, TopicTable

if TYPE_CHECKING:
    from headwater.metadata.streams import Stream, StreamsState

COMPACTION = "compaction"
"""The lease of whoever settles a domain's topics."""

U32_MAX = (1 << 32) - 1
MAX_FOLLOWERS = 16
MAX_LOCATION = 2_000


class _Swap:
    """What happens to one stream: entries from `first` to `last` become others."""

    __slots__ = ("entries", "first", "last", "stream")

    def __init__(self, stream: Stream, first: int, last: int, entries: list[SettledEntry]) -> None:
        self.stream = stream
        self.first = first
        self.last = last
        self.entries = entries


class _Flaw(Exception):
    """Why a command cannot stand. Never leaves this module."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.refusal = Refused(reason, detail)


def want_settled(state: StreamsState, epoch: int, command: WantSettled) -> Result:
    """See `WantSettled`. Yields how many streams are not settled."""
    waiting = sum(s.topic == command.topic and s.settled < s.next_offset for s in state.streams.values())
    if waiting:
        state.wanted[command.topic] = None
    state._roll("want", command.topic, waiting)
    return Done(waiting)


def settle(state: StreamsState, epoch: int, command: Settle) -> Result:
    """See `Settle`."""
    try:
        _check_lease(state, epoch, command.lease)
        files = _numbered(state, command.files)
        swaps = _plan_swaps(state, command, files)
        for swap in swaps:
            if swap.entries[0].start != swap.stream.settled:
                raise _Flaw(Reason.STALE, f"stream {swap.stream.id} is settled up to {swap.stream.settled}")
        _check_all_used(files, swaps)
        table = state.tables.get(command.topic)
        if table is not None and table.dropped:
            raise _Flaw(Reason.UNKNOWN, "the topic is being deleted")
    except _Flaw as flaw:
        return flaw.refusal
    if table is None:
        table = state.tables[command.topic] = TopicTable(command.topic, command.root)
    state.wanted.pop(command.topic, None)
    ends = []
    for swap in swaps:
        _carry_out(state, swap, files)
        swap.stream.settled = swap.entries[-1].end
        ends.append((swap.stream.partition, swap.stream.settled))
    return _enter(state, table, files, (), ends, replaces=False)


def merge(state: StreamsState, epoch: int, command: Merge) -> Result:
    """See `Merge`."""
    try:
        _check_lease(state, epoch, command.lease)
        table = state.tables.get(command.topic)
        if table is None or table.dropped:
            raise _Flaw(Reason.UNKNOWN, "the topic has no table")
        gone = set(command.removed)
        if not gone or any(n not in table.files or table.files[n].removed for n in gone):
            raise _Flaw(Reason.STALE, "a file to merge is not in the table any more")
        files = _numbered(state, command.files)
        swaps = _plan_swaps(state, command, files)
        replaced = dict.fromkeys(sorted(gone), 0)
        for swap in swaps:
            for i in range(swap.first, swap.last):
                number = swap.stream.index[i].file
                if number and number not in gone:
                    raise _Flaw(Reason.STALE, f"stream {swap.stream.id} lies in other files by now")
                if number:
                    replaced[number] += 1
        if any(table.files[number].references != count for number, count in replaced.items()):
            raise _Flaw(Reason.STALE, "the index refers to a file in more places than are merged")
        if sum(f.rows for f in files) != sum(table.files[number].rows for number in replaced):
            raise _Flaw(Reason.INVALID, "a merge that changes the number of rows")
        _check_all_used(files, swaps)
    except _Flaw as flaw:
        return flaw.refusal
    for swap in swaps:
        _carry_out(state, swap, files)
    return _enter(state, table, files, command.removed, (), replaces=True)


def follow(state: StreamsState, epoch: int, command: Follow) -> Result:
    """See `Follow`."""
    try:
        _check_lease(state, epoch, command.lease)
    except _Flaw as flaw:
        return flaw.refusal
    table = state.tables.get(command.topic)
    if table is None or table.dropped:
        return Refused(Reason.UNKNOWN, "the topic has no table")
    known = table.followers.get(command.follower)
    if known is None and len(table.followers) >= MAX_FOLLOWERS:
        return Refused(Reason.INVALID, f"the table has {MAX_FOLLOWERS} followers")
    if command.expected != (known.location if known else ""):
        return Refused(Reason.STALE, f"{command.follower} has moved on")
    if known is not None and (command.cursor < known.cursor or command.oldest < known.oldest):
        return Refused(Reason.STALE, f"{command.follower} is at {known.cursor} already")
    if not 0 <= command.oldest <= command.cursor <= table.last_sequence or len(command.location) > MAX_LOCATION:
        return Refused(Reason.INVALID, f"a cursor at {command.cursor} of {table.last_sequence}")
    table.followed(command.follower, Follower(command.cursor, command.oldest, command.location))
    state._roll("follow", command.follower, command.cursor, command.location)
    return Done()


def unfollow(state: StreamsState, epoch: int, command: Unfollow) -> Result:
    """See `Unfollow`."""
    try:
        _check_lease(state, epoch, command.lease)
    except _Flaw as flaw:
        return flaw.refusal
    table = state.tables.get(command.topic)
    if table is None or table.followers.pop(command.follower, None) is None:
        return Refused(Reason.UNKNOWN, f"nobody follows as {command.follower}")
    state._roll("unfollow", command.follower)
    return Done()


def forget_files(state: StreamsState, epoch: int, command: ForgetFiles) -> Result:
    """See `ForgetFiles`."""
    try:
        _check_lease(state, epoch, command.lease)
    except _Flaw as flaw:
        return flaw.refusal
    table = state.tables.get(command.topic)
    if table is None:
        return Done()
    ripe = {file.number for file in table.ripe()}
    gone = 0
    for number in command.files:
        if number in ripe and table.files.pop(number, None) is not None:
            gone += 1
    if table.dropped and not table.files:
        del state.tables[command.topic]
    state._roll("files", gone)
    return Done(gone)


def release(state: StreamsState, stream: Stream, entries: Iterable[IndexEntry]) -> None:
    """Entries left the index: what they named has one reference fewer."""
    for entry in entries:
        if entry.file:
            state.tables[stream.topic].files[entry.file].references -= 1
        elif not entry.settled:
            state.objects.release(entry.object, state.clock_ms)


# --- the checks ----------------------------------------------------------------------------------------


def _check_lease(state: StreamsState, epoch: int, lease: int) -> None:
    if not state._holds(epoch, COMPACTION, lease):
        raise _Flaw(Reason.STALE, "the compaction lease has passed on")


def _numbered(state: StreamsState, files: Sequence[NewFile]) -> list[DataFile]:
    """The files with the numbers they are about to get."""
    found = []
    for i, file in enumerate(files, state.last_file + 1):
        if file.rows < 1 or file.size < 1 or not 0 < file.groups <= MAX_GROUPS or not file.name:
            raise _Flaw(Reason.INVALID, f"file {file.name!r} of {file.rows} rows in {file.groups} row groups")
        if i > U32_MAX:
            raise _Flaw(Reason.INVALID, "no file numbers are left")
        found.append(msgspec.convert((i, *msgspec.structs.astuple(file), 0, 0, 0, 0), DataFile))
    return found


def _plan_swaps(state: StreamsState, command: Settle | Merge, files: list[DataFile]) -> list[_Swap]:
    """For every stream, which entries become which."""
    by_stream: dict[int, list[SegmentRun]] = {}
    for run in command.runs:
        by_stream.setdefault(run.stream, []).append(run)
    if not by_stream:
        raise _Flaw(Reason.INVALID, "nothing to swap")
    return [_plan_swap(state, command, name, runs, files) for name, runs in by_stream.items()]


def _plan_swap(
    state: StreamsState, command: Settle | Merge, name: int, runs: list[SegmentRun], files: list[DataFile]
) -> _Swap:
    stream = state.streams.get(name)
    if stream is None or stream.topic != command.topic:
        raise _Flaw(Reason.UNKNOWN, f"the topic has no stream {name}")
    index = stream.index
    first = at = index.find(runs[0].start)
    entries, expected = [], runs[0].start
    for run in runs:
        if run.start != expected or not 0 < run.end - run.start <= U32_MAX:
            raise _Flaw(Reason.INVALID, f"stream {name}: runs that do not follow one another")
        if not -1 <= run.file < len(files):
            raise _Flaw(Reason.INVALID, f"stream {name}: no file {run.file}")
        if run.file >= 0 and not 0 <= run.first_group < run.first_group + run.groups <= files[run.file].groups:
            raise _Flaw(Reason.INVALID, f"stream {name}: no row groups {run.first_group} and on")
        size = length = 0
        largest = None
        while at < len(index) and index[at].end <= run.end:
            old = index[at]
            if old.settled is not isinstance(command, Merge):
                raise _Flaw(Reason.STALE, f"stream {name}: the entry up to {old.end} is not as it was planned")
            size, length = old.cumulative_size, length + old.length
            largest = old.max_timestamp if largest is None else max(largest, old.max_timestamp)
            at += 1
        if largest is None or index[at - 1].end != run.end or length > U32_MAX:
            raise _Flaw(Reason.STALE, f"stream {name}: no entry ends at {run.end}")
        number = files[run.file].number if run.file >= 0 else 0
        entries.append(
            SettledEntry(
                run.start, run.end, size, largest, length, number, run.first_group, run.groups if number else 0
            )
        )
        expected = run.end
    if max(index[first].start, stream.log_start) != max(runs[0].start, stream.log_start):
        raise _Flaw(Reason.STALE, f"stream {name}: no entry begins at {runs[0].start}")
    return _Swap(stream, first, at, entries)


def _check_all_used(files: list[DataFile], swaps: list[_Swap]) -> None:
    used = {entry.file for swap in swaps for entry in swap.entries}
    unused = [file.name for file in files if file.number not in used]
    if unused:
        raise _Flaw(Reason.INVALID, f"no offsets lie in {unused[0]}")


# --- the changes -----------------------------------------------------------------------------------------


def _carry_out(state: StreamsState, swap: _Swap, files: list[DataFile]) -> None:
    stream = swap.stream
    release(state, stream, [stream.index[i] for i in range(swap.first, swap.last)])
    stream.index.replace(swap.first, swap.last, swap.entries)
    numbers = {file.number: file for file in files}
    for entry in swap.entries:
        if entry.file:
            numbers[entry.file].references += 1


def _enter(
    state: StreamsState,
    table: TopicTable,
    files: list[DataFile],
    removed: Sequence[int],
    ends: Sequence[tuple[int, int]],
    *,
    replaces: bool,
) -> Result:
    state.last_file += len(files)
    entry = table.record(state.clock_ms, files, removed, ends, replaces=replaces)
    state._roll("journal", entry.sequence, entry.added, entry.removed, entry.ends)
    return Done(entry.sequence)


COMMANDS: dict[type, Callable[[Any, int, Any], Result]] = {
    WantSettled: want_settled,
    Settle: settle,
    Merge: merge,
    Follow: follow,
    Unfollow: unfollow,
    ForgetFiles: forget_files,
}
