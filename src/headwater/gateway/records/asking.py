"""What a call asks to read: where it begins and ends, how much, and in which form.

A call begins at an offset, at a time, or at a position that an earlier answer gave.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from litestar.params import HeaderParameter, QueryParameter

from headwater.errors import BadInput
from headwater.gateway.problems import NOT_FOUND, Refusal
from headwater.gateway.records.answers import Reading
from headwater.gateway.records.bodies import ms_of_text
from headwater.gateway.records.forms import Form, form_of
from headwater.gateway.records.positions import LAST, MAX_CURSOR, decoded
from headwater.gateway.records.scanning import Scan
from headwater.gateway.records.values import Format
from headwater.gateway.services import Services
from headwater.log.looking import bound_of
from headwater.state.cluster.domain import Topic

EARLIEST, LATEST = "earliest", "latest"
DEFAULT_RECORDS = 1_000
DEFAULT_BYTES = 1 << 20
MAX_BYTES = 16 << 20
NOWHERE = "`offset`, `from` and `next` exclude each other"


class Range(msgspec.Struct, frozen=True):
    """What the query of a call says about where to read."""

    offset: str | None = None
    since: str | None = None
    """`from` in the query."""
    until: int | None = None
    to: str | None = None
    position: str | None = None
    """`next` in the query, or `Last-Event-ID`."""
    committed: bool = True


class Asked(msgspec.Struct, frozen=True):
    """What a call asks to read."""

    range: Range
    form: Form
    format: Format
    limit: int | None
    max_bytes: int
    follow: bool

    def reading(self, scan: Scan, most: int) -> Reading:
        """The same, with a scan. A page has `most` records at most; a stream has as many as the caller wants."""
        limit = self.limit if self.follow else min(self.limit or DEFAULT_RECORDS, most)
        return Reading(scan, self.form, self.format, limit, self.max_bytes, self.follow)


Begin = Annotated[
    str | None,
    QueryParameter(
        description="The first offset, `earliest` (the default) or `latest`. A number is for one partition."
    ),
]
Since = Annotated[
    str | None,
    QueryParameter(
        name="from",
        description="Begin at the first record whose time is not before this one: milliseconds or RFC 3339.",
    ),
]
Until = Annotated[int | None, QueryParameter(ge=0, le=LAST, description="End before this offset. For one partition.")]
To = Annotated[str | None, QueryParameter(description="End before the first record whose time is not before this one.")]
Position = Annotated[
    str | None,
    QueryParameter(name="next", max_length=MAX_CURSOR, description="Begin where an earlier answer ended: its `next`."),
]
Records = Annotated[int | None, QueryParameter(ge=1, le=LAST, description="Records of the answer at most.")]
Bytes = Annotated[
    int,
    QueryParameter(ge=1, le=MAX_BYTES, description="Bytes of keys, values and headers of the answer, approximately."),
]
Isolation = Annotated[
    Literal["committed", "uncommitted"],
    QueryParameter(description="Whether records of open and aborted transactions are left out."),
]
Shown = Annotated[
    Literal["text", "json", "base64", "decoded", "both"],
    QueryParameter(
        name="format",
        description="How keys and values are shown in JSON, NDJSON and events. `decoded`: by their schemas. `both`: "
        "so, and in base64.",
    ),
]
Follow = Annotated[
    bool | None,
    QueryParameter(description="Whether the answer goes on with new records. The default for events, not for NDJSON."),
]
Accept = Annotated[str, HeaderParameter(name="Accept", description="The form of the answer.")]
LastEvent = Annotated[
    str | None,
    HeaderParameter(
        name="Last-Event-ID", max_length=MAX_CURSOR, description="The id of the last event that a client of events got."
    ),
]


def asked(
    offset: Begin = None,
    since: Since = None,
    until: Until = None,
    to: To = None,
    position: Position = None,
    limit: Records = None,
    max_bytes: Bytes = DEFAULT_BYTES,
    isolation: Isolation = "committed",
    shown: Shown = "text",
    follow: Follow = None,
    accept: Accept = "",
    last_event: LastEvent = None,
) -> Asked:
    """What the query and the headers of a call ask for."""
    form = form_of(accept)
    committed = isolation == "committed"
    if form is Form.EVENTS and last_event:
        wanted = Range(None, None, until, to, last_event, committed)  # a client that comes again repeats its query
    else:
        wanted = Range(offset, since, until, to, position or None, committed)
    goes_on = form is Form.EVENTS if follow is None else follow
    return Asked(wanted, form, Format(shown), limit, max_bytes, goes_on)


async def scan_of(
    services: Services,
    topic: Topic,
    partition: int | None,
    wanted: Range,
    starts: Mapping[int, int] | None = None,
) -> Scan:
    """A scan of one partition, or of all. `starts` are where it begins unless the query says otherwise."""
    if partition is not None and not 0 <= partition < topic.ready:
        raise Refusal(NOT_FOUND, f"the topic {topic.name!r} has no partition {partition}")
    if sum(given is not None for given in (wanted.offset, wanted.since, wanted.position)) > 1:
        raise BadInput(NOWHERE)
    partitions = range(topic.ready) if partition is None else [partition]
    whole = partition is None
    scan = Scan(services, topic, dict.fromkeys(partitions, 0), committed=wanted.committed, grows=whole)
    await _begin(services, scan, partition, wanted, starts or {})
    await _end(services, scan, partition, wanted)
    return scan


async def _begin(
    services: Services, scan: Scan, partition: int | None, wanted: Range, starts: Mapping[int, int]
) -> None:
    since = ms_of_text("from", wanted.since)
    if wanted.position is not None:
        known = decoded(scan.topic, wanted.position, partition)
        scan.positions.update({p: known.get(p, scan.stream(p).log_start) for p in scan.positions})
    elif since is not None:
        await scan.look()
        scan.positions.update(await _at(services, scan, since))
    elif wanted.offset == LATEST:
        await scan.look()
        scan.positions.update({p: bound_of(scan.stream(p), scan.committed) for p in scan.positions})
    elif wanted.offset is not None and wanted.offset != EARLIEST:
        if partition is None:
            raise BadInput("an offset is of one partition: read .../partitions/N/records, or use `next` or `from`")
        if not wanted.offset.isascii() or not wanted.offset.isdigit() or int(wanted.offset) > LAST:
            raise BadInput(f"`offset` is a number, `{EARLIEST}` or `{LATEST}`")
        scan.positions[partition] = int(wanted.offset)
    else:
        chosen = {} if wanted.offset == EARLIEST else starts
        scan.positions.update({p: chosen.get(p, scan.stream(p).log_start) for p in scan.positions})


async def _end(services: Services, scan: Scan, partition: int | None, wanted: Range) -> None:
    to = ms_of_text("to", wanted.to)
    if wanted.until is not None:
        if to is not None:
            raise BadInput("`until` and `to` exclude each other")
        if partition is None:
            raise BadInput("`until` is an offset of one partition: read .../partitions/N/records, or use `to`")
        scan.ends[partition] = wanted.until
    elif to is not None:
        await scan.look()
        scan.ends.update(await _at(services, scan, to))


async def _at(services: Services, scan: Scan, ms: int) -> dict[int, int]:
    """By partition, the first record whose time is not before a time, or the present end."""
    found = {}
    for partition in scan.positions:
        stream = scan.topic.streams[partition]
        timed = await services.reader.find_time(scan.replica, stream, ms, committed=scan.committed)
        found[partition] = timed.offset if timed is not None else bound_of(scan.stream(partition), scan.committed)
    return found
