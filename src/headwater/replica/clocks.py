"""What is to be said of the clocks of a cluster's processes, and of the times that follow from them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from headwater.clock import BELIEVED_AFTER_MS, JUMP_MS, Clock, WaryClock
from headwater.state.cluster.domain import NO_NODE, Process
from headwater.state.cluster.state import ClusterState
from headwater.state.machine import State

log = logging.getLogger("headwater.clock")


class TimesLine(msgspec.Struct, frozen=True, kw_only=True):
    """The times of a domain."""

    domain: int
    ledger_ms: int
    """The ledger time. It runs with the processes, and no wall clock moves it."""
    date_ms: int
    """What records and versions get as their time."""
    agreed_ms: int
    """What the wall clocks agree on."""
    retention_ms: int
    """The date that retention goes by."""
    believed_in_ms: int | None
    """When the other dates begin to follow `agreed_ms`; 0 if they do already, null if it is not doubted."""


class ClockLine(msgspec.Struct, frozen=True, kw_only=True):
    """The wall clock of a process, as its newest record showed it."""

    process: str
    epoch: int
    ahead_ms: int
    """How far it is ahead of what the clocks agree on."""


def times_lines(states: Sequence[State]) -> list[TimesLine]:
    """The times of all domains."""
    return [
        TimesLine(
            domain=state.domain,
            ledger_ms=state.clock_ms,
            date_ms=state.date_ms,
            agreed_ms=state.clocks.agreed_ms,
            retention_ms=state.clocks.retention_ms,
            believed_in_ms=max(0, at - state.clock_ms) if (at := state.clocks.believed_at_ms) else None,
        )
        for state in states
    ]


def clock_lines(cluster: ClusterState) -> list[ClockLine]:
    """The clocks of all processes of a cluster, by epoch."""
    return [
        ClockLine(
            process=name_of(cluster.processes.get(epoch), epoch),
            epoch=epoch,
            ahead_ms=cluster.clocks.difference_ms(epoch),
        )
        for epoch in sorted(cluster.clocks)
    ]


def name_of(process: Process | None, epoch: int) -> str:
    """How users name a process."""
    if process is None or process.node == NO_NODE:
        return f"the process of epoch {epoch}"
    return f"broker {process.node}"


def span(ms: int) -> str:
    """A time in words, in the largest unit that it has two of."""
    size = abs(ms)
    for unit, length in (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000)):
        if size >= 2 * length:
            return f"{size / length:.3g} {unit}"
    return f"{size / 1000:.3g} s"


def clock_words(cluster: ClusterState, clock: Clock) -> list[str]:
    """What is wrong with clocks, a sentence each: the one of this host, and those that differ from the date."""
    found = []
    if isinstance(clock, WaryClock) and clock.jump_ms:
        way = "ahead" if clock.jump_ms > 0 else "back"
        found.append(
            f"the wall clock of this host has jumped {way} by {span(clock.jump_ms)}: set it right. It is not believed "
            f"until it has stayed so for {span(BELIEVED_AFTER_MS)}"
        )
    for line in clock_lines(cluster):
        if abs(line.ahead_ms) > JUMP_MS:
            way = "ahead of" if line.ahead_ms > 0 else "behind"
            found.append(
                f"the wall clock of {line.process} is {span(line.ahead_ms)} {way} that of the others: set the clock of "
                "its host right"
            )
    return found


class DateWatch:
    """Logs when the date of a cluster jumps, and whose clocks moved it."""

    def __init__(self) -> None:
        self._lead_ms: int | None = None

    def __repr__(self) -> str:
        return f"<DateWatch, lead {self._lead_ms}>"

    def look(self, cluster: ClusterState) -> None:
        """Compare the date with that of the last look."""
        before, self._lead_ms = self._lead_ms, cluster.clocks.lead_ms
        if before is None or abs(self._lead_ms - before) <= JUMP_MS:
            return
        movers = [line.process for line in clock_lines(cluster) if abs(line.ahead_ms) <= JUMP_MS]
        facts = {"by_ms": self._lead_ms - before, "by_clocks_of": movers}
        log.warning("the date of the cluster has moved, because wall clocks agree on another one", extra=facts)
