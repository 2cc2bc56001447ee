"""Producers and consumers that write down what they were told, and complain at once about what cannot be."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kio.schema.errors import ErrorCode

from headwater.wire.messages import decode_response, encode_response
from tests.simulation.cluster import Connection, Disconnected, SimCluster
from tests.support.batches import Rec, batch, values

PRODUCE, FETCH, LIST_OFFSETS, METADATA, CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS = 0, 1, 2, 3, 19, 20, 21
INIT_PRODUCER = 22
PRODUCE_VERSION = 9
TOPIC = "t"
WINDOW = 5
RETRIABLE = {
    ErrorCode.not_leader_or_follower,
    ErrorCode.kafka_storage_error,
    ErrorCode.request_timed_out,
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.leader_not_available,
    ErrorCode.coordinator_not_available,
}


_Batch: TypeAlias = tuple[int, list[bytes], int]
"""First sequence, values, and the batch's number."""


class Violation(AssertionError):
    """Something happened that must never happen."""


@dataclass(slots=True)
class History:
    """What clients were told."""

    sent: dict[bytes, tuple[int, int, int]] = field(default_factory=dict)
    """Every value ever sent: partition, producer, number."""
    acked: dict[int, dict[int, bytes]] = field(default_factory=dict)
    """Per partition: offset and value of every acknowledged record."""
    end: dict[int, int] = field(default_factory=dict)
    """Per partition: the offset behind the last acknowledged record."""
    seen: dict[int, dict[int, bytes]] = field(default_factory=dict)
    """Per partition: what readers saw."""
    trimmed: dict[int, int] = field(default_factory=dict)
    """Per partition: how far deletion was asked for."""

    def ack(self, partition: int, offset: int, batch_values: list[bytes]) -> None:
        known = self.acked.setdefault(partition, {})
        for i, value in enumerate(batch_values):
            if known.setdefault(offset + i, value) != value:
                raise Violation(f"offset {offset + i} of partition {partition} was acknowledged twice")
        self.end[partition] = max(self.end.get(partition, 0), offset + len(batch_values))

    def saw(self, partition: int, offset: int, value: bytes) -> None:
        if value not in self.sent or self.sent[value][0] != partition:
            raise Violation(f"partition {partition} offset {offset} holds {value!r}, which nobody sent there")
        if self.seen.setdefault(partition, {}).setdefault(offset, value) != value:
            raise Violation(
                f"partition {partition} offset {offset} was {self.seen[partition][offset]!r}, now {value!r}"
            )


class Client:
    """Knows brokers by their connections."""

    def __init__(self, cluster: SimCluster, rng: random.Random, history: History) -> None:
        self.cluster = cluster
        self.rng = rng
        self.history = history
        self._connections: dict[int, Connection] = {}

    def connection(self, node: int) -> Connection:
        if node not in self._connections:
            self._connections[node] = Connection(self.cluster, node)
        return self._connections[node]

    def any_node(self) -> int:
        return self.rng.choice(list(self.cluster.brokers))

    async def ask(self, key: int, version: int, **fields: Any) -> Mapping[str, Any]:
        """Ask brokers until one answers."""
        while True:
            try:
                async with asyncio.timeout(20):
                    answer: Mapping[str, Any] = await self.connection(self.any_node()).send(key, version, **fields)
                return answer
            except (Disconnected, TimeoutError):
                await self.rest()

    async def rest(self) -> None:
        await asyncio.sleep(0.05 + 0.1 * self.rng.random())


async def create_topic(client: Client, partitions: int, name: str = TOPIC) -> None:
    while True:
        answer = await client.ask(
            CREATE_TOPICS, 5, topics=[{"name": name, "num_partitions": partitions, "replication_factor": 1}]
        )
        code = answer["topics"][0]["error_code"]
        if code in (ErrorCode.none, ErrorCode.topic_already_exists):
            return
        await client.rest()


async def delete_topic(client: Client, name: str) -> None:
    while True:
        answer = await client.ask(DELETE_TOPICS, 5, topic_names=[name], timeout_ms=5_000)
        code = answer["responses"][0]["error_code"]
        if code in (ErrorCode.none, ErrorCode.unknown_topic_or_partition):
            return
        await client.rest()


