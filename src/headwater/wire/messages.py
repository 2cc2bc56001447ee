"""Requests and responses as bytes. Types and their codecs come from kio."""

from __future__ import annotations

import functools
import io
import struct
from collections.abc import Mapping
from typing import Any

import msgspec
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from headwater.errors import CorruptFrame
from headwater.types import Buffer
from headwater.wire.encode import Write, encoder

_MALFORMED = (SerialError, ValueError, OverflowError, IndexError, KeyError, struct.error)
"""What kio raises over bytes that are no message; a `KeyError` for a tagged field that it does not know."""
_START = struct.Struct(">hhi")
_SIZE = struct.Struct(">i")
_LARGE = 4096
"""Pieces of at least this size are not copied into a joined one."""


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
    return load_response_schema(api_key, version)


@functools.cache
def request_type(api_key: int, version: int) -> type:
    """The class of a request."""
    return load_request_schema(api_key, version)


@functools.cache
def _response_reader(api_key: int, version: int) -> tuple[Any, Any]:
    schema = load_response_schema(api_key, version)
    return entity_reader(schema.__header_schema__), entity_reader(schema)


def decode_request(start: RequestStart, frame: memoryview) -> tuple[Any, Any]:
    """A request's header and body; anything malformed is a `CorruptFrame`.

    Bytes behind the body are not looked at, as in Kafka: librdkafka leaves some behind its Metadata of all topics and
    its AlterUserScramCredentials.
    """
    read_header, read_body = _request_codec(start.api_key, start.version)
    try:
        header, at = read_header(frame, 0)
        body, _ = read_body(frame, at)
    except _MALFORMED as error:
        raise CorruptFrame(f"{api_name(start.api_key)} v{start.version}: {error}") from error
    return header, body


def _frame(parts: list[Buffer]) -> list[Buffer]:
    """A size-prefixed frame in few pieces: small parts joined, large ones as they are."""
    size = sum(map(len, parts))
    prefix = _SIZE.pack(size)
    if size < _LARGE:
        return [b"".join((prefix, *parts))]
    pieces: list[Buffer] = []
    small: list[Buffer] = [prefix]
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
    schema = load_response_schema(api_key, version)
    header: type = schema.__header_schema__
    return encoder(header), encoder(schema)


def encode_response(api_key: int, version: int, correlation_id: int, values: Mapping[str, Any]) -> list[Buffer]:
    """A response's frame in pieces, from plain values as `build` takes them."""
    write_header, write_body = _response_writer(api_key, version)
    parts: list[Buffer] = []
    write_header({"correlation_id": correlation_id}, parts)
    write_body(values, parts)
    return _frame(parts)


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
