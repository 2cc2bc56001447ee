"""Requests and responses as bytes. Types and their codecs come from kio."""

from __future__ import annotations

import dataclasses
import functools
import io
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from headwater.errors import CorruptFrame
from headwater.types import Buffer
from headwater.wire.amended import RESPONSES
from headwater.wire.encode import Write, encoder, sliced_encoder

_MALFORMED = (SerialError, ValueError, OverflowError, IndexError, KeyError, struct.error)
"""Errors of kio for bytes that are not a message; `KeyError` for an unknown tagged field."""
_START = struct.Struct(">hhi")
_SIZE = struct.Struct(">i")
_LARGE = 4096
"""Pieces of at least this size are not joined with others."""


class RequestStart(msgspec.Struct, frozen=True, gc=False):
    """The part of a request's header that every version has."""

    api_key: int
    version: int
    correlation_id: int


def read_start(frame: memoryview) -> RequestStart:
    """The first eight bytes of a request."""
    return RequestStart(*_START.unpack_from(frame))


def known_versions(api_key: int) -> range:
    """The versions of an API that kio knows, empty for an unknown API."""
    name = api_key_map.get(api_key)
    if name is None:
        return range(0)
    versions = schema_name_map[name]
    return range(min(versions), max(versions) + 1)


def api_name(api_key: int) -> str:
    """An API's name in words, such as `list_offsets`."""
    return api_key_map[api_key]


@functools.cache
def _request_codec(api_key: int, version: int) -> tuple[Any, Any]:
    schema = load_request_schema(api_key, version)
    return entity_reader(schema.__header_schema__), entity_reader(schema)


@functools.cache
def _request_writer(api_key: int, version: int) -> tuple[type, type, Any, Any]:
    schema = load_request_schema(api_key, version)
    header = schema.__header_schema__
    return schema, header, entity_writer(header), entity_writer(schema)


@functools.cache
def response_type(api_key: int, version: int) -> type:
    """The class of a response."""
    return RESPONSES.get((api_key, version)) or load_response_schema(api_key, version)


@functools.cache
def request_type(api_key: int, version: int) -> type:
    """The class of a request."""
    return load_request_schema(api_key, version)


@functools.cache
def _response_reader(api_key: int, version: int) -> tuple[Any, Any]:
    schema: Any = response_type(api_key, version)
    return entity_reader(schema.__header_schema__), entity_reader(schema)


@functools.cache
def has_error(api_key: int, version: int) -> bool:
    """Whether a response has an error of the whole request."""
    return any(field.name == "error_code" for field in dataclasses.fields(response_type(api_key, version)))


def decode_request(start: RequestStart, frame: memoryview) -> tuple[Any, Any]:
    """A request's header and body; raises `CorruptFrame` if they are malformed.

    Bytes behind the body are ignored, as in Kafka: librdkafka leaves some behind its Metadata of all topics and its
    AlterUserScramCredentials.
    """
    read_header, read_body = _request_codec(start.api_key, start.version)
    try:
        header, at = read_header(frame, 0)
        body, _ = read_body(frame, at)
    except _MALFORMED as error:
        raise CorruptFrame(f"{api_name(start.api_key)} v{start.version}: {error}") from error
    return header, body


def _frame(parts: list[Buffer]) -> list[Buffer]:
    """A size-prefixed frame in few pieces: small parts are joined, large ones are not copied."""
    size = sum(map(len, parts))
    prefix = _SIZE.pack(size)
    if size < _LARGE:
        return [b"".join((prefix, *parts))]
    return _joined([prefix, *parts])


def _joined(parts: list[Buffer]) -> list[Buffer]:
    """The same bytes in few pieces."""
    pieces: list[Buffer] = []
    small: list[Buffer] = []
    for part in parts:
        if len(part) < _LARGE:
            small.append(part)
            continue
        pieces.append(b"".join(small))
        pieces.append(part)
        small = []
    if small:
        pieces.append(b"".join(small))
    return pieces


@functools.cache
def _response_writer(api_key: int, version: int) -> tuple[Write, Write]:
    schema = response_type(api_key, version)
    header: type = schema.__header_schema__  # type: ignore[attr-defined]
    return encoder(header), encoder(schema)


def encode_response(api_key: int, version: int, correlation_id: int, values: Mapping[str, Any]) -> list[Buffer]:
    """The frame of a response in pieces, from plain values as for `build`."""
    write_header, write_body = _response_writer(api_key, version)
    parts: list[Buffer] = []
    write_header({"correlation_id": correlation_id}, parts)
    write_body(values, parts)
    return _frame(parts)


async def encode_response_in_slices(
    api_key: int,
    version: int,
    correlation_id: int,
    values: Mapping[str, Any],
    pause: Callable[[], Awaitable[None]],
    slice_items: int,
) -> list[Buffer]:
    """The same frame as from `encode_response`, with a pause after each slice of entities."""
    write_header, _ = _response_writer(api_key, version)
    done: list[Buffer] = []
    parts: list[Buffer] = []
    write_header({"correlation_id": correlation_id}, parts)
    steps = sliced_encoder(response_type(api_key, version))(values, parts)
    for number, _ in enumerate(steps, 1):
        if number % slice_items == 0:
            done += _joined(parts)
            parts.clear()
            await pause()
    done += _joined(parts)
    return [_SIZE.pack(sum(map(len, done))), *done]


def weight(values: Mapping[str, Any], enough: int) -> int:
    """How many items the lists of an answer and of their items have; the count ends at `enough`."""
    found = 0
    for value in values.values():
        if type(value) is list:
            found += len(value)
            for item in value:
                if found >= enough or type(item) is not dict:
                    break
                for inner in item.values():
                    if type(inner) is list:
                        found += len(inner)
    return found


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str, request: Any) -> list[Buffer]:
    """A request's frame in pieces."""
    _, header_type, write_header, write_body = _request_writer(api_key, version)
    collector = io.BytesIO()
    write_header(
        collector,
        header_type(
            request_api_key=api_key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=client_id,
        ),
    )
    write_body(collector, request)
    return _frame([collector.getvalue()])


def decode_response(api_key: int, version: int, frame: memoryview) -> tuple[int, Any]:
    """A response's correlation id and body."""
    read_header, read_body = _response_reader(api_key, version)
    try:
        header, at = read_header(frame, 0)
        body, _ = read_body(frame, at)
    except _MALFORMED as error:
        raise CorruptFrame(f"response of {api_name(api_key)} v{version}: {error}") from error
    return header.correlation_id, body