class Producer(Client):
    """Sends numbered records to one partition, as an idempotent client does or as a plain one."""

    def __init__(
        self, cluster: SimCluster, rng: random.Random, history: History, number: int, partition: int, batches: int
    ) -> None:
        super().__init__(cluster, rng, history)
        self.number = number
        self.partition = partition
        self.batches = batches
        self.idempotent = number % 4 != 3
        self.unexpected: list[str] = []

    async def run(self) -> None:
        producer_id = await self._producer_id() if self.idempotent else -1
        sequence = sent = 0
        window: list[_Batch] = []
        limit = WINDOW if self.idempotent else 1
        count = 0
        while window or sent < self.batches:
            # As real clients do: nothing new goes out further than a window from the first that is not acknowledged.
            while sent < self.batches and (not window or sent - window[0][2] < limit):
                fresh = []
                for _ in range(self.rng.randint(1, 3)):
                    value = b"%d/%d/%d" % (self.partition, self.number, count)
                    self.history.sent[value] = (self.partition, self.number, count)
                    fresh.append(value)
                    count += 1
                window.append((sequence, fresh, sent))
                sequence += len(fresh)
                sent += 1
            await self._send(producer_id, window)
            if self.rng.random() < 0.3:
                await self.rest()

    async def _producer_id(self) -> int:
        while True:
            answer = await self.ask(INIT_PRODUCER, 4, transaction_timeout=0, producer_id=-1, producer_epoch=-1)
            if answer["error_code"] is ErrorCode.none:
                return int(answer["producer_id"])
            await self.rest()

    async def _leader(self) -> int:
        if self.rng.random() < 0.3:
            return self.any_node()
        answer = await self.ask(METADATA, 9, topics=[{"name": TOPIC}], allow_auto_topic_creation=False)
        for topic in answer["topics"]:
            for p in topic.get("partitions", ()):
                if p["partition_index"] == self.partition and p["leader_id"] in self.cluster.brokers:
                    return int(p["leader_id"])
        return self.any_node()

    async def _send(self, producer_id: int, window: list[_Batch]) -> None:
        """Send all that is not acknowledged, in order, to one broker; drop what is acknowledged then."""
        connection = self.connection(await self._leader())
        replies = []
        for sequence, batch_values, _ in window:
            producer = (producer_id, 0, sequence) if self.idempotent else (-1, -1, -1)
            data = batch([Rec(v) for v in batch_values], producer=producer)
            replies.append(
                connection.send(
                    PRODUCE,
                    PRODUCE_VERSION,
                    acks=-1,
                    timeout=5_000,
                    topic_data=[{"name": TOPIC, "partition_data": [{"index": self.partition, "records": data}]}],
                )
            )
        outcomes = await asyncio.wait_for(asyncio.gather(*replies, return_exceptions=True), 60)
        done = []
        for i, (item, outcome) in enumerate(zip(list(window), outcomes, strict=True)):
            sequence, batch_values, _ = item
            if isinstance(outcome, BaseException):
                continue
            answer = produced(outcome)
            code = answer.error_code
            if code is ErrorCode.none:
                self.history.ack(self.partition, answer.base_offset, batch_values)
                done.append(item)
            elif code is ErrorCode.out_of_order_sequence_number and i > 0:
                continue  # one before it failed
            elif code not in RETRIABLE:
                raise Violation(f"producer {self.number}, sequence {sequence}: {code.name} {answer}")
        window[:] = [item for item in window if item not in done]
        if len(done) < len(outcomes):
            await self.rest()


def produced(values: Any) -> Any:
    """The one partition of a Produce answer. Answers are made from templates, so they are read as bytes."""
    frame = b"".join(encode_response(PRODUCE, PRODUCE_VERSION, 0, values))
    _, response = decode_response(PRODUCE, PRODUCE_VERSION, memoryview(frame)[4:])
    return response.responses[0].partition_responses[0]


class Consumer(Client):
    """Reads one partition over and over, from any broker."""

    def __init__(self, cluster: SimCluster, rng: random.Random, history: History, partition: int) -> None:
        super().__init__(cluster, rng, history)
        self.partition = partition
        self.stop = False

    async def run(self) -> None:
        offset = 0
        while not self.stop:
            acked = self.history.end.get(self.partition, 0)
            if self.rng.random() < 0.1:
                await self._check_end(acked)
            try:
                answer = await self.connection(self.any_node()).send(
                    FETCH,
                    11,
                    max_wait=int(self.rng.random() * 200),
                    min_bytes=1,
                    max_bytes=self.rng.choice([1, 200, 100_000]),
                    session_id=0,
                    session_epoch=-1,
                    topics=[
                        {
                            "topic": TOPIC,
                            "partitions": [
                                {"partition": self.partition, "fetch_offset": offset, "partition_max_bytes": 1000}
                            ],
                        }
                    ],
                )
            except Disconnected:
                await self.rest()
                continue
            found = answer["responses"][0]["partitions"][0]
            if found["error_code"] is ErrorCode.offset_out_of_range:
                offset = self._out_of_range(offset, acked)
            elif found["error_code"] is not ErrorCode.none:
                await self.rest()
            elif not len(found["records"]) and offset < acked and offset >= self.history.trimmed.get(self.partition, 0):
                raise Violation(f"partition {self.partition}: nothing at {offset}, though {acked} was acknowledged")
            else:
                offset = self._take(offset, found["records"])
            if self.rng.random() < 0.02:
                offset = self.rng.randint(0, offset)

    def _take(self, offset: int, records: Any) -> int:
        found = [(at, value) for at, value in values(records) if at >= offset]
        for expected, (at, value) in enumerate(found, offset):
            if at != expected:
                raise Violation(f"partition {self.partition}: asked for {offset}, got {[a for a, _ in found]}")
            self.history.saw(self.partition, at, value)
        return offset + len(found)

    def _out_of_range(self, offset: int, acked: int) -> int:
        trimmed = self.history.trimmed.get(self.partition, 0)
        if offset >= trimmed and offset <= acked:
            raise Violation(f"partition {self.partition}: {offset} is out of range, end {acked}, trimmed {trimmed}")
        return trimmed

    async def _check_end(self, acked: int) -> None:
        try:
            answer = await self.connection(self.any_node()).send(
                LIST_OFFSETS,
                5,
                replica_id=-1,
                topics=[{"name": TOPIC, "partitions": [{"partition_index": self.partition, "timestamp": -1}]}],
            )
        except Disconnected:
            return
        found = answer["topics"][0]["partitions"][0]
        if found["error_code"] is ErrorCode.none and found["offset"] < acked:
            raise Violation(f"partition {self.partition} ends at {found['offset']}, though {acked} was acknowledged")


async def trim(client: Client, partition: int, offset: int) -> None:
    """Ask for records to be deleted."""
    history = client.history
    history.trimmed[partition] = max(history.trimmed.get(partition, 0), offset)
    await client.ask(
        DELETE_RECORDS,
        2,
        timeout=1000,
        topics=[{"name": TOPIC, "partitions": [{"partition_index": partition, "offset": offset}]}],
    )
