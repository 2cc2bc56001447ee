"""Random and spoiled frames to a real broker: each is answered or ends its connection, and nothing else happens."""

from __future__ import annotations

import asyncio
import os
import random
import re
import struct
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from harness.serving import run
from headwater.broker.registry import APIS
from headwater.errors import CorruptFrame
from headwater.wire.messages import decode_request, read_start, request_type
from headwater.wire.skim import skim
from tests.faults.raw import METADATA, Raw, frame, fresh
from tests.fuzz.corpus import Corpus
from tests.support.running import Running
from tests.support.soak import WHOLE

pytestmark = pytest.mark.long
SEED = int(os.environ.get("HEADWATER_TEST_SEED", "1"))
FRAMES = int(os.environ.get("HEADWATER_TEST_FRAMES", "80000" if WHOLE else "8000"))
CONNECTIONS = 32
PATIENCE_SECONDS = 15.0
POLL_SECONDS = 0.5
MAX_RSS = 500 << 20
SENTINEL = 0x5EAF00D
_SENTINEL_FRAME = frame(18, 0, SENTINEL)
_SIZE = struct.Struct(">i")
FETCH = 1

SETTINGS = "[limits]\npartitions_per_topic = 8\n"
"""A spoiled number of partitions may be a large one, and then the test would measure that."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    """For one test: its frames create topics and delete them."""
    with Running(tmp_path, settings=SETTINGS) as running:
        yield running


@dataclass(slots=True)
class Tally:
    """What became of the frames."""

    outcomes: Counter[str] = field(default_factory=Counter)
    hung: list[bytes] = field(default_factory=list)


class Probe(asyncio.Protocol):
    """A connection that sends a frame and then a request that every broker answers: answers come in order."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._done: asyncio.Future[str] | None = None
        self._answers = 0
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 8:
            size, correlation_id = struct.unpack_from(">ii", self._received)
            if len(self._received) < 4 + size:
                return
            del self._received[: 4 + size]
            if correlation_id == SENTINEL:
                self._finish("answered" if self._answers else "not answered")
            else:
                self._answers += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._finish("closed")

    def _finish(self, outcome: str) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(outcome)

    async def ask(self, body: bytes, within: float) -> str:
        assert self._transport is not None
        self._done = asyncio.get_running_loop().create_future()
        self._answers = 0
        self._transport.write(_SIZE.pack(len(body)) + body + _SENTINEL_FRAME)
        return await asyncio.wait_for(self._done, within)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def may_wait(body: bytes) -> bool:
    """Whether a frame is a fetch that asks for a long poll: then no answer is the right answer."""
    start = read_start(memoryview(body))
    if start.api_key != FETCH or start.version not in APIS[FETCH].versions:
        return False
    try:
        _, fetch = decode_request(start, skim(request_type(FETCH, start.version), memoryview(body)))
    except CorruptFrame:
        return False
    return bool(fetch.max_wait.total_seconds() > POLL_SECONDS / 2)


async def work(port: int, frames: Iterator[bytes], tally: Tally) -> None:
    loop = asyncio.get_running_loop()
    probe: Probe | None = None
    try:
        for body in frames:
            if probe is None or probe.closed:
                _, probe = await loop.create_connection(Probe, "127.0.0.1", port)
            polls = may_wait(body)
            try:
                tally.outcomes[await probe.ask(body, POLL_SECONDS if polls else PATIENCE_SECONDS)] += 1
            except TimeoutError:
                tally.outcomes["long poll" if polls else "hung"] += 1
                if not polls:
                    tally.hung.append(body)
                probe.abort()
                probe = None
    finally:
        if probe is not None:
            probe.abort()


async def fuzz(port: int, corpus: Corpus, count: int) -> Tally:
    tally = Tally()
    frames = (corpus.frame(number) for number in range(count))
    async with asyncio.TaskGroup() as group:
        for _ in range(CONNECTIONS):
            group.create_task(work(port, frames, tally))
    await asyncio.sleep(0)  # aborted connections are closed in the loop's next turn
    return tally


def topic_id_of(server: Running, topic: str) -> uuid.UUID:
    async def ask() -> uuid.UUID | None:
        async with server.client() as client:
            return (await client.topic(topic)).id

    found = run(ask())
    assert found is not None
    return found


@pytest.mark.timeout(240)
def test_no_frame_breaks_a_broker(server: Running, capsys: pytest.CaptureFixture[str]) -> None:
    for topic in ("fuzz", "good"):
        server.create(topic, 2)
    with Raw(server.port) as raw:
        for n in range(3):
            assert raw.produce("good", fresh([b"%d" % n])).base_offset == n
    process = server.broker(1)
    corpus = Corpus(random.Random(SEED), topic_id_of(server, "fuzz"))
    began = time.monotonic()
    with asyncio.Runner() as runner:
        tally = runner.run(fuzz(server.port, corpus, FRAMES))
    seconds = time.monotonic() - began
    rss = process.memory_info().rss
    with capsys.disabled():
        print(f"\n{FRAMES} frames in {seconds:.1f} s: {dict(tally.outcomes)}, RSS {rss >> 20} MiB")
    failures = [line for line in server.log_lines() if line["level"] in ("error", "critical")]
    assert not failures, f"{len(failures)} failures, seed {SEED}; the first: {failures[0]}"
    assert not tally.hung, f"{len(tally.hung)} frames hung, seed {SEED}; the first: {tally.hung[0].hex()}"
    taken = re.search(r'^headwater_produced_records_total\{node="1"\} (\d+)$', server.page("/metrics")[1], re.MULTILINE)
    assert taken is not None and int(taken[1]) > FRAMES // 1000, "too few whole batches to prove anything"
    assert tally.outcomes["answered"] > FRAMES // 10 and tally.outcomes["closed"] > FRAMES // 10
    assert rss < MAX_RSS
    assert server.broker(1).pid == process.pid
    with Raw(server.port) as raw:
        assert raw.produce("good", fresh([b"3"])).base_offset == 3
        assert raw.fetch("good", 0).records
        assert raw.ask(METADATA, 5, topics=[{"name": "good"}], allow_auto_topic_creation=False).topics[0].partitions
    assert server.page("/readyz")[0] == 200


def test_frames_in_pieces_and_streams_of_noise(server: Running) -> None:
    """Sizes that lie, frames cut anywhere, connections that end half way: nobody else is disturbed."""
    rng = random.Random(SEED)
    corpus = Corpus(rng, uuid.uuid4())
    for number in range(1_000):
        body = corpus.frame(number)
        size = rng.choice(
            (len(body), len(body) - 1, len(body) + 1, rng.getrandbits(32) - (1 << 31), rng.randrange(200))
        )
        data = _SIZE.pack(size) + body + rng.randbytes(rng.randrange(40))
        with Raw(server.port) as raw:
            at = rng.randrange(len(data))
            raw.socket.sendall(data[:at])
            try:
                raw.socket.sendall(data[at:])
            except (BrokenPipeError, ConnectionResetError):
                continue
    with Raw(server.port) as raw:
        raw.ask(METADATA, 5, topics=[], allow_auto_topic_creation=False)
    failures = [line for line in server.log_lines() if line["level"] in ("error", "critical")]
    assert not failures, f"{len(failures)} failures, seed {SEED}; the first: {failures[0]}"
