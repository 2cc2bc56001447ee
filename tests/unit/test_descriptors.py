"""Connections share the descriptors that are not reserved, by address, and silent ones give way."""

from __future__ import annotations

import fcntl
import os
import re
import resource
from pathlib import Path

import pytest

from headwater import descriptors
from headwater.descriptors import Descriptors, Seat, claim, opened, readable

PROMISES = ("S4",)


def entered(own: Descriptors, address: str, closed: list[str], name: str = "") -> Seat | None:
    return own.enter(address, lambda: closed.append(name or address))


@pytest.mark.parametrize(
    ("limit", "reserved", "room"),
    [(256, 128, 128), (1_024, 128, 896), (20_000, 128, 18_000), (100, 128, 50), (1_024, 300, 724)],
)
def test_some_are_reserved(limit: int, reserved: int, room: int) -> None:
    own = Descriptors(limit, reserved)
    assert (own.room, own.share) == (room, room // 2)


def test_a_new_connection_takes_the_place_of_the_oldest_silent_one() -> None:
    own, closed = Descriptors(8, 4), list[str]()
    for name in "abcd":
        assert entered(own, name, closed)
    assert entered(own, "e", closed) and closed == ["a"] and own.count == 4
    assert entered(own, "f", closed) and closed == ["a", "b"] and own.count == 4 and own.closed == 2


def test_a_known_connection_stays() -> None:
    own, closed = Descriptors(8, 4), list[str]()
    for name in "abcd":
        seat = entered(own, name, closed)
        assert seat is not None
        if name != "c":
            seat.known()
    assert entered(own, "e", closed) and closed == ["c"]
    last = entered(own, "f", closed)
    assert last is not None and closed == ["c", "e"]
    last.known()
    assert entered(own, "g", closed) is None and (own.refused, own.count, closed) == (1, 4, ["c", "e"])


def test_an_address_has_half_of_the_room() -> None:
    own, closed = Descriptors(16, 8), list[str]()
    seats = [entered(own, "a", closed, f"a{n}") for n in range(4)]
    assert entered(own, "b", closed) and not closed
    assert entered(own, "a", closed, "a4") and closed == ["a0"], "it loses its own, though others have room"
    for seat in seats[1:]:
        assert seat is not None
        seat.known()
    assert entered(own, "a", closed, "a5") and closed == ["a0", "a4"]
    assert own.count == 5


def test_a_seat_is_given_back_once() -> None:
    own, closed = Descriptors(8, 4), list[str]()
    seat = entered(own, "a", closed)
    assert seat is not None
    seat.release()
    seat.release()
    seat.known()
    assert own.count == 0
    assert [bool(entered(own, "a", closed)) for _ in range(2)] == [True, True] and not closed


def test_pages_may_use_some_of_the_reserved_ones() -> None:
    own, closed = Descriptors(8, 4), list[str]()
    for name in "abcd":
        seat = entered(own, name, closed)
        assert seat is not None
        seat.known()
    assert own.enter("p", lambda: None) is None
    assert own.enter("p", lambda: None, extra=2) is not None and own.count == 5


def test_a_listener_that_counts_itself_gets_a_part() -> None:
    own = Descriptors(64, 32)
    for _ in range(2):
        assert (own.set_aside(), own.room, own.share) == (8, 24, 12)


def test_the_soft_limit_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(descriptors, "_own", None)
    lower = opened() + 64
    resource.setrlimit(resource.RLIMIT_NOFILE, (lower, hard))
    try:
        own = claim()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == own.limit == min(hard, descriptors.MOST) > lower
        assert descriptors.of_process() is own
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_open_descriptors_are_counted() -> None:
    before = opened()
    handle = os.open("/dev/null", os.O_RDONLY)
    assert opened() == before + 1
    os.close(handle)


def test_descriptors_above_those_of_select_are_waited_for() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2_048), hard))
    reading, writing = os.pipe()
    try:
        high = fcntl.fcntl(reading, fcntl.F_DUPFD, 1_100)
        with os.fdopen(high, "rb") as file:
            assert not readable(file, 0)
            os.write(writing, b"x")
            assert readable(file, 0)
    finally:
        os.close(reading)
        os.close(writing)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_nothing_waits_by_select() -> None:
    """It fails for a descriptor above 1,023, and a server with as many connections has such."""
    source = Path(descriptors.__file__).parent
    assert not [path for path in source.rglob("*.py") if re.search(r"select\.select\(", path.read_text())]
