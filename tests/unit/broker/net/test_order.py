"""Requests of one connection that are sent in one write are answered as if each were sent after the answer before."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import struct
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, cast
from unittest.mock import Mock

import pytest

from headwater.broker.net.connection import Connection
from headwater.broker.net.server import Server
from headwater.broker.registry import APIS, BESIDE, RequestKind
from headwater.settings.settings import Settings
from headwater.wire.build import build
from headwater.wire.messages import decode_response, encode_request, request_type
from tests.differential.compare import plain
from tests.support.batches import Rec, batch
from tests.support.nodes import Caller, cluster
from tests.support.promise import promise
from tests.support.soak import WHOLE
from tests.support.virtual_nodes import CountingStore
from tests.unit.broker.calling import NOW, create, produce
from tests.unit.broker.net.test_inflight import until

PROMISES = ("K1", "K4")

PRODUCE, FETCH, LIST_OFFSETS, METADATA, CREATE = 0, 1, 2, 3, 19
SAMPLE = len(APIS) ** 2 if WHOLE else 150
SECONDS = 3600 if WHOLE else 120
SEED = random.randrange(1 << 32)
MADE_UP = re.compile(
    r'"(producer_id|transaction_start_time|finalized_features_epoch|subscription_id|log_end_offset|last_\w+_timestamp'
    r'|high_watermark(?=": \d+, "current_voters))": (-?\d+|"[^"]*")'
)
"""Numbers that are others in every world, or that grow with the ledger."""
IDS = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Fields = dict[str, Any]
Asked = tuple[int, int, Fields]


def _partition(topic: str, index: int = 0, **fields: Any) -> Fields:
    return {"name": topic, "topic": topic, "partitions": [{"partition_index": index, "partition": index, **fields}]}


def _records(topic: str) -> Fields:
    return {"name": topic, "partition_data": [{"index": 0, "records": batch([Rec(b"x", timestamp=NOW)])}]}


def _fetched(topic: str) -> Fields:
    return _partition(topic, fetch_offset=2, partition_max_bytes=1000)


def request(key: int, own: str, producer: int) -> Asked:
    """A request of each API about the names of one world. `-t` is a topic there, and `-new` one to come."""
    t, new, g, c, tx = (f"{own}-{what}" for what in ("t", "new", "g", "c", "tx"))
    me = {"transactional_id": tx, "producer_id": producer, "producer_epoch": 0}
    them = {f"v3_and_below_{name}": value for name, value in me.items()}
    acl = {"resource_type": 2, "resource_name": t, "resource_pattern_type": 3, "principal": "User:z", "host": "*",
           "operation": 3, "permission_type": 3}  # fmt: skip
    filter = {"resource_type_filter": 2, "resource_name_filter": t, "pattern_type_filter": 3, "principal_filter": None,
              "host_filter": None, "operation": 1, "permission_type": 1}  # fmt: skip
    resource = {"resource_type": 2, "resource_name": t}
    retention = {**resource, "configs": [{"name": "retention.ms", "value": "7777", "config_operation": 0}]}
    user = [{"entity_type": "user", "entity_name": own}]
    member = {"group_id": g, "member_id": "m", "generation_id": 1}
    upsertion = {"name": own, "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"salted"}
    topics = [{"name": t, "topic_id": None}, {"name": new, "topic_id": None}]
    requests: dict[int, Asked] = {
        0: (key, 9, {"acks": -1, "timeout": 5000, "topic_data": [_records(t), _records(new)]}),
        1: (key, 11, {"max_wait": 0, "min_bytes": 1, "max_bytes": 1000, "session_epoch": -1,
                      "topics": [_fetched(t), _fetched(new)]}),
        2: (key, 7, {"topics": [_partition(t, i, timestamp=at) for i, at in ((0, -1), (0, -2), (1, -1))]}),
        3: (key, 12, {"topics": topics, "allow_auto_topic_creation": True}),
        8: (key, 8, {"group_id": g, "generation_id_or_member_epoch": -1, "member_id": "",
                     "topics": [_partition(t, committed_offset=1)]}),
        9: (key, 8, {"groups": [{"group_id": g, "topics": [{"name": t, "partition_indexes": [0]}]}]}),
        10: (key, 4, {"key_type": 0, "coordinator_keys": [g]}),
        11: (key, 5, {"group_id": g, "session_timeout": 10_000, "rebalance_timeout": 10_000, "member_id": "",
                      "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}),
        12: (key, 3, member),
        13: (key, 3, {"group_id": g, "members": [{"member_id": "m"}]}),
        14: (key, 3, {**member, "assignments": []}),
        15: (key, 5, {"groups": [g, c]}),
        16: (key, 4, {"states_filter": []}),
        17: (key, 1, {"mechanism": "PLAIN"}),
        18: (key, 3, {"client_software_name": "order", "client_software_version": "1"}),
        19: (key, 7, {"topics": [{"name": new, "num_partitions": 1, "replication_factor": 1}], "timeout": 1000}),
        20: (key, 6, {"topics": [{"name": t, "topic_id": None}], "timeout": 1000}),
        21: (key, 2, {"topics": [_partition(t, offset=1)], "timeout": 1000}),
        22: (key, 4, {"transactional_id": tx, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}),
        23: (key, 4, {"topics": [_partition(t, leader_epoch=0, current_leader_epoch=-1)]}),
        24: (key, 3, {**them, "v3_and_below_topics": [{"name": t, "partitions": [0]}]}),
        25: (key, 3, {**me, "group_id": g}),
        26: (key, 3, {**me, "committed": True}),
        28: (key, 3, {**me, "group_id": g, "topics": [_partition(t, committed_offset=2)]}),
        29: (key, 3, filter),
        30: (key, 3, {"creations": [acl]}),
        31: (key, 3, {"filters": [filter]}),
        32: (key, 4, {"resources": [{**resource, "configuration_keys": ["retention.ms"]}]}),
        33: (key, 2, {"resources": [retention], "validate_only": False}),
        34: (key, 2, {"dirs": [{"path": "nowhere", "topics": [{"name": t, "partitions": [0]}]}]}),
        35: (key, 4, {"topics": [{"topic": t, "partitions": [0, 1]}]}),
        36: (key, 2, {"auth_bytes": b""}),
        37: (key, 3, {"topics": [{"name": t, "count": 2, "assignments": None}], "timeout": 1000}),
        42: (key, 2, {"groups_names": [g]}),
        43: (key, 2, {"election_type": 0, "topic_partitions": [{"topic": t, "partitions": [0, 1]}]}),
        44: (key, 1, {"resources": [retention], "validate_only": False}),
        45: (key, 0, {"topics": [{"name": t, "partitions": [{"partition_index": 1, "replicas": [1]}]}]}),
        46: (key, 0, {"topics": None}),
        47: (key, 0, {"group_id": g, "topics": [_partition(t)]}),
        48: (key, 1, {"components": [{"entity_type": "user", "match_type": 0, "match": own}], "strict": False}),
        49: (key, 1, {"entries": [{"entity": user, "ops": [
            {"key": "producer_byte_rate", "value": 1e9, "remove": False}]}]}),
        50: (key, 0, {"users": [{"name": own}]}),
        51: (key, 0, {"deletions": [], "upsertions": [upsertion]}),
        55: (key, 2, {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}),
        57: (key, 1, {"feature_updates": [], "validate_only": True}),
        60: (key, 0, {}),
        61: (key, 0, {"topics": [{"name": t, "partition_indexes": [0, 1]}]}),
        65: (key, 0, {"transactional_ids": [tx]}),
        66: (key, 0, {"producer_id_filters": [producer]}),
        68: (key, 1, {"group_id": c, "member_id": "m", "member_epoch": 0, "rebalance_timeout": 1000,
                      "subscribed_topic_names": [t], "topic_partitions": []}),
        69: (key, 1, {"group_ids": [c]}),
        71: (key, 0, {"client_instance_id": uuid.uuid5(uuid.NAMESPACE_URL, own)}),
        72: (key, 0, {"client_instance_id": uuid.uuid5(uuid.NAMESPACE_URL, own), "metrics": b""}),
        74: (key, 1, {"resource_types": [2]}),
        75: (key, 0, {"topics": [{"name": t}, {"name": new}], "response_partition_limit": 10, "cursor": None}),
    }  # fmt: skip
    return requests[key]


class Wire:
    """A connection without a socket."""

    def __init__(self, server: Server) -> None:
        self._transport = Mock(**{"is_closing.return_value": False, "get_write_buffer_size.return_value": 0})
        self._transport.get_extra_info.return_value = ("192.0.2.7", 4711)
        self._transport.writelines = self._written
        self._got = b""
        self._news = asyncio.Event()
        self.connection = Connection(server, "PLAINTEXT")
        self.connection.connection_made(cast(asyncio.Transport, self._transport))

    def _written(self, pieces: list[bytes]) -> None:
        self._got += b"".join(pieces)
        self._news.set()

    def send(self, *asked: Asked) -> None:
        """All requests in one write."""
        frames = [encode_request(k, v, 1, "test", build(request_type(k, v), **fields)) for k, v, fields in asked]
        data = b"".join(itertools.chain.from_iterable(frames))
        self.connection.get_buffer(-1)[: len(data)] = data
        self.connection.buffer_updated(len(data))

    async def answer(self, asked: Asked) -> Any:
        while len(self._got) < 4 or len(self._got) < 4 + struct.unpack(">i", self._got[:4])[0]:
            self._news.clear()
            await self._news.wait()
        (size,) = struct.unpack(">i", self._got[:4])
        frame, self._got = self._got[4 : 4 + size], self._got[4 + size :]
        return decode_response(asked[0], asked[1], memoryview(frame))[1]

    @property
    def begun(self) -> int:
        """How many requests are under way."""
        return len(self.connection._slots)

    def reads(self) -> bool:
        """Whether the connection is read."""
        calls = [name for name, *_ in self._transport.method_calls if name in ("pause_reading", "resume_reading")]
        return calls[-1:] != ["pause_reading"]

    def close(self) -> None:
        self.connection.connection_lost(None)


def run(test: Callable[[Caller, Server], Awaitable[None]], store: CountingStore | None = None) -> None:
    async def main() -> None:
        async with cluster(1, Settings(objects="memory://"), store=store) as [caller], asyncio.timeout(SECONDS):
            try:
                await test(caller, Server(caller.node.broker))
            finally:
                if store is not None:
                    store.gate.set()  # the node stores what it has before it stops

    asyncio.run(main())


async def _world(caller: Caller, own: str) -> int:
    """A topic with two records, a group with an offset, a transactional id; returns its producer."""
    await create(caller, f"{own}-t")
    await produce(caller, batch([Rec(b"a", timestamp=NOW), Rec(b"b", timestamp=NOW)]), f"{own}-t")
    for key in (8, 22):
        answer = await caller(*request(key, own, 0)[:2], **request(key, own, 0)[2])
    producer: int = answer.producer_id
    return producer


async def _told(caller: Caller, server: Server, own: str, keys: tuple[int, ...], *, together: bool) -> list[str]:
    """What is answered to requests in a world of their own."""
    producer = await _world(caller, own)
    asked = [request(key, own, producer) for key in keys]
    wire = Wire(server)
    try:
        answers = []
        for some in [asked] if together else [[one] for one in asked]:
            wire.send(*some)
            answers += [await wire.answer(one) for one in some]
    finally:
        wire.close()
    text = [json.dumps(_own(plain(answer), own)).replace(own, "own") for answer in answers]
    return [IDS.sub("*", MADE_UP.sub(r'"\1": "*"', one)) for one in text]


def _own(value: Any, own: str) -> Any:
    """Lists of everything there is have things of other worlds in them, and no order."""
    if isinstance(value, dict):
        return {name: _own(inner, own) for name, inner in value.items()}
    if isinstance(value, list):
        names = ("group_id", "resource_name", "transactional_id")
        foreign = [any(not str(row.get(n, own)).startswith(own) for n in names) if isinstance(row, dict) else False
                   for row in value]  # fmt: skip
        own_rows = [_own(row, own) for row, other in zip(value, foreign, strict=True) if not other]
        return sorted(own_rows, key=json.dumps)
    return value


@promise("K1")
@pytest.mark.timeout(SECONDS)
def test_pairs_of_requests_in_one_write() -> None:
    """A sample of all pairs of APIs; all pairs in the soak."""
    pairs = list(itertools.product(sorted(APIS), repeat=2))
    chosen = random.Random(SEED).sample(pairs, SAMPLE)

    async def test(caller: Caller, server: Server) -> None:
        for number, pair in enumerate(chosen):
            apart = await _told(caller, server, f"apart-{number}-x", pair, together=False)
            assert await _told(caller, server, f"joint-{number}-x", pair, together=True) == apart, (SEED, pair)

    run(test)


@promise("K1")
def test_the_kinds() -> None:
    """Whether two kinds may be under way at once does not depend on which came first. Who changes or waits is alone."""
    for one, other in itertools.product(RequestKind, repeat=2):
        assert (one in BESIDE[other]) == (other in BESIDE[one])
    assert {key for key, api in APIS.items() if api.kind is RequestKind.APPEND} == {PRODUCE}
    assert APIS[FETCH].kind is RequestKind.ALONE, "it may wait for records that come after what is behind it"
    changing = re.compile("alter|create|delete|add|end|commit|join|sync|leave|heartbeat|init|update|elect|push|sasl")
    assert not [api for api in APIS.values() if changing.search(api.name) and api.kind is not RequestKind.ALONE]


@promise("K1")
def test_who_waits_behind_produce() -> None:
    """Only what its effects could show in, and all that comes behind that."""

    async def test(caller: Caller, server: Server) -> None:
        answered = caller.node.broker.stats.requests
        await create(caller)
        store.gate.clear()
        wire = Wire(server)
        append = (PRODUCE, 9, {"acks": -1, "timeout": 60_000, "topic_data": [_records("t")]})
        known = (METADATA, 12, {"topics": [{"name": "t"}], "allow_auto_topic_creation": True})
        creating = (METADATA, 12, {"topics": [{"name": "new"}], "allow_auto_topic_creation": True})
        last = (LIST_OFFSETS, 7, {"topics": [_partition("t", timestamp=-1)]})
        wire.send(append, known, append, last, append, known)
        await until(lambda: METADATA in answered)
        assert wire.begun == 3 and answered[METADATA] == 1 and LIST_OFFSETS not in answered
        store.gate.set()
        answers = [await wire.answer(one) for one in (append, known, append, last, append, known)]
        assert answers[3].topics[0].partitions[0].offset == 2
        store.gate.clear()
        puts = store.puts
        wire.send(append, creating, append)
        await until(lambda: store.puts > puts)
        assert wire.begun == 2 and answered[METADATA] == 2 and caller.node.broker.by_name("new") is None
        store.gate.set()
        for one in (append, creating, append):
            await wire.answer(one)
        assert answered[METADATA] == 3 and server.broker.budget.used == 0 and wire.connection.idle
        wire.close()

    store = CountingStore()
    run(test, store)


@promise("K4")
def test_who_waits_behind_a_long_poll() -> None:
    """Everybody, as in Apache Kafka. What waits counts, and is given back if the connection is lost."""

    async def test(caller: Caller, server: Server) -> None:
        await create(caller)
        lost, wire = Wire(server), Wire(server)
        waiting = {"max_wait": 60_000, "min_bytes": 1, "max_bytes": 1000, "session_epoch": -1}
        poll = (FETCH, 11, {**waiting, "topics": [_partition("t", fetch_offset=0, partition_max_bytes=1000)]})
        append = (PRODUCE, 9, {"acks": -1, "timeout": 5000, "topic_data": [_records("t")]})
        last = (LIST_OFFSETS, 7, {"topics": [_partition("t", timestamp=-1)]})
        lost.send(poll, append)
        assert not lost.reads()
        lost.close()
        assert server.broker.budget.used == 0
        wire.send(poll)
        assert wire.reads(), "a client that goes away during a long poll is noticed"
        wire.send(last)
        assert not wire.reads()
        await produce(caller, batch([Rec(b"x", timestamp=NOW)]))
        [found] = (await wire.answer(poll)).responses[0].partitions
        assert found.high_watermark == 1, "the Produce behind the other poll was never begun"
        assert (await wire.answer(last)).topics[0].partitions[0].offset == 1
        assert wire.reads() and wire.connection.idle
        wire.close()

    run(test)
