"""One process of `benchmarks.ledgers`: writes, follows or asks, begins when told, and prints what it measured."""

from __future__ import annotations

import asyncio
import json
import sys
import time

from headwater.ledger import open_ledger
from headwater.types import Domain, Position

ONE = Domain(1)
RECORD = b"." * 1000
WARM_APPENDS = 20
LOOKS = 300
PAGE = 256


async def _write(url: str, seconds: float) -> object:
    ledger = open_ledger(url)
    for _ in range(WARM_APPENDS):
        await ledger.append(ONE, RECORD)
    _wait_for_the_others()
    took: list[float] = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        await ledger.append(ONE, RECORD)
        took.append(time.perf_counter() - began)
    await ledger.close()
    return took


async def _follow(url: str, seconds: float) -> object:
    """Seconds, CPU seconds and records of a whole ledger, by watch and read."""
    ledger = open_ledger(url)
    last = await ledger.last(ONE)
    _wait_for_the_others()
    began, cpu = time.perf_counter(), time.process_time()
    position, count = Position(0), 0
    while position < last:
        await ledger.watch(ONE, position)
        while entries := await ledger.read(ONE, position, PAGE):
            position = entries[-1].position
            count += len(entries)
            if position >= last:
                break
    result = [time.perf_counter() - began, time.process_time() - cpu, count]
    await ledger.close()
    return result


async def _look(url: str, seconds: float) -> object:
    ledger = open_ledger(url)
    await ledger.last(ONE)
    _wait_for_the_others()
    took: list[float] = []
    for _ in range(LOOKS):
        began = time.perf_counter()
        await ledger.last(ONE)
        took.append(time.perf_counter() - began)
    await ledger.close()
    return took


_MODES = {"write": _write, "follow": _follow, "look": _look}


def _wait_for_the_others() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_MODES[sys.argv[1]](sys.argv[2], float(sys.argv[3])))))
