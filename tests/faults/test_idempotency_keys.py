"""A request that is repeated with its key gets its first answer: through kills, a checkpoint and a ledger copy."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING

from harness.process import headwater
from tests.faults.appending import REFUSED, Poster, Told, until_served
from tests.support.promise import promise
from tests.support.running import Running
from tests.support.soak import WHOLE
from tests.support.transactional import messages

PROMISES = ("H1",)

pytestmark = pytest.mark.long
TOPIC, PARTITIONS, CLIENTS = "once", 3, 8
KEYS, KILLS = (1_000, 4) if WHOLE else (400, 2)
SEED = 20_261_117
SETTINGS = "[housekeeping]\ninterval_ms = 500\ncheckpoint_bytes = 20000\n"
"""Checkpoints often: the ledger is cut below most keys."""


def body_of(number: int) -> dict[str, object]:
    records = [{"key": f"k{number}-{i}", "value": f"{number}-{i}"} for i in range(2)]
    return {"records": records}


def ask_until_answered(poster: Poster, number: int) -> Told:
    """Repeat a request with its key until it is answered."""
    while True:
        told = poster.post(TOPIC, body_of(number), key=f"key-{number}")
        if not told.unknown and told.status not in REFUSED:
            return told
        time.sleep(0.05)


def answers(gateways: Sequence[str], numbers: range) -> dict[int, Told]:
    """The answers to keyed requests, by several clients at once."""
    found: dict[int, Told] = {}

    def work(client: int) -> None:
        with Poster(gateways, SEED + client) as poster:
            for number in numbers[client::CLIENTS]:
                found[number] = ask_until_answered(poster, number)

    threads = [threading.Thread(target=work, args=(client,), daemon=True) for client in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    return found


def check_log(server: Running, first: dict[int, Told]) -> None:
    """Every record is in the log once, where the first answer says."""
    log = {}
    for message in messages(server.bootstrap, TOPIC, [OFFSET_BEGINNING] * PARTITIONS, "read_committed"):
        value = message.value().decode()
        assert value not in log, f"{value} is there twice"
        log[value] = (message.partition(), message.offset())
    told = {
        f"{number}-{i}": (placed["partition"], placed["offset"])
        for number, answer in first.items()
        for i, placed in enumerate(answer.json["records"])
    }
    assert log == told


def check_repeated(server: Running, first: dict[int, Told]) -> None:
    """Every request gets its first answer again, byte for byte, and another one under its key is refused."""
    until_served(server.gateway)
    again = answers([server.gateway], range(KEYS))
    assert all(again[n].replayed and again[n].body == first[n].body for n in range(KEYS))
    with Poster([server.gateway], 0) as poster:
        assert poster.post(TOPIC, body_of(0), key="key-1").status == 422
    check_log(server, first)


def kill_some(server: Running, chance: random.Random) -> None:
    for number in range(KILLS):
        time.sleep(chance.uniform(0.5, 1.0))
        victim = server.gateway_process() if number % 2 else server.broker(1)
        victim.kill()


@promise("H1", "M1")
@pytest.mark.timeout(240)
def test_the_first_answer_through_everything(tmp_path: Path) -> None:
    """Hundreds of keyed requests; gateway and broker die meanwhile, then all at once; then another ledger."""
    first: dict[int, Told] = {}
    with Running(tmp_path / "first", gateway=True, settings=SETTINGS) as server:
        server.create(TOPIC, PARTITIONS)
        until_served(server.gateway)
        asking = threading.Thread(target=lambda: first.update(answers([server.gateway], range(KEYS))), daemon=True)
        asking.start()
        kill_some(server, random.Random(SEED))
        asking.join(120)
        assert not asking.is_alive() and len(first) == KEYS
        assert {told.status for told in first.values()} == {200}
        server.kill_all()
        server.start()
        check_repeated(server, first)
        told = server.cli("cluster", "describe", "--config", str(server.config), "--output", "json")
        assert any(domain["checkpoint"] for domain in told["domains"] if domain["domain"] == 1), "keys come out of it"
        assert server.stop() == 0
        to = f"sqlite://{tmp_path}/copy.db"
        done = headwater("metadata", "copy", "--config", str(server.config), "--to", to, "--output", "json")
        assert done.returncode == 0, done.stdout + done.stderr
    with Running(tmp_path / "second", gateway=True, data=server.data, settings=f'ledger = "{to}"\n{SETTINGS}') as moved:
        check_repeated(moved, first)
