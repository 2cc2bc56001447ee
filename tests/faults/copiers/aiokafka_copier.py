"""The copier with aiokafka. Its transactions name no member of the group, so only one copier may be in a group."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Mapping, Sequence
from typing import TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

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
)

CALL_S = 60.0
T = TypeVar("T")


class Aiokafka:
    """aiokafka's consumer and producer, on an event loop that runs during calls."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._loop = asyncio.new_event_loop()
        self._sent: list[asyncio.Future[object]] = []
        self._producer = self._wait(self._made())
        self._consumer = self._wait(self._consuming())

    def _wait(self, call: Awaitable[T]) -> T:
        try:
            return self._loop.run_until_complete(asyncio.wait_for(call, CALL_S))
        except (KafkaError, TimeoutError, AssertionError) as error:  # a producer that is lost asserts
            raise Failed(repr(error)) from error

    async def _made(self) -> AIOKafkaProducer:
        made = AIOKafkaProducer(
            bootstrap_servers=self._job.bootstrap,
            client_id=self._job.id,
            transactional_id=self._job.id,
            transaction_timeout_ms=self._job.timeout_ms,
            linger_ms=LINGER_MS,
        )
        await made.start()  # ends what another producer left open
        return made

    async def _consuming(self) -> AIOKafkaConsumer:
        made = AIOKafkaConsumer(
            self._job.source,
            bootstrap_servers=self._job.bootstrap,
            client_id=self._job.id,
            group_id=self._job.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        await made.start()
        return made

    def poll(self) -> Sequence[Read]:
        found = self._wait(self._consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=MOST_RECORDS))
        return [Read(place.partition, m.offset, m.key, m.value) for place, messages in found.items() for m in messages]

    def has_partitions(self) -> bool:
        return bool(self._consumer.assignment())

    def begin(self) -> None:
        self._sent = []
        self._wait(self._producer.begin_transaction())

    def send(self, partition: int, key: bytes, value: bytes) -> None:
        self._sent.append(self._wait(self._producer.send(self._job.target, value, key, partition)))

    def stage(self, ends: Mapping[int, int]) -> None:
        places = {TopicPartition(self._job.source, partition): end for partition, end in ends.items()}
        self._wait(self._producer.send_offsets_to_transaction(places, self._job.group))
        self._wait(asyncio.gather(*self._sent))

    def commit(self) -> None:
        self._wait(self._producer.commit_transaction())

    def abort(self) -> None:
        self._wait(asyncio.gather(*self._sent, return_exceptions=True))
        self._wait(self._producer.abort_transaction())

    def renew(self) -> None:
        try:
            self._wait(self._producer.stop())
        finally:
            self._producer = self._wait(self._made())

    def rewind(self) -> None:
        for place in self._consumer.assignment():
            self._consumer.seek(place, self._wait(self._consumer.committed(place)) or 0)

    def close(self) -> None:
        self._wait(self._producer.stop())
        self._wait(self._consumer.stop())


if __name__ == "__main__":
    arguments = Job.of(sys.argv[1:])
    copy(arguments, Aiokafka(arguments))
