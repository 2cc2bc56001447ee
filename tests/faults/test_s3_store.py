"""A real S3 server behind a bad network: cut, hanging, gone and back, with lost replies."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.proxy import Proxy
from harness.s3 import PROGRAM, S3Server
from harness.tools import needs
from headwater.errors import OutcomeUnknown, StoreUnavailable
from headwater.objects import open_store
from headwater.objects.measuring import MeasuredStore
from headwater.settings.objects import StoreOptions
from tests.support.promise import promise

PROMISES = ("M7",)

BODY = bytes(range(256)) * 16_384
PATIENCE_SECONDS = 60.0


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    needs("versitygw: run scripts/setup-tools s3", PROGRAM.exists())
    with S3Server(tmp_path) as server:
        for variable, value in server.environment.items():
            monkeypatch.setenv(variable, value)
        yield server


def open_through(server: S3Server, port: int, **options: Any) -> MeasuredStore:
    provider = {"endpoint": f"http://127.0.0.1:{port}"}
    store = open_store(f"{server.url}/faults", StoreOptions(provider=provider, backoff_ms=20, **options))
    assert isinstance(store, MeasuredStore)
    return store


async def until(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not look():
            await asyncio.sleep(0.01)  # polls for a state that the loop checks; nothing counts on its length


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


@promise("M7")
def test_cut_in_the_middle_of_a_put(s3: S3Server) -> None:
    """The object is there whole in the end, and was never there in part."""

    async def work(proxy: Proxy) -> None:
        store = open_through(s3, proxy.port)
        await store.put("warm", [b"x"])
        proxy.hold()
        putting = asyncio.ensure_future(store.put("a", [BODY]))
        await until(lambda: proxy.held_bytes > 0)
        proxy.cut()
        proxy.resume()
        await putting
        assert store.stats.put.retries >= 1
        assert await store.get("a") == BODY

    with Proxy(s3.port) as proxy:
        run(work(proxy))


@promise("M7")
def test_a_server_that_hangs(s3: S3Server) -> None:
    """Each attempt ends after its own time, and when the server goes on so does the call."""

    async def work() -> None:
        store = open_through(s3, s3.port, attempt_ms=200)
        await store.put("there", [BODY])
        s3.pause()
        try:
            calls = [store.put("a", [BODY]), store.get("there"), store.create("b", [BODY])]
            waiting = [asyncio.ensure_future(call) for call in calls]
            counted = (store.stats.put, store.stats.get, store.stats.create)
            await until(lambda: min(c.retries for c in counted) >= 1)
        finally:
            s3.resume()
        assert await asyncio.gather(*waiting) == [None, BODY, True]
        assert await store.get_many(["a", "b"]) == [BODY, BODY]

    run(work())


@promise("M7")
def test_an_outage(s3: S3Server) -> None:
    """Calls during an outage succeed after it; what was stored before is still there."""

    async def work() -> None:
        store = open_through(s3, s3.port)
        for i in range(5):
            await store.put(f"before/{i}", [BODY])
        s3.kill()
        calls: list[Any] = [store.put("a", [b"a"]), store.create("b", [b"b"]), store.get("before/0"), _listed(store)]
        waiting = [asyncio.ensure_future(call) for call in calls]
        counted = (store.stats.put, store.stats.create, store.stats.get, store.stats.scan)
        await until(lambda: min(c.retries for c in counted) >= 2)
        s3.start()
        _, created, got, listed = await asyncio.gather(*waiting)
        assert created and got == BODY and set(listed) >= {f"before/{i}" for i in range(5)}
        assert await store.get_many(["a", "b"]) == [b"a", b"b"]

    run(work())


async def _listed(store: MeasuredStore) -> list[str]:
    return [info.path async for info in store.scan("")]


@promise("M7")
def test_no_connection_is_certain(s3: S3Server) -> None:
    """Where nobody listens nothing was stored, and a creation says so."""

    async def work() -> None:
        store = open_through(s3, s3.port, retries=1)
        s3.kill()
        with pytest.raises(StoreUnavailable):
            await store.create("a", [b"x"])
        s3.start()
        assert await store.get_many(["a"]) == [None]

    run(work())


@promise("M7")
@pytest.mark.parametrize("again", [True, False])
def test_the_lost_reply_of_a_creation(s3: S3Server, again: bool) -> None:
    """The object stands, and its creator learns that by trying again; without that it is told that nobody knows."""

    async def work(proxy: Proxy) -> None:
        store = open_through(s3, proxy.port, retries=5 if again else 0)
        proxy.drop_replies()
        creating = asyncio.ensure_future(store.create("a", [b"mine"]))
        await until(lambda: proxy.lost_bytes > 0)
        proxy.resume()
        if again:
            assert await creating
        else:
            with pytest.raises(OutcomeUnknown):
                await creating
        assert await store.get("a") == b"mine"
        assert not await store.create("a", [b"somebody else's"])
        assert await store.get("a") == b"mine"

    with Proxy(s3.port) as proxy:
        run(work(proxy))


@promise("M7")
def test_a_creation_that_arrives_late(s3: S3Server) -> None:
    """A first attempt that arrives after the second changes nothing."""

    async def work(proxy: Proxy) -> None:
        store, direct = open_through(s3, proxy.port), open_through(s3, s3.port)
        proxy.hold()
        creating = asyncio.ensure_future(store.create("a", [b"mine"]))
        await until(lambda: proxy.held_bytes > 0)
        proxy.strand()
        assert await direct.create("a", [b"theirs"])
        proxy.resume()
        assert not await creating
        assert await direct.get("a") == b"theirs"

    with Proxy(s3.port) as proxy:
        run(work(proxy))


@promise("M7")
def test_one_of_eight_creators_wins_on_a_bad_network(s3: S3Server) -> None:
    """With connections cut all the time, at most one creator hears that it stored the object, and it did."""

    async def work(proxy: Proxy) -> None:
        stores = [open_through(s3, proxy.port, retry_budget=10_000) for _ in range(8)]
        for race in range(12):
            sent = [bytes([n]) * 20_000 for n in range(8)]
            racing = [asyncio.ensure_future(stores[n].create(f"race/{race}", [sent[n]])) for n in range(8)]
            while not all(task.done() for task in racing):
                proxy.cut()
                await asyncio.sleep(0.02)  # the rhythm of the fault; nothing counts on its length
            told = await asyncio.gather(*racing, return_exceptions=True)
            winners = [n for n in range(8) if told[n] is True]
            found = await stores[0].get(f"race/{race}")
            assert all(found == sent[n] for n in winners) and len(winners) <= 1
            assert winners or any(isinstance(answer, OutcomeUnknown) for answer in told)

    with Proxy(s3.port) as proxy:
        run(work(proxy))
