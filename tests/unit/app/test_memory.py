"""O8: memory that is freed is used again."""

import subprocess
import sys

PROGRAM = """
import resource, sys
from headwater.app.memory import keep_freed
if "keep" in sys.argv:
    assert keep_freed()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    [bytes(1 << 20) for _ in range(12)]
before = faults()
for _ in range(20):
    [bytes(1 << 20) for _ in range(12)]
print(faults() - before)
"""


def faults(*arguments: str) -> int:
    return int(subprocess.run([sys.executable, "-c", PROGRAM, *arguments], check=True, capture_output=True).stdout)


def test_freed_buffers_are_used_again() -> None:
    """O8: pages are not made anew for every answer."""
    assert faults("keep") < faults() / 10
