"""A librdkafka client as a process of its own: ``python -m benchmarks.librdkafka produce|consume …``.

Debian does not ship ``rdkafka_performance``, so this is confluent-kafka's binding. Measured here against
Apache Kafka, its plain ``produce`` loop was as fast as ``produce_batch`` at either record size, so the loop
it is. With 1 KB records the client is busy for about half of the run and the server is what is measured;
with 100 B records the client's own CPU is the limit (0.7 to 0.8 million records a second), and ratios lean
towards 1.

It speaks the protocol of our Java programs: connects, warms up, prints ``warm``, waits for a line on stdin,
measures, and prints one line of JSON.
"""

from __future__ import annotations

import sys
import time

import msgspec
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from benchmarks.clients import ClientResult

STALLED_SECONDS = 30.0
# The first as in rdkafka_performance. With the defaults a full local queue pauses fetching for a whole
# second, and the pauses are what one would measure.
CONSUMER_SETTINGS = {"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 10}


def produce(bootstrap: str, topic: str, records: int, size: int, warm_topic: str, warm_records: int) -> ClientResult:
    """Sends records with librdkafka's defaults, acks=all among them, and waits for the acknowledgements."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    value = bytes(range(65, 91)) * (size // 26 + 1)
    value = value[:size]
    _send(producer, warm_topic, value, warm_records)
    producer.list_topics(topic, timeout=10)
    _wait_for_go()
    began = time.perf_counter()
    _send(producer, topic, value, records)
    return ClientResult(records=records, bytes=records * size, seconds=time.perf_counter() - began)


def _send(producer: Producer, topic: str, value: bytes, records: int) -> None:
    for _ in range(records):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                # The local queue (100,000 messages by default) is full: wait for acknowledgements.
                producer.poll(0.005)
    left = producer.flush(STALLED_SECONDS)
    if left:
        raise SystemExit(f"{left} of {records} records of {topic} were not acknowledged within 30 s")


def consume(bootstrap: str, topic: str, records: int, warm_topic: str, warm_records: int) -> ClientResult:
    """Reads records from the beginning, all partitions assigned by hand; the group is never joined."""
    # The warm-up has a consumer of its own: at the end of its topic it leaves a fetch waiting at the server,
    # and on the same connection the measured one would begin by waiting for that.
    warm = _consumer(bootstrap)
    _assign(warm, warm_topic)
    _read(warm, warm_records)
    warm.close()
    consumer = _consumer(bootstrap)
    consumer.list_topics(topic, timeout=10)
    _wait_for_go()
    began = time.perf_counter()
    _assign(consumer, topic)
    count, size = _read(consumer, records)
    seconds = time.perf_counter() - began
    consumer.close()
    return ClientResult(records=count, bytes=size, seconds=seconds)


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            **CONSUMER_SETTINGS,
        }
    )


def _assign(consumer: Consumer, topic: str) -> None:
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])


def _read(consumer: Consumer, records: int) -> tuple[int, int]:
    count = size = 0
    progress = time.monotonic()
    while count < records:
        # No more than are left: consume() waits for as many as it is asked for, or for its timeout.
        messages = consumer.consume(min(10_000, records - count), 0.5)
        for message in messages:
            if (error := message.error()) is not None:
                raise KafkaException(error)
            size += len(message)
        count += len(messages)
        now = time.monotonic()
        if messages:
            progress = now
        elif now - progress > STALLED_SECONDS:
            raise SystemExit(f"no record for 30 s after {count} of {records}")
    return count, size


def _wait_for_go() -> None:
    print("warm", flush=True)
    sys.stdin.readline()


def main(arguments: list[str]) -> None:
    mode, bootstrap, topic, records, size, warm_topic, warm_records = arguments
    if mode == "produce":
        result = produce(bootstrap, topic, int(records), int(size), warm_topic, int(warm_records))
    else:
        result = consume(bootstrap, topic, int(records), warm_topic, int(warm_records))
    print(msgspec.json.encode(result).decode(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
