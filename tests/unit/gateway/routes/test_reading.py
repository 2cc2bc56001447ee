"""Reading over HTTP: pages, forms, times, ranges, following, transactions, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import NotReady
from headwater.gateway.asgi import Message
from headwater.gateway.records.answers import CHUNK_BYTES, FIRST_RECORDS, Streamed
from headwater.gateway.records.scanning import Scan
from headwater.gateway.services import MAX_CHUNKS
from headwater.security.login_tokens import LoginTokens
from headwater.settings.settings import Gateway, Settings
from headwater.state.cluster.access import Operation
from headwater.state.cluster.domain import Topic
from headwater.state.commands.streams import TrimStreams
from headwater.types import Domain
from tests.support.gateways import ALICE, InGateway, gateway, secured
from tests.support.rules import rule

PROMISES = ("H1",)

URL = "/v1/topics/orders/records"
ONE = "/v1/topics/orders/partitions/0/records"
EVENTS = {"Accept": "text/event-stream"}
LINES = {"Accept": "application/x-ndjson"}


async def put(found: InGateway, *values: Any, partition: int = 0, **more: Any) -> None:
    records = [{"value": value, "partition": partition, **more} for value in values]
    answer = await found.ask("POST", URL, json={"records": records})
    assert answer.status_code == 200, answer.text


async def trim(found: InGateway, topic: Topic, offset: int, partition: int = 0) -> None:
    await found.core.domains[Domain(topic.domain)].submit([TrimStreams([(topic.streams[partition], offset)])])


def seen(answer: dict[str, Any]) -> list[tuple[int, int, Any]]:
    return [(line["partition"], line["offset"], line["value"]) for line in answer["records"]]


class Stream:
    """A client of an answer without end, which reads piece by piece."""

    def __init__(self, found: InGateway, path: str, headers: dict[str, str]) -> None:
        path, _, query = path.partition("?")
        self._left = asyncio.Event()
        self._pieces: asyncio.Queue[Message] = asyncio.Queue()
        self._text = ""
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(),
                 "query_string": query.encode(), "headers": raw, "client": ("127.0.0.1", 1),
                 "server": ("gateway", 80), "scheme": "http", "http_version": "1.1", "root_path": ""}  # fmt: skip
        self._asked = False
        self.task = asyncio.ensure_future(found.app(scope, self._receive, self._send))

    async def _receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self._pieces.put_nowait(message)

    async def head(self) -> Message:
        return await self._pieces.get()

    async def until(self, mark: str) -> str:
        """What has come, up to and with a mark."""
        while mark not in self._text:
            message = await asyncio.wait_for(self._pieces.get(), 20)
            self._text += message.get("body", b"").decode()
            assert mark in self._text or message.get("more_body", True), self._text
        at = self._text.index(mark) + len(mark)
        found, self._text = self._text[:at], self._text[at:]
        return found

    async def leave(self) -> None:
        self._left.set()
        await asyncio.wait_for(self.task, 20)


@contextlib.asynccontextmanager
async def following(found: InGateway, path: str, headers: dict[str, str]) -> AsyncIterator[Stream]:
    stream = Stream(found, path, headers)
    try:
        yield stream
    finally:
        await stream.leave()


def test_pages_of_all_partitions() -> None:
    async def story() -> None:
        async with gateway(Settings(gateway=Gateway(records=4))) as found:
            await found.topic("orders", 2)
            await put(found, *range(3))
            await put(found, 3, 4)
            await put(found, *range(5, 8), partition=1)
            got, cursor, sizes = [], "", []
            for _ in range(9):
                answer = (await found.get(URL, params={"limit": 100, "next": cursor})).json()
                got += seen(answer)
                sizes.append(len(answer["records"]))
                cursor = answer["next"]
                if answer.get("caught_up"):
                    break
            assert sorted(got) == [(0, i, str(i)) for i in range(5)] + [(1, i, str(i + 5)) for i in range(3)]
            assert max(sizes) == 4
            await put(found, "new", partition=1)
            answer = (await found.get(URL, params={"next": cursor})).json()
            assert seen(answer) == [(1, 3, "new")] and answer["caught_up"]
            empty = (await found.get(URL, params={"next": answer["next"]})).json()
            assert empty == {"records": [], "next": answer["next"], "caught_up": True}

    asyncio.run(story())


def test_offsets_ranges_and_what_is_out_of_range() -> None:
    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders")
            await put(found, *range(10))
            await trim(found, topic, 2)
            part = await found.get(ONE, params={"offset": 3, "until": 6})
            assert [line["offset"] for line in part.json()["records"]] == [3, 4, 5] and "next" not in part.json()
            assert [line["offset"] for line in (await found.get(ONE)).json()["records"]] == list(range(2, 10))
            end = (await found.get(ONE, params={"offset": "latest"})).json()
            assert end["records"] == [] and end["caught_up"]
            first = (await found.get(ONE, params={"limit": 1})).json()
            second = (await found.get(ONE, params={"limit": 1, "next": first["next"]})).json()
            assert [one["records"][0]["offset"] for one in (first, second)] == [2, 3]
            small = (await found.get(ONE, params={"max_bytes": 1})).json()
            assert len(small["records"]) == 1
            for offset in (1, 11):
                out = await found.get(ONE, params={"offset": offset})
                assert out.status_code == 416 and out.json()["type"] == "/problems/offset-out-of-range"
                assert (out.json()["start"], out.json()["end"]) == (2, 10)

    asyncio.run(story())


def test_times() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders", 2)
            for i in range(5):
                await put(found, i, timestamp=1_000_000 + i * 1000)
            await put(found, "x", partition=1, timestamp=1_002_500)
            answer = (await found.get(URL, params={"from": 1_002_000, "to": "1970-01-01T00:16:44Z"})).json()
            assert sorted(seen(answer)) == [(0, 2, "2"), (0, 3, "3"), (1, 0, "x")]
            assert "next" not in answer
            late = (await found.get(URL, params={"from": "2100-01-01T00:00:00Z"})).json()
            assert late["records"] == [] and late["caught_up"]

    asyncio.run(story())


def test_forms_and_formats() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders")
            headers = [{"name": "h", "value_base64": "/w=="}]
            await put(found, {"a": 1.0}, key="k", timestamp=5, headers=headers)
            await put(found, None, key="k2", timestamp=6)
            plain = (await found.get(URL)).json()["records"]
            assert plain[0] == {
                "partition": 0, "offset": 0, "timestamp": 5, "key": "k", "value": '{"a":1.0}',
                "headers": [{"name": "h", "value_base64": "/w=="}],
            }  # fmt: skip
            assert plain[1] == {"partition": 0, "offset": 1, "timestamp": 6, "key": "k2", "value": None}
            as_json = (await found.get(URL, params={"format": "json"})).json()["records"]
            assert as_json[0]["value"] == {"a": 1.0} and as_json[0]["key"] == "k"
            coded = (await found.get(URL, params={"format": "base64"})).json()["records"]
            assert (coded[0]["key_base64"], coded[0]["value_base64"], coded[1]["value"]) == (
                "aw==",
                "eyJhIjoxLjB9",
                None,
            )
            lines = await found.get(URL, headers=LINES)
            assert lines.headers["content-type"] == "application/x-ndjson"
            assert [json.loads(line) for line in lines.text.splitlines()] == plain
            again = (await found.get(URL, params={"next": lines.headers["headwater-next"]})).json()
            assert again["records"] == []
            arrow = await found.get(URL, headers={"Accept": "application/vnd.apache.arrow.stream"})
            table = pa.ipc.open_stream(arrow.content).read_all()
            assert table.to_pylist() == [
                {"partition": 0, "offset": 0, "timestamp_ms": 5, "key": b"k", "value": b'{"a":1.0}',
                 "headers": [{"key": "h", "value": b"\xff"}]},
                {"partition": 0, "offset": 1, "timestamp_ms": 6, "key": b"k2", "value": None, "headers": []},
            ]  # fmt: skip
            events = await found.get(URL, params={"follow": False}, headers=EVENTS)
            data = [line[6:] for line in events.text.splitlines() if line.startswith("data: ")]
            assert [json.loads(line) for line in data] == plain

    asyncio.run(story())


def test_what_is_refused() -> None:
    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders", 2)
            await found.topic("other", 2)
            cursor = (await found.get(URL)).json()["next"]
            for path, params, headers, status in (
                (URL, {"offset": 3}, {}, 400),
                (URL, {"until": 3}, {}, 400),
                (URL, {"next": "nonsense!"}, {}, 400),
                (URL, {"next": "AAAA"}, {}, 400),
                (ONE, {"next": cursor}, {}, 400),
                ("/v1/topics/other/records", {"next": cursor}, {}, 409),
                (ONE, {"offset": "first"}, {}, 400),
                (ONE, {"offset": -1}, {}, 400),
                (ONE, {"offset": 1 << 64}, {}, 400),
                (ONE, {"offset": 0, "from": 0}, {}, 400),
                (ONE, {"until": 1, "to": 0}, {}, 400),
                (ONE, {"from": "soon"}, {}, 400),
                (ONE, {"limit": 0}, {}, 400),
                (ONE, {"max_bytes": 1 << 40}, {}, 400),
                (ONE, {"format": "xml"}, {}, 400),
                (ONE, {"isolation": "none"}, {}, 400),
                (ONE, {"follow": True}, {}, 400),
                (ONE, {}, {"Accept": "text/html"}, 406),
                ("/v1/topics/orders/partitions/2/records", {}, {}, 404),
                ("/v1/topics/none/records", {}, {}, 404),
            ):
                answer = await found.get(path, params=params, headers=headers)
                assert answer.status_code == status, (path, params, answer.text)
            await found.services.topics.delete(topic)
            await found.topic("orders", 2)
            assert (await found.get(URL, params={"next": cursor})).status_code == 409

    asyncio.run(story())


def test_rights() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.topic("orders")
            assert (await found.get(URL, "alice")).status_code == 404
            await found.allow(rule(ALICE, Operation.WRITE, "orders"))
            assert (await found.get(ONE, "alice")).status_code == 403
            await found.allow(rule(ALICE, Operation.READ, "orders"))
            assert (await found.get(ONE, "alice")).status_code == 200

    asyncio.run(story())


def test_a_stream_ends_with_the_token_that_began_it() -> None:
    """What is appended afterwards is not sent any more."""

    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.topic("orders")
            await found.allow(rule(ALICE, Operation.READ, "orders"))
            await found.fill("orders", 1)
            token = LoginTokens(found.core.settings.security, found.services.logins).give("alice", 60)
            headers = {**EVENTS, "Authorization": f"Bearer {token}"}
            async with following(found, URL, headers) as stream:
                assert '"offset":0' in await stream.until('"value":"value"}\n\n')
                found.clock.moved += 61
                await found.fill("orders", 1)
                await stream.until("data: ")
                ended = await stream.until("}\n\n")
                assert "/problems/not-authenticated" in ended and '"offset"' not in ended
            assert (await found.get(URL, headers=headers)).status_code == 401

    asyncio.run(story())


def test_events_follow_and_resume_exactly() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders", 2)
            await put(found, "a")
            async with following(found, URL, EVENTS) as stream:
                head = await stream.head()
                assert (b"content-type", b"text/event-stream") in head["headers"]
                assert '"value":"a"' in await stream.until('"value":"a"}\n\n')
                await put(found, "b", partition=1)
                event = await stream.until('"value":"b"}\n\n')
                assert found.services.streams.count == 1
            assert found.services.streams.count == 0
            [last] = [line[4:] for line in event.splitlines() if line.startswith("id: ")]
            await put(found, "c", "d")
            async with following(found, URL + "?offset=latest", {**EVENTS, "Last-Event-ID": last}) as stream:
                got = await stream.until('"value":"d"}\n\n')
                values = [json.loads(line[6:])["value"] for line in got.splitlines() if line.startswith("data: ")]
                assert values == ["c", "d"]

    asyncio.run(story())


def test_a_client_that_saw_nothing_resumes_where_it_was() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders")
            await put(found, "old")
            async with following(found, URL + "?offset=latest", EVENTS) as stream:
                first = await stream.until("\n\n")
            [last] = [line[4:] for line in first.splitlines() if line.startswith("id: ")]
            await put(found, "new")
            async with following(found, URL + "?offset=latest", {**EVENTS, "Last-Event-ID": last}) as stream:
                assert '"offset":1' in await stream.until('"value":"new"}\n\n')

    asyncio.run(story())


def test_lines_follow_up_to_a_limit() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders")
            stream = Stream(found, URL + "?follow=true&limit=2", LINES)
            await put(found, "a")
            await stream.until('"value":"a"}\n')
            await put(found, "b", "c")
            await stream.until('"value":"b"}\n')
            await asyncio.wait_for(stream.task, 20)
            await put(found, "d")

    asyncio.run(story())


def test_records_that_were_removed_are_told() -> None:
    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders")
            await put(found, "a", "b", "c", "d")
            page = (await found.get(ONE, params={"limit": 1})).json()
            async with following(found, ONE + "?limit=1&offset=0", EVENTS) as stream:
                event = await stream.until('"a"}\n\n')
            last = [line[4:] for line in event.splitlines() if line.startswith("id: ")][-1]
            await trim(found, topic, 3)
            told = {"partition": 0, "wanted": 1, "resumed": 3}
            async with following(found, ONE, {**EVENTS, "Last-Event-ID": last}) as stream:
                await stream.until("event: reset\n")
                notice = (await stream.until("\n\n")).splitlines()
                assert json.loads(notice[1].removeprefix("data: ")) == told
                assert '"offset":3' in await stream.until('"d"}\n\n')
            async with following(found, f"{ONE}?follow=true&next={page['next']}", LINES) as stream:
                assert json.loads((await stream.until("}}\n")).strip()) == {"reset": told}
                await stream.until('"d"}\n')
            assert (await found.get(ONE, params={"next": page["next"]})).status_code == 416

    asyncio.run(story())


class Slow(Stream):
    """A client that takes one message at a time."""

    def __init__(self, found: InGateway, path: str, headers: dict[str, str]) -> None:
        self.free = asyncio.Semaphore(0)
        self.offered = 0
        super().__init__(found, path, headers)

    async def _send(self, message: Message) -> None:
        self.offered += 1
        await self.free.acquire()
        await super()._send(message)


def test_a_stream_begins_with_a_small_chunk() -> None:
    """A client that reads nothing more costs little; while it has its chunk, other streams can make theirs."""

    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders")
            await put(found, *["x"] * 500)
            asked, step = [], Scan.step

            async def noted(scan: Scan, records: int, size: int, **more: Any) -> Any:
                asked.append(records)
                return await step(scan, records, size, **more)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Scan, "step", noted)
                stream = Slow(found, URL + "?limit=500", EVENTS)
                stream.free.release()
                stream.free.release()
                async with asyncio.timeout(20):
                    while stream.offered < 3:
                        await asyncio.sleep(0)
                assert asked == [FIRST_RECORDS] and not found.services.chunks.locked()
                for _ in range(100):
                    stream.free.release()
                await asyncio.wait_for(stream.task, 20)
            assert asked == [50, 100, 200, 150]

    asyncio.run(story())


def test_a_stream_looks_at_the_ledger_only_when_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """New records are noticed without that. A ledger that is gone is noticed with the next sign of life."""
    looks: list[int] = []

    async def look(scan: Scan) -> None:
        looks.append(scan.positions[0])
        if len(looks) == 3:
            raise NotReady("the ledger does not answer in time")

    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders")
            await put(found, "a")
            monkeypatch.setattr(Scan, "look", look)
            monkeypatch.setattr("headwater.gateway.records.answers.HEARTBEAT_SECONDS", 0.05)
            async with following(found, URL, EVENTS) as stream:
                await stream.until("event: problem")
                await stream.until("does not answer in time")
            assert looks == [1, 1, 1]

    asyncio.run(story())


class Chunk(bytes):
    """A chunk that counts how many of its kind are in memory."""

    count = 0

    def __init__(self, *_: object) -> None:
        Chunk.count += 1

    def __del__(self) -> None:
        Chunk.count -= 1


def test_a_stream_that_waits_holds_no_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of them would hold hundreds of chunks. One whose client leaves while it waits makes no more."""
    made, make = [], Streamed._chunk

    async def chunk(stream: Streamed, *given: Any) -> tuple[int, bytes]:
        found, data = await make(stream, *given)
        made.append(found)
        return found, Chunk(data) if data else data

    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders")
            await put(found, "a")
            monkeypatch.setattr(Streamed, "_chunk", chunk)
            async with following(found, URL, EVENTS) as stream:
                await stream.until('"a"')
                while len(made) < 2:  # it has looked again, and waits for news
                    await asyncio.sleep(0)
                assert Chunk.count == 0
                for _ in range(MAX_CHUNKS):
                    await found.services.chunks.acquire()
                await put(found, "b")
                for _ in range(20):
                    await asyncio.sleep(0)
                stream._left.set()
                for _ in range(20):
                    await asyncio.sleep(0)
                for _ in range(MAX_CHUNKS):
                    found.services.chunks.release()
            assert made == [1, 0]

    asyncio.run(story())


