"""The process that compiles kernels ends with the one that has started it, and so does what it has started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
SERVER = """
import signal, sys, threading

from headwater.app import compiling

compiling.is_made = lambda: False
compiling.ARGUMENTS = ("-c", sys.argv[2], sys.argv[1])
threading.Thread(target=compiling.wait_until_made, daemon=True).start()
signal.pause()
"""
COMPILER = """
import os, signal, sys
from pathlib import Path

from headwater.app import compiling

if "--supervised" in sys.argv:
    compiling.end_with_input()
Path(sys.argv[1]).write_text(f"{os.getpid()}\\n")
signal.pause()
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


def test_it_ends_with_the_server_that_waits_for_it(tmp_path: Path) -> None:
    """Also if that one is killed: at the lowest priority it would go on for as long as the machine is busy."""
    started = tmp_path / "started"
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(started), COMPILER])
    try:
        eventually(lambda: started.exists() and started.read_text().endswith("\n"), "the compiler starts")
        compiler = psutil.Process(int(started.read_text()))
        assert alive(compiler)
    finally:
        server.kill()
        server.wait()
    eventually(lambda: not alive(compiler), "it ends")
