"""Once a record is acknowledged, every broker's next answer to a fetch or an offset query includes it."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from kio.schema.errors import ErrorCode

from tests.faults.raw import METADATA, Raw, fresh
from tests.support.batches import values
from tests.support.running import Running

PROMISES = ("I2",)

BROKERS = 3
ROUNDS = 150


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("i2"), brokers=BROKERS) as running:
        yield running


@pytest.fixture
def brokers(server: Running) -> Iterator[list[Raw]]:
    """A connection to each."""
    with ExitStack() as stack:
        yield [stack.enter_context(Raw(server.port + i)) for i in range(BROKERS)]


def test_every_broker_serves_what_any_broker_acknowledged(server: Running, brokers: list[Raw]) -> None:
    server.create("t", 1)
    rng = random.Random(2)
    for n in range(ROUNDS):
        value = b"%d" % n
        answer = rng.choice(brokers).produce("t", fresh([value]))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.none, n)
        for reader in rng.sample(brokers, BROKERS):
            if rng.random() < 0.5:
                assert reader.end_of("t") == n + 1
            fetched = reader.fetch("t", n)
            assert fetched.error_code is ErrorCode.none
            assert values(fetched.records) == [(n, value)], "nothing, though it was acknowledged"
            assert fetched.high_watermark == n + 1


def test_also_while_others_write(server: Running, brokers: list[Raw]) -> None:
    """The local replicas are then always a little behind, or ahead."""
    server.create("busy", 2)
    stop = threading.Event()

    def noise(port: int) -> None:
        with Raw(port) as raw:
            while not stop.is_set():
                raw.produce("busy", fresh([b"noise"] * 20), partition=1)

    threads = [threading.Thread(target=noise, args=(server.port + i,)) for i in range(BROKERS)]
    for thread in threads:
        thread.start()
    try:
        rng = random.Random(3)
        for n in range(ROUNDS // 3):
            assert rng.choice(brokers).produce("busy", fresh([b"%d" % n])).base_offset == n
            for reader in rng.sample(brokers, BROKERS):
                assert reader.end_of("busy") == n + 1
                assert values(reader.fetch("busy", n).records) == [(n, b"%d" % n)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_every_broker_knows_a_topic_that_any_broker_created(brokers: list[Raw]) -> None:
    rng = random.Random(4)
    for n in range(10):
        name = f"fresh-{n}"
        wanted = [{"name": name, "num_partitions": 1, "replication_factor": 1}]
        created = rng.choice(brokers).ask(19, 5, topics=wanted, timeout=10_000, validate_only=False)
        assert created.topics[0].error_code is ErrorCode.none
        for broker in rng.sample(brokers, BROKERS):
            [told] = broker.ask(METADATA, 5, topics=[{"name": name}], allow_auto_topic_creation=False).topics
            assert told.error_code is ErrorCode.none
        for offset, broker in enumerate(rng.sample(brokers, BROKERS)):
            assert broker.produce(name, fresh([b"x"])).base_offset == offset
