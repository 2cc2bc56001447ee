"""Looks at the record batches of a partition as they are on the wire, which no client shows."""

import io
import socket
import struct
from dataclasses import dataclass
from datetime import timedelta

from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.fetch.v12.response import FetchResponse
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32, i32Timedelta, i64

from tests.compat.common import CODECS, DEADLINE_S

# base offset, length, leader epoch, magic, CRC, attributes, last offset delta
_BATCH = struct.Struct(">qiibIhi")
_BATCH_OVERHEAD = 12


@dataclass(frozen=True, slots=True)
class Batch:
    first_offset: int
    last_offset: int
    codec: str


def fetch_batches(bootstrap: str, topic: str, partition: int) -> list[Batch]:
    """The batches from offset 0 on, asked of the first bootstrap address by the last Fetch that names topics."""
    request = FetchRequest(
        max_wait=i32Timedelta.parse(timedelta(seconds=5)),
        min_bytes=i32(1),
        topics=(
            FetchTopic(
                topic=TopicName(topic),
                partitions=(
                    FetchPartition(partition=i32(partition), fetch_offset=i64(0), partition_max_bytes=i32(1 << 20)),
                ),
            ),
        ),
        forgotten_topics_data=(),
    )
    answer = _call(bootstrap, request).responses[0].partitions[0]
    assert answer.error_code.value == 0, answer
    return _parse(bytes(answer.records or b""))


def _call(bootstrap: str, request: FetchRequest) -> FetchResponse:
    header = RequestHeader(
        request_api_key=request.__api_key__,
        request_api_version=i16(request.__version__),
        correlation_id=i32(1),
        client_id="headwater-compat-test",
    )
    out = io.BytesIO()
    entity_writer(RequestHeader)(out, header)
    entity_writer(FetchRequest)(out, request)
    host, port = bootstrap.split(",")[0].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as connection:
        connection.sendall(struct.pack(">i", out.tell()) + out.getvalue())
        with connection.makefile("rb") as stream:
            (length,) = struct.unpack(">i", stream.read(4))
            data = stream.read(length)
    _, at = entity_reader(ResponseHeader)(data, 0)
    return entity_reader(FetchResponse)(data, at)[0]


def _parse(data: bytes) -> list[Batch]:
    batches = []
    at = 0
    while at < len(data):
        base, length, _, magic, _, attributes, last = _BATCH.unpack_from(data, at)
        assert magic == 2
        # The low three bits of the attributes number the codecs in the order of CODECS.
        batches.append(Batch(base, base + last, CODECS[attributes & 7]))
        at += _BATCH_OVERHEAD + length
    return batches
