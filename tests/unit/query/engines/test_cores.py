"""Engines have all cores while nobody else needs them, and leave one to others otherwise."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import pytest

from headwater.query.engines import cores
from headwater.query.engines.cores import Sharing, run_on, shared_by


class Machine:
    """Four cores, of which three may be used. Times are in hundredths of a second."""

    def __init__(self) -> None:
        self.others = self.engines = self.idle = self.elsewhere = 0
        self.moved: list[tuple[int, list[int]]] = []
        self.sharing = Sharing({2, 0, 1}, self.stat, self.move)

    def stat(self) -> str:
        own = [f"cpu{i} {self.others} {self.engines} 0 {self.idle} 0 0 0 0 99 99" for i in range(3)]
        return "\n".join(["cpu 1 2 3 4", *own, f"cpu3 {self.elsewhere} 0 0 0", "intr 5 6", "ctxt 7", ""])

    def move(self, session: int, chosen: Collection[int]) -> None:
        self.moved.append((session, list(chosen)))

    def look(self, *sessions: int, others: int = 0, engines: int = 0) -> list[tuple[int, list[int]]]:
        """What is moved after 20 hundredths on each core, of which so many were used."""
        self.others += others
        self.engines += engines
        self.idle += 20 - others - engines
        self.elsewhere += 20
        self.moved.clear()
        self.sharing.look(sessions)
        return list(self.moved)


def test_all_cores_while_nobody_else_needs_them() -> None:
    machine = Machine()
    assert machine.look(7) == []  # nobody knows yet
    assert machine.look(7, engines=20) == [(7, [0, 1, 2])]
    assert machine.look(7, engines=18, others=1) == []  # 0.15 of a core
    assert machine.look(7, engines=15, others=5) == [(7, [1, 2])]  # 0.75 of a core
    assert machine.look(7, 8, engines=15, others=5) == []  # each begins with all but one
    assert machine.look(7, 8) == [(7, [0, 1, 2]), (8, [0, 1, 2])]
    assert machine.look(8, 9) == [(9, [0, 1, 2])]
    machine.sharing.rest([8, 9])
    assert machine.moved[1:] == [(8, [1, 2]), (9, [1, 2])]
    machine.sharing.rest([8, 9])
    assert len(machine.moved) == 3
    assert machine.look(8, 9) == []  # what was before counts no more


def test_no_time_has_passed() -> None:
    machine = Machine()
    machine.look(7)
    machine.look(7)
    machine.moved.clear()
    machine.sharing.look([7])
    assert machine.moved == [(7, [1, 2])]


def test_threads_of_a_session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All threads of all its processes, whatever their names are; what has gone meanwhile is passed over."""
    for number, session, threads in ((10, 10, (10, 11)), (20, 10, (20,)), (30, 30, (30,)), (40, 10, ())):
        process = tmp_path / str(number)
        process.mkdir()
        (process / "stat").write_text(f"{number} (a) b) 3 4) S 1 {number} {session} 0 -1")
        if threads:
            (process / "task").mkdir()
        for thread in threads:
            (process / "task" / str(thread)).mkdir()
    (tmp_path / "50").mkdir()
    (tmp_path / "self").mkdir()
    moved: dict[int, set[int]] = {}
    monkeypatch.setattr(cores, "_PROC", tmp_path)
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, chosen: moved.update({thread: set(chosen)}))
    run_on(10, [1])
    assert moved == {10: {1}, 11: {1}, 20: {1}}


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux tells")
def test_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    found = shared_by(10)
    assert found is not None and shared_by(0) is None
    found.look([])
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    assert shared_by(10) is None
