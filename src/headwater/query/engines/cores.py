"""Which cores the processes of engines may use: all while no other process needs them, else all but one.

A low priority is not enough: processes of a low priority took half of two cores while threads of a broker waited for
one (`docs/benchmarks/queries.md`). The kernel counts the time of processes with a low priority apart, so the share of
the others is known without looking at each process. Only Linux counts it; elsewhere nothing is done.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Collection
from pathlib import Path

TICK_SECONDS = 0.2
"""How often it is looked while queries run."""
LINGER_SECONDS = 10.0
"""How long it is looked behind the last query: the next one often follows soon."""
NEEDED_CORES = 0.25
"""How much of a core others use before one is left to them."""
_PROC = Path("/proc")
_SESSION = 3
"""The place of a process's session behind its name, in `/proc/PID/stat`."""


class Sharing:
    """Gives cores to the processes of an engine, and takes one back. A process begins with all cores but one."""

    def __init__(
        self,
        cores: Collection[int],
        read: Callable[[], str],
        move: Callable[[int, Collection[int]], None],
    ) -> None:
        """`read` gives the text of `/proc/stat`, and `move` lets a session run on some cores only."""
        self._cores = sorted(cores)
        self._read = read
        self._move = move
        self._before: tuple[int, int] | None = None
        self._wide: set[int] = set()
        """The sessions that have all cores."""

    def __repr__(self) -> str:
        return f"<Sharing of {len(self._cores)} cores, {len(self._wide)} sessions have all>"

    def look(self, sessions: Collection[int]) -> None:
        """See what others have used since the last look, and let these sessions run on as many cores as are right."""
        passed, used = self._counted()
        self._place(sessions, passed > 0 and used * len(self._cores) / passed < NEEDED_CORES)

    def rest(self, sessions: Collection[int]) -> None:
        """Nobody looks from now on: leave a core to others."""
        self._before = None
        self._place(sessions, free=False)

    def _place(self, sessions: Collection[int], free: bool) -> None:
        self._wide &= {*sessions}
        for session in sessions:
            if (session in self._wide) is not free:
                self._move(session, self._cores if free else self._cores[1:])
        self._wide = {*sessions} if free else set()

    def _counted(self) -> tuple[int, int]:
        """Since the last look: the time that passed on these cores, and what others used of it. 0 at the first look."""
        passed = used = 0
        for line in self._read().splitlines():
            name, *times = line.split()
            if name.startswith("cpu") and name[3:].isdecimal() and int(name[3:]) in self._cores:
                passed += sum(map(int, times[:8]))  # user, nice, system, idle and so on; guests are in user
                used += int(times[0])
        before = self._before or (passed, used)
        self._before = passed, used
        return passed - before[0], used - before[1]


def shared_by(niceness: int) -> Sharing | None:
    """How processes of a niceness share this machine; None if there is nothing to share, or no way to."""
    if not niceness or sys.platform != "linux" or not (_PROC / "stat").exists():
        return None
    cores = os.sched_getaffinity(0)
    return Sharing(cores, (_PROC / "stat").read_text, run_on) if len(cores) > 1 else None


def run_on(session: int, cores: Collection[int]) -> None:
    """Let all threads of a session run on these cores only; what they start inherits it. Best effort."""
    for process in _PROC.iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            if process.name.isdecimal() and _session_of(process) == session:
                for thread in (process / "task").iterdir():
                    os.sched_setaffinity(int(thread.name), cores)


def _session_of(process: Path) -> int:
    return int((process / "stat").read_text().rpartition(")")[2].split()[_SESSION])
