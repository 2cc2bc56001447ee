"""Trying again: how often, how long, how much in all, and never at the price of a wrong answer."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from harness.virtual import SeededChance, VirtualClock, run
from headwater.errors import ObjectMissing, OutcomeUnknown, StoreFull, StoreUnavailable
from headwater.objects import ObjectStore, wrapped
from headwater.objects.measuring import MeasuredStore
from headwater.objects.metrics import collect
from headwater.objects.retrying import RetryBudget, pause_ms
from headwater.objects.store import StoreRefused
from headwater.ops.metrics import render
from headwater.settings.objects import StoreOptions
from tests.support.flaky import FlakyStore
from tests.support.promise import promise

PROMISES = ("M7",)

DOWN = StoreUnavailable("down")


def around(inner: FlakyStore, **options: int) -> MeasuredStore:
    store = wrapped(inner, StoreOptions(**options), VirtualClock(), SeededChance())  # type: ignore[arg-type]
    assert isinstance(store, MeasuredStore)
    return store


CALLS: dict[str, Callable[[ObjectStore], Awaitable[object]]] = {
    "put": lambda store: store.put("a", [b"data"]),
    "create": lambda store: store.create("a", [b"data"]),
    "get": lambda store: store.get("there", 1, 2),
    "size": lambda store: store.size("there"),
    "delete": lambda store: store.delete("there"),
}


@promise("M7")
@pytest.mark.parametrize("name", CALLS)
def test_a_call_outlives_failures(name: str) -> None:
    """What fails for the moment is tried again, and counted once as a call."""

    async def work() -> None:
        inner = FlakyStore()
        await inner.put("there", [b"0123"])
        inner.script, inner.calls = [DOWN, DOWN, None], []
        store = around(inner)
        result = await CALLS[name](store)
        assert inner.calls == [name] * 3
        assert result == {"put": None, "create": True, "get": b"12", "size": 4, "delete": None}[name]
        counted = store.stats.operations()[name]
        assert (counted.calls, counted.retries, counted.requests, counted.errors) == (1, 2, 3, 0)
        assert counted.bytes == {"put": 4, "create": 4, "get": 2}.get(name, 0)

    run(work())


@promise("M7")
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("error", [StoreRefused("no"), StoreFull("full")])
def test_what_lasts_is_told_at_once(name: str, error: Exception) -> None:
    """A refusal and a full store are not asked again."""

    async def work() -> None:
        inner = FlakyStore([error])
        store = around(inner)
        with pytest.raises(type(error)):
            await CALLS[name](store)
        assert inner.calls == [name]
        assert store.stats.operations()[name].errors == 1

    run(work())


@promise("M7")
def test_attempts_have_an_end() -> None:
    """After so many attempts the last failure is the answer; what is missing is one at once."""

    async def work() -> None:
        inner = FlakyStore([DOWN] * 100)
        with pytest.raises(StoreUnavailable):
            await around(inner, retries=3).get("a")
        assert len(inner.calls) == 4
        inner.script = []
        with pytest.raises(ObjectMissing):
            await around(inner).get("a")
        assert len(inner.calls) == 5

    run(work())


@promise("M7")
@pytest.mark.parametrize("name", CALLS)
def test_a_store_that_hangs(name: str) -> None:
    """A call ends when its time is over, whatever the store does; a creation's fate is then unknown."""

    async def work() -> None:
        inner = FlakyStore([1e6])
        before = asyncio.get_running_loop().time()
        with pytest.raises(OutcomeUnknown if name == "create" else StoreUnavailable):
            await CALLS[name](around(inner, total_ms=20_000))
        assert asyncio.get_running_loop().time() - before == pytest.approx(20, abs=0.1)
        assert inner.under_way == 0

    run(work())


# --- creations -------------------------------------------------------------------------------------------


@promise("M7")
def test_a_creation_whose_reply_is_lost() -> None:
    """The next attempt finds our own bytes, which is a success; others' bytes are not."""

    async def work() -> None:
        inner = FlakyStore([OutcomeUnknown("lost")])
        inner.lost_replies = True
        assert await around(inner).create("a", [b"da", b"ta"])
        assert inner.calls == ["create", "create"]
        inner.script = [OutcomeUnknown("lost")]
        assert not await around(inner).create("a", [b"DATA"])
        assert inner.objects == {"a": b"data"}

    run(work())


@promise("M7")
def test_what_is_not_known_is_not_claimed() -> None:
    """Once an attempt's fate is unknown, a later certain failure does not make the call certain."""

    async def work() -> None:
        for script in ([OutcomeUnknown("lost"), DOWN], [DOWN, OutcomeUnknown("lost")], [OutcomeUnknown("lost")] * 2):
            with pytest.raises(OutcomeUnknown):
                await around(FlakyStore(script), retries=1).create("a", [b"data"])
        with pytest.raises(OutcomeUnknown):
            await around(FlakyStore([OutcomeUnknown("lost"), StoreRefused("no")])).create("a", [b"data"])
        with pytest.raises(StoreUnavailable):
            await around(FlakyStore([DOWN, DOWN]), retries=1).create("a", [b"data"])

    run(work())


# --- limits ----------------------------------------------------------------------------------------------


