"""A process that steps back takes little from others, and takes only its own session along."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.promise import promise

PROMISES = ("T12",)

PROGRAM = """
import os, subprocess, sys, threading
from pathlib import Path
import psutil
from headwater.priority import read_when_idle, step_back

def seen():
    words = Path("/proc/self/autogroup").read_text().split() or [0]
    io = psutil.Process().ionice()
    return os.getpriority(os.PRIO_PROCESS, 0), int(io.ioclass), io.value, words[-1]

if sys.argv[1] == "look":
    print(*seen())
else:
    step_back(0)
    step_back(10)
    print(*seen(), flush=True)
    thread = threading.Thread(target=lambda: [read_when_idle(), subprocess.run([*sys.orig_argv[:-1], "look"])])
    thread.start()
    thread.join()
    print(*seen())
"""


AUTOGROUP = Path("/proc/self/autogroup")


def niceness_of_session() -> int:
    """0 for a process without an autogroup, such as those in the session of the first process."""
    return int((AUTOGROUP.read_text().split() or ["0"])[-1])


def told(**options: bool) -> list[list[int]]:
    """Niceness, class and level of I/O, niceness of the session: of the process, its child, and itself afterwards."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "step"], check=True, capture_output=True, text=True, **options
    )  # type: ignore[call-overload]
    return [[*map(int, line.split())] for line in done.stdout.splitlines()]


def a_new_session_has_an_autogroup() -> bool:
    """This process may have none itself and still start sessions that have one."""
    read = ["cat", str(AUTOGROUP)]
    return bool(subprocess.run(read, check=True, capture_output=True, start_new_session=True).stdout.split())


@promise("T12")
@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this system has no autogroups")
def test_stepping_back() -> None:
    """Nice within its session and as a session; what a thread starts that reads when idle does so too."""
    best_effort, idle = int(psutil.IOPRIO_CLASS_BE), int(psutil.IOPRIO_CLASS_IDLE)
    own, child, after = told(start_new_session=True)
    session = 10 if a_new_session_has_an_autogroup() else 0
    assert own == after == [10, best_effort, 7, session]
    assert child == [10, idle, 0, session]


@promise("T12")
@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this system has no autogroups")
def test_a_session_of_others_is_left_alone() -> None:
    """A compactor that a shell started does not slow the shell down."""
    before = niceness_of_session()
    own, *_ = told()
    assert own[0] == max(10, os.getpriority(os.PRIO_PROCESS, 0))
    assert own[3] == before
    assert niceness_of_session() == before


RISING = """
import ctypes, os, subprocess, time
from headwater.priority import move_to, present, step_back

step_back(10)
if os.getuid() == 0:  # without rights from here on, but the owner of its own files in /proc
    os.setresuid(65534, 65534, 65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
for niceness in (10, 0):
    for _ in range(200):  # the kernel refuses changes that follow each other too soon, of any session
        move_to(niceness, idle=False)
        if present().get("session", niceness) == niceness:
            break
        time.sleep(0.02)
    print(present().get("session", 0), flush=True)
    subprocess.run(["cat", "/proc/self/autogroup"], check=True)
"""


@promise("T12")
@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this system has no autogroups")
def test_a_session_rises_again_without_rights() -> None:
    """With all processes in it. A process alone could not."""
    done = subprocess.run(
        [sys.executable, "-c", RISING], check=True, capture_output=True, text=True, start_new_session=True
    )
    found = [line.split()[-1] for line in done.stdout.splitlines()]
    assert found == (["10", "10", "0", "0"] if a_new_session_has_an_autogroup() else ["0", "0"])
