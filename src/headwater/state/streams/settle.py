"""The part of the state for tables: settling, merging, following and expiry.

A command is judged as a whole before anything changes. It is refused if its writer no longer holds the compaction
lease, or if the index is no longer as the compactor's plan saw it (after a trim, another settle, or the deletion of the
topic). The compactor then makes a new plan.
"""

from __future__ import annotations

import functools
import itertools
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from headwater.state.commands.base import Accept
from headwater.state.commands.tables import (
    Expired,
    Follow,
    ForgetFiles,
    Pin,
    Replace,
    Retire,
    SegmentRun,
    Settle,
    Unfollow,
    WantExpired,
    WantSettled,
)
from headwater.state.machine import Part
from headwater.state.results import Done, Reason, Refused, Result
from headwater.state.streams.domain import COMPACTION, U32_MAX, StreamsDomain
from headwater.state.streams.index import NO_TIMESTAMP, IndexEntry, SettledEntry
from headwater.state.streams.stored.typed import DIGEST_MASK
from headwater.state.streams.swaps import (
    Flaw,
    Swap,
    carry_out,
    check_all_used,
    check_run,
    check_typings,
    enter,
    new_table,
    note_typings,
    numbered,
)
from headwater.state.streams.tables import DataFile, ExpiryRequest, Follower, TableImage, TopicTable

MAX_FOLLOWERS = 16
MAX_LOCATION = 2_000
MAX_PINNED = 10_000

_Swapping: TypeAlias = Settle | Replace
"""Commands of the compactor that replace index entries."""


class _Leased(Protocol):
    @property
    def lease(self) -> int: ...


_C = TypeVar("_C", bound=_Leased)


def _leased(judge: Callable[[StreamsDomain, int, _C], Result]) -> Callable[[StreamsDomain, int, _C], Result]:
    """A judge for the holder of the compaction lease only. A `Flaw` becomes a refusal."""

    @functools.wraps(judge)
    def judged(state: StreamsDomain, epoch: int, command: _C) -> Result:
        if not state.holds(epoch, COMPACTION, command.lease):
            return Refused(Reason.STALE, "the writer does not hold the compaction lease")
        try:
            return judge(state, epoch, command)
        except Flaw as flaw:
            return flaw.refusal

    return judged


def want_settled(state: StreamsDomain, epoch: int, command: WantSettled) -> Result:
    """See `WantSettled`. Returns how many streams are not settled."""
    waiting = sum(s.topic == command.topic and s.settled < s.stable for s in state.streams.values())
    if waiting:
        state.wanted[command.topic] = None
    state.roll("want", command.topic, waiting)
    return Done(waiting)


@_leased
def settle(state: StreamsDomain, epoch: int, command: Settle) -> Result:
    """See `Settle`."""
    files = numbered(state, command.files)
    check_typings(state, command.topic, files, command.typings)
    swaps = _plan_swaps(state, command, files)
    for swap in swaps:
        if swap.entries[0].start != swap.stream.settled:
            raise Flaw(Reason.STALE, f"stream {swap.stream.id} is settled up to {swap.stream.settled}")
        if swap.entries[-1].end > swap.stream.stable:
            raise Flaw(Reason.STALE, f"stream {swap.stream.id} has open transactions from {swap.stream.stable} on")
    check_all_used(files, swaps)
    table = state.tables.get(command.topic)
    if table is not None and table.dropped:
        raise Flaw(Reason.UNKNOWN, "the topic is being deleted")
    if table is None:
        table = new_table(state, command.topic, command.root)
    ends, more = [], False
    for swap in swaps:
        carry_out(state, swap, files)
        end = swap.stream.settled = swap.entries[-1].end
        swap.stream.advance()
        swap.stream.forget_aborted()
        more = more or end < swap.stream.settled < swap.stream.stable  # WAL behind a bulk append, in no plan yet
        ends.append((swap.stream.partition, swap.stream.settled))
    if not more:
        state.wanted.pop(command.topic, None)
    note_typings(state, command.topic, files, command.typings)
    return enter(state, table, files, (), ends, replaces=False)


