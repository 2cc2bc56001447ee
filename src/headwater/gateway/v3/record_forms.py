"""Records and receipts in the form of the REST Proxy.

Keys and values have a type: `BINARY` (base64), `STRING`, or `JSON`, which is stored as its text without white space. Or
they have a schema, which is named by an id, a version or a subject, or is given: `AVRO`, `JSONSCHEMA`, `PROTOBUF`. Data
that says nothing of this has the newest schema of the topic's subject, and is JSON if there is none.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

import msgspec

from headwater.client.records import Headers
from headwater.errors import BadInput
from headwater.gateway.problems import BAD_REQUEST, CODE, NOT_FOUND, Refusal
from headwater.gateway.records.bodies import MAX_HEADERS, Entry
from headwater.gateway.records.choosing import SchemaId
from headwater.gateway.records.values import from_base64
from headwater.gateway.v3.errors import Told, told_of
from headwater.state.cluster.schemas import MAX_NAME

BINARY, JSON, STRING = "BINARY", "JSON", "STRING"
SCHEMA_TYPES = ("AVRO", "JSONSCHEMA", "PROTOBUF")
_NOTHING = msgspec.Raw()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN = 100
"""Characters of wrong data that an error repeats."""
NO_PARTITION = 40402
EntryId = Annotated[str, msgspec.Meta(min_length=1, max_length=80)]


class Malformed(BadInput):
    """The body is not JSON, so it is not known where the next record begins."""


class DataBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key or a value."""

    type: str | None = None
    """`BINARY`, `JSON` or `STRING`; `AVRO`, `JSONSCHEMA` or `PROTOBUF` for data with a schema. Without a type the data
    has the newest schema of its subject, or is JSON."""
    data: msgspec.Raw = _NOTHING
    """The data. Null or missing: no key, or no value."""
    subject: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)] | None = None
    """The subject of the schema."""
    subject_name_strategy: Literal["TOPIC_NAME", "RECORD_NAME", "TOPIC_RECORD_NAME"] | None = None
    """How the subject is found if none is given. By default `TOPIC_NAME`: the topic's name with `-key` or `-value`."""
    schema_id: SchemaId | None = None
    """The id of the schema. It must be a version of the subject."""
    schema_version: SchemaId | None = None
    """The version of the subject, instead of an id. Without both the newest."""
    schema: str | None = None
    """The schema itself, with a type. It is registered under the subject if it is not there yet."""


class HeaderBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A header of a record."""

    name: str
    """The name of the header."""
    value: str | None = None
    """The value in base64."""


class RecordBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record to append."""

    partition_id: int | None = None
    """The partition. Without one the key decides, as in Kafka's default partitioner."""
    headers: Annotated[list[HeaderBody], msgspec.Meta(max_length=MAX_HEADERS)] | None = None
    """The headers of the record, in order."""
    key: DataBody | None = None
    """The key."""
    value: DataBody | None = None
    """The value."""
    timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    """The time of the record, such as `2021-02-05T19:14:42Z`. Without one the present time."""


