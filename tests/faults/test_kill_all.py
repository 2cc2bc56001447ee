"""Every process is killed at once while clients write; what was acknowledged is there when they are started again."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.patience import eventually
from tests.faults.checking import acknowledged, acknowledged_count, read_log
from tests.faults.producing import Producing
from tests.support.running import Running
from tests.support.soak import WHOLE

PROMISES = ("L1",)

pytestmark = pytest.mark.long
TOPIC = "t"
PARTITIONS = 4
ROUNDS = 3 if WHOLE else 2
PER_ROUND = 30_000 if WHOLE else 10_000
MORE_THAN_FITS = 100_000_000


@pytest.mark.timeout(180)
def test_all_that_was_acknowledged_survives_the_death_of_everybody(tmp_path: Path) -> None:
    acks = {}
    server = Running(tmp_path, brokers=2)
    with server:
        server.create(TOPIC, PARTITIONS)
        for n in range(ROUNDS):
            with ExitStack() as running:
                clients = {
                    f"p{n}{i}": running.enter_context(
                        Producing(
                            [sys.executable, "-m", "tests.faults.producing"],
                            server.bootstrap,
                            TOPIC,
                            PARTITIONS,
                            f"p{n}{i}",
                            MORE_THAN_FITS,
                            tmp_path / f"p{n}{i}.acks",
                        )
                    )
                    for i in range(2)
                }
                for client in clients.values():
                    client.connected()
                for client in clients.values():
                    client.begin()
                files = [client.file for client in clients.values()]
                eventually(lambda f=files: acknowledged_count(*f) >= PER_ROUND, "enough is acknowledged", 60)
                server.kill_all()
                # The clients die too, so that none of them writes on after the restart.
            acks |= {name: acknowledged(client.file) for name, client in clients.items()}
            server.doctor()
            server.start()
        log = read_log(server.bootstrap, TOPIC, PARTITIONS)
        log.check(**acks)
        assert sum(map(len, acks.values())) >= ROUNDS * PER_ROUND
        assert server.stop() == 0
        server.doctor()
