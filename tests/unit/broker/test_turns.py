"""Requests and answers with many items are worked on in slices, counted per turn of the event loop."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headwater.broker.turns import SLICE_ITEMS, Turns, Work
from headwater.clock import SystemClock
from headwater.settings.settings import Limits, Settings
from headwater.wire import messages
from headwater.wire.build import build
from headwater.wire.messages import (
    decode_response,
    encode_request,
    encode_response,
    encode_response_in_slices,
    request_type,
    weight,
)
from tests.support.nodes import Caller
from tests.support.promise import promise
from tests.unit.broker.calling import CREATE, create, run
from tests.unit.broker.net.test_connection import CountingHost, open_connection

PROMISES = ("S4",)

METADATA, DESCRIBE_CONFIGS, LIST_OFFSETS, OFFSET_FETCH, FETCH, DESCRIBE_GROUPS = 3, 32, 2, 9, 1, 15
CREATE_PARTITIONS = 37
TOPICS = 2


class PerTurn:
    """Counts items between two turns of the event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.most = self.all = 0
        did, sliced = Work.did, messages.sliced_encoder

        async def counted(work: Work, items: int = 1) -> None:
            self.add(items)
            await did(work, items)

        def encoder(entity: type) -> Callable[[Any, Any], Iterator[None]]:
            def steps(values: Any, out: Any) -> Iterator[None]:
                for step in sliced(entity)(values, out):
                    self.add(1)
                    yield step

            return steps

        monkeypatch.setattr(Work, "did", counted)
        monkeypatch.setattr(messages, "sliced_encoder", encoder)

    def add(self, items: int) -> None:
        self.now += items
        self.all += items
        self.most = max(self.most, self.now)

    async def watch(self) -> None:
        while True:
            self.now = 0
            await asyncio.sleep(0)


def frame_of(key: int, version: int, number: int = 1, **fields: Any) -> bytes:
    return b"".join(encode_request(key, version, number, "test", build(request_type(key, version), **fields)))


async def sent(one: Caller, *frames: bytes) -> tuple[list[bytes], Any]:
    """What a connection writes for frames that arrive at once, and its transport."""
    host = CountingHost(one.node.broker)
    connection, transport = open_connection(host)
    written: list[bytes] = []
    transport.writelines.side_effect = lambda pieces: written.append(b"".join(pieces))
    data = memoryview(b"".join(frames))
    while data:
        buffer = connection.get_buffer(-1)
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        connection.buffer_updated(size)
        data = data[size:]
    while not connection.idle and not transport.abort.called:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert transport.abort.called or one.node.broker.budget.used == 0
    return written, transport


def responses(written: list[bytes], key: int, version: int) -> list[Any]:
    data, found = b"".join(written), []
    while data:
        size = int.from_bytes(data[:4], "big")
        found.append(decode_response(key, version, memoryview(data[4 : 4 + size])))
        data = data[4 + size :]
    return found


def test_one_slice_per_turn_for_all_requests_together() -> None:
    async def main() -> None:
        turns, now, most = Turns(SystemClock()), 0, 0

        async def work() -> None:
            nonlocal now, most
            for _ in range(20):
                await turns.turn()
                now += 1
                most = max(most, now)

        async def watch() -> None:
            nonlocal now
            while True:
                now = 0
                await asyncio.sleep(0)

        watching = asyncio.ensure_future(watch())
        crowd = [asyncio.ensure_future(work()) for _ in range(10)]
        await asyncio.sleep(0)
        crowd[3].cancel()
        await asyncio.gather(*crowd, return_exceptions=True)
        watching.cancel()
        assert most == 1
        assert 180 <= turns.taken <= 200

    asyncio.run(main())


