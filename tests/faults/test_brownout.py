"""Real brokers, of which one, or all, get a slow store while clients write to each of them."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from harness.patience import eventually
from harness.process import headwater
from tests.faults.raw import Raw, fresh
from tests.support.promise import promise
from tests.support.running import Running

PROMISES = ("M4",)

BROKERS = 3
SETTINGS = """
[brownout]
interval_ms = 200
floor_ms = 250
factor = 3
after_ms = 2500
back_ms = 1500
"""
FIND_COORDINATOR = 10
VICTIM = 2


class World:
    """A cluster whose brokers' stores are as slow as a file says."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "slow"
        variables = {"HEADWATER_TEST_SLOW_STORE": str(self.file)}
        self.server = Running(directory / "up", brokers=BROKERS, settings=SETTINGS, variables=variables)

    def slow(self, text: str) -> None:
        draft = self.file.with_suffix(".new")
        draft.write_text(text)
        draft.rename(self.file)

    def leaders(self) -> set[int]:
        return set(self.server.leaders("t"))

    def metric(self, name: str, labels: str = "") -> dict[int, float]:
        found = re.findall(rf'^{name}\{{node="(\d+)"{labels}\}} (\S+)$', self.server.page("/metrics")[1], re.M)
        return {int(node): float(value) for node, value in found}

    def paces(self) -> list[float]:
        """What nine of ten appends take, at each broker."""
        found = self.metric("headwater_pace_microseconds", ',kind="publish"')
        return list(found.values()) if len(found) == BROKERS else [0]

    def reports(self) -> int:
        """Records in domain 0 so far."""
        return int(max(self.metric("headwater_ledger_position", ',domain="0"').values()))

    def coordinators(self) -> set[int]:
        with Raw(self.server.port) as raw:
            keys = [f"g{i}" for i in range(40)]
            return {c.node_id for c in raw.ask(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=keys).coordinators}


@contextmanager
def writing(server: Running) -> Iterator[None]:
    """Somebody writes to each broker all the time, whoever leads."""
    stop = threading.Event()
    failed: list[object] = []

    def write(port: int) -> None:
        with Raw(port) as raw:
            while not stop.wait(0.05):
                answer = raw.produce("t", fresh([b"x"]))
                if answer.error_code is not ErrorCode.none:
                    failed.append(answer.error_code)

    threads = [threading.Thread(target=write, args=(server.port + i,)) for i in range(BROKERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert not failed, "degraded or not, a broker serves what it gets"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("brownout"))
    with made.server as server:
        server.create("t", 24)
        yield made
        made.slow("")


@promise("M4")
def test_one_slow_broker(world: World) -> None:
    """Clients and groups are sent elsewhere, `cluster describe` and metrics say so, and it is let back in."""
    everybody = set(range(1, BROKERS + 1))
    others = everybody - {VICTIM}
    eventually(lambda: world.leaders() == everybody, "all lead")
    with writing(world.server):
        world.slow(f"{VICTIM} 2.0\n")
        eventually(lambda: world.leaders() == others, "the slow one leads nothing", 60)
        assert set(world.server.nodes(1)) == everybody, "it is still there"
        assert world.metric("headwater_out_of_rotation") == {n: float(n == VICTIM) for n in everybody}
        eventually(lambda: world.coordinators() == others, "nor does it coordinate", 60)
        done = headwater("cluster", "describe", "--data", str(world.server.data), "--output", "json")
        assert {b["node"]: b["degraded"] for b in json.loads(done.stdout)["brokers"]} == {
            n: n == VICTIM for n in everybody
        }
        world.slow("")
        eventually(lambda: world.leaders() == everybody, "it is let back in", 60)
        assert set(world.metric("headwater_out_of_rotation").values()) == {0.0}


@promise("M4")
def test_a_store_that_is_slow_for_all(world: World) -> None:
    """Nobody is taken out, however long it lasts."""
    everybody = set(range(1, BROKERS + 1))
    eventually(lambda: world.leaders() == everybody, "all lead", 60)
    with writing(world.server):
        world.slow("* 0.8\n")
        eventually(lambda: all(v > 250_000 for v in world.paces()), "all brokers find themselves slow", 60)
        start = world.reports()
        # Long enough to be judged many times: each report is a record, and all are looked at each time.
        while world.reports() < start + 20 * BROKERS:
            assert set(world.metric("headwater_out_of_rotation").values()) == {0.0}
            assert world.leaders() == everybody
        world.slow("")
