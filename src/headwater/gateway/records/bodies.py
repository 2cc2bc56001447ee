"""Bodies of requests that append records: a JSON document, NDJSON, or the bytes of one record."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, TypeAlias

import msgspec

from headwater.client.records import Headers
from headwater.errors import BadInput
from headwater.gateway.problems import MEDIA, TOO_LARGE, Refusal
from headwater.gateway.records.choosing import Choice, SchemaName, choice_of
from headwater.gateway.records.values import ABSENT, bytes_of

JSON = "application/json"
NDJSON = ("application/x-ndjson", "application/ndjson", "application/jsonl")
RAW = ("application/octet-stream", "text/plain")
MAX_HEADERS = 1_000
"""The limit of headers of one record."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Offset = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
When: TypeAlias = Offset | Annotated[datetime, msgspec.Meta(tz=True)]
"""Milliseconds since 1970, or a time of RFC 3339 with its offset from UTC."""


class HeaderBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A header of a record."""

    name: str
    """The name of the header."""
    value: msgspec.Raw = ABSENT
    """Text, or any other JSON value; null for no value."""
    value_base64: str | None = None
    """The bytes of the value in base64, instead of `value`."""


class RecordBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record to append."""

    key: msgspec.Raw = ABSENT
    """Text, or any other JSON value; null or missing for no key."""
    key_base64: str | None = None
    """The bytes of the key in base64, instead of `key`."""
    value: msgspec.Raw = ABSENT
    """Text, or any other JSON value, which is stored as its compact text; null for a tombstone."""
    value_base64: str | None = None
    """The bytes of the value in base64, instead of `value`."""
    headers: Annotated[list[HeaderBody], msgspec.Meta(max_length=MAX_HEADERS)] = []
    """The headers of the record, in order."""
    partition: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """The partition. Without one the key decides, as in Kafka's default partitioner."""
    timestamp: When | None = None
    """Milliseconds since 1970, or a time such as `2026-01-31T12:00:00Z`. Without one the time of the request."""
    key_schema: SchemaName | None = None
    """The schema by which `key` is encoded: an id, a subject, or an object. Without one, that of the request."""
    value_schema: SchemaName | None = None
    """The schema by which `value` is encoded: an id, a subject, or an object. Without one, that of the request."""


class AppendBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Records that are appended together or not at all."""

    records: Annotated[list[RecordBody], msgspec.Meta(min_length=1)]
    """The records."""
    expected_offset: Offset | None = None
    """The offset that the first record must get. All records must be of one partition."""
    expected_offsets: dict[Offset, Offset] = {}
    """By partition, the offset that the next record of the partition must get."""
    expected_version: Offset | None = None
    """The version that the table of the topic must have."""
    key_schema: SchemaName | None = None
    """The schema by which keys are encoded. Bytes in base64, and null, stay as they are."""
    value_schema: SchemaName | None = None
    """The schema by which values are encoded. Bytes in base64, and null, stay as they are."""


class _Schemas(msgspec.Struct, frozen=True):
    """The schemas of all records of a request that name none themselves."""

    key: Choice | None = None
    value: Choice | None = None


_document = msgspec.json.Decoder(AppendBody)
_line = msgspec.json.Decoder(RecordBody)


class Entry(msgspec.Struct, frozen=True):
    """A record to append. Without a partition, a place is chosen for it; without a timestamp it gets the present."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None
    key_schema: Choice | None = None
    """The schema by which the key is to be encoded. The key is the text of a JSON value then."""
    value_schema: Choice | None = None
    """The schema by which the value is to be encoded. The value is the text of a JSON value then."""


class Wish(msgspec.Struct, frozen=True):
    """What a request asks for: records, and what must hold for them to be appended."""

    entries: list[Entry]
    expected_offset: int | None = None
    expected_offsets: dict[int, int] = {}
    expected_version: int | None = None


class FromQuery(msgspec.Struct, frozen=True):
    """What the query of a request says."""

    partition: int | None = None
    key: str | None = None
    key_base64: str | None = None
    timestamp: str | None = None
    expected_offset: int | None = None
    expected_version: int | None = None
    key_schema: str | None = None
    value_schema: str | None = None

    @property
    def of_record(self) -> list[str]:
        """The parameters that are for a body of one record."""
        names = ("partition", "key", "key_base64", "timestamp")
        return [name for name in names if getattr(self, name) is not None]