@promise("S4")
@pytest.mark.parametrize("version", [1, 12])
def test_a_topic_named_many_times_is_answered_once(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    """As in Kafka. Neither reading nor encoding does more than a slice per turn of the event loop."""

    async def test(one: Caller) -> None:
        await create(one, partitions=2_000)
        per_turn = PerTurn(monkeypatch)
        watching = asyncio.ensure_future(per_turn.watch())
        written, _ = await sent(one, frame_of(METADATA, version, topics=[{"name": "t"}] * 3_000))
        watching.cancel()
        [(_, answer)] = responses(written, METADATA, version)
        assert [len(topic.partitions) for topic in answer.topics] == [2_000]
        assert sum(map(len, written)) < 200_000
        assert per_turn.all < 8_000
        assert per_turn.most <= 2 * SLICE_ITEMS

    run(test)


@pytest.mark.parametrize(
    ("key", "version", "fields"),
    [
        (METADATA, 9, {"topics": [{"name": f"none-{i}"} for i in range(4_000)], "allow_auto_topic_creation": False}),
        (DESCRIBE_CONFIGS, 4, {"resources": [{"resource_type": TOPICS, "resource_name": str(i)} for i in range(900)]}),
        (
            LIST_OFFSETS,
            7,
            {"topics": [{"name": "t", "partitions": [{"partition_index": i, "timestamp": -1} for i in range(4_000)]}]},
        ),
        (OFFSET_FETCH, 7, {"group_id": "g", "topics": [{"name": "t", "partition_indexes": list(range(4_000))}]}),
        (DESCRIBE_GROUPS, 5, {"groups": [f"g-{i}" for i in range(1_000)]}),
    ],
)
def test_long_requests_are_worked_on_in_slices(
    monkeypatch: pytest.MonkeyPatch, key: int, version: int, fields: dict[str, Any]
) -> None:
    async def test(one: Caller) -> None:
        await create(one)
        per_turn = PerTurn(monkeypatch)
        watching = asyncio.ensure_future(per_turn.watch())
        written, _ = await sent(one, frame_of(key, version, **fields))
        watching.cancel()
        assert len(responses(written, key, version)) == 1
        assert per_turn.all >= 900
        assert per_turn.most <= 2 * SLICE_ITEMS

    run(test)


def test_requests_behind_a_large_one_are_answered_behind_it() -> None:
    async def test(one: Caller) -> None:
        await create(one)
        many = frame_of(METADATA, 9, 1, topics=[{"name": f"none-{i}"} for i in range(3_000)])
        few = [frame_of(METADATA, 9, number, topics=[{"name": "t"}]) for number in (2, 3)]
        written, _ = await sent(one, many, *few)
        told = responses(written, METADATA, 9)
        assert [number for number, _ in told] == [1, 2, 3]
        assert [len(answer.topics) for _, answer in told] == [3_000, 1, 1]

    run(test)


@promise("S4")
def test_a_request_with_too_many_items_is_refused() -> None:
    """With an error if the answer has one for the whole request; else its connection ends. Nothing is changed."""

    async def test(one: Caller) -> None:
        broker = one.node.broker
        limit = broker.settings.limits.request_items
        names = [{"name": f"n{i}"} for i in range(limit + 1)]
        written, transport = await sent(one, frame_of(METADATA, 13, topics=names))
        [(_, answer)] = responses(written, METADATA, 13)
        assert (answer.error_code.name, answer.topics) == ("invalid_request", ())
        written, transport = await sent(one, frame_of(METADATA, 9, topics=names))
        assert transport.abort.called and not written
        assert broker.stats.refusals == {"request_items": 2}
        assert not broker.cluster.state.topics

    run(test)


@promise("S4")
def test_a_short_request_cannot_fill_the_cluster() -> None:
    """The creation that goes over the limit is refused, and so is growth and creation by Metadata."""

    async def test(one: Caller) -> None:
        wanted = [{"name": f"t{i}", "num_partitions": 40, "replication_factor": 1} for i in range(10)]
        answer = await one(CREATE, 7, topics=wanted)
        assert [t.error_code.name for t in answer.topics] == ["none"] * 2 + ["policy_violation"] * 8
        assert "limits.partitions" in answer.topics[2].error_message
        await create(one, "rest", 20)
        grown = await one(CREATE_PARTITIONS, 3, topics=[{"name": "rest", "count": 21, "assignments": None}])
        assert grown.results[0].error_code.name == "policy_violation"
        made = await one(METADATA, 9, topics=[{"name": "new"}], allow_auto_topic_creation=True)
        assert made.topics[0].error_code.name == "policy_violation"
        assert one.node.broker.cluster.state.partitions == 100
        assert one.node.broker.stats.refusals == {"partitions": 10}

    run(test, settings=Settings(objects="memory://", limits=Limits(partitions=100)))


def test_a_fetch_session_has_a_limit() -> None:
    async def test(one: Caller) -> None:
        await create(one)

        def asked(first: int, count: int) -> list[dict[str, Any]]:
            wanted = [{"partition": first + i, "fetch_offset": 0, "partition_max_bytes": 1} for i in range(count)]
            return [{"topic": "t", "partitions": wanted}]

        limits = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1}
        limit = one.node.broker.settings.limits.request_items
        session = await one(FETCH, 11, topics=asked(0, limit), session_epoch=0, **limits)
        assert session.session_id
        more = await one(FETCH, 11, topics=asked(limit, 1), session_id=session.session_id, session_epoch=1, **limits)
        assert more.error_code.name == "fetch_session_id_not_found"
        assert len(one.node.broker.sessions) == 0

    run(test)


def test_answers_in_slices_have_the_same_bytes() -> None:
    async def main() -> None:
        pauses = 0

        async def pause() -> None:
            nonlocal pauses
            pauses += 1

        partitions = [{"partition_index": i, "replica_nodes": [i], "isr_nodes": [i]} for i in range(30)]
        topics = [{"name": "a" * 5_000, "partitions": partitions}, {"name": None, "partitions": []}] * 3
        values = {"topics": topics, "brokers": [{"host": "h", "rack": None}], "cluster_id": "c"}
        for version in (1, 8, 13):
            shown = values if version > 11 else {**values, "topics": topics[::2]}
            whole = b"".join(encode_response(METADATA, version, 5, shown))
            assert b"".join(await encode_response_in_slices(METADATA, version, 5, shown, pause, 7)) == whole
        assert pauses > 30
        assert weight(values, 1_000) == 97
        assert weight(values, 20) >= 20

    asyncio.run(main())
