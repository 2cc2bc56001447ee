"""Three real brokers of one zone on a real S3 server read each WAL object from the store at most once."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from harness.patience import eventually
from harness.s3 import PROGRAM, S3Server
from harness.tools import needs
from tests.faults.raw import Raw, fresh
from tests.support.batches import values
from tests.support.promise import promise
from tests.support.running import Running

PROMISES = ("L9",)

BROKERS = 3
ROUNDS = 12
NAMES = re.compile(r"wal/v1/\S+?\.wo")


@promise("L9")
def test_one_get_per_object_and_zone(tmp_path: Path) -> None:
    """While the writers live their memory serves all; after that one broker reads an object for the others."""
    needs("versitygw (scripts/setup-tools)", PROGRAM.exists())
    log = tmp_path / "access.log"
    (tmp_path / "s3").mkdir()
    with S3Server(tmp_path / "s3", ("--access-log", str(log))) as s3:
        patient = "[peers]\ntimeout_ms = 20000\n[wal.cost]\nhedge_ms = 0\n"  # nothing is sent twice on a slow machine
        settings = f'objects = "{s3.url}"\nzone = "z"\n{patient}'
        with Running(tmp_path / "up", brokers=BROKERS, settings=settings, variables=s3.environment) as server:
            server.create("t", 1)
            for n in range(ROUNDS):
                with Raw(server.port + n % BROKERS) as raw:
                    assert raw.produce("t", fresh([b"%d" % n])).base_offset == n
            everything = [(n, b"%d" % n) for n in range(ROUNDS)]

            assert read_at_all(server) == [everything] * BROKERS
            assert gets(server) == 0, "the writers' memory was there to be asked"
            assert peers(server, "requests", "found") == (BROKERS - 1) * ROUNDS
            objects = set(stored(s3.directory))
            assert len(objects) == ROUNDS
            assert logged(log, "s3_PutObject") == dict.fromkeys(objects, 1), "the store's log tells what it did"
            assert not logged(log, "s3_GetObject")

            restart_all(server)
            assert read_at_all(server) == [everything] * BROKERS
            assert logged(log, "s3_GetObject") == dict.fromkeys(objects, 1), "the store's own log: each object once"
            assert gets(server) == len(objects), "and the brokers' counts"
            assert peers(server, "requests", "failed") == 0
            assert peers(server, "answers", "found") == peers(server, "requests", "found") > 0


@promise("L9")
def test_a_broker_that_does_not_answer_is_done_without(tmp_path: Path) -> None:
    """Who gets no answer in time reads the store itself, and consumers notice nothing."""
    settings = 'zone = "z"\n[peers]\ntimeout_ms = 200\n'
    with Running(tmp_path, brokers=BROKERS, settings=settings) as server:
        server.create("t", 1)
        with Raw(server.port) as raw:
            for n in range(ROUNDS):
                assert raw.produce("t", fresh([b"%d" % n])).base_offset == n
        writer = server.broker(1)
        writer.suspend()
        try:
            with Raw(server.port + 1) as raw:
                found = []
                while len(found) < ROUNDS:
                    found += values(raw.fetch("t", len(found)).records)
        finally:
            writer.resume()
        assert found == [(n, b"%d" % n) for n in range(ROUNDS)]
        eventually(lambda: peers(server, "requests", "failed"), "the writer was asked in vain")


def read_at_all(server: Running) -> list[list[tuple[int, bytes]]]:
    """What a consumer at each broker reads, all at once."""
    found: list[list[tuple[int, bytes]]] = [[] for _ in range(BROKERS)]

    def read(i: int) -> None:
        with Raw(server.port + i) as raw:
            while len(found[i]) < ROUNDS:
                found[i] += values(raw.fetch("t", len(found[i])).records)

    threads = [threading.Thread(target=read, args=(i,)) for i in range(BROKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


def restart_all(server: Running) -> None:
    """New lives with empty memories."""
    before = server.epochs()
    for node in before:
        server.broker(node).kill()

    def reborn() -> bool:
        now = server.epochs()
        return len(now) == BROKERS and all(now[node] > epoch for node, epoch in before.items())

    eventually(reborn, "all brokers have new epochs", 60)
    for node in before:
        eventually(lambda node=node: len(server.nodes(node)) == BROKERS, "all brokers know each other", 60)


def metric(server: Running, name: str, outcome: str = "") -> int:
    label = f',outcome="{outcome}"' if outcome else ""
    found = re.findall(rf'^{name}\{{node="\d+"{label}\}} (\d+)$', server.page("/metrics")[1], re.M)
    assert len(found) == BROKERS
    return sum(map(int, found))


def gets(server: Running) -> int:
    return metric(server, "headwater_wal_gets_total")


def peers(server: Running, what: str, outcome: str) -> int:
    return metric(server, f"headwater_peer_{what}_total", outcome)


def logged(log: Path, call: str) -> dict[str, int]:
    """How often each WAL object was put or got, by the store's access log."""
    lines = log.read_text().splitlines()
    return Counter(name for line in lines if call in line.split() for name in NAMES.findall(line)[:1])


def stored(directory: Path) -> Iterator[str]:
    for file in directory.rglob("*.wo"):
        yield "wal/v1/" + str(file).split("/wal/v1/")[1]