@promise("M7")
def test_an_outage_is_not_multiplied() -> None:
    """Over all calls only so many retries are made as the budget holds, and as come back by the second."""

    async def work() -> None:
        inner = FlakyStore([DOWN] * 100_000)
        store = around(inner, retry_budget=20, retry_budget_per_second=2, backoff_ms=1000, max_backoff_ms=1000)

        async def client() -> None:
            with pytest.raises(StoreUnavailable):
                await store.get("a")

        await asyncio.gather(*(client() for _ in range(500)))
        seconds = asyncio.get_running_loop().time()
        assert 500 + 20 <= len(inner.calls) <= 500 + 20 + 2 * seconds + 1
        assert store.stats.retries_denied > 0
        inner.script = []
        await store.put("a", [b"x"])
        await asyncio.sleep(60)
        inner.script = [DOWN] * 5
        assert await store.get("a") == b"x", "the budget has come back"

    run(work())


@promise("M7")
def test_the_budget_is_a_bucket() -> None:
    """It never holds more than its size."""

    async def work() -> None:
        budget = RetryBudget(3, 1, VirtualClock())
        assert [budget.take() for _ in range(5)] == [True, True, True, False, False]
        await asyncio.sleep(2.5)
        assert [budget.take() for _ in range(3)] == [True, True, False]
        await asyncio.sleep(1000)
        assert [budget.take() for _ in range(4)] == [True, True, True, False]

    run(work())


@promise("M7")
def test_pauses_double_and_are_random() -> None:
    """Between nothing and a limit that doubles, up to a largest one."""
    options, chance = StoreOptions(backoff_ms=100, max_backoff_ms=1_000), SeededChance(5)
    for attempt, most in enumerate((100, 200, 400, 800, 1_000, 1_000)):
        seen = [pause_ms(attempt, options, chance) for _ in range(200)]
        assert 0 <= min(seen) < most * 0.1 and most * 0.9 < max(seen) <= most
    assert pause_ms(10_000, options, chance) <= 1_000


@promise("M7")
def test_requests_wait_for_their_turn() -> None:
    """So many are under way at once, over all callers and in one call for many objects."""

    async def work() -> None:
        inner = FlakyStore()
        for i in range(50):
            await inner.put(f"{i}", [b"x"])
        inner.script, inner.most_under_way = [1.0] * 200, 0
        store = around(inner, requests=7, gets_at_once=5)
        assert await store.get_many([f"{i}" for i in range(50)]) == [b"x"] * 50
        assert inner.most_under_way == 5
        await asyncio.gather(*(store.put(f"{i}", [b"x"]) for i in range(30)))
        assert inner.most_under_way == 7
        waiting = [asyncio.ensure_future(store.get("1")) for _ in range(20)]
        await asyncio.sleep(0.5)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert store.stats.under_way == inner.under_way == 0
        assert await store.get("1") == b"x", "a caller that leaves gives its turn back"

    run(work())


@promise("M7")
def test_one_failure_ends_the_others() -> None:
    """A call for many objects leaves nothing behind when it fails."""

    async def work() -> None:
        inner = FlakyStore([100.0, StoreRefused("no"), 100.0])
        with pytest.raises(StoreRefused):
            await around(inner).get_many(["a", "b", "c"])
        assert inner.under_way == 0

    run(work())


@promise("M7")
def test_a_listing_that_breaks_off_goes_on() -> None:
    """Behind what it had given, and nothing comes twice or is left out."""

    async def work() -> None:
        inner = FlakyStore()
        for i in range(100):
            await inner.put(f"a/{i:03}", [b"x"])
        inner.script, inner.break_off_after = [DOWN, DOWN, DOWN], 17
        store = around(inner)
        assert [info.path async for info in store.scan("a/")] == [f"a/{i:03}" for i in range(100)]
        assert store.stats.scan.retries == 3 and store.stats.scan.calls == 1
        inner.script = [StoreRefused("no")]
        with pytest.raises(StoreRefused):
            _ = [info async for info in store.scan("")]
        assert store.stats.scan.errors == 1

    run(work())


# --- what is shown ---------------------------------------------------------------------------------------


@promise("M7", "O2")
def test_metrics(caplog: pytest.LogCaptureFixture) -> None:
    """Counts, bytes, errors, retries and times of a store are there for `/metrics`."""
    caplog.set_level(logging.DEBUG)

    async def work() -> str:
        inner = FlakyStore([DOWN, 0.3, StoreRefused("no")])
        store = around(inner)
        await store.put("a", [b"12", b"345"])
        with pytest.raises(StoreRefused):
            await store.get("a")
        with pytest.raises(ObjectMissing):
            await store.get("nothing")
        return render(collect(store))

    lines = run(work()).splitlines()
    for line in (
        'headwater_objects_calls_total{operation="put"} 1',
        'headwater_objects_bytes_total{operation="put"} 5',
        'headwater_objects_requests_total{operation="put"} 2',
        'headwater_objects_retries_total{operation="put"} 1',
        'headwater_objects_calls_total{operation="get"} 2',
        'headwater_objects_errors_total{operation="get"} 1',
        'headwater_objects_seconds_bucket{operation="put",le="0.1"} 0',
        'headwater_objects_seconds_bucket{operation="put",le="0.5"} 1',
        'headwater_objects_seconds_bucket{operation="put",le="+Inf"} 1',
        'headwater_objects_seconds_count{operation="put"} 1',
        "headwater_objects_requests 0",
    ):
        assert line in lines, line
    assert collect(FlakyStore()) == []
