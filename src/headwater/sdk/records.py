"""Records as users give and get them, and their form in the HTTP API."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from headwater.errors import BadInput

Data: TypeAlias = bytes | str | Mapping[str, Any] | Sequence[Any] | None
"""A key or a value: bytes, text (stored as UTF-8), a dict or a list (stored as JSON), or None."""
Headers: TypeAlias = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]
Time: TypeAlias = int | datetime
"""Milliseconds since 1970, or a date with a time zone."""
Start: TypeAlias = str | datetime | Mapping[int, int]
"""Where a consumer begins: `"earliest"`, `"latest"`, a time, or offsets by partition."""
LAST = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    """A record to append."""

    value: Data
    key: Data = None
    headers: Headers = ()
    partition: int | None = None
    """None: the key chooses the partition, as Kafka's default partitioner does."""
    timestamp: Time | None = None
    """None: the time of the append."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record is."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Appended:
    """What was appended."""

    records: int
    ranges: Mapping[int, tuple[int, int]]
    """By partition, the first and the last offset. Other writers' records may be in between."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a topic."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    decoded_key: Any = None
    """With `decode=True`, the key by its schema, as plain data such as a dict. Without a schema: its JSON, or text."""
    decoded_value: Any = None
    """With `decode=True`, the value by its schema, as the key."""
    key_schema: int | None = None
    value_schema: int | None = None
    """With `decode=True`, the ids of the schemas, if there are any and the registry tells them."""
    key_error: str | None = None
    value_error: str | None = None
    """With `decode=True`, why the key or the value could not be decoded. The decoded one is None then."""

    @property
    def text(self) -> str | None:
        """The value as text. Raises `BadInput` if it is not UTF-8."""
        try:
            return None if self.value is None else self.value.decode()
        except UnicodeDecodeError:
            raise BadInput(f"the value at offset {self.offset} of partition {self.partition} is not UTF-8") from None

    def json(self) -> Any:
        """The value as the data that its JSON text stands for. Raises `BadInput` if it is not JSON."""
        try:
            return None if self.value is None else msgspec.json.decode(self.value)
        except msgspec.DecodeError as error:
            place = f"offset {self.offset} of partition {self.partition}"
            raise BadInput(f"the value at {place} is not JSON: {error}") from None


def as_bytes(what: str, data: Data) -> bytes | None:
    """The bytes of a key or a value."""
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    try:
        if isinstance(data, str):
            return data.encode()
        if isinstance(data, Mapping | list | tuple):
            return msgspec.json.encode(data)
    except (UnicodeEncodeError, TypeError, ValueError) as error:
        raise BadInput(f"the {what} cannot be encoded: {error}") from error
    raise BadInput(f"the {what} is a {type(data).__name__}: give bytes, text, a dict, a list or None")


def key_of(key: Data) -> bytes:
    """The bytes of a key to look up."""
    found = as_bytes("key", key)
    if found is None:
        raise BadInput("the key is missing: records without a key cannot be looked up by it")
    return found


def as_ms(time: Time) -> int:
    """A time in milliseconds since 1970."""
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise BadInput(f"the time {time.isoformat()} has no time zone")
        return int(time.timestamp() * 1000)
    if isinstance(time, bool) or not isinstance(time, int) or not -LAST <= time <= LAST:
        raise BadInput(f"{time!r} is not a time: give milliseconds since 1970, or a datetime with a time zone")
    return time


def document(record: NewRecord) -> dict[str, Any]:
    """A record as the HTTP API takes it."""
    made: dict[str, Any] = {}
    _put(made, "value", as_bytes("value", record.value))
    if record.key is not None:
        _put(made, "key", as_bytes("key", record.key))
    given = record.headers.items() if isinstance(record.headers, Mapping) else record.headers
    if headers := [_header(name, value) for name, value in given]:
        made["headers"] = headers
    if record.partition is not None:
        made["partition"] = record.partition
    if record.timestamp is not None:
        made["timestamp"] = as_ms(record.timestamp)
    return made


def _header(name: str, value: bytes | str | None) -> dict[str, Any]:
    if not isinstance(name, str):
        raise BadInput(f"the name of a header is a {type(name).__name__}: give text")
    made: dict[str, Any] = {"name": name}
    _put(made, "value", as_bytes(f"header {name!r}", value))
    return made


def _put(made: dict[str, Any], field: str, data: bytes | None) -> None:
    """Bytes as text if they are UTF-8, else in base64."""
    try:
        made[field] = None if data is None else data.decode()
    except UnicodeDecodeError:
        assert data is not None
        made[f"{field}_base64"] = b64encode(data).decode()


def bytes_of(found: Mapping[str, Any], field: str) -> bytes | None:
    """The bytes of a field of an answer."""
    in_base64 = found.get(f"{field}_base64")
    if in_base64 is not None:
        return b64decode(in_base64)
    value = found.get(field)
    return None if value is None else str(value).encode()


def format_of(decode: bool) -> str:
    """The `format` of a request for records."""
    return "both" if decode else "base64"


def record_of(topic: str, line: Mapping[str, Any], decode: bool = False) -> Record:
    """A record of an answer."""
    headers = tuple((header["name"], bytes_of(header, "value")) for header in line.get("headers", ()))
    key, value = bytes_of(line, "key"), bytes_of(line, "value")
    record = Record(topic, line["partition"], line["offset"], line["timestamp"], key, value, headers)
    if not decode:
        return record
    return replace(
        record,
        decoded_key=None if "key_error" in line else line.get("key"),
        decoded_value=None if "value_error" in line else line.get("value"),
        key_schema=line.get("key_schema"),
        value_schema=line.get("value_schema"),
        key_error=line.get("key_error"),
        value_error=line.get("value_error"),
    )
