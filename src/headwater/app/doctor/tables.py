"""The doctor's checks of tables: journal, files, index and followers must agree."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.app.doctor.report import Report
from headwater.background import each
from headwater.errors import HeadwaterError, ObjectMissing
from headwater.lake.tables.follower import TableFollower, ref_of
from headwater.objects import ObjectStore
from headwater.state.streams.state import StreamsState
from headwater.state.streams.tables import DataFile, TopicTable


def check_tables(state: StreamsState, report: Report) -> None:
    """Check that reference counts match the entries, the journal has no gaps, and no follower is ahead of it."""
    named: dict[tuple[bytes, int], int] = {}
    for stream in state.streams.values():
        for entry in stream.index:
            if entry.file:
                key = (stream.topic.bytes, entry.file)
                named[key] = named.get(key, 0) + 1
            follows = entry.start <= stream.settled < entry.end  # after it, bulk appends may have settled entries
            if (not entry.settled and entry.end <= stream.settled) or (entry.settled and follows):
                report.add("heads", f"stream {stream.id} at {entry.start}", f"the head is settled to {stream.settled}")
    for table in state.tables.values():
        report.count("tables")
        expected = None
        for journal in table.journal:
            if expected is not None and journal.sequence != expected:
                report.add("journal", table.root, f"entry {journal.sequence}, but {expected} is next")
            expected = journal.sequence + 1
        if expected is not None and expected != table.last_sequence + 1:
            report.add("journal", table.root, f"ends at {expected - 1}, not {table.last_sequence}")
        merges = {entry.sequence for entry in table.journal if entry.moves}
        for file in table.files.values():
            if file.references != named.pop((table.topic.bytes, file.number), 0):
                report.add("references", f"{table.root}/{file.name}", f"counted as {file.references}")
            if file.references and file.removed in merges:
                report.add("references", f"{table.root}/{file.name}", "is merged into another, but the log reads it")
        for name, follower in table.followers.items():
            if not follower.oldest <= follower.cursor <= table.last_sequence:
                report.add("followers", f"{table.root} {name}", f"is at {follower.cursor}")
    for _, number in named:
        report.add("references", f"file {number}", "is named by an entry but not known")


def check_holds(state: StreamsState, report: Report) -> None:
    """Check that no fenced epoch has a hold, and that no hold is ahead of the domain's time."""
    for epoch, hold in state.held:
        report.count("holds")
        if state.is_fenced(epoch):
            report.add("holds", f"epoch {epoch}", "is fenced, but keeps files from deletion")
        if hold.since_ms > state.clock_ms:
            report.add("holds", f"epoch {epoch}", f"holds from {hold.since_ms} on, but it is {state.clock_ms}")


async def check_segments(store: ObjectStore, state: StreamsState, report: Report) -> None:
    """Check that every file that a table or the log needs exists and has its size."""

    async def look(found: tuple[TopicTable, DataFile]) -> None:
        table, file = found
        report.count("segments")
        path = f"{table.root}/{file.name}"
        try:
            size = await store.size(path)
        except ObjectMissing as error:
            needed = not file.removed or file.references  # the log may still read a file that its table has retired
            if needed and not table.dropped:
                report.add("segments", path, error)
            return
        if size != file.size:
            report.add("segments", path, f"has {size} bytes, not {file.size}")

    await each(look, [(table, file) for table in state.tables.values() for file in table.files.values()])


async def check_followers(followers: Sequence[TableFollower], state: StreamsState, report: Report) -> None:
    """Check that every catalog shows exactly the files of the journal sequence at its cursor."""
    for table in state.tables.values():
        for follower in followers:
            if not table.dropped and follower.name in table.followers:
                await _check_follower(follower, table, report)


async def _check_follower(follower: TableFollower, table: TopicTable, report: Report) -> None:
    known, where = table.followers[follower.name], f"{table.root} {follower.name}"
    try:
        standing = await follower.standing(ref_of(table), known.location)
        if standing.cursor != known.cursor:
            report.notes.append(f"{where} is at {standing.cursor} and the ledger at {known.cursor}: it is moving")
            return
        shown = await follower.shown(ref_of(table), known.location)
    except HeadwaterError as error:
        report.add("followers", where, error)
        return
    report.count("followers")
    at = known.cursor
    wanted = {f.name for f in table.files.values() if f.added <= at and (not f.removed or f.removed > at)}
    for name in sorted(shown - wanted)[:10]:
        report.add("followers", where, f"shows {name}, which is not part of version {at}")
    for name in sorted(wanted - shown)[:10]:
        report.add("followers", where, f"does not show {name}, which is part of version {at}")
