"""How much memory a million index entries take: measured in a process of its own, by its resident size."""

import subprocess
import sys

import pytest

from tests.support.promise import promise
from tests.support.soak import WHOLE

PROMISES = ("M1",)

MILLION = 1_000_000
LIMIT_MB = 150
"""Of a million entries."""
ALONE = MILLION if WHOLE else MILLION // 4
"""How many entries of one stream are looked at. Each of them is a record of the ledger, which takes its time."""

MEASURE = """
import gc, os, sys, uuid
from headwater.state.commands.streams import AppendWal, Chunk, CreateStreams, StreamConfig
from headwater.state.records import Record
from headwater.state.streams.state import StreamsState
from headwater.types import Domain, Position

def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

streams, objects, per_object = (int(a) for a in sys.argv[1:])
state = StreamsState(Domain(1))
before = resident()
counter = 0

def apply(command):
    global counter
    counter += 1
    state.apply(Position(counter), Record(1, counter, 1_700_000_000_000 + counter, counter, [command]))

for first in range(0, streams, 10_000):
    names = tuple(range(first + 1, min(first + 10_000, streams) + 1))
    apply(CreateStreams(uuid.UUID(int=first), 0, names, StreamConfig(False)))
at = 0
for sequence in range(objects):
    chunks = []
    for i in range(per_object):
        chunks.append(Chunk(at % streams + 1, 100 + i * 104, [(100, 10, 1_700_000_000_000)], []))
        at += 1
    apply(AppendWal(sequence, 200 + per_object * 104, 1_700_000_000_000, "local", chunks))
del chunks
entries = sum(len(stream.index) for stream in state.streams.values())
assert entries == objects * per_object, entries
print((resident() - before) / 1e6)
"""


@promise("M1")
@pytest.mark.parametrize(("streams", "objects", "per_object"), [(100_000, 100, 10_000), (1, ALONE, 1)])
def test_a_million_entries(streams: int, objects: int, per_object: int) -> None:
    """Over many streams, and in one stream with an object for each."""
    arguments = [sys.executable, "-c", MEASURE, str(streams), str(objects), str(per_object)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < LIMIT_MB * objects * per_object / MILLION
