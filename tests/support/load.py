"""Traffic that continues through faults, and checks what producers and consumers see.

Idempotent producers write records with their name and a counter, round robin over the partitions. Consumers read from
the start: offsets must be consecutive, and the counters of a producer must rise. A watcher asks for the end of every
partition. It must include all records that were acknowledged before, and never go back. At the end all records are read
once more: each acknowledged record must be at the acknowledged offset.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Self

import confluent_kafka

from harness.patience import Patience
from tests.faults.checking import Log, read_log
from tests.faults.producing import parse, value

BURST = 10
PACE_SECONDS = 0.02
GIVE_UP_SECONDS = 120.0
CLIENT = {
    "log_level": 0,
    "socket.timeout.ms": 10_000,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.max.ms": 250,
    "topic.metadata.refresh.interval.ms": 1_000,
}
"""A paused broker answers nothing and closes no connection. Only a time-out makes a client leave it."""


@dataclass(slots=True)
class Acks:
    """The acknowledgements of one producer: partition and offset by counter, and times."""

    places: dict[int, tuple[int, int]] = field(default_factory=dict)
    times: list[tuple[float, int]] = field(default_factory=list)
    """The time and partition of every acknowledgement."""
    sent: int = 0
    failures: list[str] = field(default_factory=list)


class Load(AbstractContextManager["Load"]):
    """Runs in threads until the block ends. `finish` ends it and checks everything."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, producers: int = 2, consumers: int = 1) -> None:
        self._bootstrap = bootstrap
        self.topic = topic
        self._partitions = partitions
        self.acks = {f"p{i}": Acks() for i in range(producers)}
        self.problems: list[str] = []
        self._ends = dict.fromkeys(range(partitions), 0)
        """The offset after the last acknowledged one."""
        self.consumed = 0
        self._stop = threading.Event()
        self._done_reading = threading.Event()
        self._lock = threading.Lock()
        self._producers = [threading.Thread(target=self._guarded, args=(self._produce, n)) for n in self.acks]
        self._readers = [threading.Thread(target=self._guarded, args=(self._consume,)) for _ in range(consumers)]
        self._readers.append(threading.Thread(target=self._guarded, args=(self._watch,)))

    def __enter__(self) -> Self:
        for thread in (*self._producers, *self._readers):
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._done_reading.set()
        for thread in (*self._producers, *self._readers):
            thread.join()

    @property
    def count(self) -> int:
        """The number of acknowledged records."""
        return sum(len(acks.places) for acks in self.acks.values())

    def finish(self) -> Log:
        """Stop producing, wait for all acknowledgements, and check."""
        self._stop.set()
        for thread in self._producers:
            thread.join()
        patience = Patience(GIVE_UP_SECONDS)
        wanted = self.count * (len(self._readers) - 1)
        while self.consumed < wanted and not self.problems and not patience.ended:
            time.sleep(0.05)  # polls for a state that the loop checks; nothing counts on its length
        self.__exit__()
        assert not self.problems, self.problems[:5]
        assert self.consumed == wanted, f"consumers saw {self.consumed} of {wanted} records"
        for name, acks in self.acks.items():
            assert not acks.failures, f"{name}: {acks.failures[:5]}"
            assert len(acks.places) == acks.sent, f"{name}: {acks.sent} sent, {len(acks.places)} acknowledged"
        log = read_log(self._bootstrap, self.topic, self._partitions)
        log.check(**{name: acks.places for name, acks in self.acks.items()})
        assert log.count == self.count, f"{log.count} records are there, {self.count} were written"
        return log

    def pause_after(self, moment: float, until: float) -> float:
        """The longest time after a moment without an acknowledgement in some partition."""
        longest = 0.0
        for partition in range(self._partitions):
            with self._lock:
                times = sorted(at for acks in self.acks.values() for at, p in list(acks.times) if p == partition)
            before = max((at for at in times if at <= moment), default=moment)
            within = [before, *(at for at in times if moment < at <= until)]
            longest = max(longest, *(b - a for a, b in zip(within, [*within[1:], until], strict=True)))
        return longest

    def acknowledged_everywhere(self, since: float) -> bool:
        """Whether every partition has an acknowledged record since a moment."""
        with self._lock:
            return len({p for acks in self.acks.values() for at, p in acks.times[-5_000:] if at > since}) == (
                self._partitions
            )

    # --- threads -------------------------------------------------------------------------------------

    def _guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001 - shown by `finish`
            self.problems.append(repr(error))

    def _produce(self, name: str) -> None:
        acks = self.acks[name]
        settings = {"enable.idempotence": True, "linger.ms": 5, "client.id": name, "message.timeout.ms": 0}
        producer = confluent_kafka.Producer({**CLIENT, **settings, "bootstrap.servers": self._bootstrap})
        while not self._stop.is_set():
            for _ in range(BURST):
                partition = acks.sent % self._partitions
                try:
                    producer.produce(
                        self.topic, value(name, acks.sent), partition=partition, on_delivery=self._noted(acks)
                    )
                except BufferError:
                    break
                acks.sent += 1
            producer.poll(0)
            self._stop.wait(PACE_SECONDS)  # the pace of the load
        left = producer.flush(GIVE_UP_SECONDS)
        if left:
            acks.failures.append(f"{left} records were not acknowledged in time")

    def _noted(self, acks: Acks) -> Callable[[Any, Any], None]:
        counter = acks.sent

        def note(error: Any, message: Any) -> None:
            if error is not None:
                acks.failures.append(f"record {counter}: {error}")
                return
            partition, offset = message.partition(), message.offset()
            with self._lock:
                acks.places[counter] = (partition, offset)
                acks.times.append((time.monotonic(), partition))
                self._ends[partition] = max(self._ends[partition], offset + 1)

        return note

    def _consume(self) -> None:
        settings = {"group.id": "unused", "enable.auto.commit": False, "fetch.wait.max.ms": 100}
        consumer = confluent_kafka.Consumer({**CLIENT, **settings, "bootstrap.servers": self._bootstrap})
        consumer.assign([confluent_kafka.TopicPartition(self.topic, p, 0) for p in range(self._partitions)])
        positions = dict.fromkeys(range(self._partitions), 0)
        counters: dict[tuple[str, int], int] = {}
        try:
            while not self._done_reading.is_set():
                for message in consumer.consume(1_000, timeout=0.2):
                    error = message.error()
                    if error is not None:
                        if not error.retriable() and error.fatal():
                            raise confluent_kafka.KafkaException(error)
                        continue
                    partition, offset = message.partition() or 0, message.offset() or 0
                    name, counter = parse(message.value() or b"")
                    if offset != positions[partition]:
                        raise AssertionError(f"partition {partition}: {offset} follows {positions[partition] - 1}")
                    if counter <= counters.get((name, partition), -1):
                        raise AssertionError(f"partition {partition}: {name} goes back to {counter}")
                    positions[partition], counters[name, partition] = offset + 1, counter
                    with self._lock:
                        self.consumed += 1
        finally:
            consumer.close()

    def _watch(self) -> None:
        settings = {"group.id": "unused", "enable.auto.commit": False}
        consumer = confluent_kafka.Consumer({**CLIENT, **settings, "bootstrap.servers": self._bootstrap})
        seen = dict.fromkeys(range(self._partitions), 0)
        try:
            while not self._done_reading.is_set():
                for partition in seen:
                    with self._lock:
                        least = max(seen[partition], self._ends[partition])
                    try:
                        place = confluent_kafka.TopicPartition(self.topic, partition)
                        _, end = consumer.get_watermark_offsets(place, timeout=2)
                    except confluent_kafka.KafkaException:
                        continue  # no broker answers right now
                    if end < least:
                        raise AssertionError(f"partition {partition} ends at {end}, but {least} was the end before")
                    seen[partition] = end
                self._done_reading.wait(PACE_SECONDS)
        finally:
            consumer.close()
