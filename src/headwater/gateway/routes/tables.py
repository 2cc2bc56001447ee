"""Tables: the topics as tables, their versions and files, and settling on request."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import Response, get, post
from litestar.params import PathParameter, QueryParameter

from headwater.gateway.admin import tables as admin
from headwater.gateway.admin.tables import Found
from headwater.gateway.paging import DEFAULT_ITEMS, Limit, Listing, Next, paged
from headwater.gateway.parameters import TopicName
from headwater.gateway.services import Services, TheCall
from headwater.lake.described import compactor_words, follower_lag_ms, freshness_ms, totals_of, waiting_of
from headwater.lake.versions import files_at
from headwater.state.cluster.access import AclResource, Operation
from headwater.state.streams.tables import DataFile, JournalEntry, TopicTable

VersionNumber = Annotated[int, PathParameter(description="The number of the version; versions begin with 1.")]
MAX_WAIT_SECONDS = 60
Wait = Annotated[
    float,
    QueryParameter(ge=0, le=MAX_WAIT_SECONDS, description="How many seconds to wait for the tables at most."),
]


class TableLine(msgspec.Struct, frozen=True):
    """A topic as a table."""

    topic: str
    """The name of the topic."""
    version: int
    """The number of the newest version; 0 if nothing is settled yet."""
    rows: int
    """Rows of the newest version."""
    files: int
    """Files of the newest version."""
    bytes: int
    """Bytes of these files."""
    pending_records: int
    """Offsets of the log that can be settled and are not in the table yet."""
    held_records: int
    """Offsets of the log that open transactions hold back."""
    freshness_seconds: float
    """The age of the oldest records or changes that the table, or one of its followers, does not show yet."""


class FollowerLine(msgspec.Struct, frozen=True):
    """A catalog that shows the table, such as Iceberg's or Delta's."""

    name: str
    """The name of the follower."""
    version: int
    """The newest version that it shows."""
    oldest: int
    """The oldest version that it shows."""
    behind_seconds: float
    """The age of the oldest change that it does not show yet."""
    metadata: str
    """The path of its newest metadata below the object store's root, if the ledger has it; else empty."""


class TableDetails(msgspec.Struct, frozen=True):
    """A table with its followers."""

    topic: str
    """The name of the topic."""
    location: str | None
    """The URL of the table's directory; null if nothing is settled yet."""
    version: int
    """The number of the newest version; 0 if nothing is settled yet."""
    oldest_version: int
    """The oldest version of which the journal knows the files."""
    rows: int
    """Rows of the newest version."""
    files: int
    """Files of the newest version."""
    bytes: int
    """Bytes of these files."""
    pending_records: int
    """Offsets of the log that can be settled and are not in the table yet."""
    held_records: int
    """Offsets of the log that open transactions hold back."""
    held_by: list[str]
    """The transactional ids of these transactions, of those that the caller may describe."""
    freshness_seconds: float
    """The age of the oldest records or changes that the table, or one of its followers, does not show yet."""
    followers: list[FollowerLine]
    """The catalogs that show the table."""


class VersionLine(msgspec.Struct, frozen=True):
    """A version of a table."""

    version: int
    """The number of the version."""
    time_ms: int
    """When it was made, in milliseconds since 1970."""
    operation: str
    """What made it: `settle`, `merge` or `retire`."""
    added: int
    """How many files were added."""
    removed: int
    """How many files were removed."""
    ends: dict[str, int]
    """Per partition whose end moved, the offset up to which its records are in the table."""


class FileLine(msgspec.Struct, frozen=True):
    """A Parquet file of a table."""

    number: int
    """The number of the file."""
    name: str
    """The path below the table's directory."""
    rows: int
    """How many rows it has."""
    bytes: int
    """Its size."""
    version: int
    """The version that added it."""
    partitions: tuple[int, int]
    """The first and the last partition of its rows."""
    offsets: tuple[int, int]
    """The smallest and the largest offset of its rows."""


class SettleAnswer(msgspec.Struct, frozen=True):
    """What a request to settle has reached."""

    topic: str
    """The name of the topic."""
    settled: bool
    """Whether all records that could be settled at the time of the request are in all tables."""
    version: int
    """The newest version of the table."""
    pending_records: int
    """Offsets that can be settled and are not in the table yet."""
    held_records: int
    """Offsets that open transactions hold back."""
    poll: str
    """The path that shows the progress."""
    compactor: str
    """What the compactor does, in words."""


@get("/v1/tables", operation_id="listTables", tags=["tables"])
async def list_tables(call: TheCall, limit: Limit = DEFAULT_ITEMS, cursor: Next = "") -> Listing[TableLine]:
    """The topics that the caller may describe, as tables, by name."""
    own = call.services
    await own.catch_up(*own.domains)
    names = sorted(
        name
        for name, topic in own.state.names.items()
        if topic.ready and call.may(Operation.DESCRIBE, AclResource.TOPIC, name)
    )
    page, then = paged("tables", names, str, limit=limit, cursor=cursor, most=own.own.page_items)
    return Listing([_line(own, admin.found_of(own, own.state.names[name])) for name in page], then)


