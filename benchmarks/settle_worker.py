"""One side of the benchmark of typed settling, in a process of its own: the code of this tree, or of an earlier one.

It prints ``ready``, settles one topic for every line on stdin, and answers each with a sample. Modules that an earlier
build lacks are imported for typed records only. Run by `benchmarks.settle_typed`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
from pathlib import Path

import msgspec

from benchmarks.segments import CASES, Case
from benchmarks.settle_inputs import make_input
from benchmarks.settle_measure import Sample
from benchmarks.settle_ours import Bench, open_bench

WARM_ROWS, WARM_JOBS, WARM_STREAMS = 20_000, 6, 4
FIRST_ROWS = 1_000
"""Rows that a typed topic has settled before, so that its schema and its columns are known."""


class Order(msgspec.Struct, frozen=True):
    """What to settle."""

    case: str
    rows: int
    streams: int


class Worker:
    """Settles what it is told to."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._ids: dict[str, int] = {}
        self._turns = 0

    async def warm_up(self) -> None:
        """Small jobs let the JVM compile what every job does."""
        data = make_input(CASES[0], WARM_ROWS)
        for number in range(WARM_JOBS):
            topic = await self._bench.write(f"warm-{number}", data, WARM_STREAMS)
            await self._bench.settle(topic, data, WARM_STREAMS)

    async def settle(self, order: Order) -> Sample:
        self._turns += 1
        name = f"t{self._turns}"
        untyped = next((case for case in CASES if case.name == order.case), None)
        return await (self._typed(name, order) if untyped is None else self._untyped(name, untyped, order))

    async def _untyped(self, name: str, case: Case, order: Order) -> Sample:
        data = make_input(case, order.rows)
        _freeze()
        topic = await self._bench.write(name, data, order.streams)
        return await self._bench.settle(topic, data, order.streams)

    async def _typed(self, name: str, order: Order) -> Sample:
        from benchmarks.typed_inputs import SCHEMAS, SUBJECT, TYPED_CASES, make_typed, sum_of_ids

        case = next(case for case in TYPED_CASES if case.name == order.case)
        if case.kind and case.kind not in self._ids:
            subject = f"{SUBJECT}-{case.kind}"
            self._ids[case.kind] = await self._bench.register(subject, case.kind, SCHEMAS[case.kind])
        number = self._ids.get(case.kind, 0)
        first, data = make_typed(case, FIRST_ROWS, number), make_typed(case, order.rows, number)
        _freeze()
        topic = await self._bench.write(name, first, order.streams, {"headwater.value.schema": case.source})
        await self._bench.settle(topic, first, order.streams)
        await self._bench.append(topic, data, order.streams)
        sample = await self._bench.settle(topic, data, order.streams, FIRST_ROWS)
        rows, ids = order.rows + FIRST_ROWS, sum_of_ids(order.rows) + sum_of_ids(FIRST_ROWS)
        columns = "count(*), sum(value_data.id), count(value_data.note), count(decode_error)"
        await self._bench.check_typed(topic, columns, (rows, ids, rows, 0))
        return sample


def _freeze() -> None:
    """Records are no part of a compactor, so looking through them must not count as its work."""
    gc.collect()
    gc.freeze()


async def run(directory: Path, master: str) -> None:
    async with open_bench(directory, master) as bench:
        worker = Worker(bench)
        await worker.warm_up()
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            sample = await worker.settle(msgspec.json.decode(line, type=Order))
            print(msgspec.json.encode(sample).decode(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("master")
    options = parser.parse_args()
    options.directory.mkdir(parents=True)
    asyncio.run(run(options.directory, options.master))


if __name__ == "__main__":
    main()
