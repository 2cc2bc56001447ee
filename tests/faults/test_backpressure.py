"""Clients that send and never read: the broker's memory stays within bounds, and everybody else is served."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from kio.schema.errors import ErrorCode

from tests.faults.raw import FETCH, PRODUCE, Raw, frame, fresh
from tests.support.running import Running
from tests.support.soak import WHOLE

PROMISES = ("S4",)

BATCHES = 45
BATCH_BYTES = 900_000
FETCH_BYTES = 8 << 20
FETCHES = 200
DEAF_CLIENTS = 4
ROUNDS = 300 if WHOLE else 60
MAX_RSS = 700 << 20
"""An idle broker takes about 60 MiB, the compiled kernels 100 more, the cache of WAL objects 64; a deaf client may
hold what fits the write buffer and two answers."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("backpressure")) as running:
        running.create("large")
        running.create("small")
        with Raw(running.port) as raw:
            for _ in range(BATCHES):
                assert raw.produce("large", fresh([os.urandom(BATCH_BYTES)])).error_code is ErrorCode.none
        yield running


@contextmanager
def deaf(port: int, data: bytes, times: int) -> Iterator[None]:
    """A client that sends as much as it can, and reads nothing, for as long as the block runs."""
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.settimeout(None)
        raw.connect(("127.0.0.1", port))

        def send() -> None:
            try:
                for _ in range(times):
                    raw.sendall(data)
            except OSError:
                pass  # the block has ended

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield
        finally:
            raw.shutdown(socket.SHUT_RDWR)
            thread.join()


def others_are_served(server: Running) -> int:
    """Another client writes and reads as ever; answers the largest memory that was seen meanwhile."""
    process = server.broker(1)
    largest = 0
    with Raw(server.port) as raw:
        first = raw.end_of("small")
        for n in range(ROUNDS):
            answer = raw.produce("small", fresh([b"%d" % n]))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.none, first + n)
            assert raw.fetch("small", first + n).records
            largest = max(largest, process.memory_info().rss)
            assert largest < MAX_RSS, f"{largest >> 20} MiB after {n} rounds"
    assert server.broker(1).pid == process.pid
    return largest


def test_fetches_that_nobody_reads(server: Running, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": FETCH_BYTES, "current_leader_epoch": -1}
    request = frame(
        FETCH, 11, replica_id=-1, max_wait=0, min_bytes=0, max_bytes=FETCH_BYTES, session_id=0, session_epoch=-1,
        topics=[{"topic": "large", "partitions": [wanted]}],
    )  # fmt: skip
    with ExitStack() as clients:
        for _ in range(DEAF_CLIENTS):
            clients.enter_context(deaf(server.port, request, FETCHES))
        largest = others_are_served(server)
    with capsys.disabled():
        print(f"\n{DEAF_CLIENTS} clients with {FETCHES} unread fetches each: RSS at most {largest >> 20} MiB")
    others_are_served(server)


def test_produces_whose_answers_nobody_reads(server: Running, capsys: pytest.CaptureFixture[str]) -> None:
    def request(size: int) -> bytes:
        data = [{"name": "large", "partition_data": [{"index": 0, "records": fresh([os.urandom(size)])}]}]
        return frame(PRODUCE, 9, acks=-1, timeout=30_000, transactional_id=None, topic_data=data)

    with ExitStack() as clients:
        clients.enter_context(deaf(server.port, request(100_000), 1_000))
        clients.enter_context(deaf(server.port, request(10), 100_000))
        largest = others_are_served(server)
    with capsys.disabled():
        print(f"\nclients with unread produces: RSS at most {largest >> 20} MiB")
    others_are_served(server)


def test_frames_that_are_never_finished(server: Running, capsys: pytest.CaptureFixture[str]) -> None:
    """A size is four bytes; memory must grow with what came, not with what was announced."""
    start = frame(PRODUCE, 9, acks=-1, timeout=1000, transactional_id=None, topic_data=[])[4:]
    with ExitStack() as clients:
        for _ in range(50):
            clients.enter_context(deaf(server.port, (90 << 20).to_bytes(4, "big") + start, 1))
        largest = others_are_served(server)
    with capsys.disabled():
        print(f"\n50 clients with unfinished frames of 90 MiB: RSS at most {largest >> 20} MiB")