def parsed(body: bytes, content_type: str, query: FromQuery, most: int) -> Wish:
    """What a request asks for. Raises `BadInput`, or a refusal; `most` is the limit of records."""
    kind = content_type.partition(";")[0].strip().lower()
    schemas = _Schemas(_named("key_schema", query.key_schema), _named("value_schema", query.value_schema))
    if kind in RAW:
        if schemas != _Schemas():
            raise BadInput("a body that is the value of one record is stored as it is: it has no schema")
        return _raw(body, query)
    if kind != JSON and kind not in NDJSON:
        accepted = ", ".join((JSON, *NDJSON, *RAW))
        raise Refusal(MEDIA, f"Content-Type {kind or '(none)'!r} is not one of {accepted}")
    if query.of_record:
        raise BadInput(f"`{query.of_record[0]}` in the query is for a body that is the value of one record")
    try:
        body.decode()
        if kind == JSON:
            return _of_document(_document.decode(body), query, schemas, most)
        lines = [line for line in body.split(b"\n") if line.strip()]
        check_count(len(lines), most)
        return Wish(_entries(_lines(lines), schemas), query.expected_offset, {}, query.expected_version)
    except UnicodeDecodeError as error:
        raise BadInput(f"the body is not UTF-8 (byte {error.start})") from None
    except msgspec.MsgspecError as error:
        raise BadInput(f"the body is not what the call takes: {error}") from None
    except RecursionError:
        raise BadInput("the body is nested too deeply") from None


def _of_document(found: AppendBody, query: FromQuery, schemas: _Schemas, most: int) -> Wish:
    check_count(len(found.records), most)
    for name in ("expected_offset", "expected_version", "key_schema", "value_schema"):
        if getattr(found, name) is not None and getattr(query, name) is not None:
            raise BadInput(f"`{name}` is in the query and in the body")
    offset = found.expected_offset if query.expected_offset is None else query.expected_offset
    version = found.expected_version if query.expected_version is None else query.expected_version
    own = _Schemas(
        schemas.key or _named("key_schema", found.key_schema),
        schemas.value or _named("value_schema", found.value_schema),
    )
    return Wish(_entries(found.records, own), offset, found.expected_offsets, version)


def _lines(lines: list[bytes]) -> list[RecordBody]:
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(_line.decode(line))
        except msgspec.MsgspecError as error:
            raise BadInput(f"record {number} is not what the call takes: {error}") from None
    return found


def _raw(body: bytes, query: FromQuery) -> Wish:
    key = query.key.encode() if query.key is not None else None
    if query.key_base64 is not None:
        if key is not None:
            raise BadInput("`key` and `key_base64` exclude each other")
        key = bytes_of("key", ABSENT, query.key_base64)
    entry = Entry(key, body, (), query.partition, ms_of_text("timestamp", query.timestamp))
    return Wish([entry], query.expected_offset, {}, query.expected_version)


def check_count(count: int, most: int) -> None:
    """Raise unless a request has a number of records that is allowed."""
    if not count:
        raise BadInput("the request has no records")
    if count > most:
        raise Refusal(TOO_LARGE, f"the request has {count} records; the limit is {most} (gateway.records)")


def _entries(records: list[RecordBody], schemas: _Schemas) -> list[Entry]:
    found = []
    for number, one in enumerate(records):
        try:
            found.append(_entry(one, schemas))
        except BadInput as error:
            raise BadInput(f"records[{number}]: {error}") from None
        except (msgspec.MsgspecError, RecursionError) as error:
            raise BadInput(f"records[{number}]: {error}") from None
    return found


def _entry(one: RecordBody, schemas: _Schemas) -> Entry:
    if not bytes(one.value) and one.value_base64 is None:
        raise BadInput('there is neither `value` nor `value_base64`; a tombstone has `"value": null`')
    headers = tuple((h.name, bytes_of("value", h.value, h.value_base64)) for h in one.headers)
    key, key_schema = _data("key", one.key, one.key_base64, one.key_schema, schemas.key)
    value, value_schema = _data("value", one.value, one.value_base64, one.value_schema, schemas.value)
    when = ms_of(one.timestamp) if one.timestamp is not None else None
    return Entry(key, value, headers, one.partition, when, key_schema, value_schema)


def _data(
    field: str, given: msgspec.Raw, in_base64: str | None, named: SchemaName | None, common: Choice | None
) -> tuple[bytes | None, Choice | None]:
    """The bytes of a key or a value; or the text of a JSON value, and the schema by which it is to be encoded."""
    own = _named(f"{field}_schema", named)
    if own is not None and in_base64 is not None:
        raise BadInput(f"`{field}_base64` and `{field}_schema` exclude each other: bytes are stored as they are")
    schema = own or common
    if schema is None or in_base64 is not None or bytes(given) in (b"", b"null"):
        return bytes_of(field, given, in_base64), None
    return bytes(given), schema


def _named(field: str, given: SchemaName | None) -> Choice | None:
    return choice_of(field, given) if given is not None else None


def ms_of(when: int | datetime) -> int:
    """A time as milliseconds since 1970."""
    return (when - _EPOCH) // timedelta(milliseconds=1) if isinstance(when, datetime) else when


def ms_of_text(name: str, text: str | None) -> int | None:
    """A time in a query as milliseconds since 1970."""
    if text is None:
        return None
    try:
        found = ms_of(int(text) if text.isascii() and text.isdigit() else msgspec.convert(text, When, strict=True))
        if not 0 <= found < 1 << 63:
            raise ValueError(found)
        return found
    except (msgspec.MsgspecError, ValueError):
        raise BadInput(f"`{name}` is neither milliseconds since 1970 nor a time such as 2026-01-31T12:00:00Z") from None
