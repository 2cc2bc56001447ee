"""Second requests for late reads: they win, they are few, and they leave nothing behind."""

import asyncio

import pytest

from harness.virtual import VirtualClock, run
from headwater.errors import ObjectMissing, StoreUnavailable
from headwater.objects.hedging import FEWEST_SAMPLES, HedgedStore, Lateness
from headwater.objects.stats import StoreStats
from headwater.settings.objects import StoreOptions
from tests.support.flaky import FlakyStore
from tests.support.promise import promise

PROMISES = ("M7",)


def hedged(inner: FlakyStore, percent: int = 50, ms: int = 100) -> tuple[HedgedStore, StoreStats]:
    stats = StoreStats()
    return HedgedStore(inner, StoreOptions(hedge_percent=percent, hedge_ms=ms), stats, VirtualClock()), stats


async def warm(store: HedgedStore, inner: FlakyStore, reads: int) -> None:
    """Give it credit, and an idea of what is usual."""
    await inner.put("a", [b"data"])
    inner.script = [0.01] * reads
    for _ in range(reads):
        await store.get("a")
    inner.calls = []


@promise("M7")
def test_a_late_read_is_asked_again() -> None:
    """The quicker answer counts, and the other request is given up."""

    async def work() -> None:
        inner = FlakyStore()
        store, stats = hedged(inner)
        await warm(store, inner, 10)
        inner.script = [60.0, 0.01]
        before = asyncio.get_running_loop().time()
        assert await store.get("a", 1, 2) == b"at"
        assert asyncio.get_running_loop().time() - before == pytest.approx(0.11)
        assert (stats.hedges, stats.hedges_won, inner.under_way) == (1, 1, 0)
        inner.script = [0.2, 60.0]
        assert await store.get("a") == b"data"
        assert (stats.hedges, stats.hedges_won, inner.under_way) == (2, 1, 0)

    run(work())


@promise("M7")
def test_they_are_few() -> None:
    """When every read is late, no more than the share are asked again."""

    async def work() -> None:
        inner = FlakyStore()
        store, stats = hedged(inner, percent=5)
        await warm(store, inner, 0)
        inner.script = [1.0] * 100_000
        for _ in range(400):
            await store.get("a")
        assert 10 <= stats.hedges <= 400 * 0.05 + 1
        assert len(inner.calls) == 400 + stats.hedges

    run(work())


@promise("M7")
def test_late_is_later_than_most() -> None:
    """Without a fixed time, late is what 95 of 100 reads were not; before that is known nothing is late."""
    lateness = Lateness(5, 0)
    for i in range(FEWEST_SAMPLES - 1):
        lateness.took(i)
    assert lateness.seconds == 0
    for _ in range(10):
        for i in range(100):
            lateness.took(i / 100)
    assert lateness.seconds == pytest.approx(0.95, abs=0.03)
    assert Lateness(5, 70).seconds == 0.07


@promise("M7")
def test_failures() -> None:
    """One failure of two is not one; two are; that there is no such object is an answer."""

    async def work() -> None:
        inner = FlakyStore()
        store, stats = hedged(inner)
        await warm(store, inner, 10)

        inner.script = [0.5, StoreUnavailable("down")]
        assert await store.get("a") == b"data"
        inner.script = [0.5]
        with pytest.raises(ObjectMissing):
            await store.get("nothing")
        assert stats.hedges >= 1 and stats.hedges_won == 0
        inner.script = [StoreUnavailable("down")]
        with pytest.raises(StoreUnavailable):
            await store.get("a")

    run(work())


@promise("M7")
def test_a_caller_that_leaves() -> None:
    """Takes both requests with it."""

    async def work() -> None:
        inner = FlakyStore()
        store, stats = hedged(inner)
        await warm(store, inner, 10)
        inner.script = [60.0, 60.0]
        reading = asyncio.ensure_future(store.get("a"))
        await asyncio.sleep(1)
        assert inner.under_way == 2 and stats.hedges == 1
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert inner.under_way == 0

    run(work())
