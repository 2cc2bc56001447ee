"""A broker that dies after its WAL object is stored and before its record leaves nothing that anybody can see.

The object stays as long as its writer's epoch could still enter it, and goes after the fence.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from harness.patience import eventually
from harness.ports import free_ports
from harness.process import headwater
from headwater.log.wal import format as wal
from tests.faults.raw import Closed, Raw, fresh
from tests.invariants.crashing import WORD, doomed_broker
from tests.support.batches import values
from tests.support.running import Running

PROMISES = ("I3",)

SETTINGS = "[housekeeping]\ninterval_ms = 200\norphan_interval_ms = 400\n"


def objects_with_the_word(data: Path) -> list[Path]:
    return [path for path in (data / "objects" / wal.ROOT).rglob(f"*{wal.SUFFIX}") if WORD in path.read_bytes()]


def test_a_peer_never_sees_the_records_and_removes_the_object(tmp_path: Path) -> None:
    with Running(tmp_path, settings=SETTINGS) as server, Raw(server.port) as peer:
        server.create("t", 1)
        assert peer.produce("t", fresh([b"before"])).base_offset == 0
        port = free_ports(1)
        with doomed_broker(tmp_path, server.data, 2, port, "stored") as doomed, Raw(port) as raw:
            eventually(lambda: server.nodes() == [1, 2], "its peer knows it", 30)
            with pytest.raises(Closed):
                raw.produce("t", fresh([WORD]))
            assert doomed.wait(timeout=10) == -signal.SIGKILL
        assert peer.end_of("t") == 1
        [orphan] = objects_with_the_word(server.data)
        assert server.nodes() == [1, 2], "not fenced yet, so its object must still be there"
        assert peer.produce("t", fresh([b"after"])).base_offset == 1
        assert values(peer.fetch("t", 0).records) == [(0, b"before"), (1, b"after")]
        eventually(lambda: server.nodes() == [1], "it is fenced", 30)
        eventually(lambda: not orphan.exists(), "the orphan goes after the fence", 30)
        assert values(peer.fetch("t", 0).records) == [(0, b"before"), (1, b"after")]
    assert headwater("doctor", "--data", str(server.data)).returncode == 0


def test_the_same_node_starts_again_without_the_records(tmp_path: Path) -> None:
    """Nobody else was there to fence it: it does so itself, on its return."""
    server = Running(tmp_path, settings=SETTINGS)
    with server:
        server.create("t", 1)
        with Raw(server.port) as raw:
            assert raw.produce("t", fresh([b"before"])).base_offset == 0
        assert server.stop() == 0
        with doomed_broker(tmp_path, server.data, 1, server.port, "stored") as doomed, Raw(server.port) as raw:
            with pytest.raises(Closed):
                raw.produce("t", fresh([WORD, b"and more"], producer=(5, 0, 0)))
            assert doomed.wait(timeout=10) == -signal.SIGKILL
        [orphan] = objects_with_the_word(server.data)
        server.start()
        with Raw(server.port) as raw:
            assert raw.end_of("t") == 1
            # The producer's retry is new to the log, since its first attempt never was.
            assert raw.produce("t", fresh([b"retried", b"and more"], producer=(5, 0, 0))).base_offset == 1
            eventually(lambda: not orphan.exists(), "the orphan goes", 30)
            assert values(raw.fetch("t", 0).records) == [(0, b"before"), (1, b"retried"), (2, b"and more")]
