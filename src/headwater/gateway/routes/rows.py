"""Rows: a topic as a table, at one moment, as an Arrow stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Annotated

import msgspec
from litestar import get
from litestar.di import NamedDependency, Provide
from litestar.params import QueryParameter
from litestar.response import Stream

from headwater.errors import BadInput, NotReady
from headwater.gateway.parameters import TopicName
from headwater.gateway.results.forms import NOTES, Pieces, header_text
from headwater.gateway.services import Call, TheCall
from headwater.query.scan import scan, schema_of
from headwater.query.snapshot import take
from headwater.query.splits import plan
from headwater.query.typings import RowTyping, shown
from headwater.query.typings import columns_of as typed_columns
from headwater.query.wanted import FOREVER, Wanted, check_names
from headwater.state.cluster.access import Operation
from headwater.state.cluster.domain import Topic
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream as LogStream
from headwater.types import Domain

if TYPE_CHECKING:
    import pyarrow as pa

MEDIA_TYPE = "application/vnd.apache.arrow.stream"
MAX_LIST = 100_000
"""Characters of a list in the query."""
LAST = FOREVER - 1
SPLIT_BYTES = 64 << 20
"""The size of a part of a scan, if the caller does not choose one."""
Columns = Annotated[
    str | None,
    QueryParameter(
        max_length=MAX_LIST,
        description="Columns of the table, separated by commas. By default all, also typed ones.",
    ),
]
Partitions = Annotated[
    str | None, QueryParameter(max_length=MAX_LIST, description="Numbers of partitions, separated by commas.")
]
FromOffset = Annotated[int, QueryParameter(ge=0, le=LAST, description="The first offset, in every partition.")]
FromOffsets = Annotated[
    str, QueryParameter(max_length=MAX_LIST, description="First offsets by partition, such as `0:17,3:4`.")
]
UntilOffset = Annotated[
    int | None, QueryParameter(ge=0, le=LAST, description="The offset behind the last one, in every partition.")
]
UntilOffsets = Annotated[
    str, QueryParameter(max_length=MAX_LIST, description="Offsets behind the last one by partition, such as `0:17`.")
]
From = Annotated[
    int | None, QueryParameter(name="from", ge=-LAST, le=LAST, description="The smallest timestamp, in milliseconds.")
]
Until = Annotated[
    int | None, QueryParameter(ge=-LAST, le=LAST, description="Timestamps are below this one, in milliseconds.")
]
Version = Annotated[
    int | None,
    QueryParameter(ge=0, le=LAST, description="A version of the table, without what was not settled then."),
]
Kept = Annotated[
    str,
    QueryParameter(
        max_length=MAX_LIST,
        description="Offsets by partition, such as `0:17`. The request fails if retention removed rows from there on.",
    ),
]
SplitBytes = Annotated[
    int, QueryParameter(ge=1, le=LAST, description="About how many stored bytes a part has at most.")
]


class PlannedRange(msgspec.Struct, frozen=True):
    """A range of a partition."""

    partition: int
    """The number of the partition."""
    from_offset: int
    """The first offset."""
    until_offset: int
    """The offset behind the last one."""


class PlannedPart(msgspec.Struct, frozen=True):
    """A part of a scan."""

    bytes: int
    """About how many stored bytes it has."""
    ranges: list[PlannedRange]
    """What it reads, at most one range of each partition."""


class PlannedPartition(msgspec.Struct, frozen=True):
    """A partition of a scan."""

    partition: int
    """The number of the partition."""
    kept: int
    """The offset from which on no row was removed by retention, as far as is known."""


class PlannedScan(msgspec.Struct, frozen=True):
    """A scan, divided into parts."""

    id: str
    """The id of the topic. A topic that is deleted and created again has another one."""
    version: int
    """The version of the table."""
    partitions: list[PlannedPartition]
    """The partitions that have offsets within the bounds of the request."""
    parts: list[PlannedPart]
    """All rows of the scan, each in one part."""


def wanted_rows(
    partitions: Partitions = None,
    from_offset: FromOffset = 0,
    from_offsets: FromOffsets = "",
    until_offset: UntilOffset = None,
    until_offsets: UntilOffsets = "",
    from_ms: From = None,
    until: Until = None,
    version: Version = None,
    kept: Kept = "",
) -> Wanted:
    """The rows that the query of a call asks for. Raises `BadInput` for a list that is not one."""
    return Wanted(
        partitions=None if partitions is None else [_number(text) for text in _items(partitions)],
        from_offset=from_offset,
        from_offsets=_by_partition("from_offsets", from_offsets),
        until_offset=FOREVER if until_offset is None else until_offset,
        until_offsets=_by_partition("until_offsets", until_offsets),
        from_ms=-FOREVER if from_ms is None else from_ms,
        until_ms=FOREVER if until is None else until,
        version=version,
        kept=_by_partition("kept", kept),
    )


TheWanted = NamedDependency[Wanted]
QUERY = {"wanted": Provide(wanted_rows, sync_to_thread=False)}


@get(
    "/v1/topics/{name:str}/rows",
    operation_id="scanTopic",
    tags=["records"],
    media_type=MEDIA_TYPE,
    dependencies=QUERY,
)
async def scan_topic(call: TheCall, name: TopicName, wanted: TheWanted, columns: Columns = None) -> Stream:
    """The rows of a topic: all that is in its table, and what is not settled yet, each once. An Arrow IPC stream.

    The caller needs the right to READ the topic. Rows come in no particular order. Records of aborted transactions are
    left out, and a partition ends at its oldest open transaction. A topic with schemas has its typed columns behind the
    others, also for records that are not settled; the header `Headwater-Notes` says why values are null, as far as that
    is known when the answer begins. An answer that cannot be completed is cut off.
    """
    topic = await call.topic(name, Operation.READ)
    own = call.services
    chosen = None if columns is None else _items(columns)
    if chosen is not None:
        check_names(chosen)
    call.usage.reads()
    call.as_stream()
    call.places.append(own.scans.enter(call.caller.account))
    await own.catch_up(Domain(topic.domain))
    held = await own.holding.begin()
    call.places.append(held)
    if wanted.version is not None:
        await held.pin(topic.id, wanted.version)
    state, streams = _streams(call, topic)
    snapshot, known = take(state, topic.id, streams, wanted), typed_columns(state, topic)
    typed = shown(known, wanted.version)
    schema = await own.offload(schema_of, chosen, typed)
    typing = await own.typings.of(own.state, topic, known) if snapshot.hot else None
    maker = RowTyping(typing, own.offload) if typing is not None else None
    rows = scan(own.domains.store, snapshot, schema.names, own.offload, typed, maker)
    first = await anext(rows, None)  # what fails here is still told as a problem document
    notes = " ".join(typing.notes) if typing is not None else ""
    headers = {NOTES: header_text(notes)} if notes else None
    return Stream(_sent(call, schema, first, rows), media_type=MEDIA_TYPE, headers=headers)


@get("/v1/topics/{name:str}/splits", operation_id="planScan", tags=["records"], dependencies=QUERY)
async def plan_scan(
    call: TheCall, name: TopicName, wanted: TheWanted, split_bytes: SplitBytes = SPLIT_BYTES
) -> PlannedScan:
    """A scan, divided into parts that several readers read at the same time.

    The caller needs the right to READ the topic. Each part is one request for rows, with its partitions, its offsets
    and the times and the version of this request. Together they have the rows of one moment, each once. To be sure that
    retention removes none of them before they are read, give `kept` of this answer.
    """
    topic = await call.topic(name, Operation.READ)
    await call.services.catch_up(Domain(topic.domain))
    state, streams = _streams(call, topic)
    found = plan(state, topic.id, streams, wanted, split_bytes)
    return PlannedScan(
        str(topic.id),
        found.snapshot.version,
        [PlannedPartition(number, offset) for number, offset in found.kept.items()],
        [
            PlannedPart(
                sum(one.size for one in part),
                [PlannedRange(one.partition, one.offsets.start, one.offsets.end) for one in part],
            )
            for part in found.parts
        ],
    )


def _streams(call: Call, topic: Topic) -> tuple[StreamsState, list[LogStream]]:
    """The state that a topic is in, and its partitions. The caller has brought the state up to the ledger's end."""
    state = call.services.domains[Domain(topic.domain)].state
    return state, [state.streams[stream] for stream in topic.streams[: topic.ready] if stream in state.streams]


async def _sent(
    call: Call, schema: pa.Schema, first: pa.RecordBatch | None, rows: AsyncGenerator[pa.RecordBatch, None]
) -> AsyncGenerator[bytes, None]:
    """The batches in Arrow's stream format."""
    import pyarrow as pa

    sink, batch = Pieces(), first
    try:
        with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), schema) as writer:
            while batch is not None:
                if call.services.stopping.is_set():
                    raise NotReady("the gateway stops")  # cuts the answer off: a part must not look like the whole
                writer.write_batch(batch)
                yield sink.taken()
                batch = await anext(rows, None)
        yield sink.taken()
    finally:
        await rows.aclose()


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")] if text.strip() else []


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 19:
        raise BadInput(f"{text[:30]!r} is not a number")
    return int(text)


def _by_partition(name: str, text: str) -> dict[int, int]:
    found: dict[int, int] = {}
    for item in _items(text):
        partition, colon, offset = item.partition(":")
        if not colon:
            raise BadInput(f"`{name}`: {item[:30]!r} does not have the form PARTITION:OFFSET")
        found[_number(partition)] = min(_number(offset), LAST)
    return found


ROUTES = (scan_topic, plan_scan)
