"""The process that compiles kernels ends with its supervisor, and so does what it has started."""

from __future__ import annotations

import subprocess
import sys

import psutil

from harness.patience import eventually
from harness.process import alive

PROGRAM = """
import subprocess, sys

from headwater.app import compiling

compiling.end_with_input()
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], stdin=subprocess.DEVNULL)
print(child.pid, flush=True)
child.wait()
"""


def test_it_ends_with_its_supervisor() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdin is not None and process.stdout is not None
    with process.stdout:
        child = psutil.Process(int(process.stdout.readline()))
    assert process.poll() is None and alive(child)
    process.stdin.close()
    assert process.wait(60) == -9
    eventually(lambda: not alive(child), "the child ends")
