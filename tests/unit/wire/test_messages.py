"""Requests and responses there and back, and what is malformed."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.index import api_key_map

from headwater.errors import CorruptFrame
from headwater.wire.build import build
from headwater.wire.messages import (
    RequestStart,
    api_name,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    known_versions,
    read_start,
    request_type,
    response_type,
)
from tests.support.promise import promise

PROMISES = ("K1",)

MESSAGES = [(key, version) for key in sorted(api_key_map) for version in known_versions(key)]
PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18


def joined(pieces: list[bytes]) -> memoryview:
    """A frame without its size, which must be right."""
    frame = b"".join(pieces)
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    return memoryview(frame)[4:]


@promise("K1")
def test_every_request_there_and_back() -> None:
    """With headers v1 and v2."""
    for key, version in MESSAGES:
        request = build(request_type(key, version))
        frame = joined(encode_request(key, version, 77, "me", request))
        start = read_start(frame)
        assert start == RequestStart(key, version, 77)
        header, body = decode_request(start, frame)
        assert (header.client_id, header.correlation_id) == ("me", 77)
        assert body == request


@promise("K1")
def test_every_response_there_and_back() -> None:
    """ApiVersions has a header of its own."""
    for key, version in MESSAGES:
        frame = joined(encode_response(key, version, 78, {}))
        assert decode_response(key, version, frame) == (78, build(response_type(key, version)))


@promise("K4")
@pytest.mark.parametrize("size", [0, 10, 5000, 300_000])
@pytest.mark.parametrize("version", [4, 11, 13])
def test_large_records_are_not_copied(version: int, size: int) -> None:
    """A fetch answers with what it read, not with a copy of it."""
    records = bytearray(b"r" * size)
    partition = {"partition_index": 1, "high_watermark": 5, "records": records, "last_stable_offset": 5}
    topic = {"topic": "t", "partitions": [partition, partition]}
    values = {"responses": [topic], "session_id": 9}
    pieces = encode_response(FETCH, version, 1, values)
    if size >= 5000:
        assert sum(piece is records or getattr(piece, "obj", None) is records for piece in pieces) == 2
    _, body = decode_response(FETCH, version, joined(pieces))
    assert [bytes(p.records or b"") for p in body.responses[0].partitions] == [bytes(records)] * 2


@promise("K1")
def test_known_versions() -> None:
    """An API that nobody knows has none."""
    assert METADATA in api_key_map
    assert known_versions(METADATA)[0] == 0
    assert list(known_versions(9999)) == list(known_versions(-1)) == []
    assert api_name(API_VERSIONS) == "api_versions"
    assert api_name(2) == "list_offsets"


@promise("K1")
@pytest.mark.parametrize(
    ("key", "version"), [(METADATA, 1), (METADATA, 12), (PRODUCE, 9), (FETCH, 12), (API_VERSIONS, 3)]
)
@given(data=st.data())
def test_malformed_requests(key: int, version: int, data: st.DataObject) -> None:
    """Cut or changed bytes are a `CorruptFrame` or another request; what lies behind is not looked at."""
    good = bytes(joined(encode_request(key, version, 5, "client", build(request_type(key, version)))))
    cut = data.draw(st.integers(8, len(good) - 1))
    with pytest.raises(CorruptFrame):
        decode_request(RequestStart(key, version, 5), memoryview(good[:cut]))
    whole = decode_request(RequestStart(key, version, 5), memoryview(good))
    assert decode_request(RequestStart(key, version, 5), memoryview(good + b"\0")) == whole
    changed = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(8, len(good) - 1))] = data.draw(st.integers(0, 255))
    tail = data.draw(st.binary(max_size=20))
    for frame in (bytes(changed), bytes(changed) + tail):
        try:
            decode_request(RequestStart(key, version, 5), memoryview(frame))
        except CorruptFrame as error:
            assert str(error).startswith(f"{api_name(key)} v{version}: ")


@promise("K1")
@given(st.sampled_from(MESSAGES), st.binary(max_size=80))
def test_rubbish_requests(message: tuple[int, int], rubbish: bytes) -> None:
    key, version = message
    frame = memoryview(struct.pack(">hhi", key, version, 5) + rubbish)
    try:
        decode_request(read_start(frame), frame)
    except CorruptFrame:
        pass


@promise("K1")
def test_malformed_responses() -> None:
    """A client of ours says what it could not read."""
    with pytest.raises(CorruptFrame, match="response of metadata"):
        decode_response(METADATA, 1, memoryview(b"\0\0\0\1\0\0"))


@promise("K1", "K2")
def test_librdkafka_asks_for_all_topics_with_bytes_left_over() -> None:
    """A frame as librdkafka 2.16 sends it; Kafka does not look at what lies behind a request."""
    frame = bytes.fromhex("0003000d00000003000772646b61666b610000000000010000")
    header, body = decode_request(RequestStart(METADATA, 13, 3), memoryview(frame))
    assert header.client_id == "rdkafka" and body.topics is None
