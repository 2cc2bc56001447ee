"""Many writers that expect an offset, and appends over several partitions, while gateways and brokers die."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING

from tests.faults.appending import REFUSED, Poster, address_of, another_gateway, until_served
from tests.support.promise import promise
from tests.support.running import Running
from tests.support.transactional import messages

PROMISES = ("L4", "H1")

TOPIC, WRITERS, WHOLES = "race", 64, 4
RACED, PARTS = 0, (1, 2, 3)
"""The partition with the race, and those of the appends that are all or nothing."""
SECONDS, KILLS = 5.0, 4
SEED = 20_261_117


class Racer(threading.Thread):
    """Appends to one partition at the offset that it expects, again and again."""

    def __init__(self, number: int, gateways: Sequence[str], stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._poster, self._number, self._stopping = Poster(gateways, number), number, stop
        self.won: dict[int, str] = {}
        self.lost: list[tuple[int, int]] = []
        """(expected, present) of the refusals."""
        self.doubtful: set[str] = set()
        self.strange: list[str] = []

    def run(self) -> None:
        with self._poster:
            self._race()

    def _race(self) -> None:
        expected, count = 0, 0
        while not self._stopping.is_set():
            count += 1
            value = f"{self._number}-{count}"
            body = {"records": [{"partition": RACED, "value": value}], "expected_offset": expected}
            told = self._poster.post(TOPIC, body)
            if told.status == 200:
                [placed] = told.json["records"]
                self.won[placed["offset"]] = value
                if placed["offset"] != expected:
                    self.strange.append(f"{value} was put at {placed['offset']}, not {expected}")
                expected += 1
            elif told.status == 409:
                [line] = told.json["partitions"]
                self.lost.append((line["expected"], line["present"]))
                expected = line["present"]
            elif told.unknown:
                self.doubtful.add(value)
                time.sleep(0.05)
            elif told.status in REFUSED:
                time.sleep(0.05)
            else:
                self.strange.append(f"{told.status}: {told.body[:200]!r}")


class Whole(threading.Thread):
    """Appends one record to each of several partitions, all in one request."""

    def __init__(self, number: int, gateways: Sequence[str], stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._poster, self._number, self._stopping = Poster(gateways, 1_000 + number), number, stop
        self.sent: set[str] = set()
        self.strange: list[str] = []

    def run(self) -> None:
        with self._poster:
            self._append()

    def _append(self) -> None:
        count = 0
        while not self._stopping.is_set():
            count += 1
            value = f"whole-{self._number}-{count}"
            told = self._poster.post(TOPIC, {"records": [{"partition": p, "value": value} for p in PARTS]})
            if told.status == 200:
                self.sent.add(value)
            elif told.unknown or told.status in REFUSED:
                time.sleep(0.05)
            else:
                self.strange.append(f"{told.status}: {told.body[:200]!r}")


def log_of(server: Running, partitions: int) -> dict[int, list[tuple[int, str]]]:
    """(offset, value) of every record, by partition."""
    found: dict[int, list[tuple[int, str]]] = {p: [] for p in range(partitions)}
    for message in messages(server.bootstrap, TOPIC, [OFFSET_BEGINNING] * partitions, "read_committed"):
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None and offset is not None and value is not None
        found[partition].append((offset, value.decode()))
    return found


def check_race(racers: list[Racer], log: list[tuple[int, str]]) -> None:
    """One winner per offset, told so; losers were told a later end; nothing that nobody sent; no gap."""
    assert [offset for offset, _ in log] == list(range(len(log)))
    written = dict(log)
    assert len(set(written.values())) == len(log), "a record is there twice"
    won = [(offset, value) for racer in racers for offset, value in racer.won.items()]
    assert len({offset for offset, _ in won}) == len(won), "two were told that they won the same offset"
    assert all(written.get(offset) == value for offset, value in won)
    doubtful = {value for racer in racers for value in racer.doubtful}
    assert set(written.values()) <= {value for _, value in won} | doubtful
    assert all(present > expected for racer in racers for expected, present in racer.lost)
    assert won and any(racer.lost for racer in racers)


def check_wholes(wholes: list[Whole], log: dict[int, list[tuple[int, str]]]) -> None:
    """What is in one partition is in all, once."""
    seen = [[value for _, value in log[p] if value.startswith("whole")] for p in PARTS]
    assert all(len(set(values)) == len(values) for values in seen)
    assert set(seen[0]) == set(seen[1]) == set(seen[2])
    sent = {value for one in wholes for value in one.sent}
    assert sent and sent <= set(seen[0])


@promise("L4", "H1")
@pytest.mark.timeout(180)
def test_one_winner_per_offset(tmp_path: Path) -> None:
    """64 writers through two gateways, `kill -9` of gateways and brokers; all or nothing beside it."""
    won, lost, wholes = race(tmp_path, SECONDS, KILLS, SEED)
    print(f"{won} won, {lost} lost, {wholes} wholes")


def race(directory: Path, seconds: float, kills: int, seed: int) -> tuple[int, int, int]:
    """Race for some time and check everything; returns how many appends won, lost, and were wholes."""
    chance, stop = random.Random(seed), threading.Event()
    with Running(directory, brokers=2, gateway=True) as server, another_gateway(server, directory) as second:
        server.create(TOPIC, 1 + len(PARTS))
        gateways = [server.gateway, address_of(second)]
        until_served(*gateways)
        racers = [Racer(number, gateways, stop) for number in range(WRITERS)]
        wholes = [Whole(number, gateways, stop) for number in range(WHOLES)]
        everybody: list[Any] = [*racers, *wholes]
        for thread in everybody:
            thread.start()
        for number in range(kills):
            time.sleep(seconds / kills * chance.uniform(0.7, 1.3))
            victim = server.gateway_process() if number % 2 else server.broker(chance.choice((1, 2)))
            victim.kill()
        until_served(server.gateway)
        time.sleep(1)
        stop.set()
        for thread in everybody:
            thread.join(60)
            assert not thread.is_alive()
        assert [line for thread in everybody for line in thread.strange] == []
        log = log_of(server, 1 + len(PARTS))
        check_race(racers, log[RACED])
        check_wholes(wholes, log)
        won, lost = sum(len(racer.won) for racer in racers), sum(len(racer.lost) for racer in racers)
        return won, lost, len(log[1])
