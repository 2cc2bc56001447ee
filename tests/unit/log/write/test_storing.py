"""Objects are sent a second time to a store that is slow."""

import asyncio
from collections.abc import Callable

import pytest

from harness.virtual import run
from headwater.errors import HeadwaterError, StoreUnavailable
from headwater.log.write.storing import Storing
from headwater.objects.memory import MemoryStore
from headwater.types import Pieces
from tests.support.promise import promise

PROMISES = ("L1", "M7")

HEDGE_MS = 300


class Slow(MemoryStore):
    """Takes its time for each put in turn, then stores or fails."""

    def __init__(self, *puts: tuple[float, HeadwaterError | None]) -> None:
        super().__init__()
        self._next = iter(puts)
        self.begun: list[float] = []
        self.given_up = 0

    async def put(self, path: str, pieces: Pieces) -> None:
        self.begun.append(asyncio.get_running_loop().time())
        seconds, error = next(self._next)
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        if error is not None:
            raise error
        await super().put(path, pieces)


def stored(store: Slow, hedge_ms: int = HEDGE_MS) -> tuple[float, int]:
    """When the object was stored, and how many were sent twice."""

    async def put() -> tuple[float, int]:
        storing = Storing(store, hedge_ms)
        await storing.begin("a", [b"x", b"y"])
        at = asyncio.get_running_loop().time()
        await asyncio.sleep(0)
        assert store.objects["a"] == b"xy"
        return at, storing.hedged

    return run(put())


@promise("L1")
def test_a_quick_put_is_sent_once() -> None:
    store = Slow((0.1, None))
    assert stored(store) == (pytest.approx(0.1), 0)
    assert store.begun == [0.0]


@promise("L1")
@pytest.mark.parametrize(("second", "when"), [(0.1, 0.4), (9.0, 2.0)])
def test_the_first_to_arrive_counts(second: float, when: float) -> None:
    """Be it the one that was sent first or the other, which is given up."""
    store = Slow((2.0, None), (second, None))
    assert stored(store) == (pytest.approx(when), 1)
    assert store.begun == [0.0, pytest.approx(HEDGE_MS / 1000)]
    assert store.given_up == 1


@promise("L1")
def test_never_twice_if_not_asked_for() -> None:
    store = Slow((9.0, None))
    assert stored(store, hedge_ms=0) == (pytest.approx(9.0), 0)
    assert store.begun == [0.0]


@promise("L1")
@pytest.mark.parametrize(
    "puts",
    [
        ((1.0, StoreUnavailable("one")), (2.0, None)),
        ((3.0, None), (1.0, StoreUnavailable("two"))),
    ],
)
def test_one_failure_of_two_does_not_count(puts: tuple[tuple[float, HeadwaterError | None], ...]) -> None:
    """An object is lost only if both fail."""
    assert stored(Slow(*puts))[1] == 1


@promise("L1")
@pytest.mark.parametrize(
    "make",
    [
        lambda: Slow((0.1, StoreUnavailable("down"))),
        lambda: Slow((1.0, StoreUnavailable("down")), (1.0, StoreUnavailable("down"))),
    ],
)
def test_failures_are_told(make: Callable[[], Slow]) -> None:
    """A put that fails at once is not sent again here: that is for whoever retries."""
    store = make()
    with pytest.raises(StoreUnavailable, match="down"):
        stored(store)
    assert "a" not in store.objects
