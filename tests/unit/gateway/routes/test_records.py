"""Appending over HTTP: forms of bodies, conditions, keys that are used once, and what is refused."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.client.partitioner import partition_of_key
from headwater.client.records import Record, decode_batches
from headwater.errors import StoreUnavailable
from headwater.settings.settings import Gateway, Limits, Settings
from headwater.state.cluster.access import Operation
from headwater.state.cluster.domain import Topic
from headwater.types import Domain
from tests.support.gateways import ALICE, BOB, InGateway, gateway, secured
from tests.support.promise import promise
from tests.support.rules import rule

PROMISES = ("H1",)

URL = "/v1/topics/orders/records"


async def stored(found: InGateway, topic: Topic, partition: int = 0) -> list[Record]:
    """All records of a partition, as Kafka's consumers get them."""
    replica = found.core.domains[Domain(topic.domain)]
    got: list[Record] = []
    end, at = replica.state.streams[topic.streams[partition]].end, 0
    while at < end:
        result = await found.core.reader.read(replica, topic.streams[partition], at, 1 << 20, True)
        for batch in decode_batches(result.records):
            got += batch.records
            at = batch.next_offset
    return got


async def sent(found: InGateway, *records: dict[str, Any], **options: Any) -> httpx.Response:
    more = options.pop("more", {})
    return await found.ask("POST", URL, options.pop("user", ""), json={"records": list(records), **more}, **options)


async def raw(found: InGateway, body: bytes, kind: str, query: str = "", **headers: str) -> httpx.Response:
    return await found.ask("POST", URL + query, content=body, headers={"Content-Type": kind, **headers})


def test_records_go_where_kafka_puts_them() -> None:
    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders", 3)
            answer = await sent(
                found,
                {"key": "k1", "value": {"amount": 1.50}, "headers": [{"name": "h", "value": "v"}, {"name": "n"}]},
                {"key_base64": "/w==", "value": None, "timestamp": "2026-01-31T12:00:00+01:00"},
                {"value": "text", "partition": 2, "timestamp": 5},
                {"value_base64": "gA", "partition": 2},
            )
            assert answer.status_code == 200
            first, second = partition_of_key(b"k1", 3), partition_of_key(b"\xff", 3)
            told = answer.json()
            assert [line["partition"] for line in told["records"]] == [first, second, 2, 2]
            after = {line["partition"]: line["last_offset"] + 1 for line in told["partitions"]}
            assert sum(after.values()) == 4 and list(after) == sorted({first, second, 2})
            by_place = {(p, r.offset): r for p in range(3) for r in await stored(found, topic, p)}
            records = [by_place[(line["partition"], line["offset"])] for line in told["records"]]
            assert [(r.key, r.value) for r in records] == [
                (b"k1", b'{"amount":1.5}'), (b"\xff", None), (None, b"text"), (None, b"\x80")
            ]  # fmt: skip
            assert records[0].headers == (("h", b"v"), ("n", None))
            assert [r.timestamp for r in records[1:3]] == [1769857200000, 5]
            assert abs(records[3].timestamp - found.clock.wall_ms()) < 60_000

    asyncio.run(story())


def test_lines_and_raw_bytes() -> None:
    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders")
            lines = b'{"value": 1}\n\n{"value": "two", "key": "k"}\r\n'
            answer = await raw(found, lines, "application/x-ndjson")
            assert answer.json()["partitions"] == [{"partition": 0, "first_offset": 0, "last_offset": 1}]
            blob = bytes(range(256))
            answer = await raw(found, blob, "application/octet-stream", "?key_base64=AAE&timestamp=7")
            assert answer.json()["records"] == [{"partition": 0, "offset": 2}]
            assert (await raw(found, b"", "text/plain; charset=utf-8", "?partition=0&key=")).status_code == 200
            got = await stored(found, topic)
            expected = [(None, b"1"), (b"k", b"two"), (b"\x00\x01", blob), (b"", b"")]
            assert [(r.key, r.value) for r in got] == expected and got[2].timestamp == 7

    asyncio.run(story())