def test_a_slow_client_holds_one_chunk() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders")
            for _ in range(8):
                await put(found, *["x" * 1000] * 200)
            read, sizes = found.core.reader.read_many, []

            async def counted(*arguments: Any, **options: Any) -> Any:
                results = await read(*arguments, **options)
                sizes.extend(len(result.records) for result in results)
                return results

            found.core.reader.read_many = counted  # type: ignore[method-assign]
            stream = Slow(found, URL + "?limit=1600", EVENTS)
            for taken in range(1, 4):
                stream.free.release()
                async with asyncio.timeout(20):
                    while stream.offered <= taken:
                        await asyncio.sleep(0)
                for _ in range(100):
                    await asyncio.sleep(0)
                chunks = max(taken - 1, 0)
                assert stream.offered == taken + 1 and sum(sizes) <= (chunks + 1) * 2 * CHUNK_BYTES
            for _ in range(100):
                stream.free.release()
            await asyncio.wait_for(stream.task, 20)
            assert sum(sizes) >= 1_600_000

    asyncio.run(story())


def test_a_deleted_topic_ends_the_stream() -> None:
    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders")
            stream = Stream(found, URL, EVENTS)
            await stream.until("\n\n")
            await found.services.topics.delete(topic)
            replica = found.core.domains[Domain(topic.domain)]
            assert topic.streams[0] not in replica.state.streams
            await stream.until("event: problem\ndata: ")
            assert msgspec.json.decode((await stream.until("\n\n")).strip().encode())["status"] == 404
            await asyncio.wait_for(stream.task, 20)

    asyncio.run(story())


