"""`make cluster` serves clients with three brokers, starts what ends again, and leaves nothing behind."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import confluent_kafka
import psutil
import pytest

from harness.patience import eventually
from harness.ports import free_ports
from harness.process import START_SECONDS, STOP_SECONDS, alive, environment
from harness.tools import ROOT
from tests.support.promise import promise

PROMISES = ("M1",)


@promise("M1")
@pytest.mark.timeout(200)
def test_a_cluster_for_everybody(tmp_path: Path) -> None:
    """etcd, S3 and brokers in two zones, until Ctrl-C."""
    port, said = free_ports(3), tmp_path / "stdout"
    command = [sys.executable, "-m", "demo.cluster", "--no-compactor", "--port", str(port)]
    command += ["--directory", str(tmp_path / "cluster")]
    with said.open("wb") as stdout, subprocess.Popen(command, stdout=stdout, cwd=ROOT, env=environment()) as program:
        try:
            eventually(
                lambda: program.poll() is not None or "headwater ready" in said.read_text(), "ready", START_SECONDS
            )
            brokers = re.findall(r"^broker-\d +kafka (\S+), zone (\w), http \S+, pid (\d+)$", said.read_text(), re.M)
            assert [zone for _, zone, _ in brokers] == ["a", "b", "a"]
            started = psutil.Process(program.pid).children(recursive=True)
            producer = confluent_kafka.Producer({"bootstrap.servers": brokers[1][0], "log_level": 0})
            producer.produce("everybody", b"hello")
            assert producer.flush(60) == 0
            psutil.Process(int(brokers[0][2])).kill()
            eventually(lambda: "broker-1 ended and is started again" in said.read_text(), "it is started again", 30)
            started += psutil.Process(program.pid).children(recursive=True)
            program.send_signal(signal.SIGINT)
            assert program.wait(timeout=3 * STOP_SECONDS) == 0
        finally:
            program.kill()
    assert len({process.pid for process in started}) >= 8, "three of etcd, one of S3, three brokers and one more"
    assert not [process for process in started if alive(process)]
