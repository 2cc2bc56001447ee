"""Processes that step back behind others."""

from __future__ import annotations

import os
from pathlib import Path

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


def test_a_process_moves_with_its_session_and_its_children(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The session moves without rights. What the system refuses for threads stays as it is."""
    own = os.getpid()
    parents = {own: 1, 70: own, 71: 70, 72: 1}
    for process, parent in parents.items():
        (tmp_path / f"{process}/task/{process}").mkdir(parents=True)
        (tmp_path / f"{process}/task/{process}5").mkdir()
        (tmp_path / f"{process}/stat").write_text(f"{process} (a (b) c) S {parent} 1 1")
    (tmp_path / "autogroup").write_text("/autogroup-7 nice 10")
    moved, read = dict[int, int](), dict[int, int]()

    def set_one(which: int, thread: int, niceness: int) -> None:
        if thread == 70:
            raise PermissionError(thread)
        moved[thread] = niceness

    monkeypatch.setattr(priority, "_AT_START", 0)
    monkeypatch.setattr(priority, "_PROC", tmp_path)
    monkeypatch.setattr(priority, "_AUTOGROUP", tmp_path / "autogroup")
    monkeypatch.setattr(priority, "_set_io", lambda kind, level, thread=0: read.update({thread: kind}))
    monkeypatch.setattr(os, "getsid", lambda pid: own)
    monkeypatch.setattr(os, "getpriority", lambda which, thread: 10)
    monkeypatch.setattr(os, "setpriority", set_one)
    assert priority.present() == {"process": 10, "session": 10}
    priority.move_to(3, idle=False)
    assert (tmp_path / "autogroup").read_text() == "3"
    threads = {int(f"{process}{more}") for process in (own, 70, 71) for more in ("", "5")}
    assert moved == dict.fromkeys(threads - {70}, 3)
    assert read == {70: 2, 705: 2, 71: 2, 715: 2}
    monkeypatch.setattr(priority, "_AT_START", 5)
    priority.move_to(2, idle=False)
    assert set(moved.values()) == {5}, "not before what started it"
    read.clear()
    priority.move_to(10, idle=True)
    assert set(read.values()) == {3} and own not in read


def test_a_session_of_others_does_not_move(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "autogroup").write_text("/autogroup-7 nice 0")
    monkeypatch.setattr(priority, "_PROC", tmp_path)
    monkeypatch.setattr(priority, "_AUTOGROUP", tmp_path / "autogroup")
    monkeypatch.setattr(os, "getsid", lambda pid: 1)
    priority.move_to(3, idle=False)
    assert priority.present()["session"] == 0
