"""A librdkafka client as a process of its own: ``python -m benchmarks.librdkafka BOOTSTRAP TOPIC MOST [SIZE]``.

It takes turns, as our Java programs do (``benchmarks/clients.py``), and moves at most MOST records in each. With the
SIZE of a record it produces, without one it consumes.

Debian does not ship ``rdkafka_performance``, so this is confluent-kafka's binding. Measured here against
Apache Kafka, its plain ``produce`` loop was as fast as ``produce_batch`` at either record size, so the loop
it is. With 1 KB records the client is busy for about half of the run and the server is what is measured;
with 100 B records the client's own CPU is the limit (0.7 to 0.8 million records a second), and ratios lean
towards 1.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import msgspec
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from benchmarks.clients import ClientResult

STALLED_SECONDS = 30.0
# The first as in rdkafka_performance. With the defaults a full local queue pauses fetching for a whole
# second, and the pauses are what one would measure.
CONSUMER_SETTINGS = {"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 10}


LOOK_RECORDS = 1_000
"""How many records are produced between two looks at the clock."""

Turn = Callable[[float, float], ClientResult]


class Clock:
    """Counts records and bytes of a turn, and says when it is over."""

    def __init__(self, lead: float, counted: float) -> None:
        self._counting = time.perf_counter() + lead
        self._end = self._counting + counted
        self._last = 0.0
        self._before = (0, 0)
        self._total = (0, 0)

    @property
    def over(self) -> bool:
        return self._last >= self._end

    def moved(self, records: int, size: int) -> None:
        """So many records have been moved in all."""
        self._last = time.perf_counter()
        self._total = (records, size)
        if self._last < self._counting:
            self._before = self._total

    def result(self) -> ClientResult:
        records, size = (total - before for total, before in zip(self._total, self._before, strict=True))
        seconds = self._last - self._counting
        return ClientResult(records=records, bytes=size, seconds=seconds, total_bytes=self._total[1])


def producing(bootstrap: str, topic: str, most: int, size: int) -> Turn:
    """Sends records with librdkafka's defaults, acks=all among them; at most so many a turn.

    Acknowledged records count. That none was refused shows in the log, whose end its caller looks up.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    producer.list_topics(topic, timeout=10)
    value = (bytes(range(65, 91)) * (size // 26 + 1))[:size]

    def turn(lead: float, counted: float) -> ClientResult:
        clock, sent = Clock(lead, counted), 0
        while not clock.over and sent < most:
            for _ in range(min(LOOK_RECORDS, most - sent)):
                _send(producer, topic, value)
                sent += 1
            producer.poll(0)
            # The length is that of the local queue. A callback for every record would cost the client too much.
            acknowledged = sent - len(producer)
            clock.moved(acknowledged, acknowledged * size)
        if left := producer.flush(STALLED_SECONDS):
            raise SystemExit(f"{left} of {sent} records of {topic} were not acknowledged within 30 s")
        clock.moved(sent, sent * size)
        return clock.result()

    return turn


def _send(producer: Producer, topic: str, value: bytes) -> None:
    while True:
        try:
            producer.produce(topic, value)
            return
        except BufferError:
            # The local queue (100,000 messages by default) is full: wait for acknowledgements.
            producer.poll(0.005)


def consuming(bootstrap: str, topic: str, most: int) -> Turn:
    """Reads from the beginning in every turn, and begins again at the end; at most so many records a turn.

    All partitions are assigned by hand; the group is never joined.
    """

    def turn(lead: float, counted: float) -> ClientResult:
        # A consumer of its own: at the end of its topic the last one leaves a fetch waiting at the server.
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "benchmark",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                **CONSUMER_SETTINGS,
            }
        )
        try:
            return _read(consumer, topic, most, lead, counted)
        finally:
            consumer.close()

    return turn


def _read(consumer: Consumer, topic: str, most: int, lead: float, counted: float) -> ClientResult:
    places = [TopicPartition(topic, p, 0) for p in consumer.list_topics(topic, timeout=10).topics[topic].partitions]
    marks = [consumer.get_watermark_offsets(place, timeout=10) for place in places]
    wanted = sum(high - low for low, high in marks)
    clock = Clock(lead, counted)
    count = size = left = 0
    progress = time.monotonic()
    while not clock.over and count < most:
        if not left:
            consumer.assign(places)
            left = wanted
        # No more than are left: consume() waits for as many as it is asked for, or for its timeout.
        messages = consumer.consume(min(10_000, left, most - count), 0.1)
        for message in messages:
            if (error := message.error()) is not None:
                raise KafkaException(error)
            size += len(message)
        count += len(messages)
        left -= len(messages)
        clock.moved(count, size)
        now = time.monotonic()
        if messages:
            progress = now
        elif now - progress > STALLED_SECONDS:
            raise SystemExit(f"no record for 30 s after {count}")
    return clock.result()


def main(arguments: list[str]) -> None:
    bootstrap, topic, most, *size = arguments
    turn = producing(bootstrap, topic, int(most), int(size[0])) if size else consuming(bootstrap, topic, int(most))
    print("ready", flush=True)
    for line in sys.stdin:
        lead, counted = (int(word) / 1000 for word in line.split())
        print(msgspec.json.encode(turn(lead, counted)).decode(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
