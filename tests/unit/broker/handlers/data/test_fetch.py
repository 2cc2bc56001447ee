"""What a fetch reads while it waits, and how often it reads an object."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headwater.broker.handlers.data import fetch as handler
from headwater.log import reader as reader_module
from headwater.log.damage import LOG_SECONDS, MAX_CLIENT_NAME, MAX_WAITING
from headwater.settings.settings import Cache, Settings
from headwater.state.cluster.access import AclResource
from headwater.state.commands.groups import CommitAlone
from headwater.state.streams.append import PREFIX_BYTES
from headwater.types import Domain
from tests.support.batches import Rec, batch, values
from tests.support.nodes import Caller
from tests.support.promise import promise
from tests.unit.broker.calling import FETCH, NOW, TOPIC, configs_of, create, produce, run

PROMISES = ("K4", "L9")

PARTITIONS = 50
DELETE, TRIM = 20, 21


def data(size: int, number: int = 0) -> bytes:
    return batch([Rec(b"%d " % number + b"x" * size, timestamp=NOW)])


async def fetch_all(node: Caller, offsets: dict[int, int], **limits: Any) -> dict[int, Any]:
    """The answers of partitions, in the order of the request."""
    asked = [{"partition": p, "fetch_offset": o, "partition_max_bytes": 1 << 20} for p, o in offsets.items()]
    chosen = {"max_wait": 0, "min_bytes": 1, "max_bytes": 50 << 20, "session_epoch": -1, **limits}
    response = await node(FETCH, 11, topics=[{"topic": "t", "partitions": asked}], **chosen)
    return {p.partition_index: p for p in response.responses[0].partitions}


def test_a_waiting_fetch_looks_at_what_changed_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts the new bytes of the partitions that changed, and reads once when there are enough."""

    async def test(one: Caller) -> None:
        await create(one, partitions=PARTITIONS)
        looks, inner = 0, handler._available

        def counted(*arguments: Any) -> int:
            nonlocal looks
            looks += 1
            return inner(*arguments)

        monkeypatch.setattr(handler, "_available", counted)
        reads, read_many = 0, one.node.broker.reader.read_many

        async def read(*arguments: Any, **options: Any) -> Any:
            nonlocal reads
            reads += 1
            return await read_many(*arguments, **options)

        one.node.broker.reader.read_many = read  # type: ignore[method-assign]
        appends, size = 40, 300
        everything = dict.fromkeys(range(PARTITIONS), 0)
        enough = appends * size
        waiting = asyncio.create_task(fetch_all(one, everything, max_wait=20_000, min_bytes=enough))
        await asyncio.sleep(0)
        for number in range(appends):
            await produce(one, data(size, number), partition=number % 2)
        found = await waiting
        size = sum(len(p.records or b"") + PREFIX_BYTES * len(values(p.records)) for p in found.values())
        assert size >= enough, "the index counts each batch with its prefix"
        assert reads <= 4, "once after the look at the ledger, and when there were enough bytes"
        assert looks <= 2 * PARTITIONS + 2 * appends

    run(test)


def test_a_waiting_fetch_ends_when_its_time_is_over_or_its_topic_is_gone() -> None:
    async def test(one: Caller) -> None:
        await create(one, partitions=2)
        await produce(one, data(10))
        few = await fetch_all(one, {0: 0, 1: 0}, max_wait=50, min_bytes=1 << 20)
        assert len(values(few[0].records)) == 1, "what there is, after the wait"
        waiting = asyncio.create_task(fetch_all(one, {0: 1, 1: 0}, max_wait=60_000, min_bytes=1 << 20))
        while not one.node.domains[min(one.node.domains)]._watches:
            await asyncio.sleep(0)
        trim = [{"name": "t", "partitions": [{"partition_index": 0, "offset": -1}]}]
        await produce(one, data(10))
        await one(TRIM, 2, topics=trim, timeout=10_000)
        await produce(one, data(10))
        found = await waiting
        assert found[0].error_code is ErrorCode.offset_out_of_range

    run(test)


