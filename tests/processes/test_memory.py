"""Memory that is freed is used again, in brokers and in Spark's workers."""

import subprocess
import sys

import pytest

from tests.support.promise import promise

PROMISES = ("L9",)

PROGRAM = """
import ctypes, os, resource, sys, tempfile, threading
from headwater.lake.spark.worker import prepare
from headwater.memory import keep_freed
if "broker" in sys.argv:
    assert keep_freed()
if "worker" in sys.argv:
    prepare()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    [bytes(1 << 20) for _ in range(12)]
before = faults()
for _ in range(20):
    [bytes(1 << 20) for _ in range(12)]
made = faults() - before

threads = [threading.Thread(target=lambda: bytes(100_000)) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
with tempfile.NamedTemporaryFile() as file:
    page = ctypes.c_void_p(libc.fopen(file.name.encode(), b"w"))
    libc.malloc_info(0, page)
    libc.fclose(page)
    print(made, file.read().count(b"<heap nr"))
"""


def measured(kind: str) -> list[int]:
    """Pages that were made anew, and heaps of several threads."""
    program = [sys.executable, "-c", PROGRAM, kind]
    return [*map(int, subprocess.run(program, check=True, capture_output=True).stdout.split())]


@promise("L9")
@pytest.mark.parametrize("kind", ["broker", "worker"])
def test_freed_buffers_are_used_again(kind: str) -> None:
    """Pages are not made anew for every buffer, and all threads use one heap."""
    usual, kept = measured("usual"), measured(kind)
    assert kept[0] < usual[0] / 10
    assert usual[1] > kept[1] == 1