@_leased
def replace(state: StreamsDomain, epoch: int, command: Replace) -> Result:
    """See `Replace`."""
    table = _standing_table(state, command.topic)
    gone = set(command.removed)
    _check_live(table, gone)
    files = numbered(state, command.files)
    swaps = _plan_swaps(state, command, files) if command.runs or not command.rewrites else []
    replaced = dict.fromkeys(sorted(gone), 0)
    for swap in swaps:
        for i in range(swap.first, swap.last):
            number = swap.stream.index[i].file
            if number and number not in gone:
                raise Flaw(Reason.STALE, f"stream {swap.stream.id} is in other files by now")
            if number:
                replaced[number] += 1
    if any(table.files[number].references != count for number, count in replaced.items()):
        raise Flaw(Reason.STALE, "the index refers to a file in more places than are merged")
    if sum(f.rows for f in files) != sum(table.files[number].rows for number in replaced):
        raise Flaw(Reason.INVALID, "the merge changes the number of rows")
    _check_rows(state, command, files, replaced)
    if not command.rewrites:
        check_all_used(files, swaps)
    for swap in swaps:
        carry_out(state, swap, files)
    note_typings(state, command.topic, files, command.typings)
    return enter(state, table, files, command.removed, (), replaces=not command.rewrites)


@_leased
def follow(state: StreamsDomain, epoch: int, command: Follow) -> Result:
    """See `Follow`."""
    table = _standing_table(state, command.topic)
    known = table.followers.get(command.follower)
    if known is None and len(table.followers) >= MAX_FOLLOWERS:
        return Refused(Reason.INVALID, f"the table has {MAX_FOLLOWERS} followers")
    if command.expected != (known.location if known else ""):
        return Refused(Reason.STALE, f"the location of {command.follower} has changed")
    if known is not None and (command.cursor < known.cursor or command.oldest < known.oldest):
        return Refused(Reason.STALE, f"{command.follower} is at {known.cursor} already")
    if not 0 <= command.oldest <= command.cursor <= table.last_sequence or len(command.location) > MAX_LOCATION:
        return Refused(Reason.INVALID, f"the cursor is at {command.cursor}, the journal at {table.last_sequence}")
    recent, pinned = (known.recent, known.pinned) if known else (0, ())
    table.followed(command.follower, Follower(command.cursor, command.oldest, command.location, recent, pinned))
    state.roll("follow", command.follower, command.cursor, command.location)
    return Done()


@_leased
def pin(state: StreamsDomain, epoch: int, command: Pin) -> Result:
    """See `Pin`."""
    table = _standing_table(state, command.topic)
    known = table.followers.get(command.follower)
    if known is None or (known.location, known.cursor) != (command.location, command.cursor):
        raise Flaw(Reason.STALE, f"the location or cursor of {command.follower} has changed")
    rising = (-1, *command.pinned, command.recent)
    if len(command.pinned) > MAX_PINNED or any(a >= b for a, b in itertools.pairwise(rising)):
        raise Flaw(Reason.INVALID, f"the {len(command.pinned)} versions do not rise up to {command.recent}")
    if command.recent > known.cursor:
        raise Flaw(Reason.INVALID, f"the versions reach {command.recent}, the follower only {known.cursor}")
    table.followers[command.follower] = msgspec.structs.replace(known, recent=command.recent, pinned=command.pinned)
    state.roll("pin", command.follower, command.recent, command.pinned)
    return Done()


@_leased
def retire(state: StreamsDomain, epoch: int, command: Retire) -> Result:
    """See `Retire`."""
    table = _standing_table(state, command.topic)
    _check_live(table, set(command.files))
    return enter(state, table, [], sorted(set(command.files)), (), replaces=False)


def want_expired(state: StreamsDomain, epoch: int, command: WantExpired) -> Result:
    """See `WantExpired`. A table without followers keeps no request: nothing has to be done."""
    table = state.tables.get(command.topic)
    if table is None or table.dropped:
        return Refused(Reason.UNKNOWN, "the topic has no table")
    if min(command.keep, command.before_ms) < 0:
        return Refused(Reason.INVALID, f"the limits {command.keep} and {command.before_ms} must not be negative")
    keep, before = command.keep, command.before_ms
    if table.expiry is not None:  # the caller of the earlier request waits too: cover both
        keep = min(keep or table.expiry.keep, table.expiry.keep or keep)
        before = max(before, table.expiry.before_ms)
    table.expiries += 1
    table.expiry = ExpiryRequest(table.expiries, keep, before, list(table.followers)) if table.followers else None
    state.roll("expire", command.topic, table.expiries, keep, before)
    return Done(table.expiries)


