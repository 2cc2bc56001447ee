"""A command's exit code is its own, whatever threads of libraries still do when it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROMISES = ("H3",)

LEAVES_REQUESTS = """
import asyncio, atexit, sys
import obstore
from obstore.store import LocalStore
from headwater.cli import common, main

async def requests():
    store = LocalStore(sys.argv[1])
    await obstore.put_async(store, "object", b"x" * 1000)
    left = [asyncio.ensure_future(obstore.get_async(store, "object")) for _ in range(4000)]
    await asyncio.sleep(0)

def call(app):
    asyncio.run(requests())
    atexit.register(print, "at exit", end="")
    print("told", end=" ")
    return 6

common.call = call
main.main()
"""
RUNS = 8
"""A process that took the interpreter apart was aborted in two to three of so many."""


def leaving(directory: Path, stdout: int) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", LEAVES_REQUESTS, str(directory)]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, check=False, timeout=60, env=buffered)


def test_requests_that_nobody_waits_for(tmp_path: Path) -> None:
    done = [leaving(tmp_path, subprocess.PIPE) for _ in range(RUNS)]
    assert [(one.returncode, one.stdout) for one in done] == [(6, b"told at exit")] * RUNS


def test_a_reader_that_is_gone(tmp_path: Path) -> None:
    """What is left in the buffer cannot be told to anybody, and that changes nothing."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert leaving(tmp_path, writer).returncode == 6
    finally:
        os.close(writer)
