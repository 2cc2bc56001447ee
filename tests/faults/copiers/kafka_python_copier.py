"""The copier with kafka-python."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from tests.faults.copiers.common import (
    HEARTBEAT_MS,
    LINGER_MS,
    MOST_RECORDS,
    SESSION_MS,
    Failed,
    Job,
    Limited,
    Read,
    copy,
    say,
)

with warnings.catch_warnings():
    # It reads its schemas by a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

CALL_S = 10
"""The longest time of a call that has no limit of its own. kafka-python 3.0.12 loses a request to a coordinator that
refuses its connection, and the call waits for an answer for ever."""
CLOSE_S = 5
POLL_MS = 3_100
"""Long, because of joins that it loses between two polls: see tests/compat/members/kafka_python_members.py."""


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except (KafkaError, TimeoutError) as error:
        raise Failed(repr(error)) from error


class KafkaPython:
    """kafka-python's consumer and producer."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._servers = job.bootstrap.split(",")
        self._limited = Limited(CALL_S)
        self._producer = self._first()
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
            max_block_ms=CALL_S * 1000,
        )
        with _failing():
            made.init_transactions()
        return made

    def _first(self) -> Any:
        while True:
            try:
                return self._made()
            except Failed as error:
                say("again", error)

    def _within(self, call: Callable[..., Any], *arguments: Any) -> None:
        with _failing():
            self._limited(call, *arguments)

    def poll(self) -> Sequence[Read]:
        with _failing():
            found = self._consumer.poll(timeout_ms=POLL_MS)
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
        self._within(self._producer.send_offsets_to_transaction, places, self._consumer.group_metadata())
        with _failing():
            self._producer.flush(CALL_S)  # an abort would drop what is not sent yet

    def commit(self) -> None:
        self._within(self._producer.commit_transaction)

    def abort(self) -> None:
        self._within(self._producer.abort_transaction)

    def renew(self) -> None:
        with suppress(KafkaError):  # what it could not send any more
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
