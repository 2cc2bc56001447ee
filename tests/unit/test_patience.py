"""Limits of waits: they end, and what others take of the machine does not count."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from harness.patience import Patience, Reading, eventually
from tests.support.limits import WAIT_SECONDS, Calm


class Machine:
    """A machine whose clock stands still between steps."""

    def __init__(self) -> None:
        self.now, self.times = 100.0, {"user": 50.0, "system": 20.0, "idle": 110.0, "steal": 7.0}

    def step(self, seconds: float, **shares: float) -> None:
        """Let time pass, of which two processors spent these shares in these ways."""
        self.now += seconds
        for kind, share in shares.items():
            self.times[kind] += 2 * seconds * share

    def read(self) -> Reading:
        return Reading.of(self.now, SimpleNamespace(**self.times))

    def patience(self) -> Patience:
        return Patience(10, self.read)


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.mark.parametrize("shares", [{"idle": 1.0}, {"user": 1.0}, {"user": 0.3, "system": 0.3, "idle": 0.4}])
def test_a_limit_ends(machine: Machine, shares: dict[str, float]) -> None:
    patience = machine.patience()
    machine.step(9, **shares)
    assert not patience.ended and patience.left == pytest.approx(1)
    machine.step(1, **shares)
    assert patience.ended


def test_a_slow_machine_is_given_time(machine: Machine) -> None:
    patience = machine.patience()
    machine.step(30, user=0.2, system=0.05, idle=0.15, steal=0.6)
    assert patience.left == pytest.approx(10 - 30 * 0.25 / 0.85)
    machine.step(100, user=0.0, idle=0.2, steal=0.8)
    assert patience.ended, "even one that is given nothing at all"


def test_moments_count_together(machine: Machine) -> None:
    """Whoever looks often gives no more time than others."""
    patience = machine.patience()
    for _ in range(99):
        machine.step(0.1, user=1.0)
        assert not patience.ended
    machine.step(1, user=1.0)
    assert patience.ended


def test_a_system_that_knows_of_no_others(machine: Machine) -> None:
    del machine.times["steal"]
    patience = machine.patience()
    machine.step(10, user=0.5, idle=0.5)
    assert patience.ended


def test_waiting_gives_what_is_found_or_gives_up() -> None:
    looks = iter([0, 0, 7])
    assert eventually(lambda: next(looks), "a number comes", every=0) == 7
    with pytest.raises(TimeoutError, match=r"gave up after 0\.5 s: it never comes"):
        eventually(lambda: None, "it never comes", 0.5)


# --- whole tests --------------------------------------------------------------------------------------------------


def test_no_test_begins_while_others_have_the_machine(machine: Machine) -> None:
    given = iter([0.02, 0.1, 0.9])
    calm = Calm(
        spin=lambda seconds: machine.step(seconds, user=(share := next(given)), steal=1 - share),
        sleep=lambda seconds: machine.step(seconds, idle=1.0),
        read=machine.read,
    )
    machine.step(60, user=0.05, idle=0.15, steal=0.8)
    calm.wait()
    assert calm.waited == pytest.approx(3 * 1.2) and next(given, None) is None
    machine.step(60, user=0.5, idle=0.3, steal=0.2)
    calm.wait()
    assert calm.waited == pytest.approx(3 * 1.2)


def test_waiting_for_the_machine_has_an_end(machine: Machine) -> None:
    calm = Calm(
        spin=lambda seconds: machine.step(seconds, steal=1.0),
        sleep=lambda seconds: machine.step(seconds, idle=1.0),
        read=machine.read,
    )
    machine.step(60, user=0.05, steal=0.95)
    calm.wait()
    assert calm.waited == pytest.approx(WAIT_SECONDS, abs=2)
    machine.step(60, user=0.05, steal=0.95)
    calm.wait()
    assert calm.waited == pytest.approx(WAIT_SECONDS, abs=2)