def test_partitions_that_share_objects_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catching up on many partitions reads each object about once, although the cache holds only a few of them."""
    objects, batch_bytes = 30, 400
    object_bytes = PARTITIONS * (batch_bytes + 100)
    monkeypatch.setattr(reader_module, "LEAST_OBJECT_BYTES", 1)

    async def test(one: Caller) -> None:
        await create(one, partitions=PARTITIONS)
        for number in range(objects):
            parts = [{"index": p, "records": data(batch_bytes, number)} for p in range(PARTITIONS)]
            await one(0, 9, acks=-1, timeout=10_000, topic_data=[{"name": "t", "partition_data": parts}])
        cache = one.node.cache
        written = len({entry.object for s in one.node.domains[1].state.streams.values() for entry in s.index})
        cache._objects.clear()
        cache.bytes = 0
        left, fetches = dict.fromkeys(range(PARTITIONS), 0), 0
        while left:
            found = await fetch_all(one, left)
            fetches += 1
            served = {p: values(answer.records) for p, answer in found.items() if answer.records}
            assert served, "every fetch gets on"
            for partition, records in served.items():
                at = left.pop(partition)
                assert [offset for offset, _ in records] == list(range(at, at + len(records)))
                if at + len(records) < objects:
                    left[partition] = at + len(records)
        assert fetches > 3, "one fetch does not get all objects"
        assert cache.store_reads <= 1.2 * written

    run(test, settings=Settings(cache=Cache(wal_bytes=6 * object_bytes)))


@promise("L10")
def test_a_consumer_at_damaged_records_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By its client, by its group if it has committed the offset, with what to do; in the log once a minute."""

    def told() -> list[dict[str, Any]]:
        return [vars(record) for record in caplog.records if "consumers wait" in record.message]

    async def test(one: Caller, two: Caller) -> None:
        await create(one)
        for number in range(2):
            assert (await produce(one, data(100, number))).error_code is ErrorCode.none
        store, replica = two.node.domains.store, two.node.domains[Domain(1)]
        first = min(path for path in store.objects if path.startswith("wal/"))  # type: ignore[attr-defined]
        await store.delete(first)
        made = one.node.cluster.state.names["t"]
        for group, offset in (("stuck", 0), ("further", 1)):
            offsets = [(made.id.bytes, 0, offset, -1, "")]
            await one.node.domains[Domain(1)].submit([CommitAlone(group, offsets)])
        await replica.barrier()
        damage, clock = two.node.damage, VirtualNow()
        monkeypatch.setattr(damage, "_clock", clock)
        two.client_id = "c" * 1_000
        for _ in range(3):
            assert (await fetch_all(two, {0: 0}))[0].error_code is ErrorCode.kafka_storage_error
            clock.now += 6
        [line] = told()
        assert (line["topic"], line["partition"], line["groups"]) == ("t", 0, ["stuck"])
        assert line["clients"] == ["c" * MAX_CLIENT_NAME]
        assert "headwater group reset GROUP --topic t --partition 0 --to 1" in line["to_do"]
        two.client_id = "other"
        clock.now += LOG_SECONDS
        assert (await fetch_all(two, {0: 0, 1: 0}))[0].error_code is ErrorCode.kafka_storage_error
        assert told()[1]["clients"] == ["other at 127.0.0.1"], "the first one has stopped asking"
        for number in range(2 * MAX_WAITING):
            two.client_id = f"one of many {number}"
            await fetch_all(two, {0: 0})
        assert len(told()) == 2
        [shown] = damage.lines()
        assert shown.groups == ["stuck"] and len(shown.clients) == MAX_WAITING
        described = (await configs_of(two, TOPIC, "t", ["headwater.damage"]))["headwater.damage"]
        assert json.loads(described.value)[0]["groups"] == ["stuck"]
        hidden = (AclResource.CLUSTER, AclResource.GROUP)
        monkeypatch.setattr(two.node.broker, "may", lambda request, operation, kind, name="": kind not in hidden)
        described = (await configs_of(two, TOPIC, "t", ["headwater.damage"]))["headwater.damage"]
        [seen] = json.loads(described.value)
        assert not {"groups", "clients"} & seen.keys(), "the caller may not know of them"

    run(test, 2)


class VirtualNow:
    """A clock that the test moves."""

    now = 1_000.0

    def monotonic(self) -> float:
        return self.now
