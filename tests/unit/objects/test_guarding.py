"""A name that is taken is refused where that costs nothing."""

import pytest

from harness.virtual import SeededChance, VirtualClock, run
from headwater.errors import OutcomeUnknown, StoreUnavailable
from headwater.objects import wrapped
from headwater.objects.guarding import put_once
from headwater.objects.store import StoreRefused
from headwater.settings.objects import StoreOptions
from tests.support.flaky import FlakyStore
from tests.support.promise import promise

PROMISES = ("M7",)


@promise("M7")
@pytest.mark.parametrize("guard", [True, False])
def test_another_clusters_object_stays(guard: bool) -> None:
    """Two clusters in one bucket do not replace each other's objects; the same bytes again are no conflict."""

    async def work() -> None:
        inner = FlakyStore()
        store = wrapped(inner, StoreOptions(guard=guard), VirtualClock(), SeededChance())
        await put_once(store, "wal/1-1", [b"mi", b"ne"])
        await put_once(store, "wal/1-1", [b"mine"])
        if guard:
            with pytest.raises(StoreRefused):
                await put_once(store, "wal/1-1", [b"theirs"])
        else:
            await put_once(store, "wal/1-1", [b"theirs"])
        assert inner.objects == {"wal/1-1": b"mine" if guard else b"theirs"}
        assert set(inner.calls) == {"create" if guard else "put"}

    run(work())


@promise("M7")
def test_an_unknown_fate() -> None:
    """Fails as a put does, which may leave its object behind."""

    async def work() -> None:
        store = wrapped(FlakyStore([OutcomeUnknown("lost")]), StoreOptions(retries=0), VirtualClock(), SeededChance())
        with pytest.raises(StoreUnavailable):
            await put_once(store, "a", [b"x"])

    run(work())


@promise("M7")
def test_stores_that_do_not_guard() -> None:
    """A local directory, and any store that says nothing of it, gets a plain put."""

    async def work() -> None:
        inner = FlakyStore()
        await put_once(inner, "a", [b"x"])
        assert inner.calls == ["put"]

    run(work())
