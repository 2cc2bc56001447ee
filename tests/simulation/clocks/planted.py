"""Defects of times, put in on purpose. The scene must find each of them, or it proves nothing.

Each is a context in which the defect is there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from headwater.clock import WaryClock
from headwater.replica.membership import Membership
from headwater.state.clocks import Clocks

Defect = Callable[[], contextlib.AbstractContextManager[Any]]


def _retention_by_the_date() -> contextlib.AbstractContextManager[Any]:
    """Retention goes by what the clocks agree on, at once."""
    return patch.object(Clocks, "retention_now_ms", lambda self, wall_ms: self.agreed_ms)


def _time_by_the_wall() -> contextlib.AbstractContextManager[Any]:
    """The largest wall clock is the ledger time, as it once was, and retention goes by it alone."""
    right = Clocks.note

    def note(self: Clocks, epoch: int, counter: int, clock_ms: int, steady_ms: int) -> int:
        right(self, epoch, counter, clock_ms, steady_ms)
        self.time_ms = max(self.time_ms, clock_ms)
        return self.time_ms

    stack = contextlib.ExitStack()
    stack.enter_context(patch.object(Clocks, "note", note))
    stack.enter_context(patch.object(WaryClock, "wall_ms", WaryClock.host_ms))
    stack.enter_context(patch.object(Clocks, "retention_now_ms", lambda self, wall_ms: self.time_ms))
    return stack


def _jumps_are_believed() -> contextlib.AbstractContextManager[Any]:
    """A process takes over what its host's wall clock says."""
    return patch.object(WaryClock, "wall_ms", WaryClock.host_ms)


def _the_date_only_rises() -> contextlib.AbstractContextManager[Any]:
    """A date that was ahead once stays ahead."""
    right = Clocks.note

    def note(self: Clocks, epoch: int, counter: int, clock_ms: int, steady_ms: int) -> int:
        before = self.lead_ms
        found = right(self, epoch, counter, clock_ms, steady_ms)
        self.lead_ms = max(before, self.lead_ms)
        return found

    return patch.object(Clocks, "note", note)


def _a_jump_fences() -> contextlib.AbstractContextManager[Any]:
    """Silence is measured by the host's wall clock."""
    right = Membership._watch_peers

    async def watch(self: Membership) -> None:
        clock = self._clock
        assert isinstance(clock, WaryClock)
        with patch.object(clock, "monotonic", lambda: clock.host_ms() / 1000, create=True):
            await right(self)

    return patch.object(Membership, "_watch_peers", watch)


def _retention_by_the_wall() -> contextlib.AbstractContextManager[Any]:
    """Retention goes by the wall clock of the host that does it."""
    return patch.object(Clocks, "retention_now_ms", lambda self, wall_ms: wall_ms)


PLANTED: dict[str, Defect] = {
    "retention by the ledger's time alone, which is the largest wall clock": _time_by_the_wall,
    "retention by the date alone": _retention_by_the_date,
    "retention by one wall clock alone": _retention_by_the_wall,
    "a process believes a jump at once": _jumps_are_believed,
    "the date only rises": _the_date_only_rises,
    "a jump fences": _a_jump_fences,
}
