"""Which version of a table an `AsOf` means. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from headwater.errors import BadInput
from headwater.query.asking import AsOf
from headwater.query.wanted import FOREVER, Wanted
from headwater.state.streams.tables import TopicTable

HOUR_MS = 3_600_000
_TAG = re.compile(r"(?:hour-)?(\d{4}-\d\d-\d\dT\d\d)")


def wanted_of(table: TopicTable | None, as_of: AsOf) -> Wanted:
    """The rows that an `AsOf` wants. Raises `BadInput` if there is no such version, or none that is still known."""
    given = [what is not None for what in (as_of.version, as_of.at_ms, as_of.tag)]
    if sum(given) > 1:
        raise BadInput("a table is read as of a version, a time or a tag: name one of them")
    version = as_of.version
    if as_of.at_ms is not None:
        version = _version_at(table, as_of.at_ms, "that time")
    elif as_of.tag is not None:
        version = _tagged(table, as_of.tag)
    for partition, offset in as_of.offsets.items():
        if partition < 0 or offset < 0:
            raise BadInput(f"partition {partition}, offset {offset}: neither can be negative")
    until = {partition: min(offset, FOREVER - 1) for partition, offset in as_of.offsets.items()}
    return Wanted(version=version, until_offsets=until)


def _version_at(table: TopicTable | None, at_ms: int, what: str) -> int:
    """The newest version that was made at a time or before it."""
    if table is None:
        return 0
    found = table.first_version
    for entry in table.journal:
        if entry.ms > at_ms:
            break
        found = entry.sequence
    if found == table.first_version and found:
        raise BadInput(f"the versions of {what} are no longer known: the oldest is {found + 1}")
    return found


def _tagged(table: TopicTable | None, tag: str) -> int:
    """The last version of an hour. The hour must have one."""
    named = _TAG.fullmatch(tag)
    if named is None:
        raise BadInput(f"{tag[:40]!r} is not an hour's tag: it has the form 2026-11-17T22")
    try:
        hour = datetime.strptime(named[1], "%Y-%m-%dT%H").replace(tzinfo=UTC)
    except ValueError:
        raise BadInput(f"{tag[:40]!r} is not an hour") from None
    start = (hour - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    entries = [] if table is None else [e for e in table.journal if start <= e.ms < start + HOUR_MS]
    if entries:
        return entries[-1].sequence
    kept = None if table is None else _kept(table, start)
    if kept is None:
        raise BadInput(f"no version of that hour is known: {tag[:40]!r}")
    return kept


def _kept(table: TopicTable, start: int) -> int | None:
    """The last version of an hour that the journal has forgotten, if a follower keeps it under a tag.

    The time of such a version is that of a file which it added or removed. One whose time is not known may be of the
    same hour as the one before it, which is not taken then.
    """
    pinned = {v for follower in table.followers.values() for v in follower.pinned if v <= table.first_version}
    times: dict[int, int] = {}
    for file in table.files.values():
        if file.added in pinned:
            times[file.added] = file.created_ms
        if file.removed in pinned:
            times[file.removed] = file.ended_ms
    hidden = False
    for version in sorted(pinned, reverse=True):
        ms = times.get(version)
        if ms is not None and ms < start + HOUR_MS:
            return version if ms >= start and not hidden else None
        hidden = ms is None
    return None
