"""Lets a process step back behind others: settling and checkpoints must not take a core from producers.

Linux shares the processors between sessions first (autogroups), and a niceness counts only within a session. So a
process that leads a session of its own sets the niceness of its session too. A thread that exists already keeps its
priority; later threads and processes inherit it. All of this is best effort: a system without it works, with less care.

Without rights a process can never lower a niceness again, but it can set that of its session to anything from 0 on. So
`move_to` works for a process that leads a session, where sessions share the processors; elsewhere it takes rights
(CAP_SYS_NICE, or a limit RLIMIT_NICE).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from pathlib import Path

_AUTOGROUP = Path("/proc/self/autogroup")
_PROC = Path("/proc")
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
"""The number of the system call, which has no function in the C library."""
_OF_A_THREAD, _CLASS_SHIFT = 1, 13
_BEST_EFFORT, _IDLE = 2, 3
_LOWEST = 7
_LAST = 19
"""The largest niceness."""
_AT_START = os.getpriority(os.PRIO_PROCESS, 0)
"""The niceness that whatever started this process gave it. No move goes below it."""


def step_back(niceness: int) -> None:
    """Lower the priority of this thread, and of its session if this process leads it; call it before threads start.

    Beside busy processes of niceness 0, one of niceness 10 gets a tenth of a core. With 0 nothing is changed.
    Its reads and writes come last among the ordinary ones. They are not left to idle times, because the process may
    hold a lock that others wait for.
    """
    if not niceness:
        return
    with contextlib.suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, 0) < niceness:
            os.setpriority(os.PRIO_PROCESS, 0, niceness)
    _set_session(niceness)
    _set_io(_BEST_EFFORT, _LOWEST)


def move_to(niceness: int, *, idle: bool) -> None:
    """Give this process, and those that it has started, another niceness, as far as the system allows.

    With `idle` the processes that it has started read and write only while no others do, else last among the others.
    """
    _set_session(niceness)
    own = os.getpid()
    for process in _family(own):
        for thread in _threads(process):
            with contextlib.suppress(OSError):
                if os.getpriority(os.PRIO_PROCESS, thread) != max(niceness, _AT_START):
                    os.setpriority(os.PRIO_PROCESS, thread, max(niceness, _AT_START))
            if process != own:
                _set_io(*((_IDLE, 0) if idle else (_BEST_EFFORT, _LOWEST)), thread)


def present() -> dict[str, int]:
    """The niceness of this process, and that of its session beside others if it has one."""
    found = {"process": os.getpriority(os.PRIO_PROCESS, 0)}
    with contextlib.suppress(OSError, ValueError, IndexError):
        found["session"] = int(_AUTOGROUP.read_text().split()[-1])
    return found


def _set_session(niceness: int) -> None:
    with contextlib.suppress(OSError):
        if os.getsid(0) == os.getpid():
            _AUTOGROUP.write_text(str(niceness))


def _family(own: int) -> list[int]:
    """A process and those that it and they have started."""
    children: dict[int, list[int]] = {}
    for directory in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended
            parent = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(directory.name))
    found = [own]
    for process in found:
        found += children.get(process, ())
    return found


def _threads(process: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(_PROC / str(process) / "task")]
    except OSError:
        return []


def run_when_idle() -> None:
    """Let this process, and those that it starts, run only while no other wants a processor; the rest as `step_back`.

    It must hold no lock that others wait for.
    """
    step_back(_LAST)
    read_when_idle()
    if hasattr(os, "SCHED_IDLE"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def leave_a_core() -> None:
    """Keep this thread, and the threads and processes that it starts, off one of several cores.

    `query/engines/cores.py` says why a low priority is not enough.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    with contextlib.suppress(OSError):
        _, *others = sorted(os.sched_getaffinity(0))
        if others:
            os.sched_setaffinity(0, others)


def read_when_idle() -> None:
    """Let this thread, and the processes that it starts, read and write only while no others do."""
    _set_io(_IDLE, 0)


def _set_io(kind: int, level: int, thread: int = 0) -> None:
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).syscall(number, _OF_A_THREAD, thread, kind << _CLASS_SHIFT | level)