class BatchEntry(RecordBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record of a batch."""

    id: EntryId
    """The name of the record in the answer."""


class DataReceipt(msgspec.Struct, frozen=True):
    """A key or a value that was appended."""

    type: str
    """Its type."""
    size: int
    """Its bytes."""
    subject: str | msgspec.UnsetType = msgspec.UNSET
    """The subject of its schema."""
    schema_id: int | msgspec.UnsetType = msgspec.UNSET
    """The id of its schema."""
    schema_version: int | msgspec.UnsetType = msgspec.UNSET
    """The version of its schema."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """A record that was appended."""

    id: str | msgspec.UnsetType = msgspec.UNSET
    """The name of a record of a batch."""
    error_code: int | msgspec.UnsetType = 200
    """Always 200. Records of a batch have none."""
    cluster_id: str
    """The id of the cluster, as in the path."""
    topic_name: str
    """The name of the topic."""
    partition_id: int
    """The partition of the record."""
    offset: int
    """The offset of the record."""
    timestamp: str
    """The time of the record."""
    key: DataReceipt | msgspec.UnsetType = msgspec.UNSET
    """The key, if the request has one."""
    value: DataReceipt | msgspec.UnsetType = msgspec.UNSET
    """The value, if the request has one."""


class Wanted(msgspec.Struct, frozen=True):
    """What data says about its schema."""

    type: str = ""
    """`AVRO`, `JSONSCHEMA`, `PROTOBUF`; empty if the data does not say it."""
    subject: str = ""
    strategy: str = ""
    id: int = 0
    version: int = 0
    text: str = ""

    @property
    def certain(self) -> bool:
        """Whether the data has a schema. If it says nothing, it has one if its subject does."""
        return self != Wanted()


class Form(msgspec.Struct, frozen=True):
    """A record with the types of its key and its value."""

    entry: Entry
    key_type: str | None
    value_type: str | None
    key_schema: Wanted | None = None
    """How the key is to be encoded; None if it is bytes already. Else it is the text of a JSON value."""
    value_schema: Wanted | None = None
    """The same for the value."""
    key_told: DataReceipt | None = None
    """The receipt of a key that was encoded."""
    value_told: DataReceipt | None = None


_record = msgspec.json.Decoder(RecordBody)
_text = msgspec.json.Decoder(str)


def forms_of(documents: list[bytes], now_ms: int) -> list[Form | Told | Malformed]:
    """What JSON objects say: a record, or what is wrong with it. Nothing comes after one that is not JSON."""
    found: list[Form | Told | Malformed] = []
    for document in documents:
        try:
            document.decode()
            found.append(form_of(_record.decode(document), now_ms))
        except msgspec.ValidationError as error:
            found.append(wrong(str(error)))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            found.append(Malformed(f"Error processing message: {error}"))
            break
        except (BadInput, Refusal) as error:
            found.append(told_of(error))
    return found


def form_of(body: RecordBody, now_ms: int) -> Form:
    """A record. Raises a refusal if it is not valid."""
    if body.partition_id is not None and body.partition_id < 0:
        raise no_partition()
    key_type, key, key_schema = _data("key", body.key)
    value_type, value, value_schema = _data("value", body.value)
    timestamp = now_ms if body.timestamp is None else (body.timestamp - _EPOCH) // timedelta(milliseconds=1)
    if timestamp < 0:
        raise flawed("`timestamp` is before 1970.")
    entry = Entry(key, value, _headers(body.headers or []), body.partition_id, timestamp)
    return Form(entry, key_type, value_type, key_schema, value_schema)


def flawed(message: str) -> Refusal:
    """The refusal of a record that is not valid."""
    return Refusal(BAD_REQUEST, f"Bad Request: {message}")


def wrong(message: str) -> Told:
    """The error of a record that is not valid."""
    return told_of(flawed(message))


def no_partition() -> Refusal:
    """The refusal of a record for a partition that does not exist."""
    return Refusal(NOT_FOUND, "Partition not found.", more={CODE: NO_PARTITION})


def _headers(given: list[HeaderBody]) -> Headers:
    found: list[tuple[str, bytes | None]] = []
    for header in given:
        try:
            found.append((header.name, None if header.value is None else from_base64("value", header.value)))
        except BadInput:
            raise flawed(f"the value of the header {header.name[:_SHOWN]!r} is not a base64 string.") from None
    return tuple(found)


def _data(field: str, given: DataBody | None) -> tuple[str | None, bytes | None, Wanted | None]:
    """The type and the bytes of a key or a value, and what it says about its schema."""
    if given is None:
        return None, None, None
    wanted = _wanted(field, given)
    kind = given.type or JSON
    raw = bytes(given.data)
    if not raw or raw == b"null":
        return kind, None, None
    if kind == JSON or wanted is not None:
        return kind, msgspec.json.format(raw, indent=-1), wanted
    what = "a base64 string" if kind == BINARY else "a string"
    if raw[:1] != b'"':
        raise flawed(f"data={_shown(raw)} is not {what}.")
    try:
        text = _text.decode(raw)
        return kind, from_base64("data", text) if kind == BINARY else text.encode(), None
    except (BadInput, msgspec.DecodeError, UnicodeEncodeError):
        raise flawed(f"data={_shown(raw)} is not {'a valid base64 string' if kind == BINARY else what}.") from None


def _wanted(field: str, given: DataBody) -> Wanted | None:
    """What data says about its schema; None if its type has none."""
    found = Wanted(
        given.type or "",
        given.subject or "",
        given.subject_name_strategy or "",
        given.schema_id or 0,
        given.schema_version or 0,
        given.schema or "",
    )
    if given.type in (BINARY, JSON, STRING):
        if found != Wanted(given.type):
            raise flawed(f"the {field} has the type {given.type}, which has no schema.")
        return None
    if given.type is not None and given.type not in SCHEMA_TYPES:
        told = ", ".join((BINARY, JSON, STRING, *SCHEMA_TYPES))
        raise flawed(f"the type {given.type[:_SHOWN]!r} of the {field} is none of {told}.")
    if sum(map(bool, (found.id, found.version, found.text))) > 1:
        raise flawed(f"the {field} has more than one of schema_id, schema_version and schema.")
    if found.subject and found.strategy:
        raise flawed(f"the {field} has both subject and subject_name_strategy.")
    if found.text and not found.type:
        raise flawed(f"the {field} has a schema, and needs the type of the schema: {', '.join(SCHEMA_TYPES)}.")
    return found


def _shown(raw: bytes) -> str:
    text = raw.decode(errors="replace")
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def receipt_of(form: Form, cluster: str, topic: str, partition: int, offset: int, append_ms: int | None) -> Receipt:
    """The receipt of a record that is in the log."""
    entry = form.entry
    when = time_of(entry.timestamp or 0 if append_ms is None else append_ms)
    return Receipt(
        cluster_id=cluster,
        topic_name=topic,
        partition_id=partition,
        offset=offset,
        timestamp=when,
        key=form.key_told or _receipt(form.key_type, entry.key),
        value=form.value_told or _receipt(form.value_type, entry.value),
    )


def _receipt(kind: str | None, data: bytes | None) -> DataReceipt | msgspec.UnsetType:
    return msgspec.UNSET if kind is None else DataReceipt(kind, len(data or b""))


def time_of(ms: int) -> str:
    """A time as the REST Proxy shows it."""
    whole = (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")
    return whole.removesuffix("+00:00").removesuffix(".000") + "Z"
