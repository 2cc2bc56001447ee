"""Rows: a topic as a table, at one moment, as an Arrow stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Annotated

from litestar import get
from litestar.params import QueryParameter
from litestar.response import Stream

from headwater.errors import BadInput, NotReady
from headwater.gateway.parameters import TopicName
from headwater.gateway.results.forms import Pieces
from headwater.gateway.services import Call, TheCall
from headwater.query.scan import columns_of, scan, schema_of
from headwater.query.snapshot import FOREVER, Wanted, take
from headwater.state.cluster.access import Operation
from headwater.types import Domain

if TYPE_CHECKING:
    import pyarrow as pa

MEDIA_TYPE = "application/vnd.apache.arrow.stream"
MAX_LIST = 100_000
"""Characters of a list in the query."""
LAST = FOREVER - 1
Columns = Annotated[
    str | None, QueryParameter(max_length=MAX_LIST, description="Columns of the table, separated by commas.")
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


@get("/v1/topics/{name:str}/rows", operation_id="scanTopic", tags=["records"], media_type=MEDIA_TYPE)
async def scan_topic(
    call: TheCall,
    name: TopicName,
    columns: Columns = None,
    partitions: Partitions = None,
    from_offset: FromOffset = 0,
    from_offsets: FromOffsets = "",
    until_offset: UntilOffset = None,
    until_offsets: UntilOffsets = "",
    from_ms: From = None,
    until: Until = None,
    version: Version = None,
) -> Stream:
    """The rows of a topic: all that is in its table, and what is not settled yet, each once. An Arrow IPC stream.

    The caller needs the right to READ the topic. Rows come in no particular order. Records of aborted transactions are
    left out, and a partition ends at its oldest open transaction. An answer that cannot be completed is cut off.
    """
    topic = await call.topic(name, Operation.READ)
    wanted = Wanted(
        partitions=None if partitions is None else [_number(text) for text in _items(partitions)],
        from_offset=from_offset,
        from_offsets=_by_partition("from_offsets", from_offsets),
        until_offset=FOREVER if until_offset is None else until_offset,
        until_offsets=_by_partition("until_offsets", until_offsets),
        from_ms=-FOREVER if from_ms is None else from_ms,
        until_ms=FOREVER if until is None else until,
        version=version,
    )
    own = call.services
    names = await own.offload(columns_of, None if columns is None else _items(columns))
    call.as_stream()
    call.places.append(own.scans.enter())
    await own.catch_up(Domain(topic.domain))
    held = await own.holding.begin()
    call.places.append(held)
    if version is not None:
        await held.pin(topic.id, version)
    state = own.domains[Domain(topic.domain)].state
    streams = [state.streams[stream] for stream in topic.streams[: topic.ready] if stream in state.streams]
    snapshot = take(state, topic.id, streams, wanted)
    rows = scan(own.domains.store, snapshot, names, own.offload)
    first = await anext(rows, None)  # what fails here is still told as a problem document
    return Stream(_sent(call, names, first, rows), media_type=MEDIA_TYPE)


async def _sent(
    call: Call, names: list[str], first: pa.RecordBatch | None, rows: AsyncGenerator[pa.RecordBatch, None]
) -> AsyncGenerator[bytes, None]:
    """The batches in Arrow's stream format."""
    import pyarrow as pa

    sink, batch = Pieces(), first
    try:
        with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), schema_of(names)) as writer:
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


ROUTES = (scan_topic,)