def test_a_minimal_answer_has_ranges_only() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders", 1, **{"message.timestamp.type": "LogAppendTime"})
            answer = await sent(found, {"value": 1}, {"value": 2}, headers={"Prefer": "respond-async, return=minimal"})
            assert answer.headers["preference-applied"] == "return=minimal"
            [line] = answer.json()["partitions"]
            assert "records" not in answer.json() and (line["first_offset"], line["last_offset"]) == (0, 1)
            assert abs(line["timestamp"] - found.clock.wall_ms()) < 60_000

    asyncio.run(story())


def test_what_is_refused_changes_nothing() -> None:
    async def story() -> None:
        async with gateway(Settings(gateway=Gateway(records=3))) as found:
            topic = await found.topic("orders", 2)
            for body, status, words in (
                ({"records": []}, 400, "length >= 1"),
                ({"records": [{"key": "k"}]}, 400, 'records[0]: there is neither `value` nor `value_base64`'),
                ({"records": [{"value": 1}, {"value": 1, "value_base64": ""}]}, 400, "records[1]: `value` and"),
                ({"records": [{"value": 1, "vlaue": 2}]}, 400, "unknown field `vlaue`"),
                ({"records": [{"value": 1}], "expected": 1}, 400, "unknown field"),
                ({"records": [{"value": 1, "partition": 2}]}, 400, "no partition 2; the topic has 2"),
                ({"records": [{"value": 1, "partition": -1}]}, 400, ">= 0"),
                ({"records": [{"value": 1, "timestamp": "2026-01-31T12:00:00"}]}, 400, "timezone"),
                ({"records": [{"value": 1, "timestamp": -1}]}, 400, ">= 0"),
                ({"records": [{"value": 1, "timestamp": 1 << 62}]}, 400, "records[0]: timestamp"),
                ({"records": [{"value": 1}] * 4}, 413, "4 records; the limit is 3"),
                ({"records": [{"value": 1}], "expected_offsets": {"7": 0}}, 400, "no partition 7"),
                ({"records": [{"value": 1}], "expected_offset": -1}, 400, ">= 0"),
                ({"records": [{"value": 1, "partition": 0}, {"value": 1, "partition": 1}], "expected_offset": 0}, 422,
                 "several partitions"),
                ({"records": [{"value": 1}], "expected_offset": 0, "expected_offsets": {"0": 0}}, 400, "exclude"),
            ):  # fmt: skip
                answer = await found.ask("POST", URL, json=body)
                assert (answer.status_code, words in answer.json()["detail"]) == (status, True), answer.text
            for data, kind, query, status in (
                (b"{}", "application/json", "", 400),
                (b"[" * 100_000, "application/json", "", 400),
                (b'{"records":[{"value":"\xff"}]}', "application/json", "", 400),
                (b'{"value":1}\n{"value"', "application/x-ndjson", "", 400),
                (b"", "application/x-ndjson", "", 400),
                (b'{"value":1}', "application/x-ndjson", "?key=k", 400),
                (b'{"records":[{"value":1}],"expected_version":0}', "application/json", "?expected_version=0", 400),
                (b"v", "text/plain", "?key=a&key_base64=YQ", 400),
                (b"v", "text/plain", "?timestamp=yesterday", 400),
                (b"v", "text/plain", "?partition=x", 400),
                (b"v", "text/plain", "?expected_offset=99999999999999999999", 400),
                (b"v", "application/x-www-form-urlencoded", "", 415),
                (b"v", "", "", 415),
            ):
                answer = await raw(found, data, kind, query)
                assert answer.status_code == status and answer.json()["type"].startswith("/problems/"), answer.text
            for key in ("", "a b", "x" * 256):
                answer = await raw(found, b"v", "text/plain", **{"Idempotency-Key": key})
                assert answer.status_code == 400
            assert await stored(found, topic, 0) == await stored(found, topic, 1) == []
            assert found.core.writers.budget.used == 0
            missing = await found.ask("POST", "/v1/topics/none/records", json={"records": [{"value": 1}]})
            assert missing.status_code == 404 and "headwater topic create" in missing.json()["detail"]

    asyncio.run(story())


