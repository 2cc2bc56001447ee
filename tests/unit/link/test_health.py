"""Health of the parts of a link."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.link import health
from headwater.link.breaker import State
from headwater.link.health import Component, Health, Status, partition_status, source_status, tries_status, worst
from headwater.settings.links import Links

H, D, U = Status


@pytest.mark.parametrize(
    ("breaker", "failures", "status"),
    [
        (State.CLOSED, 0, H),
        (State.CLOSED, 1, D),
        (State.HALF_OPEN, 0, D),
        (State.OPEN, 0, U),
        (State.OPEN, 5, U),
    ],
)
def test_a_source(breaker: State, failures: int, status: Status) -> None:
    assert source_status(breaker, failures) is status


def test_what_is_retried() -> None:
    own = Links(retry_tries=3)
    assert [tries_status(failures, own) for failures in range(5)] == [H, D, D, U, U]


def test_a_partition() -> None:
    own = Links(retry_tries=3, late_ms=100)
    assert partition_status(0, 100, stopped=False, settings=own) is H
    assert partition_status(0, 101, stopped=False, settings=own) is D
    assert partition_status(1, 0, stopped=False, settings=own) is D
    assert partition_status(3, 101, stopped=False, settings=own) is U
    assert partition_status(0, 0, stopped=True, settings=own) is U


def test_since_when_and_why() -> None:
    """A reason may change; the time is that of the status. A healthy component has no reason."""
    own = Health()
    assert not own.note("source", H, "is not told", 1)
    assert own.components == [Component("source", H, "", 1)]
    assert own.note("source", D, "no connection", 5)
    assert not own.note("source", D, "no answer", 9)
    assert own.components == [Component("source", D, "no answer", 5)]
    assert own.note("source", H, "", 10)
    assert own.note("ledger", U, "gone", 11), "first heard of as unhealthy"
    assert own.status is U
    own.forget("ledger")
    own.forget("unknown")
    assert own.status is H and [one.name for one in own.components] == ["source"]


def test_components_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "MAX_COMPONENTS", 1)
    own = Health()
    assert own.note("a", D, "x", 0) and not own.note("b", U, "x", 0) and own.note("a", H, "", 0)
    assert [one.name for one in own.components] == ["a"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(list(Status)))))
def test_the_whole_is_as_well_as_its_worst_part(notes: list[tuple[str, Status]]) -> None:
    own, last = Health(), dict[str, Status]()
    for now, (name, status) in enumerate(notes):
        changed = own.note(name, status, "why", now)
        assert changed is (last.get(name, H) is not status)
        last[name] = status
    assert {one.name: one.status for one in own.components} == last
    assert own.status is worst(last.values())
    assert (own.status is H) is (set(last.values()) <= {H})
    assert all(bool(one.reason) is (one.status is not H) for one in own.components)
