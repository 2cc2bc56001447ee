"""A broker that stops for longer than its session is fenced, and comes back as a new one; nobody notices but it."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from harness.patience import eventually
from headwater.replica.membership import SESSION_SECONDS
from tests.faults.checking import acknowledged, acknowledged_count, read_log
from tests.faults.producing import Producing
from tests.support.running import Running

PROMISES = ("M2",)

TOPIC = "t"
PARTITIONS = 6
COUNT = 200_000


@pytest.mark.timeout(240)
def test_a_paused_broker_is_fenced_and_returns(tmp_path: Path) -> None:
    file = tmp_path / "p.acks"
    command = [sys.executable, "-m", "tests.faults.producing"]
    with Running(tmp_path, brokers=3) as server:
        server.create(TOPIC, PARTITIONS)
        assert server.nodes() == [1, 2, 3]
        with Producing(command, server.bootstrap, TOPIC, PARTITIONS, "p", COUNT, file) as client:
            client.connected()
            client.begin()
            eventually(lambda: acknowledged_count(file) > COUNT // 10, "some of it is acknowledged", 60)
            paused = server.leaders(TOPIC)[0]
            process = server.broker(paused)
            others = [node for node in (1, 2, 3) if node != paused]
            before = server.epochs()
            server.pause(process)
            assert acknowledged_count(file) < COUNT, "the producer must be at work when the broker stops"
            try:
                eventually(lambda: server.nodes(*others) == others, "it is fenced", SESSION_SECONDS * 10)
            finally:
                process.send_signal(signal.SIGCONT)
            eventually(lambda: server.nodes(*others) == [1, 2, 3], "the others know it again", 30)
            assert server.broker(paused).pid == process.pid, "the same process, under a new epoch"
            after = server.epochs()
            assert after[paused] > max(before.values())
            assert {node: after[node] for node in others} == {node: before[node] for node in others}
            client.finish(within=120)
        told = acknowledged(file)
        assert len(told) == COUNT
        log = read_log(server.bootstrap, TOPIC, PARTITIONS)
        log.check(p=told)
        assert log.count == COUNT