def test_the_rules_of_the_topic_hold() -> None:
    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders", 1, **{"cleanup.policy": "compact", "max.message.bytes": "1000"})
            answer = await sent(found, {"key": "k", "value": 1}, {"value": 2})
            assert answer.status_code == 400 and answer.json()["errors"] == [
                {"record": 1, "reason": "a compacted topic takes no records without a key"}
            ]
            answer = await sent(found, {"key": "k", "value": "x" * 900}, {"key": "k", "value": "x" * 1000})
            assert answer.status_code == 413 and "records[1]" in answer.json()["detail"]
            assert await stored(found, topic) == []
            many = [{"key": "k", "value": f"{i:03}" + "x" * 300} for i in range(20)]
            answer = await sent(found, *many)
            assert [line["offset"] for line in answer.json()["records"]] == list(range(20))
            got = await stored(found, topic)
            assert [r.value for r in got] == [str(one["value"]).encode() for one in many]

    asyncio.run(story())


def test_conditions_and_what_is_present() -> None:
    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders", 2)
            place = {"partition": 0}
            assert (await sent(found, {"value": 1, **place}, more={"expected_offset": 0})).status_code == 200
            lost = await sent(found, {"value": 2, **place}, more={"expected_offset": 0})
            assert lost.status_code == 409 and lost.json()["type"] == "/problems/conflict"
            assert lost.json()["partitions"] == [{"partition": 0, "expected": 0, "present": 1}]
            both = {"expected_offsets": {"0": 1, "1": 4}, "expected_version": 3}
            lost = await sent(found, {"value": 2, **place}, {"value": 3, "partition": 1}, more=both)
            assert lost.json()["partitions"] == [
                {"partition": 0, "expected": 1, "present": 1}, {"partition": 1, "expected": 4, "present": 0}
            ]  # fmt: skip
            assert lost.json()["version"] == {"expected": 3, "present": 0}
            assert lost.json()["detail"] == "partition 1 ends at 0, not at 4; the table has version 0, not 3"
            assert len(await stored(found, topic, 0)) == 1 and await stored(found, topic, 1) == []
            won = await raw(found, b"v", "text/plain", "?partition=0&expected_offset=1&expected_version=0")
            assert won.json()["records"] == [{"partition": 0, "offset": 1}]

    asyncio.run(story())


def test_a_key_repeats_the_first_answer() -> None:
    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders", 2)
            key = {"Idempotency-Key": "job-7"}
            records = ({"value": 1}, {"key": "a", "value": 2}, {"key": "b", "value": 3})
            first = await sent(found, *records, headers=key, more={"expected_version": 0})
            assert first.status_code == 200 and "idempotency-replayed" not in first.headers
            await sent(found, {"value": 9, "partition": 0}, {"value": 9, "partition": 1})
            await found.services.topics.add_partitions(topic, 5)
            again = await sent(found, *records, headers=key, more={"expected_version": 0})
            assert again.content == first.content and again.headers["idempotency-replayed"] == "true"
            other = await sent(found, *records[:2], headers=key)
            assert other.status_code == 422 and other.json()["type"] == "/problems/unprocessable"
            free = await raw(found, b"v", "text/plain", "?partition=0", **{"Idempotency-Key": "job-8"})
            assert free.status_code == 200
            mismatch = await raw(found, b"v", "text/plain", "?partition=1", **{"Idempotency-Key": "job-8"})
            assert mismatch.status_code == 422
            assert sum([len(await stored(found, topic, p)) for p in range(2)]) == 6

    asyncio.run(story())


@promise("S4")
@pytest.mark.parametrize("limits", [Limits(caller_keys_bytes=1_000), Limits(keys_bytes=1_000)], ids=["caller", "all"])
def test_keys_have_room_in_bytes(limits: Limits) -> None:
    """A request of many partitions takes more of it. Without a key it is taken, and a known key is still answered."""

    async def story() -> None:
        async with gateway(Settings(limits=limits)) as found:
            topic = await found.topic("orders", 20)
            wide = [{"value": n, "partition": n} for n in range(20)]
            first = await sent(found, {"value": 1}, headers={"Idempotency-Key": "a"})
            assert first.status_code == 200
            full = await sent(found, *wide, headers={"Idempotency-Key": "b"})
            assert full.status_code == 503 and full.json()["type"] == "/problems/keys-full"
            assert full.headers["retry-after"] == "60"
            keys = found.core.domains[Domain(topic.domain)].state.keys
            assert 200 < keys.bytes <= 1_000 and len(keys) == 1
            assert (await sent(found, *wide)).status_code == 200
            again = await sent(found, {"value": 1}, headers={"Idempotency-Key": "a"})
            assert again.content == first.content
            keys.expire(10**15)
            assert keys.bytes == 0
            assert (await sent(found, *wide[:10], headers={"Idempotency-Key": "b"})).status_code == 200

    asyncio.run(story())


