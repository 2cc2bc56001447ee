"""The client against a real server."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import confluent_kafka
import pytest
from kio.schema.errors import ErrorCode

from headwater.client.client import TO_THE_END, Client
from headwater.client.errors import KafkaError, RefusedByKafka, Undelivered
from headwater.client.model import EARLIEST, LATEST, ConfigSource, NewTopic
from headwater.client.partitioner import partition_of_key
from headwater.client.producer import Producer, ProducerSettings
from headwater.client.reader import Reader, Reset
from headwater.client.records import Record, decode_batches, encode_batch
from headwater.client.routing import ClientSettings
from headwater.errors import ClientError, ConfigError, CorruptBatch
from tests.compat.losing import Proxy

NOW = int(time.time() * 1000)


def run(bootstrap: str, test: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with Client(bootstrap, settings=ClientSettings(impatient_s=5)) as client:
            await test(client)

    asyncio.run(main())


@asynccontextmanager
async def new_topic(client: Client, partitions: int = 1, **configs: str) -> AsyncIterator[str]:
    name = f"client.{uuid.uuid4().hex[:12]}"
    dotted = {key.replace("_", "."): value for key, value in configs.items()}
    await client.create_topics([NewTopic(name, partitions, configs=dotted)])
    for partition in range(partitions):
        await client.fetch(name, partition, 0, max_wait_s=0)  # succeeds once the leader leads
    try:
        yield name
    finally:
        await client.delete_topics([name])


def records(*values: bytes) -> list[Record]:
    return [Record(-1, NOW + i, None, value) for i, value in enumerate(values)]


async def read(client: Client, topic: str, starts: dict[int, int] | None = None) -> dict[int, list[Record]]:
    """All records from the starts, by partition."""
    partitions = range(len((await client.topic(topic)).partitions))
    ends = await client.list_offsets(topic, dict.fromkeys(partitions, LATEST))
    found: dict[int, list[Record]] = {p: [] for p in partitions}
    reader = Reader(client, topic, starts or dict.fromkeys(partitions, 0), {p: end.offset for p, end in ends.items()})
    async for chunk in reader.chunks():
        found[chunk.partition] += chunk.records
    return found


def values(found: list[Record]) -> list[bytes | None]:
    return [record.value for record in found]


# --- topics and configs --------------------------------------------------------------------------------


def test_topics_are_created_described_and_deleted(bootstrap: str) -> None:
    async def test(client: Client) -> None:
        cluster = await client.cluster()
        nodes = {broker.node for broker in cluster.brokers}
        async with new_topic(client, 3) as name:
            (topic,) = await client.describe_topics([name])
            assert topic == await client.topic(name)
            assert [p.index for p in topic.partitions] == [0, 1, 2]
            assert {p.leader for p in topic.partitions} <= nodes
            assert topic.id is not None
            assert name in [t.name for t in await client.list_topics()]
        assert name not in [t.name for t in await client.list_topics()]

    run(bootstrap, test)


def test_errors_name_what_failed(bootstrap: str) -> None:
    async def test(client: Client) -> None:
        async with new_topic(client) as name:
            client.settings = ClientSettings(impatient_s=0.1)
            with pytest.raises(KafkaError, match=name) as caught:
                await client.create_topics([NewTopic(name), NewTopic("no spaces")])
            assert caught.value.code is ErrorCode.topic_already_exists
            assert "no spaces" in str(caught.value)
            with pytest.raises(RefusedByKafka, match="INVALID_CONFIG"):
                await client.create_topics([NewTopic(f"{name}.2", configs={"no.such.config": "1"})])
            with pytest.raises(KafkaError) as caught:
                await client.fetch(name, 9, 0)
            assert caught.value.code is ErrorCode.unknown_topic_or_partition
        for call in (client.topic, client.describe_configs, lambda gone: client.delete_topics([gone])):
            with pytest.raises(KafkaError) as caught:
                await call(name)
            assert caught.value.code is ErrorCode.unknown_topic_or_partition

    run(bootstrap, test)


def test_configs_are_described_and_altered(bootstrap: str) -> None:
    async def configs(client: Client, name: str) -> dict[str, str | None]:
        return {c.name: c.value for c in await client.describe_configs(name) if c.source is ConfigSource.TOPIC}

    async def test(client: Client) -> None:
        async with new_topic(client, retention_ms="3600000") as name:
            assert await configs(client, name) == {"retention.ms": "3600000"}
            (one,) = await client.describe_configs(name, ["cleanup.policy"])
            assert (one.name, one.value) == ("cleanup.policy", "delete")
            changes = {"max.message.bytes": "2000"}
            await client.incremental_alter_configs(name, changes, ["retention.ms"], validate_only=True)
            assert await configs(client, name) == {"retention.ms": "3600000"}
            await client.incremental_alter_configs(name, changes, ["retention.ms"])
            assert await configs(client, name) == changes
            with pytest.raises(RefusedByKafka):
                await client.incremental_alter_configs(name, {"retention.ms": "soon"})
            with pytest.raises(ConfigError):
                await client.incremental_alter_configs(name, changes, list(changes))

    run(bootstrap, test)


def test_partitions_are_added(bootstrap: str) -> None:
    async def test(client: Client) -> None:
        async with new_topic(client) as name:
            await client.topic(name)
            await client.create_partitions(name, 3)
            assert len((await client.topic(name)).partitions) == 3
            with pytest.raises(RefusedByKafka, match="INVALID_PARTITIONS"):
                await client.create_partitions(name, 2)

    run(bootstrap, test)


# --- batches and offsets -------------------------------------------------------------------------------


def test_raw_batches_there_and_back(bootstrap: str) -> None:
    async def test(client: Client) -> None:
        async with new_topic(client, 2) as name:
            for base, batch in ((0, records(b"a", b"b")), (2, records(b"c"))):
                assert (await client.produce(name, 1, encode_batch(batch))).base_offset == base
            found = list(decode_batches(await client.fetch(name, 1, 1)))
            assert [r.value for b in found for r in b.records if r.offset >= 1] == [b"b", b"c"]
            assert await client.fetch(name, 1, 3, max_wait_s=0.01) == b""
            assert await client.fetch(name, 0, 0, max_wait_s=0.01) == b""
            with pytest.raises(KafkaError) as caught:
                await client.fetch(name, 1, 4)
            assert caught.value.code is ErrorCode.offset_out_of_range

    run(bootstrap, test)


def test_a_repeated_idempotent_batch_is_there_once(bootstrap: str) -> None:
    async def test(client: Client) -> None:
        async with new_topic(client) as name:
            who = await client.init_producer_id()
            assert who != await client.init_producer_id()
            batch = encode_batch(records(b"a"), producer_id=who.id, producer_epoch=who.epoch, base_sequence=0)
            sent = [await client.produce(name, 0, batch) for _ in range(2)]
            assert [one.base_offset for one in sent] == [0, 0]
            assert values((await read(client, name))[0]) == [b"a"]

    run(bootstrap, test)


def test_wrong_batches_are_refused(bootstrap: str) -> None:
    async def test(client: Client) -> None:
        async with new_topic(client) as name:
            with pytest.raises(CorruptBatch):
                await client.produce(name, 0, b"nonsense")
            good = encode_batch(records(b"a"))
            with pytest.raises(ClientError):
                await client.produce(name, 0, good[:-1] + b"\xff")

    run(bootstrap, test)


def test_offsets_by_time_and_deleted_records(bootstrap: str) -> None:
    async def offsets(client: Client, name: str, when: int) -> list[int]:
        return [o.offset for o in (await client.list_offsets(name, {0: when, 1: when})).values()]

    async def test(client: Client) -> None:
        async with new_topic(client, 2) as name:
            await client.produce(name, 0, encode_batch(records(b"a", b"b", b"c")))
            await client.produce(name, 1, encode_batch(records(b"d")))
            assert await offsets(client, name, EARLIEST) == [0, 0]
            assert await offsets(client, name, LATEST) == [3, 1]
            assert await offsets(client, name, NOW + 1) == [1, -1]
            assert await client.delete_records(name, {0: 2, 1: TO_THE_END}) == {0: 2, 1: 1}
            assert await offsets(client, name, EARLIEST) == [2, 1]

            resets: list[Reset] = []
            reader = Reader(client, name, {0: 0, 1: 0}, {0: 3, 1: 1}, on_reset=resets.append)
            assert [values(chunk.records) async for chunk in reader.chunks()] == [[b"c"]]
            assert sorted(resets, key=lambda r: r.partition) == [Reset(0, 0, 2), Reset(1, 0, 1)]

    run(bootstrap, test)


def test_a_reader_waits_for_what_comes(bootstrap: str) -> None:
    async def test(client: Client) -> None:
        async with new_topic(client, 2) as name:
            chunks = Reader(client, name, {0: 0, 1: 0}).chunks()
            for partition, value in ((1, b"a"), (0, b"b")):
                waiting = asyncio.ensure_future(anext(chunks))
                await client.produce(name, partition, encode_batch(records(value)))
                chunk = await waiting
                assert (chunk.partition, values(chunk.records)) == (partition, [value])
            await chunks.aclose()

    run(bootstrap, test)


# --- the producer --------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_producer_delivers_in_order_to_the_partitions_of_keys(bootstrap: str, codec: str) -> None:
    async def test(client: Client) -> None:
        async with new_topic(client, 3) as name:
            keys = [b"key-%d" % (i % 7) for i in range(1000)]
            settings = ProducerSettings(batch_bytes=3000, codec=codec)
            async with Producer(client, settings) as producer:
                futures = [await producer.send(name, b"%d" % i, key=key) for i, key in enumerate(keys)]
            found = await read(client, name)
            for i, (key, future) in enumerate(zip(keys, futures, strict=True)):
                delivered = future.result()
                assert delivered.partition == partition_of_key(key, 3)
                assert found[delivered.partition][delivered.offset].value == b"%d" % i
            assert sum(map(len, found.values())) == len(keys)
            for partition in found.values():
                numbers = [int(record.value or b"") for record in partition]
                assert numbers == sorted(numbers)

    run(bootstrap, test)


def test_records_without_a_key_fill_one_batch_after_another(bootstrap: str) -> None:
    async def test(client: Client) -> None:
        async with new_topic(client, 4) as name:
            async with Producer(client, ProducerSettings(batch_bytes=1000, linger_s=10)) as producer:
                futures = [await producer.send(name, b"v" * 76) for _ in range(40)]
            went = [future.result().partition for future in futures]
            runs = [went[i : i + 10] for i in range(0, 40, 10)]
            assert all(len(set(one)) == 1 for one in runs)
            assert all(a[0] != b[0] for a, b in pairwise(runs))

    run(bootstrap, test)


def test_batches_that_are_too_large_are_split_and_records_that_are_told(bootstrap: str) -> None:
    async def test(client: Client) -> None:
        async with new_topic(client, max_message_bytes="2000") as name:
            async with Producer(client, ProducerSettings(linger_s=10)) as producer:
                for i in range(100):
                    await producer.send(name, b"%04d" % i * 25)
                await producer.flush()
                lost = await producer.send(name, b"x" * 3000)
                with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
                    await producer.flush()
                with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
                    await lost
                await producer.send(name, b"goes on")
            found = (await read(client, name))[0]
            assert values(found) == [*(b"%04d" % i * 25 for i in range(100)), b"goes on"]

    run(bootstrap, test)


def test_a_producer_that_is_left_by_an_error_or_closed_takes_no_more(bootstrap: str) -> None:
    async def test(client: Client) -> None:
        async with new_topic(client) as name:
            with pytest.raises(ZeroDivisionError):
                async with Producer(client, ProducerSettings(linger_s=10)) as producer:
                    lost = await producer.send(name, b"never sent")
                    raise ZeroDivisionError
            with pytest.raises(Undelivered):
                await lost
            with pytest.raises(Undelivered):
                await producer.send(name, b"too late")
            with pytest.raises(ConfigError):
                await Producer(client).send(name, b"nowhere", partition=1)
            assert (await read(client, name))[0] == []

    run(bootstrap, test)


def test_lost_answers_neither_lose_nor_double_records(bootstrap: str) -> None:
    async def main() -> None:
        async with Proxy(bootstrap) as proxy, proxy.client() as client, new_topic(client, 2) as name:
            async with Producer(client, ProducerSettings(batch_bytes=500)) as producer:
                for i in range(200):
                    if i % 40 == 10:
                        proxy.lose_answers(to=0, count=1)
                    await producer.send(name, b"%d" % i, key=b"%d" % (i % 5))
                    if i % 40 == 30:
                        await producer.flush()
            assert proxy.lost == 5
            found = await read(client, name)
            numbers = [int(record.value or b"") for partition in found.values() for record in partition]
            assert sorted(numbers) == list(range(200))
            for partition in found.values():
                assert [r.value for r in partition] == sorted(values(partition), key=lambda v: int(v or b""))

    asyncio.run(main())


def test_a_record_that_is_given_up_does_not_stop_later_ones(bootstrap: str) -> None:
    async def main() -> None:
        async with Proxy(bootstrap) as proxy, proxy.client() as client, new_topic(client) as name:
            settings = ProducerSettings(linger_s=0, delivery_s=2.0)
            async with Producer(client, settings) as producer:
                await (await producer.send(name, b"first"))
                proxy.lose_answers(to=0, count=1_000_000)
                doubtful = await producer.send(name, b"doubtful")
                with pytest.raises(Undelivered, match="may or may not"):
                    await doubtful
                proxy.lose_answers(to=0, count=0)
                await (await producer.send(name, b"last"))
                with pytest.raises(Undelivered):
                    await producer.flush()
            assert values((await read(client, name))[0]) == [b"first", b"doubtful", b"last"]

    asyncio.run(main())


def test_calls_that_may_not_be_repeated_are_not(bootstrap: str) -> None:
    async def main() -> None:
        async with Proxy(bootstrap) as proxy, proxy.client() as client, new_topic(client) as name:
            proxy.lose_answers(to=0, count=1)
            with pytest.raises(ClientError, match="closed the connection"):
                await client.produce(name, 0, encode_batch(records(b"plain")))
            assert values((await read(client, name))[0]) == [b"plain"]
            proxy.lose_answers(to=37, count=1)
            with pytest.raises(ClientError, match="closed the connection"):
                await client.create_partitions(name, 2)
            proxy.lose_answers(to=2, count=1)
            assert (await client.list_offsets(name, {0: LATEST}))[0].offset == 1

    asyncio.run(main())


# --- other clients -------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_librdkafka_writes_is_read(bootstrap: str, codec: str) -> None:
    async def test(client: Client) -> None:
        async with new_topic(client) as name:
            writer = confluent_kafka.Producer(
                {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 100}
            )
            for i in range(100):
                writer.produce(
                    name,
                    b"value " * 20,
                    None if i % 2 else b"%d" % i,
                    headers=[("h", b"1"), ("h", None)],
                    timestamp=NOW + i,
                )
            assert await asyncio.to_thread(writer.flush, 30) == 0
            found = (await read(client, name))[0]
            headers = (("h", b"1"), ("h", None))
            assert found == [
                Record(i, NOW + i, None if i % 2 else b"%d" % i, b"value " * 20, headers) for i in range(100)
            ]

    run(bootstrap, test)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_what_the_producer_writes_librdkafka_reads(bootstrap: str, codec: str) -> None:
    def consume(name: str) -> list[Record]:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "none", "check.crcs": True, "enable.auto.commit": False}
        )
        consumer.assign([confluent_kafka.TopicPartition(name, 0, 0)])
        try:
            messages = consumer.consume(2, timeout=30)
            return [
                Record(m.offset(), m.timestamp()[1], m.key(), m.value(), tuple(m.headers() or ())) for m in messages
            ]
        finally:
            consumer.close()

    async def test(client: Client) -> None:
        async with new_topic(client) as name:
            async with Producer(client, ProducerSettings(codec=codec)) as producer:
                await producer.send(name, b"v", key=b"k", headers=(("a", b"1"), ("a", None)), timestamp=NOW)
                await producer.send(name, None, headers=(), timestamp=NOW - 5)
            assert await asyncio.to_thread(consume, name) == [
                Record(0, NOW, b"k", b"v", (("a", b"1"), ("a", None))),
                Record(1, NOW - 5, None, None),
            ]

    run(bootstrap, test)
