"""How far settling steps back: less while tables are late, so that a busy machine does not stop it.

`lake.niceness` says how far it steps back as a rule. While the lag of a topic is more than twice its freshness target,
the niceness falls with every look, down to 0. When all targets have held for a while, it rises again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from headwater.background import Duty, OnDeath
from headwater.ops.metrics import Metric

log = logging.getLogger("headwater.compactor")
URGENCY = Duty("urgency", OnDeath.RESTART, "raises the priority of settling while tables are late")
LOOK_SECONDS = 5.0
RAISE_ABOVE = 2.0
"""From this lag on, in freshness targets, the priority rises."""
REST_BELOW = 1.0
"""Below this lag it falls again, if it has stayed there for `CALM_LOOKS`. In between it stays."""
CALM_LOOKS = 6
ATTEMPTS = 3
"""A change is made again at the next looks: Linux refuses changes of sessions that follow each other too soon."""


class Urgency:
    """Decides the niceness of settling by its lag. It is pure: each look gets the lag and returns the niceness."""

    def __init__(self, base: int) -> None:
        self.base = base
        """The niceness as a rule."""
        self.niceness = base
        self._calm = 0

    def __repr__(self) -> str:
        return f"<Urgency: niceness {self.niceness} of {self.base}>"

    def look(self, lag: float) -> int:
        """The niceness from now on. `lag` is the greatest one of all topics, in their freshness targets."""
        self._calm = self._calm + 1 if lag < REST_BELOW else 0
        if lag > RAISE_ABOVE:
            self.niceness //= 2
        elif self._calm >= CALM_LOOKS:
            self.niceness = min(self.base, max(1, 2 * self.niceness))
        return self.niceness


class Priority:
    """Moves a process, and those that it has started, to the niceness that the lag of its topics asks for."""

    def __init__(
        self, base: int, lag: Callable[[], float], move: Callable[[int], None], present: Callable[[], dict[str, int]]
    ) -> None:
        self._urgency = Urgency(base)
        self._lag = lag
        self._move = move
        self._present = present
        self._left = 0
        """How often the last change is still made."""

    def __repr__(self) -> str:
        return f"<Priority by {self._urgency!r}>"

    async def run(self) -> None:
        """Look again and again, unless settling never steps back."""
        while self._urgency.base:
            self.look()
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Move to another niceness if it is time for that.

        While it is lower than as a rule every look moves, because Spark starts processes and threads at any time.
        """
        before, lag = self._urgency.niceness, self._lag()
        now = self._urgency.look(lag)
        self._left = ATTEMPTS if now != before else max(0, self._left - 1)
        if self._left or now != self._urgency.base:
            self._move(now)
        if now != before:
            facts = {"niceness": now, "present": self._present(), "lag_in_freshness_targets": round(lag, 2)}
            log.info("settling has another priority", extra=facts)

    def described(self) -> str:
        """The niceness now, for health pages."""
        found = ", ".join(f"{number} of the {what}" for what, number in sorted(self._present().items()))
        return f"niceness {found}; {self._urgency.niceness} is wanted, {self._urgency.base} as a rule"

    def metrics(self) -> list[Metric]:
        """The niceness that is wanted, and what the system grants."""
        samples = [({"of": what}, float(number)) for what, number in sorted(self._present().items())]
        return [
            Metric("headwater_settle_niceness", "gauge", "Niceness of settling: of the process and its session.",
                   samples),
            Metric("headwater_settle_niceness_wanted", "gauge", "Niceness that the lag of tables asks for.",
                   [({}, float(self._urgency.niceness))]),
        ]  # fmt: skip