def test_the_first_answer_stays_when_the_topic_became_strict() -> None:
    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders")
            key = {"Idempotency-Key": "k"}
            first = await sent(found, {"value": "x" * 500}, headers=key)
            await found.services.topics.alter(topic, {"max.message.bytes": "100"}, [])
            again = await sent(found, {"value": "x" * 500}, headers=key)
            assert again.content == first.content and len(await stored(found, topic)) == 1
            assert (await sent(found, {"value": "x" * 500})).status_code == 413

    asyncio.run(story())


def test_keys_belong_to_their_owner() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            topic = await found.topic("orders")
            for user in (ALICE, BOB):
                await found.allow(rule(user, Operation.WRITE, "orders"))
            key = {"Idempotency-Key": "same"}
            answers = [await sent(found, {"value": user}, user=user, headers=key) for user in ("alice", "bob", "alice")]
            assert [a.json()["records"][0]["offset"] for a in answers] == [0, 1, 0]
            assert [r.value for r in await stored(found, topic)] == [b"alice", b"bob"]

    asyncio.run(story())


def test_rights() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            topic = await found.topic("orders")
            hidden = await sent(found, {"value": 1}, user="alice")
            assert hidden.status_code == 404
            await found.allow(rule(ALICE, Operation.READ, "orders"))
            assert (await sent(found, {"value": 1}, user="alice")).status_code == 403
            await found.allow(rule(ALICE, Operation.WRITE, "orders"))
            assert (await sent(found, {"value": 1}, user="alice")).status_code == 200
            assert len(await stored(found, topic)) == 1

    asyncio.run(story())


def test_too_many_bytes_under_way() -> None:
    async def story() -> None:
        async with gateway(Settings(limits=Limits(broker_inflight_bytes=10_000))) as found:
            topic = await found.topic("orders")
            answer = await sent(found, {"value": "x" * 20_000})
            assert answer.status_code == 429 and answer.headers["retry-after"] == "1"
            assert found.core.writers.budget.used == 0 and await stored(found, topic) == []
            assert (await sent(found, {"value": 1})).status_code == 200

    asyncio.run(story())


def test_a_store_that_fails_leaves_nothing() -> None:
    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders")

            async def fails(path: str, pieces: Any) -> None:
                raise StoreUnavailable("the store is away")

            put, found.core.domains.store.put = found.core.domains.store.put, fails  # type: ignore[method-assign]
            answer = await sent(found, {"value": 1})
            assert answer.status_code == 503 and answer.json()["type"] == "/problems/unavailable"
            found.core.domains.store.put = put  # type: ignore[method-assign]
            assert await stored(found, topic) == []

    asyncio.run(story())


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=12) | st.text(max_size=8).map(str.encode),
            st.none() | st.binary(max_size=24) | st.text(max_size=8).map(str.encode),
            st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4)), max_size=2),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_what_is_posted_is_what_kafka_gets(
    wanted: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> None:
    def field(name: str, data: bytes | None) -> dict[str, Any]:
        if data is None:
            return {name: None}
        return {f"{name}_base64": b64encode(data).decode()}

    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders")
            records = [
                {**field("key", key), **field("value", value),
                 "headers": [{"name": name, **field("value", data)} for name, data in headers]}
                for key, value, headers in wanted
            ]  # fmt: skip
            lines = b"\n".join(json.dumps(one).encode() for one in records)
            assert (await raw(found, lines, "application/x-ndjson")).status_code == 200
            got = await stored(found, topic)
            assert [(r.key, r.value, list(r.headers)) for r in got] == wanted

    asyncio.run(story())