@get("/v1/tables/{name:str}", operation_id="describeTable", tags=["tables"])
async def describe_table(call: TheCall, name: TopicName) -> TableDetails:
    """The table of a topic: its newest version, freshness and followers. The caller needs the right to DESCRIBE."""
    found, own = await admin.find(call, name), call.services
    table, line = found.table, _line(own, found)
    now_ms = found.state.now_ms(own.clock.wall_ms())
    followers = [
        FollowerLine(known, f.cursor, f.oldest, follower_lag_ms(table, known, now_ms) / 1000, f.location)
        for known, f in sorted(table.followers.items())
    ] if table is not None else []  # fmt: skip
    return TableDetails(
        topic=name,
        location=f"{own.domains.store.url.rstrip('/')}/{table.root}" if table is not None else None,
        version=line.version,
        oldest_version=table.first_version if table is not None else 0,
        rows=line.rows,
        files=line.files,
        bytes=line.bytes,
        pending_records=line.pending_records,
        held_records=line.held_records,
        held_by=[
            id
            for id in waiting_of(found.state, found.streams).held_by
            if call.may(Operation.DESCRIBE, AclResource.TRANSACTIONAL_ID, id)
        ],
        freshness_seconds=line.freshness_seconds,
        followers=followers,
    )


@get("/v1/tables/{name:str}/versions", operation_id="listVersions", tags=["tables"])
async def list_versions(
    call: TheCall, name: TopicName, limit: Limit = DEFAULT_ITEMS, cursor: Next = ""
) -> Listing[VersionLine]:
    """The versions of a table that the journal knows, the oldest first. The caller needs the right to DESCRIBE."""
    found = await admin.find(call, name)
    journal = found.table.journal if found.table is not None else []
    most = call.services.own.page_items
    page, then = paged("versions", journal, _sequence, limit=limit, cursor=cursor, most=most)
    return Listing([_version(entry) for entry in page], then)


@get("/v1/tables/{name:str}/versions/{version:int}/files", operation_id="listFiles", tags=["tables"])
async def list_files(
    call: TheCall, name: TopicName, version: VersionNumber, limit: Limit = DEFAULT_ITEMS, cursor: Next = ""
) -> Listing[FileLine]:
    """The files of a version, by number. The caller needs the right to DESCRIBE the topic.

    A version whose files are deleted in part is not found.
    """
    found = await admin.find(call, name)
    files = files_at(found.table or TopicTable(found.topic.id, ""), version)
    most = call.services.own.page_items
    page, then = paged(f"files {version}", files, _number, limit=limit, cursor=cursor, most=most)
    return Listing([_file(file) for file in page], then)


@post("/v1/tables/{name:str}/settle", operation_id="settleTable", tags=["tables"], status_code=202)
async def settle_table(call: TheCall, name: TopicName, wait: Wait = 0.0) -> Response[SettleAnswer]:
    """Ask for the records of a topic to be brought into its tables now. The caller needs the right to ALTER it.

    The answer is 200 if they are, and 202 if that still goes on: `poll` names the path that shows the progress. With
    `wait` the gateway waits for them.
    """
    found, done = await admin.settle(call, name, wait)
    waiting = waiting_of(found.state, found.streams)
    answer = SettleAnswer(
        topic=name,
        settled=done,
        version=found.table.last_sequence if found.table is not None else 0,
        pending_records=waiting.pending_records,
        held_records=waiting.held_records,
        poll=f"/v1/tables/{name}",
        compactor="" if done else compactor_words(found.state, found.topic.id),
    )
    return Response(answer, status_code=200 if done else 202)


def _line(own: Services, found: Found) -> TableLine:
    totals, waiting = totals_of(found.table), waiting_of(found.state, found.streams)
    late = freshness_ms(found.state, found.table, found.streams, found.state.now_ms(own.clock.wall_ms()))
    return TableLine(
        topic=found.topic.name,
        version=totals.version,
        rows=totals.rows,
        files=totals.files,
        bytes=totals.bytes,
        pending_records=waiting.pending_records,
        held_records=waiting.held_records,
        freshness_seconds=late / 1000,
    )


def _sequence(entry: JournalEntry) -> int:
    return entry.sequence


def _version(entry: JournalEntry) -> VersionLine:
    ends = {str(partition): end for partition, end in entry.ends}
    return VersionLine(entry.sequence, entry.ms, entry.operation, len(entry.added), len(entry.removed), ends)


def _number(file: DataFile) -> int:
    return file.number


def _file(file: DataFile) -> FileLine:
    return FileLine(
        number=file.number,
        name=file.name,
        rows=file.rows,
        bytes=file.size,
        version=file.added,
        partitions=(file.first_partition, file.last_partition),
        offsets=(file.first_offset, file.last_offset),
    )


ROUTES = (list_tables, describe_table, list_versions, list_files, settle_table)