@_leased
def expired(state: StreamsDomain, epoch: int, command: Expired) -> Result:
    """See `Expired`."""
    table = _standing_table(state, command.topic)
    if table.expiry is None or table.expiry.number != command.request:
        raise Flaw(Reason.STALE, f"request {command.request} is not the newest")
    _no_longer_waits(table, command.follower)
    state.roll("expired", command.follower, command.request)
    return Done()


def _no_longer_waits(table: TopicTable, follower: str) -> None:
    if table.expiry is not None:
        waiting = [name for name in table.expiry.waiting if name != follower]
        table.expiry = msgspec.structs.replace(table.expiry, waiting=waiting) if waiting else None


@_leased
def unfollow(state: StreamsDomain, epoch: int, command: Unfollow) -> Result:
    """See `Unfollow`."""
    table = state.tables.get(command.topic)
    if table is None or table.followers.pop(command.follower, None) is None:
        return Refused(Reason.UNKNOWN, f"the table has no follower {command.follower}")
    _no_longer_waits(table, command.follower)
    state.roll("unfollow", command.follower)
    return Done()


@_leased
def forget_files(state: StreamsDomain, epoch: int, command: ForgetFiles) -> Result:
    """See `ForgetFiles`."""
    table = state.tables.get(command.topic)
    if table is None:
        return Done()
    ripe, typed = {file.number for file in state.ripe(table)}, state.typed.get(command.topic)
    gone = 0
    for number in command.files:
        if number in ripe and table.forget(number):
            gone += 1
            if typed is not None:
                typed.files.pop(number, None)
    if table.dropped and not table.files:
        del state.tables[command.topic]
        state.typed.pop(command.topic, None)
    state.roll("files", gone)
    return Done(gone)


# --- the checks ----------------------------------------------------------------------------------------


def _standing_table(state: StreamsDomain, topic: uuid.UUID) -> TopicTable:
    table = state.tables.get(topic)
    if table is None or table.dropped:
        raise Flaw(Reason.UNKNOWN, "the topic has no table")
    return table


def _check_live(table: TopicTable, numbers: Collection[int]) -> None:
    if not numbers or any(n not in table.files or table.files[n].removed for n in numbers):
        raise Flaw(Reason.STALE, "a file to remove is not in the table any more")


def _check_rows(state: StreamsDomain, command: Replace, files: list[DataFile], removed: Iterable[int]) -> None:
    """Check that the new files have the rows of the removed ones."""
    check_typings(state, command.topic, files, command.typings)
    typed = state.typed[command.topic]
    if sum(typing.digest for typing in command.typings) & DIGEST_MASK != typed.digest(removed):
        raise Flaw(Reason.INVALID, "the new files have other rows: the sums of their digests differ")
    undecoded = any(not typed.files[number].version for number in removed)
    if undecoded and not command.rewrites and all(typing.version for typing in command.typings):
        raise Flaw(Reason.INVALID, "the files were not decoded before, and a merge decodes none")


def _plan_swaps(state: StreamsDomain, command: _Swapping, files: list[DataFile]) -> list[Swap]:
    """For every stream, the entries that are replaced and the new ones."""
    newest: Iterable[int | None] = itertools.repeat(None, len(command.runs))
    if isinstance(command, Settle):
        newest = command.newest
        if len(command.newest) != len(command.runs):
            raise Flaw(Reason.INVALID, "the numbers of runs and of largest timestamps differ")
    by_stream: dict[int, list[tuple[SegmentRun, int | None]]] = {}
    for run, timestamp in zip(command.runs, newest, strict=True):
        by_stream.setdefault(run.stream, []).append((run, timestamp))
    if not by_stream:
        raise Flaw(Reason.INVALID, "the command has no runs")
    return [_plan_swap(state, command, name, runs, files) for name, runs in by_stream.items()]


