"""How fast one core settles and serves: WAL runs to a segment, and a segment back to Kafka batches.

Run `python -m benchmarks.segments`. One process; rates are per second of CPU, of all its threads together.
"""

from __future__ import annotations

import argparse
import random
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from headwater.client.records import Record, encode_batch
from headwater.log.segment.encode import RowGroup, compile_encoder
from headwater.log.segment.read import SegmentReader, footer_bytes
from headwater.log.segment.write import SegmentWriter, compile_kernels, decode_runs
from headwater.wire.codecs import NONE, ZSTD

OPENED_LIMIT = 64 << 20
RUN_BYTES = 4 << 20
FETCH_BYTES = 1 << 20
START_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of input."""

    name: str
    value_bytes: int
    batch_rows: int
    codec: int


CASES = [
    Case("100 B, batches of 1,000", 100, 1_000, NONE),
    Case("100 B, batches of 1,000, zstd", 100, 1_000, ZSTD),
    Case("1 KB, batches of 1,000", 1_000, 1_000, NONE),
    Case("1 KB, batches of 1,000, zstd", 1_000, 1_000, ZSTD),
    Case("100 B, batches of one", 100, 1, NONE),
    Case("1 KB, batches of one", 1_000, 1, NONE),
]


class _Sink:
    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        self.pieces.append(data)
        return len(data)


def make_runs(case: Case, rows: int) -> list[tuple[bytes, int, int]]:
    """Runs of batches with half-random values and short keys, as a WAL object holds them."""
    chance = random.Random(1)
    half = case.value_bytes // 2
    runs: list[tuple[bytes, int, int]] = []
    pieces: list[bytes] = []
    start = size = 0
    words = [chance.randbytes(half) for _ in range(5_000)]
    for at in range(0, rows, case.batch_rows):
        records = [
            Record(0, START_MS + at + i, b"%012d" % (at + i), words[(at + i) * 7 % 5_000] + b"x" * half)
            for i in range(case.batch_rows)
        ]
        batch = encode_batch(records, codec=case.codec)
        pieces += (struct.pack(">I", len(batch)), batch)
        size += len(batch)
        if size >= RUN_BYTES:
            runs.append((b"".join(pieces), start, -1))
            pieces, size, start = [], 0, at + case.batch_rows
    if pieces:
        runs.append((b"".join(pieces), start, -1))
    return runs


def settle(runs: list[tuple[bytes, int, int]]) -> bytes:
    """A segment of all rows."""
    sink = _Sink()
    writer = SegmentWriter(sink)
    for batch in decode_runs(0, runs, 0, OPENED_LIMIT):
        writer.add(0, batch)
    writer.close()
    return b"".join(sink.pieces)


def decode(runs: list[tuple[bytes, int, int]]) -> None:
    """All rows, thrown away."""
    for _ in decode_runs(0, runs, 0, OPENED_LIMIT):
        pass


def serve(data: bytes) -> None:
    """All row groups, read and encoded as fetches do it."""
    reader = SegmentReader(data[-footer_bytes(data[-8:]) :])
    for i, facts in enumerate(reader.groups):
        rows = reader.decode(i, data[facts.position : facts.position + facts.length])
        offset = facts.first_offset
        while offset <= facts.last_offset:
            offset = rows.encode(offset, facts.last_offset + 1, FETCH_BYTES, True).next_offset


def encode(groups: list[RowGroup]) -> None:
    """Row groups in memory, as batches of fetches."""
    for rows in groups:
        found, end = rows.first_at_time(0), rows.largest_time()
        assert found is not None
        assert end is not None
        offset = found[0]
        while offset <= end[0]:
            offset = rows.encode(offset, end[0] + 1, FETCH_BYTES, True).next_offset


def load(data: bytes) -> list[RowGroup]:
    """All row groups of a segment."""
    reader = SegmentReader(data[-footer_bytes(data[-8:]) :])
    return [reader.decode(i, data[g.position : g.position + g.length]) for i, g in enumerate(reader.groups)]


def best(work: Callable[[], object], repeats: int) -> float:
    """The least CPU time of some repetitions."""
    times = []
    for _ in range(repeats):
        before = time.process_time()
        work()
        times.append(time.process_time() - before)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=100, help="values per case")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    compile_kernels()
    compile_encoder()
    print(f"{'':32} {'step':12} {'rows/CPU-s':>12} {'MB/CPU-s':>10}")
    for case in CASES:
        rows = options.megabytes * 1_000_000 // case.value_bytes
        rows -= rows % case.batch_rows
        runs = make_runs(case, rows)
        data = settle(runs)
        groups = load(data)
        steps: list[tuple[str, Callable[[], object]]] = [
            ("decode", partial(decode, runs)),
            ("settle", partial(settle, runs)),
            ("read", partial(load, data)),
            ("encode", partial(encode, groups)),
            ("read+encode", partial(serve, data)),
        ]
        for name, work in steps:
            seconds = best(work, options.repeats)
            print(f"{case.name:32} {name:12} {rows / seconds:12,.0f} {rows * case.value_bytes / seconds / 1e6:10,.0f}")


if __name__ == "__main__":
    main()
