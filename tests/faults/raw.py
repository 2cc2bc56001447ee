"""Kafka's protocol over a plain socket, so that requests can be wrong in every way."""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from headwater.wire.build import build
from headwater.wire.messages import decode_response, encode_request, request_type
from tests.support.batches import Rec, batch

API_VERSIONS, PRODUCE, FETCH, LIST_OFFSETS, METADATA = 18, 0, 1, 2, 3
WITHIN = 20.0
_SIZE = struct.Struct(">i")
_START = struct.Struct(">hhi")


class Closed(Exception):
    """The broker closed the connection."""


def frame(key: int, version: int, correlation_id: int = 1, client_id: str = "raw", **fields: Any) -> bytes:
    """A request with its size."""
    request = build(request_type(key, version), **fields)
    return b"".join(encode_request(key, version, correlation_id, client_id, request))


def start(key: int, version: int, correlation_id: int = 1, rest: bytes = b"") -> bytes:
    """A frame of any key and version, with whatever comes behind its first eight bytes."""
    body = _START.pack(key, version, correlation_id) + rest
    return _SIZE.pack(len(body)) + body


def fresh(values: Sequence[bytes], **fields: Any) -> bytes:
    """A batch of this moment, which no retention takes away under a test."""
    now = int(time.time() * 1000)
    return batch([Rec(value, timestamp=now) for value in values], **fields)


class Raw(AbstractContextManager["Raw"]):
    """One connection."""

    def __init__(self, port: int, client_id: str = "raw") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WITHIN)
        self.client_id = client_id
        self._ids = itertools.count(1)

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error

    def receive(self) -> bytes:
        """The next answer's frame, without its size."""
        (size,) = _SIZE.unpack(self._exactly(_SIZE.size))
        return self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                piece = self.socket.recv(count - len(data))
            except ConnectionResetError as error:
                raise Closed from error
            if not piece:
                raise Closed
            data += piece
        return bytes(data)

    def ask(self, key: int, version: int, **fields: Any) -> Any:
        """Send a request and decode its answer."""
        number = next(self._ids)
        self.send(frame(key, version, number, self.client_id, **fields))
        told, body = decode_response(key, version, memoryview(self.receive()))
        assert told == number
        return body

    # --- what the tests ask for most -------------------------------------------------------------------

    def produce(self, topic: str, records: bytes | None, *, partition: int = 0, version: int = 9, **fields: Any) -> Any:
        """The answer for one partition."""
        data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
        asked = {"acks": -1, "timeout": 10_000, "transactional_id": None, "topic_data": data, **fields}
        [answer] = self.ask(PRODUCE, version, **asked).responses
        [one] = answer.partition_responses
        return one

    def fetch(self, topic: str, offset: int, *, partition: int = 0, version: int = 11, **fields: Any) -> Any:
        """The answer for one partition."""
        wanted = {
            "partition": partition,
            "fetch_offset": offset,
            "partition_max_bytes": 1 << 20,
            "current_leader_epoch": -1,
            **fields,
        }
        answer = self.ask(
            FETCH, version, replica_id=-1, max_wait=0, min_bytes=0, max_bytes=1 << 20, session_id=0, session_epoch=-1,
            topics=[{"topic": topic, "partitions": [wanted]}],
        )  # fmt: skip
        [topic_answer] = answer.responses
        [one] = topic_answer.partitions
        return one

    def end_of(self, topic: str, partition: int = 0) -> int:
        """A partition's end."""
        wanted = [{"partition_index": partition, "timestamp": -1, "current_leader_epoch": -1}]
        answer = self.ask(LIST_OFFSETS, 5, replica_id=-1, topics=[{"name": topic, "partitions": wanted}])
        return int(answer.topics[0].partitions[0].offset)
