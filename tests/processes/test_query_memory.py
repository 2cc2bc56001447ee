"""A process for queries takes no more memory than it was allowed, whatever its libraries ask for."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import mmap
from headwater.query.engines.serving import bound_memory
bound_memory(64 << 20)
kept = bytearray(16 << 20)
try:
    bytearray(256 << 20)
except MemoryError:
    print("refused")
mmap.mmap(-1, 256 << 20)
print("shared memory does not count")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts this")
def test_the_system_refuses_what_is_beyond() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines() == ["refused", "shared memory does not count"], done.stderr
