"""A broker that dies after its record stands and before it answers has written; offsets stay monotonic.

A plain producer's retry may double its records; an idempotent one's is answered with the offset of the first attempt.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from harness.ports import free_ports
from harness.process import headwater
from tests.faults.raw import Closed, Raw, fresh
from tests.invariants.crashing import WORD, doomed_broker
from tests.support.batches import values
from tests.support.running import Running

PROMISES = ("I4",)

NO_PRODUCER = (-1, -1, -1)
IDEMPOTENT = (5, 0, 0)


@pytest.mark.parametrize("producer", [NO_PRODUCER, IDEMPOTENT], ids=["plain", "idempotent"])
def test_a_retry_at_a_peer(tmp_path: Path, producer: tuple[int, int, int]) -> None:
    lost = fresh([WORD, b"second"], producer=producer)
    with Running(tmp_path) as server, Raw(server.port) as peer:
        server.create("t", 1)
        assert peer.produce("t", fresh([b"before"])).base_offset == 0
        port = free_ports(1)
        with doomed_broker(tmp_path, server.data, 2, port, "entered") as doomed, Raw(port) as raw:
            with pytest.raises(Closed):
                raw.produce("t", lost)
            assert doomed.wait(timeout=10) == -signal.SIGKILL
        assert peer.end_of("t") == 3, "the record stands, so it counts"
        expected = [(0, b"before"), (1, WORD), (2, b"second")]
        assert values(peer.fetch("t", 0).records) == expected
        answer = peer.produce("t", lost)
        assert answer.error_code is ErrorCode.none
        if producer is IDEMPOTENT:
            assert answer.base_offset == 1
        else:
            assert answer.base_offset == 3
            expected += [(3, WORD), (4, b"second")]
        assert values(peer.fetch("t", 0).records) == expected
        assert peer.produce("t", fresh([b"after"])).base_offset == len(expected)
    assert headwater("doctor", "--data", str(server.data)).returncode == 0


@pytest.mark.parametrize("producer", [NO_PRODUCER, IDEMPOTENT], ids=["plain", "idempotent"])
def test_a_retry_after_the_same_node_returned(tmp_path: Path, producer: tuple[int, int, int]) -> None:
    lost = fresh([WORD], producer=producer)
    server = Running(tmp_path)
    with server:
        server.create("t", 1)
        assert server.stop() == 0
        with doomed_broker(tmp_path, server.data, 1, server.port, "entered") as doomed, Raw(server.port) as raw:
            assert raw.produce("t", fresh([b"before"])).base_offset == 0
            with pytest.raises(Closed):
                raw.produce("t", lost)
            assert doomed.wait(timeout=10) == -signal.SIGKILL
        server.start()
        with Raw(server.port) as raw:
            assert values(raw.fetch("t", 0).records) == [(0, b"before"), (1, WORD)]
            assert raw.produce("t", lost).base_offset == (1 if producer is IDEMPOTENT else 2)
            following = fresh([b"next"], producer=(5, 0, 1) if producer is IDEMPOTENT else NO_PRODUCER)
            assert raw.produce("t", following).base_offset == (2 if producer is IDEMPOTENT else 3)
