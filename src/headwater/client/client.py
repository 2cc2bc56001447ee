"""A client of a Kafka cluster: metadata, admin calls, offsets, and batches of records as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from kio.schema.errors import ErrorCode

from headwater.client.access import AccessCalls
from headwater.client.connection import Connection
from headwater.client.errors import KafkaError, ProtocolError, check, kafka_error
from headwater.client.features import FeatureCalls
from headwater.client.groups import GroupCalls
from headwater.client.model import Fetched, FoundOffset, Produced, ProducerIdentity, Topic
from headwater.client.records import MAX_BATCH_BYTES, NO_PRODUCER, producer_of
from headwater.client.routing import ClientSettings, Repeat, all_of
from headwater.client.transactions import TransactionCalls
from headwater.errors import TooLarge

PRODUCE, FETCH, LIST_OFFSETS, DELETE_RECORDS, INIT_PRODUCER_ID = 0, 1, 2, 21, 22
ALL_ACKS = -1
CONSUMER = -1
"""The replica id of consumers."""
NO_SESSION, NO_SESSION_EPOCH = 0, -1
TO_THE_END = -1
MAX_FETCH_BYTES = 50 << 20

_TRANSACTION_TIMEOUT_MS = 60_000

__all__ = ["Client", "ClientSettings"]


class Client(AccessCalls, GroupCalls, FeatureCalls, TransactionCalls):
    """A connection to a cluster. Usable as `async with Client("HOST:PORT,…") as client`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- offsets -------------------------------------------------------------------------------------

    async def list_offsets(
        self, topic: str, wanted: Mapping[int, int], *, committed: bool = False
    ) -> dict[int, FoundOffset]:
        """The first offset in each partition whose record is not older than its timestamp.

        `EARLIEST` and `LATEST` instead of a timestamp ask for the log's start and end. For readers of committed
        records the log ends before the first open transaction.
        """
        found: dict[int, FoundOffset] = {}

        async def ask(connection: Connection, group: list[int]) -> None:
            asked = [{"partition_index": p, "timestamp": wanted[p]} for p in group]
            response = await connection.request(
                LIST_OFFSETS,
                within=self.settings.request_s,
                replica_id=CONSUMER,
                isolation_level=int(committed),
                topics=[{"name": topic, "partitions": asked}],
                timeout=int(self.settings.request_s * 1000),
            )
            for p in _only(response.topics).partitions:
                check(p.error_code, _place(topic, p.partition_index))
                found[p.partition_index] = FoundOffset(p.offset, p.timestamp)

        async def attempt() -> dict[int, FoundOffset]:
            groups = await self.by_leader(topic, [p for p in wanted if p not in found])
            await all_of(ask(connection, group) for _, connection, group in groups)
            if found.keys() != set(wanted):
                raise ProtocolError(f"offsets of topic {topic!r}: the answer has other partitions than the request")
            return {p: found[p] for p in wanted}

        return await self.retrying(attempt, topic=topic)

    async def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        """Remove the records before an offset (`TO_THE_END`: all records) of partitions; returns their log starts."""
        starts: dict[int, int] = {}

        async def ask(connection: Connection, group: list[int]) -> None:
            asked = [{"partition_index": p, "offset": before[p]} for p in group]
            response = await connection.request(
                DELETE_RECORDS,
                within=self.settings.request_s,
                topics=[{"name": topic, "partitions": asked}],
                timeout=int(self.settings.request_s * 1000),
            )
            for p in _only(response.topics).partitions:
                check(p.error_code, _place(topic, p.partition_index))
                starts[p.partition_index] = p.low_watermark

        async def attempt() -> dict[int, int]:
            groups = await self.by_leader(topic, [p for p in before if p not in starts])
            await all_of(ask(connection, group) for _, connection, group in groups)
            return starts

        return await self.retrying(attempt, topic=topic)

    # --- reading -------------------------------------------------------------------------------------

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_wait_s: float = 0.5,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
    ) -> bytes:
        """Batches of a partition, the first of which contains the offset; empty if none arrived in time.

        The first batch is returned whole even if it is larger than `max_bytes`.
        """

        async def attempt() -> bytes:
            found = await self.fetch_many(
                topic,
                {partition: offset},
                max_wait_s=max_wait_s,
                min_bytes=min_bytes,
                partition_bytes=max_bytes,
            )
            answer = found[partition]
            if isinstance(answer, KafkaError):
                raise answer
            return answer.data

        return await self.retrying(attempt, topic=topic)

    async def fetch_many(
        self,
        topic: str,
        offsets: Mapping[int, int],
        *,
        max_wait_s: float = 0.5,
        min_bytes: int = 1,
        partition_bytes: int = 1 << 20,
        committed: bool = False,
    ) -> dict[int, Fetched | KafkaError]:
        """Batches of several partitions, in one attempt. Each partition may fail on its own.

        With `committed` they end before the first open transaction, and the answers name the aborted ones.
        """

        async def ask(known: Topic, connection: Connection, group: list[int]) -> dict[int, Fetched | KafkaError]:
            asked = [
                {"partition": p, "fetch_offset": offsets[p], "partition_max_bytes": partition_bytes} for p in group
            ]
            response = await connection.request(
                FETCH,
                within=self.settings.request_s + max_wait_s,
                replica_id=CONSUMER,
                max_wait=int(max_wait_s * 1000),
                min_bytes=min_bytes,
                max_bytes=MAX_FETCH_BYTES,
                isolation_level=int(committed),
                session_id=NO_SESSION,
                session_epoch=NO_SESSION_EPOCH,
                topics=[{"topic": topic, "topic_id": known.id, "partitions": asked}],
            )
            check(getattr(response, "error_code", ErrorCode.none), f"fetch of topic {topic!r}")
            return {p.partition_index: _fetched(topic, p) for p in _only(response.responses).partitions}

        groups = await self.by_leader(topic, offsets)
        answers: dict[int, Fetched | KafkaError] = {}
        for answer in await all_of(ask(*group) for group in groups):
            answers.update(answer)
        if answers.keys() != set(offsets):
            raise ProtocolError(f"fetch of topic {topic!r}: the answer has other partitions than the request")
        return answers

    # --- writing -------------------------------------------------------------------------------------

    async def produce(self, topic: str, partition: int, batch: bytes, *, within: float | None = None) -> Produced:
        """Append one encoded batch and wait until it is durable.

        A batch with a producer id is retried until it is answered or time is up, since the broker recognizes it. A
        batch without one is retried only if no broker has seen it.
        """
        idempotent = producer_of(batch) != NO_PRODUCER
        return await self.retrying(
            lambda: self.produce_once(topic, partition, batch),
            topic=topic,
            repeat=Repeat.ALWAYS if idempotent else Repeat.IF_NOT_SENT,
            within=within,
        )

    async def produce_once(self, topic: str, partition: int, batch: bytes, *, within: float | None = None) -> Produced:
        """One attempt to append a batch."""
        if len(batch) > MAX_BATCH_BYTES:
            raise TooLarge(f"a batch has {len(batch)} bytes; the limit of the client is {MAX_BATCH_BYTES}")
        limit = self.settings.request_s if within is None else min(within, self.settings.request_s)
        ((known, connection, _),) = await self.by_leader(topic, [partition])
        data = {"index": partition, "records": batch}
        response = await connection.request(
            PRODUCE,
            within=limit,
            transactional_id=None,
            acks=ALL_ACKS,
            timeout=max(1, int(limit * 1000)),
            topic_data=[{"name": topic, "topic_id": known.id, "partition_data": [data]}],
        )
        answer = _only(_only(response.responses).partition_responses)
        if answer.error_code is ErrorCode.duplicate_sequence_number:
            return Produced(-1, -1)
        check(answer.error_code, _place(topic, partition), getattr(answer, "error_message", None))
        appended = answer.log_append_time
        return Produced(answer.base_offset, -1 if appended is None else int(appended.timestamp() * 1000))

    async def init_producer_id(self, *, within: float | None = None) -> ProducerIdentity:
        """A new producer id and epoch for an idempotent producer."""

        async def attempt() -> ProducerIdentity:
            connection = await self.any_broker()
            response = await connection.request(
                INIT_PRODUCER_ID,
                within=self.settings.request_s,
                transactional_id=None,
                transaction_timeout=_TRANSACTION_TIMEOUT_MS,
                producer_id=-1,
                producer_epoch=-1,
            )
            check(response.error_code, "a producer id")
            return ProducerIdentity(response.producer_id, response.producer_epoch)

        return await self.retrying(attempt, within=within)


def _place(topic: str, partition: int) -> str:
    return f"partition {partition} of topic {topic!r}"


def _only(answers: Any) -> Any:
    if len(answers) != 1:
        raise ProtocolError(f"{len(answers)} answers to a request for one item")
    return answers[0]


def _fetched(topic: str, answer: Any) -> Fetched | KafkaError:
    if answer.error_code is not ErrorCode.none:
        return kafka_error(answer.error_code, _place(topic, answer.partition_index))
    aborted = tuple((one.producer_id, one.first_offset) for one in answer.aborted_transactions or ())
    return Fetched(answer.records or b"", answer.high_watermark, getattr(answer, "log_start_offset", -1), aborted)
