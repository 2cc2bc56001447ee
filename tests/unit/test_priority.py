"""Processes that step back behind others."""

from __future__ import annotations

import os

import pytest

from headwater import priority


@pytest.mark.parametrize(
    ("cores", "left"), [({0}, None), ({0, 1}, {1}), ({2, 3, 5}, {3, 5})], ids=["one", "two", "three"]
)
def test_one_of_several_cores_is_left_to_others(
    monkeypatch: pytest.MonkeyPatch, cores: set[int], left: set[int] | None
) -> None:
    chosen: list[set[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: cores)
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, mask: chosen.append(set(mask)))
    priority.leave_a_core()
    assert chosen == ([] if left is None else [left])


def test_a_system_that_forbids_it_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, mask: object) -> None:
        raise PermissionError(pid)

    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    priority.leave_a_core()
