"""The times of a domain. All of them follow from its records.

A record has two clocks of its writer: the wall clock, and the steady clock, which only counts and which cannot be set.

- The **ledger time** runs with the steady clocks. Leases, graces, expiries and the ages of holds and transactions count
  in it. A wall clock does not move it, and it stops while no process runs.
- The **agreed date** is what the wall clock in the middle shows. It may jump both ways.
- The **steady date** runs with the ledger time. If the agreed date jumps, it follows after `PATIENCE_MS`, and ahead no
  faster than `CATCH_UP` days a day.
- The **date** is the later of the two: the time of append of records, the time of versions of tables.
- The **retention date** is the earlier of the two. It decides what is too old, so clocks have to be wrong for long
  before they delete anything.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

MAX_LEAD_MS = 30_000
"""How far the ledger time of a writer counts ahead of that of the others. Each of them writes every 20 seconds."""
MAX_ABSENCE_MS = 25_000
"""How much time a writer's first record may add: so long nobody may have written."""
MAX_DELAY_MS = 10_000
"""How old a writer's first record may be when it is entered, by its wall clock, so that its count begins earlier."""
DOUBT_MS = 60_000
"""An agreed date that differs by more from the steady one is doubted."""
PATIENCE_MS = 1_800_000
"""For so long the agreed date has to differ before the steady one follows. It is longer than a process doubts its own
clock (`BELIEVED_AFTER_MS`), because that process may have started with a wrong one."""
CATCH_UP = 24
"""How many times as fast as the ledger time the steady date is while it catches up."""
JITTER_MS = 100
"""The date does not follow smaller differences, so that it does not go back by them."""


class Writer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """What the newest record of an epoch said."""

    counter: int
    clock_ms: int
    """The wall clock."""
    steady_ms: int
    """The steady clock. It has no meaning of its own: only differences count."""
    time_ms: int
    """The ledger time as this writer has counted it, from its first record on. A record that was entered late does not
    move that count, so the time that it waited is not counted twice."""
    lead_ms: int
    """How far the wall clock was ahead of the ledger time."""


class ClocksImage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The times of a domain inside a checkpoint."""

    time_ms: int
    lead_ms: int
    kept_ms: int
    doubted_since_ms: int
    writers: list[tuple[int, Writer]]


class Clocks:
    """The times of a domain, and the writers that they come from."""

    __slots__ = ("_doubted_since_ms", "_kept_ms", "_writers", "lead_ms", "time_ms")

    def __init__(self) -> None:
        self.time_ms = 0
        """The ledger time. The first record sets it to its wall clock."""
        self.lead_ms = 0
        """How far the agreed date is ahead of the ledger time."""
        self._kept_ms = 0
        """The steady date."""
        self._doubted_since_ms = 0
        """The ledger time since which the agreed date is doubted; 0 if it is not."""
        self._writers: dict[int, Writer] = {}

    def __len__(self) -> int:
        return len(self._writers)

    def __iter__(self) -> Iterator[int]:
        return iter(self._writers)

    def __repr__(self) -> str:
        return f"<Clocks at {self.time_ms}, date {self.date_ms}, {len(self)} writers>"

    @property
    def agreed_ms(self) -> int:
        """The agreed date."""
        return self.time_ms + self.lead_ms

    @property
    def date_ms(self) -> int:
        """The date."""
        return max(self._kept_ms, self.time_ms + self.lead_ms)

    @property
    def retention_ms(self) -> int:
        """The retention date."""
        return min(self._kept_ms, self.time_ms + self.lead_ms)

    @property
    def believed_at_ms(self) -> int:
        """The ledger time from which on the steady date follows the agreed one; 0 if that is not doubted."""
        return self._doubted_since_ms + PATIENCE_MS if self._doubted_since_ms else 0

    def retention_now_ms(self, wall_ms: int) -> int:
        """What retention takes for now, by a process whose wall clock says this: the lesser of both."""
        return min(self.retention_ms, wall_ms)

    def get(self, epoch: int) -> Writer | None:
        """What the newest record of an epoch said; `None` if it has written nothing or is fenced."""
        return self._writers.get(epoch)

    def drop(self, epoch: int) -> None:
        """Forget a fenced writer. Its clocks count no more from the next record on."""
        self._writers.pop(epoch, None)

    def difference_ms(self, epoch: int) -> int:
        """How far the wall clock of a writer is ahead of the agreed date."""
        return self._writers[epoch].lead_ms - self.lead_ms

    def note(self, epoch: int, counter: int, clock_ms: int, steady_ms: int) -> int:
        """Note a writer's record and move all times. Returns the ledger time."""
        before, writers = self.time_ms, self._writers
        known = writers.get(epoch)
        if not before:
            before = self.time_ms = self._kept_ms = time_ms = clock_ms
        elif known is None:
            absence = clock_ms - self.agreed_ms
            time_ms = before + absence if -MAX_DELAY_MS <= absence <= MAX_ABSENCE_MS else before
        else:
            steady_ms = max(steady_ms, known.steady_ms)
            time_ms = known.time_ms + steady_ms - known.steady_ms
        if time_ms > before:
            others = max((w.time_ms for e, w in writers.items() if e != epoch), default=time_ms)
            self.time_ms = max(before, min(time_ms, others + MAX_LEAD_MS))
        lead = clock_ms - self.time_ms
        writers[epoch] = Writer(counter, clock_ms, steady_ms, time_ms, lead)
        if len(writers) > 1:
            lead = agreed_lead([w.lead_ms for w in writers.values()], self.lead_ms)
        if abs(lead - self.lead_ms) > JITTER_MS:
            self.lead_ms = lead
        self._follow(self.time_ms - before)
        return self.time_ms

    def _follow(self, passed_ms: int) -> None:
        """Move the steady date, after a time that has passed."""
        date, kept = self.time_ms + self.lead_ms, self._kept_ms + passed_ms
        ahead = date - kept
        if abs(ahead) <= DOUBT_MS:
            self._doubted_since_ms = 0
        elif not self._doubted_since_ms:
            self._doubted_since_ms = self.time_ms
        doubted = self._doubted_since_ms and self.time_ms - self._doubted_since_ms < PATIENCE_MS
        if not doubted:
            kept += min(ahead, (CATCH_UP - 1) * passed_ms)
        self._kept_ms = kept

    def image(self) -> ClocksImage:
        """All times, for a checkpoint."""
        writers = list(self._writers.items())
        return ClocksImage(self.time_ms, self.lead_ms, self._kept_ms, self._doubted_since_ms, writers)

    def restore(self, image: ClocksImage) -> None:
        """The inverse of `image`."""
        self.time_ms, self.lead_ms = image.time_ms, image.lead_ms
        self._kept_ms, self._doubted_since_ms = image.kept_ms, image.doubted_since_ms
        self._writers = dict(image.writers)


def agreed_lead(leads: list[int], present: int) -> int:
    """The lead in the middle; of two in the middle, the one that is nearer to the present one."""
    leads.sort()
    upper = leads[len(leads) // 2]
    if len(leads) % 2:
        return upper
    lower = leads[len(leads) // 2 - 1]
    return min(lower, upper, key=lambda lead: abs(lead - present))