def _plan_swap(
    state: StreamsDomain,
    command: _Swapping,
    name: int,
    runs: list[tuple[SegmentRun, int | None]],
    files: list[DataFile],
) -> Swap:
    stream = state.streams.get(name)
    if stream is None or stream.topic != command.topic:
        raise Flaw(Reason.UNKNOWN, f"the topic has no stream {name}")
    index = stream.index
    start = runs[0][0].start
    first = at = index.find(start)
    entries, expected = [], start
    for run, newest in runs:
        check_run(name, run, expected, files)
        size = length = 0
        largest = None
        while at < len(index) and index[at].end <= run.end:
            old = index[at]
            if not _expected(command, old):
                raise Flaw(Reason.STALE, f"stream {name}: the entry up to {old.end} is not as the plan expects")
            size, length = old.cumulative_size, length + old.length
            own = NO_TIMESTAMP if old.marker else old.max_timestamp
            largest = own if largest is None else max(largest, own)
            at += 1
        if largest is None or index[at - 1].end != run.end or length > U32_MAX:
            raise Flaw(Reason.STALE, f"stream {name}: no entry ends at {run.end}")
        if newest is not None:
            if not NO_TIMESTAMP <= newest <= largest:
                raise Flaw(Reason.INVALID, f"stream {name}: the newest timestamp up to {run.end} cannot be {newest}")
            largest = newest
        number = files[run.file].number if run.file >= 0 else 0
        entries.append(
            SettledEntry(
                run.start, run.end, size, largest, length, number, run.first_group, run.groups if number else 0
            )
        )
        expected = run.end
    if max(index[first].start, stream.log_start) != max(start, stream.log_start):
        raise Flaw(Reason.STALE, f"stream {name}: no entry begins at {start}")
    return Swap(stream, first, at, entries)


def _expected(command: _Swapping, entry: IndexEntry) -> bool:
    """Whether a command may replace an index entry."""
    return entry.settled if isinstance(command, Replace) else entry.unsettled or entry.gap


# --- hooks and image -----------------------------------------------------------------------------------


def _leased_to(state: StreamsDomain, name: str) -> None:
    if name == COMPACTION:
        state.settles = True


def _drop_tables(state: StreamsDomain, names: Sequence[int]) -> None:
    """Mark a table as dropped when the first of its streams is dropped."""
    for topic in dict.fromkeys(state.streams[name].topic for name in names if name in state.streams):
        state.wanted.pop(topic, None)
        table = state.tables.get(topic)
        if table is not None and not table.dropped:
            table.dropped, table.dropped_ms = True, state.clock_ms


class TablesImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The tables of a domain inside a checkpoint."""

    tables: list[TableImage]
    last_file: int
    wanted: list[bytes]
    settles: bool


def _pack(state: StreamsDomain) -> TablesImage:
    return TablesImage(
        tables=[table.pack() for table in state.tables.values()],
        last_file=state.last_file,
        wanted=[topic.bytes for topic in state.wanted],
        settles=state.settles,
    )


def _unpack(state: StreamsDomain, image: TablesImage) -> None:
    state.tables = {table.topic: table for table in map(TopicTable.unpack, image.tables)}
    state.last_file = image.last_file
    state.wanted = {uuid.UUID(bytes=topic): None for topic in image.wanted}
    state.settles = image.settles


def _accepted(state: StreamsDomain, command: Accept) -> None:
    state.last_file += command.skip
    for table in state.tables.values():
        table.skip(command.skip)


PART: Part[StreamsDomain, TablesImage] = Part(
    name="tables",
    commands={
        WantSettled: want_settled,
        Settle: settle,
        Replace: replace,
        Follow: follow,
        Unfollow: unfollow,
        Pin: pin,
        Retire: retire,
        WantExpired: want_expired,
        Expired: expired,
        ForgetFiles: forget_files,
    },
    format=1,
    image=TablesImage,
    pack=_pack,
    unpack=_unpack,
    empty=lambda: TablesImage([], 0, [], False),
    leased=_leased_to,
    dropped=_drop_tables,
    accepted=_accepted,
)
