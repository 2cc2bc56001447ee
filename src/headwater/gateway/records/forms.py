"""Forms of answers with records: JSON, NDJSON, server-sent events, Arrow. `Accept` chooses one."""

from __future__ import annotations

import enum
import io
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from headwater.client.records import Record
from headwater.gateway.media import liked
from headwater.gateway.problems import NOT_ACCEPTABLE, Refusal
from headwater.gateway.records.decoding import View
from headwater.gateway.records.positions import encoded
from headwater.gateway.records.scanning import Reset
from headwater.gateway.records.values import ABSENT, Format, shown
from headwater.state.cluster.domain import Topic

if TYPE_CHECKING:
    import pyarrow as pa


class Form(enum.Enum):
    """The form of an answer, by its media type."""

    JSON = "application/json"
    NDJSON = "application/x-ndjson"
    EVENTS = "text/event-stream"
    ARROW = "application/vnd.apache.arrow.stream"


_ALIKE = {"application/ndjson": Form.NDJSON, "application/jsonl": Form.NDJSON}
_RANGES = {"*/*": Form.JSON, "application/*": Form.JSON, "text/*": Form.EVENTS}


def form_of(accept: str) -> Form:
    """The form that a client likes best."""
    best, liking = None, 0.0
    for name, weight in liked(accept):
        form = _ALIKE.get(name) or _RANGES.get(name) or next((one for one in Form if one.value == name), None)
        if form is not None and weight > liking:
            best, liking = form, weight
    if best is None:
        raise Refusal(NOT_ACCEPTABLE, f"the answer is one of {', '.join(form.value for form in Form)}")
    return best


class HeaderLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A header of a record."""

    name: str
    """The name of the header."""
    value: msgspec.Raw = ABSENT
    """The value as text or JSON; null for no value."""
    value_base64: str | None = None
    """The bytes of the value in base64, if they are not text or base64 was asked for."""


class RecordLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record. It can be appended again as it is, without `offset`."""

    partition: int
    """The number of the partition."""
    offset: int
    """The offset of the record."""
    timestamp: int
    """Milliseconds since 1970."""
    key: msgspec.Raw = ABSENT
    """The key as text or JSON; null for no key."""
    key_base64: str | None = None
    """The bytes of the key in base64, if they are not text or base64 was asked for."""
    value: msgspec.Raw = ABSENT
    """The value as text or JSON; null for a tombstone."""
    value_base64: str | None = None
    """The bytes of the value in base64, if they are not text or base64 was asked for."""
    headers: list[HeaderLine] = []
    """The headers of the record, in order."""
    key_schema: int | None = None
    """With `format=decoded`, the id of the schema by which the key was decoded."""
    key_error: str | None = None
    """With `format=decoded`, why the key was not decoded."""
    value_schema: int | None = None
    """With `format=decoded`, the id of the schema by which the value was decoded."""
    value_error: str | None = None
    """With `format=decoded`, why the value was not decoded."""


class Page(msgspec.Struct, frozen=True, omit_defaults=True):
    """Records of a topic."""

    records: list[RecordLine]
    """Those of a partition are in order."""
    next: str | None = None
    """Where to read on (`?next=`), now or later. Missing if the range that was asked for has ended."""
    caught_up: bool = False
    """Whether this was all that there was to read."""


def line_of(partition: int, record: Record, form: View) -> RecordLine:
    """A record as it is shown."""
    if isinstance(form, Format):
        headers = [HeaderLine(name, *shown(value, form)) for name, value in record.headers]
        return RecordLine(
            partition, record.offset, record.timestamp, *shown(record.key, form), *shown(record.value, form), headers
        )
    key, value = form.key(record), form.value(record)
    return RecordLine(
        partition,
        record.offset,
        record.timestamp,
        key.json,
        _base64(record.key) if form.with_bytes else key.base64,
        value.json,
        _base64(record.value) if form.with_bytes else value.base64,
        [HeaderLine(name, *shown(one, Format.TEXT)) for name, one in record.headers],
        key.schema,
        key.error,
        value.schema,
        value.error,
    )


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def page(records: Sequence[tuple[int, Record]], form: View, following: str | None, caught_up: bool) -> bytes:
    """A page as JSON."""
    lines = [line_of(partition, record, form) for partition, record in records]
    return msgspec.json.encode(Page(lines, following, caught_up))


def lines(records: Sequence[tuple[int, Record]], form: View) -> bytes:
    """Records as NDJSON."""
    return msgspec.json.Encoder().encode_lines([line_of(partition, record, form) for partition, record in records])


def reset_line(reset: Reset) -> bytes:
    """The line of NDJSON that says that records were removed before they were read."""
    return msgspec.json.encode({"reset": _told(reset)}) + b"\n"


def events(records: Sequence[tuple[int, Record]], form: View, topic: Topic, before: Mapping[int, int]) -> bytes:
    """Records as events. The id of each is the position behind it; `before` is the position in front of all."""
    positions = dict(before)
    pieces = []
    for partition, record in records:
        positions[partition] = record.offset + 1
        data = msgspec.json.encode(line_of(partition, record, form))
        pieces.append(b"id: %s\ndata: %s\n\n" % (encoded(topic, positions).encode(), data))
    return b"".join(pieces)


def reset_event(reset: Reset, topic: Topic, positions: Mapping[int, int]) -> bytes:
    """The event that says that records were removed before they were read."""
    told = msgspec.json.encode(_told(reset))
    return b"event: reset\nid: %s\ndata: %s\n\n" % (encoded(topic, positions).encode(), told)


def beat(topic: Topic, positions: Mapping[int, int]) -> bytes:
    """A comment, and the id of a position. Clients note the id, and get no event."""
    return b":\nid: %s\n\n" % encoded(topic, positions).encode()


def problem_event(document: bytes) -> bytes:
    """The event of a problem that ends the answer."""
    return b"event: problem\ndata: %s\n\n" % document


def _told(reset: Reset) -> dict[str, int]:
    return {"partition": reset.partition, "wanted": reset.wanted, "resumed": reset.resumed}


def arrow(records: Sequence[tuple[int, Record]]) -> bytes:
    """Records as an Arrow IPC stream of one batch."""
    import pyarrow as pa

    schema = _arrow_schema()
    columns = [
        [partition for partition, _ in records],
        [record.offset for _, record in records],
        [record.timestamp for _, record in records],
        [record.key for _, record in records],
        [record.value for _, record in records],
        [[{"key": name, "value": value} for name, value in record.headers] for _, record in records],
    ]
    batch = pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _arrow_schema() -> pa.Schema:
    """The columns of records, named as in the topic's table."""
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    return pa.schema(
        [
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp_ms", pa.int64(), nullable=False),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("headers", pa.list_(pa.field("element", header, nullable=False)), nullable=False),
        ]
    )
