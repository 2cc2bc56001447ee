"""Offsets strictly increase per partition, whoever writes and through whichever broker."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from kio.schema.errors import ErrorCode

from headwater.wire.messages import decode_response
from tests.faults.raw import PRODUCE, Raw, frame, fresh
from tests.support.running import Running

PROMISES = ("I1",)

BROKERS = 3
PARTITIONS = 2
PRODUCERS = 6
REQUESTS = 60
WINDOW = 5


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("i1"), brokers=BROKERS) as running:
        yield running


@dataclass(slots=True)
class Producer:
    """Sends batches with a window of requests under way, and writes down where they went, in order."""

    port: int
    topic: str
    number: int
    told: list[tuple[int, int, list[bytes]]] = field(default_factory=list)
    """Partition, base offset and values of each batch."""

    def run(self) -> None:
        rng = random.Random(self.number)
        under_way: list[tuple[int, list[bytes]]] = []
        count = 0
        with Raw(self.port) as raw:
            for request in range(REQUESTS + WINDOW):
                if request < REQUESTS:
                    partition = rng.randrange(PARTITIONS)
                    values = [b"%d/%d" % (self.number, count + i) for i in range(rng.randint(1, 8))]
                    count += len(values)
                    data = [{"name": self.topic, "partition_data": [{"index": partition, "records": fresh(values)}]}]
                    raw.send(
                        frame(PRODUCE, 9, request, acks=-1, timeout=20_000, transactional_id=None, topic_data=data)
                    )
                    under_way.append((partition, values))
                if request >= WINDOW:
                    self._answer(raw, request - WINDOW, *under_way.pop(0))

    def _answer(self, raw: Raw, request: int, partition: int, values: list[bytes]) -> None:
        correlation_id, answer = decode_response(PRODUCE, 9, memoryview(raw.receive()))
        [one] = answer.responses[0].partition_responses
        assert (correlation_id, one.index, one.error_code) == (request, partition, ErrorCode.none)
        self.told.append((partition, one.base_offset, values))


def produce(server: Running, topic: str, count: int) -> list[Producer]:
    """As many producers at once, spread over all brokers, whoever leads."""
    producers = [Producer(server.port + n % BROKERS, topic, n) for n in range(count)]
    with ThreadPoolExecutor(count) as threads:
        for done in [threads.submit(p.run) for p in producers]:
            done.result()
    return producers


def check(producers: list[Producer], logs: dict[int, list[tuple[int, bytes]]], starts: dict[int, int]) -> None:
    for producer in producers:
        last = dict(starts)
        for partition, base, values in producer.told:
            assert base >= last[partition], "a producer's later batch has a lower offset"
            last[partition] = base + len(values)
            assert logs[partition][base : base + len(values)] == list(enumerate(values, base))
    for partition, log in logs.items():
        assert [offset for offset, _ in log] == list(range(len(log)))
        told = sum(len(values) for p in producers for at, _, values in p.told if at == partition)
        assert len(log) - starts[partition] == told, "an offset was given twice, or to nobody"


def test_offsets_increase_with_many_producers_and_brokers(server: Running) -> None:
    server.create("many", PARTITIONS)
    producers = produce(server, "many", PRODUCERS)
    check(producers, server.read("many", range(PARTITIONS)), dict.fromkeys(range(PARTITIONS), 0))


def test_offsets_go_on_after_every_broker_was_killed(server: Running) -> None:
    server.create("again", PARTITIONS)
    produce(server, "again", BROKERS)
    before = server.read("again", range(PARTITIONS))
    server.kill_all()
    server.start()
    producers = produce(server, "again", BROKERS)
    after = server.read("again", range(PARTITIONS))
    assert {p: log[: len(before[p])] for p, log in after.items()} == before
    check(producers, after, {p: len(log) for p, log in before.items()})


def test_offsets_are_not_used_again_after_records_were_deleted(server: Running) -> None:
    server.create("trimmed", 1)
    with Raw(server.port) as raw:
        assert raw.produce("trimmed", fresh([b"a", b"b", b"c"])).base_offset == 0
        wanted = [{"name": "trimmed", "partitions": [{"partition_index": 0, "offset": -1}]}]
        assert raw.ask(21, 1, topics=wanted, timeout=5000).topics[0].partitions[0].low_watermark == 3
    for node in range(BROKERS):
        with Raw(server.port + node) as raw:
            assert raw.produce("trimmed", fresh([b"d"])).base_offset == 3 + node
