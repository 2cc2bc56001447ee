"""The copier with kafka-python."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tests.faults.copiers.common import (
    HEARTBEAT_MS,
    LINGER_MS,
    MOST_RECORDS,
    POLL_S,
    SESSION_MS,
    Failed,
    Job,
    Read,
    copy,
    say,
)

with warnings.catch_warnings():
    # It reads its schemas by a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka.errors import KafkaError, KafkaTimeoutError
    from kafka.structs import OffsetAndMetadata

CLOSE_S = 5


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        raise Failed(repr(error)) from error


class KafkaPython:
    """kafka-python's consumer and producer."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._servers = job.bootstrap.split(",")
        self._producer = self._made()
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=self._servers,
            client_id=job.id,
            group_id=job.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_records=MOST_RECORDS,
        )
        self._consumer.subscribe([job.source])

    def _made(self) -> Any:
        made = kafka.KafkaProducer(
            bootstrap_servers=self._servers,
            client_id=self._job.id,
            transactional_id=self._job.id,
            transaction_timeout_ms=self._job.timeout_ms,
            linger_ms=LINGER_MS,
        )
        with _failing():
            while True:
                try:
                    made.init_transactions()
                    return made
                except KafkaTimeoutError as error:
                    say("again", error)

    def poll(self) -> Sequence[Read]:
        with _failing():
            found = self._consumer.poll(timeout_ms=int(POLL_S * 1000))
        return [Read(place.partition, m.offset, m.key, m.value) for place, messages in found.items() for m in messages]

    def has_partitions(self) -> bool:
        return bool(self._consumer.assignment())

    def begin(self) -> None:
        with _failing():
            self._producer.begin_transaction()

    def send(self, partition: int, key: bytes, value: bytes) -> None:
        with _failing():
            self._producer.send(self._job.target, value, key, partition=partition)

    def stage(self, ends: Mapping[int, int]) -> None:
        places = {
            kafka.TopicPartition(self._job.source, partition): OffsetAndMetadata(end, "", -1)
            for partition, end in ends.items()
        }
        with _failing():
            self._producer.send_offsets_to_transaction(places, self._consumer.group_metadata())
            self._producer.flush()  # an abort would drop what is not sent yet

    def commit(self) -> None:
        with _failing():
            self._producer.commit_transaction()

    def abort(self) -> None:
        with _failing():
            self._producer.abort_transaction()

    def renew(self) -> None:
        self._producer.close(timeout=CLOSE_S)
        self._producer = self._made()

    def rewind(self) -> None:
        with _failing():
            for place in self._consumer.assignment():
                self._consumer.seek(place, self._consumer.committed(place) or 0)

    def close(self) -> None:
        self._producer.close(timeout=CLOSE_S)
        self._consumer.close()


if __name__ == "__main__":
    arguments = Job.of(sys.argv[1:])
    copy(arguments, KafkaPython(arguments))
