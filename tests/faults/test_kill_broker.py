"""One of three brokers is killed while two clients write many records: none is lost, doubled or out of order."""

from __future__ import annotations

import shutil
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.jvm import OF_KAFKA
from harness.patience import eventually
from harness.tools import needs
from tests.compat.common import TOOLS
from tests.faults.checking import acknowledged, acknowledged_count, read_log
from tests.faults.producing import Producing
from tests.support.running import Running
from tests.support.soak import WHOLE

PROMISES = ("M2",)

pytestmark = pytest.mark.long
TOPIC = "many"
PARTITIONS = 6
EACH = 500_000 if WHOLE else 200_000
"""A million in the soak."""


@pytest.mark.timeout(240)
def test_all_records_survive_a_killed_broker(tmp_path: Path) -> None:
    java, libraries = shutil.which("java"), TOOLS / "kafka/libs"
    needs("java and Kafka's libraries (scripts/setup-tools)", java is not None and libraries.exists())
    source = Path(__file__).parent / "java/FaultProducer.java"
    commands = {
        "librdkafka": [sys.executable, "-m", "tests.faults.producing"],
        "java": [str(java), *OF_KAFKA, "-Xmx256m", "-cp", f"{libraries}/*", str(source)],
    }
    with Running(tmp_path, brokers=3) as server, ExitStack() as running:
        server.create(TOPIC, PARTITIONS)
        clients = {
            name: running.enter_context(
                Producing(command, server.bootstrap, TOPIC, PARTITIONS, name, EACH, tmp_path / f"{name}.acks")
            )
            for name, command in commands.items()
        }
        for client in clients.values():
            client.connected()
        for client in clients.values():
            client.begin()
        files = [client.file for client in clients.values()]
        eventually(
            lambda: min(acknowledged_count(file) for file in files) >= EACH // 10, "some of each are acknowledged", 100
        )
        victim = server.leaders(TOPIC)[0]
        killed = server.broker(victim)
        killed.kill()
        done = {name: acknowledged_count(client.file) for name, client in clients.items()}
        assert all(0 < count < EACH for count in done.values()), f"both must be at work when a broker dies: {done}"
        for client in clients.values():
            client.finish(within=120)
        assert server.broker(victim).pid != killed.pid
        acks = {name: acknowledged(client.file) for name, client in clients.items()}
        assert {name: len(told) for name, told in acks.items()} == dict.fromkeys(commands, EACH)
        log = read_log(server.bootstrap, TOPIC, PARTITIONS)
        log.check(**acks)
        assert log.count == 2 * EACH
