"""Producing through the REST Proxy: streams of records and receipts, batches, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx

from headwater.client.partitioner import partition_of_key
from headwater.errors import StoreUnavailable
from headwater.gateway.v3.record_forms import time_of
from headwater.settings.settings import Gateway, Limits, Settings
from headwater.state.cluster.access import Operation
from headwater.state.commands.access import DropAcls
from tests.support.gateways import ALICE, InGateway, gateway, listening, secured
from tests.support.rules import rule

URL = "/v3/clusters/any-cluster/topics/orders/records"


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"value": {"type": "STRING", "data": value}, **more}


async def sent(found: InGateway, *parts: bytes | dict[str, Any], user: str = "", url: str = URL) -> httpx.Response:
    """Send a chunked body, one chunk for each part."""

    async def body() -> AsyncIterator[bytes]:
        for part in parts:
            yield part if isinstance(part, bytes) else json.dumps(part).encode()

    return await found.ask("POST", url, user, content=body(), headers={"Content-Type": "application/json"})


def receipts(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    assert answer.content.endswith(b"\r\n")
    return [json.loads(line) for line in answer.content.split(b"\r\n")[:-1]]


def test_one_record_as_curl_sends_it() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders", 2)
            record = {
                "partition_id": 1,
                "headers": [{"name": "Header-1", "value": "SGVhZGVyLTE="}],
                "key": {"type": "BINARY", "data": "Zm9vYmFy"},
                "value": {"type": "JSON", "data": {"foo": "bar"}},
                "timestamp": "2021-02-05T19:14:42Z",
            }
            [receipt] = receipts(await found.ask("POST", URL, json=record))
            assert receipt == {
                "error_code": 200,
                "cluster_id": "any-cluster",
                "topic_name": "orders",
                "partition_id": 1,
                "offset": 0,
                "timestamp": "2021-02-05T19:14:42Z",
                "key": {"type": "BINARY", "size": 6},
                "value": {"type": "JSON", "size": 13},
            }
            [stored] = await found.records("orders", 1)
            assert (stored.key, stored.value) == (b"foobar", b'{"foo":"bar"}')
            assert (stored.timestamp, stored.headers) == (1_612_552_482_000, (("Header-1", b"Header-1"),))

    asyncio.run(story())


def test_a_stream_of_records() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders", 3)
            records = [text(f"v{n}", key={"type": "STRING", "data": f"k{n}"}) for n in range(50)]
            data = b"".join(json.dumps(record).encode() for record in records)
            parts = [data[at : at + 700] for at in range(0, len(data), 700)]
            lines = receipts(await sent(found, *parts))
            assert [line["error_code"] for line in lines] == [200] * 50
            assert [line["partition_id"] for line in lines] == [partition_of_key(b"k%d" % n, 3) for n in range(50)]
            kept = {(p, r.offset): r.value for p in range(3) for r in await found.records("orders", p)}
            assert [kept[(x["partition_id"], x["offset"])] for x in lines] == [b"v%d" % n for n in range(50)]
            assert found.services.streams.count == 0 and found.services.writers.budget.used == 0

    asyncio.run(story())


def test_a_receipt_comes_while_the_client_goes_on_sending() -> None:
    async def story() -> None:
        async with gateway(Settings(gateway=Gateway(http="127.0.0.1:0"))) as found, listening(found) as server:
            await found.topic("orders")
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            head = f"POST {URL} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            writer.write(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
            offsets = []
            for number in range(3):
                record = json.dumps(text(f"v{number}")).encode()
                writer.write(b"%x\r\n%s\r\n" % (len(record), record))
                while True:
                    line = await reader.readline()
                    if line.startswith(b"{"):
                        break
                offsets.append(json.loads(line)["offset"])
            writer.write(b"0\r\n\r\n")
            assert b"\r\n0\r\n\r\n" in b"\r\n" + await reader.readuntil(b"0\r\n\r\n")
            assert offsets == [0, 1, 2]
            writer.close()

    asyncio.run(story())


def test_one_flawed_record_does_not_stop_the_others() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders", 1, **{"max.message.bytes": "1000"})
            parts = [
                text("a"),
                text("x" * 2_000),
                text("b"),
                {"value": {"type": "BINARY", "data": 1}},
                text("c", partition_id=1),
                text("d"),
            ]
            lines = receipts(await sent(found, b"".join(json.dumps(part).encode() for part in parts)))
            assert [line["error_code"] for line in lines] == [200, 413, 200, 400, 40402, 200]
            assert lines[3]["message"] == "Bad Request: data=1 is not a base64 string."
            assert [(r.offset, r.value) for r in await found.records("orders")] == [(0, b"a"), (1, b"b"), (2, b"d")]

    asyncio.run(story())


def test_what_is_not_json_ends_the_stream() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders")
            for flaw in (b"17", b"{foo:1}", b'{"value":'):
                lines = receipts(await sent(found, json.dumps(text("a")).encode() + flaw))
                assert [line["error_code"] for line in lines] == [200, 400]
            assert len(await found.records("orders")) == 3
            alone = receipts(await sent(found, b"nonsense"))
            assert [line["error_code"] for line in alone] == [400]

    asyncio.run(story())


def test_requests_that_are_refused_as_a_whole() -> None:
    async def story() -> None:
        async with gateway(Settings(gateway=Gateway(body_bytes=2_000))) as found:
            await found.topic("orders")
            empty = await sent(found)
            assert empty.status_code == 422 and empty.json()["error_code"] == 422
            assert empty.json()["message"] == "Payload error. Request body is empty. Data is required."
            kind = await found.ask("POST", URL, content=b"{}", headers={"Content-Type": "text/plain"})
            assert kind.status_code == 415 and kind.json()["error_code"] == 415
            unknown = await found.ask("POST", URL.replace("orders", "none"), json=text("a"))
            assert unknown.status_code == 404 and unknown.json()["error_code"] == 40403
            large = await found.ask("POST", URL, json=text("x" * 3_000))
            assert large.status_code == 413
            assert await found.records("orders") == []

    asyncio.run(story())


def test_a_stream_may_be_longer_than_a_body() -> None:
    async def story() -> None:
        async with gateway(Settings(gateway=Gateway(body_bytes=2_000))) as found:
            await found.topic("orders")
            lines = receipts(await sent(found, *[text("x" * 1_000)] * 5, text("y" * 3_000), text("z")))
            assert [line["error_code"] for line in lines] == [200] * 5 + [413]
            assert len(await found.records("orders")) == 5

    asyncio.run(story())


def test_producing_needs_the_right_to_write() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.topic("orders")
            await found.allow(rule(ALICE, Operation.DESCRIBE, "orders"))
            reader = await sent(found, text("a"), user="alice")
            assert reader.status_code == 403 and reader.json()["error_code"] == 40301
            hidden = await sent(found, text("a"), user="bob")
            assert hidden.status_code == 404 and hidden.json()["error_code"] == 40403
            await found.allow(rule(ALICE, Operation.WRITE, "orders"))
            assert [line["error_code"] for line in receipts(await sent(found, text("a"), user="alice"))] == [200]

    asyncio.run(story())


def test_a_store_that_fails_is_an_error_of_each_record() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders")

            async def away(path: str, pieces: Any) -> None:
                raise StoreUnavailable("the store is away")

            found.core.domains.store.put = away  # type: ignore[method-assign]
            lines = receipts(await sent(found, json.dumps(text("a")).encode() * 2))
            assert [line["error_code"] for line in lines] == [50003] * 2

    asyncio.run(story())


def test_too_many_bytes_under_way() -> None:
    async def story() -> None:
        settings = Settings(limits=Limits(broker_inflight_bytes=200, frame_bytes=100))
        async with gateway(settings) as found:
            await found.topic("orders")
            answer = await sent(found, text("x" * 300))
            assert answer.status_code == 429 and answer.json()["error_code"] == 429
            assert found.services.writers.budget.used == 0

    asyncio.run(story())


def test_a_stream_ends_when_the_gateway_stops() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders")

            async def body() -> AsyncIterator[bytes]:
                yield json.dumps(text("a")).encode()
                found.services.stopping.set()
                await asyncio.Event().wait()

            answer = await found.ask("POST", URL, content=body(), headers={"Content-Type": "application/json"})
            lines = receipts(answer)
            assert lines[0]["error_code"] == 200 and lines[-1]["error_code"] == 50003

    asyncio.run(story())


def test_a_client_that_stops_sending() -> None:
    async def story() -> None:
        async with gateway(Settings(gateway=Gateway(idle_ms=50))) as found:
            await found.topic("orders")

            async def body() -> AsyncIterator[bytes]:
                yield json.dumps(text("a")).encode() + b'{"value":'
                await asyncio.Event().wait()

            answer = await found.ask("POST", URL, content=body(), headers={"Content-Type": "application/json"})
            assert [line["error_code"] for line in receipts(answer)] == [200, 408]
            assert found.services.streams.count == 0 and found.services.writers.budget.used == 0

    asyncio.run(story())


def test_a_client_that_leaves() -> None:
    """What it sent as a whole is in the log; the record that is not complete is not."""

    async def story() -> None:
        settings = Settings(gateway=Gateway(http="127.0.0.1:0"))
        async with gateway(settings) as found, listening(found) as server:
            await found.topic("orders")
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            head = f"POST {URL} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            part = json.dumps(text("a")).encode() + b'{"value":'
            writer.write(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(part), part))
            while b'"offset":0' not in await reader.readline():
                pass
            writer.close()
            while found.services.streams.count:
                await asyncio.sleep(0)
            assert found.services.writers.budget.used == 0
            assert [record.value for record in await found.records("orders")] == [b"a"]

    asyncio.run(story())


def test_a_topic_that_is_deleted_or_grows_under_a_stream() -> None:
    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders", 1)

            async def body() -> AsyncIterator[bytes]:
                yield json.dumps(text("a", partition_id=1)).encode()
                await found.services.topics.add_partitions(topic, 2)
                yield json.dumps(text("b", partition_id=1)).encode()
                await found.services.topics.delete(topic)
                yield json.dumps(text("c")).encode()
                await found.topic("orders")
                yield json.dumps(text("d")).encode()

            answer = await found.ask("POST", URL, content=body(), headers={"Content-Type": "application/json"})
            assert [line["error_code"] for line in receipts(answer)] == [40402, 200, 40403, 200]
            assert [record.value for record in await found.records("orders")] == [b"d"]

    asyncio.run(story())


def test_rights_that_are_taken_away_under_a_stream() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.topic("orders")
            allowed = rule(ALICE, Operation.WRITE, "orders")
            await found.allow(allowed, rule(ALICE, Operation.DESCRIBE, "orders"))

            async def body() -> AsyncIterator[bytes]:
                yield json.dumps(text("a")).encode()
                await found.core.cluster.submit([DropAcls((allowed,))])
                yield json.dumps(text("b")).encode()

            headers = {"Content-Type": "application/json"}
            answer = await found.ask("POST", URL, "alice", content=body(), headers=headers)
            assert [line["error_code"] for line in receipts(answer)] == [200, 40301]
            assert len(await found.records("orders")) == 1

    asyncio.run(story())


def test_times_of_a_topic_with_log_append_time() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders", 1, **{"message.timestamp.type": "LogAppendTime"})
            [line] = receipts(await sent(found, text("a", timestamp="2021-02-05T19:14:42Z")))
            [record] = await found.records("orders")
            assert line["timestamp"] == time_of(record.timestamp) and not line["timestamp"].startswith("2021")

    asyncio.run(story())


def test_a_batch() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders")
            entries = [
                {"id": "1", **text("My first message")},
                {"id": "2", "value": {"type": "BINARY", "data": 1}},
                {"id": "3", **text("x", partition_id=9)},
                {"id": "4", **text("My second message")},
                {"id": "5", "timestamp": 7},
            ]
            answer = await found.ask("POST", f"{URL}:batch", json={"entries": entries})
            assert answer.status_code == 207
            told = answer.json()
            assert [(one["id"], one["offset"]) for one in told["successes"]] == [("1", 0), ("4", 1)]
            assert "error_code" not in told["successes"][0]
            assert [(one["id"], one["error_code"]) for one in told["failures"]] == [
                ("2", 400),
                ("3", 40402),
                ("5", 400),
            ]
            assert [r.value for r in await found.records("orders")] == [b"My first message", b"My second message"]

    asyncio.run(story())


def test_batches_that_are_refused_as_a_whole() -> None:
    async def story() -> None:
        async with gateway(Settings(gateway=Gateway(records=2))) as found:
            await found.topic("orders")
            one = {"id": "1", **text("a")}
            for entries, status in (
                ([], 422),
                ([one, one], 422),
                ([text("a")], 422),
                ([{"id": "", **text("a")}], 422),
                ([{"id": "x" * 81, **text("a")}], 422),
                ([7], 422),
                ([{**one, "id": str(n)} for n in range(3)], 413),
            ):
                answer = await found.ask("POST", f"{URL}:batch", json={"entries": entries})
                assert answer.status_code == status, entries
            for body in (b"", b"{}", b"[]", b'{"entries":[{"id":"1"}]'):
                headers = {"Content-Type": "application/json"}
                assert (await found.ask("POST", f"{URL}:batch", content=body, headers=headers)).status_code == 400
            assert await found.records("orders") == []

    asyncio.run(story())
