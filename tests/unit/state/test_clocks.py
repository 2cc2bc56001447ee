"""The ledger time, the date and the retention date of a domain."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headwater.state.clocks import (
    CATCH_UP,
    DOUBT_MS,
    JITTER_MS,
    MAX_ABSENCE_MS,
    MAX_LEAD_MS,
    PATIENCE_MS,
    Clocks,
    ClocksImage,
)
from tests.support.promise import promise

PROMISES = ("M1", "L6")
START_MS = 1_700_000_000_000
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


class Hosts:
    """Processes with one true time, and a wall clock each that may be wrong."""

    def __init__(self, *epochs: int) -> None:
        self.clocks = Clocks()
        self.true_ms = START_MS
        self.wrong_ms = dict.fromkeys(epochs, 0)
        self.counters = dict.fromkeys(epochs, 0)
        for epoch in epochs:
            self.write(epoch)

    def write(self, epoch: int, *, haste: int = 1) -> None:
        """A process writes a record. With `haste` its steady clock runs too fast."""
        self.counters[epoch] = self.counters.get(epoch, 0) + 1
        steady = epoch * DAY + (self.true_ms - START_MS) * haste
        self.clocks.note(epoch, self.counters[epoch], self.true_ms + self.wrong_ms.setdefault(epoch, 0), steady)

    def run(self, ms: int, step_ms: int = 10 * SECOND) -> None:
        """Time passes, and every process writes now and then."""
        end = self.true_ms + ms
        while self.true_ms < end:
            self.true_ms = min(end, self.true_ms + step_ms)
            for epoch in list(self.wrong_ms):
                self.write(epoch)

    def all_wrong(self, ms: int) -> None:
        self.wrong_ms = dict.fromkeys(self.wrong_ms, ms)

    @property
    def offs(self) -> tuple[int, int, int]:
        """How far ledger time, date and retention date are from the true time."""
        found = self.clocks
        return found.time_ms - self.true_ms, found.date_ms - self.true_ms, found.retention_ms - self.true_ms


@promise("M1")
def test_the_times_of_right_clocks_are_the_same() -> None:
    hosts = Hosts(1, 2, 3)
    hosts.run(HOUR)
    assert hosts.offs == (0, 0, 0)


@promise("M1", "L6")
def test_clocks_of_all_that_are_wrong_for_a_while_move_nothing_that_cannot_be_undone() -> None:
    """Ledger time does not go along. Records get no time that is too early, and retention goes by none too late."""
    for wrong in (30 * DAY, -30 * DAY):
        hosts = Hosts(1, 2, 3)
        hosts.run(HOUR)
        hosts.all_wrong(wrong)
        hosts.run(26 * SECOND, SECOND)
        assert hosts.offs == (0, max(0, wrong), min(0, wrong))
        hosts.all_wrong(0)
        hosts.run(MINUTE, SECOND)
        assert hosts.offs == (0, 0, 0)


@promise("M1")
def test_one_clock_that_is_wrong_moves_no_time() -> None:
    for wrong in (30 * DAY, -30 * DAY):
        for others in ((1, 2), (1, 2, 4)):
            hosts = Hosts(*others, 3)
            hosts.run(HOUR)
            hosts.wrong_ms[3] = wrong
            hosts.run(HOUR)
            assert hosts.offs == (0, 0, 0)
            assert hosts.clocks.difference_ms(3) == wrong
    hosts = Hosts(1, 3)
    hosts.run(HOUR)
    hosts.wrong_ms[3] = 30 * DAY
    hosts.run(HOUR)
    assert hosts.offs == (0, 0, 0), "of two that differ, the one that shows what both showed before is right"


@promise("M1")
def test_one_steady_clock_alone_does_not_run_ahead() -> None:
    hosts = Hosts(1, 2)
    for _ in range(1_000):
        hosts.true_ms += 20
        hosts.write(2, haste=1_000)
    assert hosts.clocks.time_ms == START_MS + MAX_LEAD_MS
    hosts = Hosts(2)
    hosts.true_ms += DAY
    hosts.write(2)
    assert hosts.offs == (0, 0, 0), "who is alone is believed"
    hosts.true_ms -= HOUR
    hosts.write(2)
    assert hosts.clocks.time_ms == START_MS + DAY, "ledger time never goes back"
    hosts.true_ms += HOUR
    hosts.write(2)
    assert hosts.clocks.time_ms == START_MS + DAY


@promise("M1")
def test_a_record_that_is_entered_late_moves_no_time() -> None:
    """It waits while others write. Neither it nor the next one of its writer counts that time once more."""
    for first in (True, False):
        hosts = Hosts(1, 2)
        hosts.run(HOUR)
        if not first:
            hosts.write(3)
        late_ms = hosts.true_ms
        hosts.run(5 * SECOND, SECOND)
        now_ms, hosts.true_ms = hosts.true_ms, late_ms
        hosts.write(3)
        hosts.true_ms = now_ms
        assert hosts.offs[0] == 0
        hosts.write(3)
        assert hosts.offs[0] == 0, f"first {first}"
        hosts.run(MINUTE, SECOND)
        assert hosts.offs == (0, 0, 0)


@promise("M1")
def test_a_fast_steady_clock_is_ahead_once_and_not_again_and_again() -> None:
    hosts = Hosts(1, 2)
    for _ in range(100):
        hosts.true_ms += 20 * SECOND
        hosts.write(1)
        hosts.write(2, haste=3)
    assert hosts.offs[0] <= MAX_LEAD_MS


@promise("M1", "L6")
def test_after_a_standstill_the_date_is_right_and_the_retention_date_follows_later() -> None:
    hosts = Hosts(1, 2)
    hosts.run(HOUR)
    for epoch in (1, 2):
        hosts.clocks.drop(epoch)
        del hosts.wrong_ms[epoch]
    hosts.true_ms += 2 * DAY
    hosts.write(11)
    assert hosts.offs == (-2 * DAY, 0, -2 * DAY), "a standstill is no ledger time"
    hosts.write(12)
    assert hosts.offs == (-2 * DAY, 0, -2 * DAY)
    hosts.run(PATIENCE_MS - SECOND, SECOND)
    assert hosts.offs == (-2 * DAY, 0, -2 * DAY)
    assert hosts.clocks.believed_at_ms == hosts.clocks.time_ms + SECOND
    hosts.run(HOUR + SECOND, SECOND)
    assert -2 * DAY + (CATCH_UP - 2) * HOUR < hosts.offs[2] <= -2 * DAY + CATCH_UP * HOUR
    hosts.run(2 * HOUR, SECOND)
    assert hosts.offs == (-2 * DAY, 0, 0)
    assert hosts.clocks.believed_at_ms == 0


@promise("M1")
def test_a_process_that_joins_makes_up_for_a_short_silence_only() -> None:
    """Nobody may have written for a while when it joins: then its first record tells how much time has passed."""
    hosts = Hosts(1, 2)
    hosts.true_ms += MAX_ABSENCE_MS
    hosts.write(3)
    assert hosts.offs == (0, 0, 0)
    hosts.wrong_ms[4] = MAX_ABSENCE_MS + 1
    hosts.write(4)
    assert hosts.clocks.time_ms == hosts.true_ms


@promise("M1")
def test_small_differences_do_not_move_the_date() -> None:
    hosts = Hosts(1)
    hosts.wrong_ms[1] = -JITTER_MS
    hosts.run(MINUTE)
    assert hosts.offs == (0, 0, 0)
    hosts.wrong_ms[1] = -JITTER_MS - 1
    hosts.run(MINUTE)
    assert hosts.offs[1] == -JITTER_MS - 1


@promise("M1", "L6")
def test_a_cluster_that_began_with_a_wrong_clock() -> None:
    """Retention never goes by more than the date, and is wary of later jumps again."""
    hosts = Hosts()
    hosts.wrong_ms = {1: 30 * DAY, 2: 30 * DAY}
    hosts.run(MINUTE)
    assert hosts.offs == (30 * DAY,) * 3
    hosts.all_wrong(0)
    hosts.run(MINUTE)
    assert hosts.offs == (30 * DAY, 30 * DAY, 0)
    hosts.run(PATIENCE_MS)
    assert hosts.offs == (30 * DAY, 0, 0)
    hosts.all_wrong(30 * DAY)
    hosts.run(MINUTE)
    assert hosts.offs == (30 * DAY, 30 * DAY, 0)


_STEPS = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.integers(0, 2 * MINUTE),
        st.sampled_from([0, 0, 0, 50, -50, 5 * SECOND, DOUBT_MS + 1, DAY, -DAY, 30 * DAY]),
        st.sampled_from(["write", "write", "write", "drop"]),
    ),
    max_size=80,
)


@promise("M1", "L6")
@given(_STEPS)
def test_in_all_histories(steps: list[tuple[int, int, int, str]]) -> None:
    """Ledger time only rises. The retention date is never after the date, and rises by bounded steps."""
    hosts = Hosts(1)
    for epoch, passed, wrong, what in steps:
        hosts.true_ms += passed
        clocks = hosts.clocks
        before, kept = clocks.time_ms, clocks.image().kept_ms
        if what == "drop":
            clocks.drop(epoch)
            continue
        hosts.wrong_ms[epoch] = wrong
        hosts.write(epoch)
        assert before <= clocks.time_ms
        assert clocks.retention_ms <= clocks.date_ms
        assert clocks.image().kept_ms - kept <= CATCH_UP * (clocks.time_ms - before)
        again = Clocks()
        again.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(clocks.image()), type=ClocksImage))
        assert again.image() == clocks.image()
        hosts.clocks = again