def test_streams_end_when_the_gateway_stops() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders")
            stream = Stream(found, URL, EVENTS)
            await stream.until("\n\n")
            found.services.stopping.set()
            await asyncio.wait_for(stream.task, 20)

    asyncio.run(story())


def test_new_partitions_are_followed() -> None:
    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders")
            async with following(found, URL, EVENTS) as stream:
                await stream.until("\n\n")
                await found.services.topics.add_partitions(topic, 2)
                await put(found, "b", partition=1)
                await put(found, "a")
                got = await stream.until('"a"}\n\n') + await stream.until('"b"}\n\n')
                assert '"partition":1' in got

    asyncio.run(story())


BYTES = st.none() | st.binary(max_size=20) | st.text(max_size=8).map(str.encode)


@settings(max_examples=6, deadline=None)
@given(st.lists(st.tuples(BYTES, BYTES), min_size=1, max_size=4), st.sampled_from(["text", "json", "base64"]))
def test_what_is_read_can_be_written_again(wanted: list[tuple[bytes | None, bytes | None]], form: str) -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders")
            coded = [{"key_base64": None, "value_base64": None} for _ in wanted]
            for line, (key, value) in zip(coded, wanted, strict=True):
                for name, data in (("key", key), ("value", value)):
                    if data is None:
                        del line[f"{name}_base64"]
                        line[name] = None
                    else:
                        line[f"{name}_base64"] = msgspec.json.decode(msgspec.json.encode(data))
            assert (await found.ask("POST", URL, json={"records": coded})).status_code == 200
            shown = (await found.get(URL, params={"format": form})).json()["records"]
            for line in shown:
                del line["offset"]
            assert (await found.ask("POST", URL, json={"records": shown})).status_code == 200
            both = (await found.get(URL, params={"format": "base64"})).json()["records"]
            fields = ("timestamp", "key", "key_base64", "value", "value_base64")
            plain = [[line.get(field) for field in fields] for line in both]
            assert plain[: len(wanted)] == plain[len(wanted) :] and len(plain) == 2 * len(wanted)

    asyncio.run(story())
