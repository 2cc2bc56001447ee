"""`python -m tests.support.ledger_writer URL NAME COUNT [SIZE]`: a process that appends numbered records.

It prints `position number` for each record whose append was acknowledged. As a replica does, it retries a record whose
outcome is unknown until one attempt is committed. So a number may be in the ledger twice.
"""

from __future__ import annotations

import asyncio
import sys

from headwater.errors import Retriable
from headwater.ledger import open_ledger
from headwater.types import Domain

ONE = Domain(1)
PAUSE_SECONDS = 0.02


def payload(name: str, number: int, size: int = 40) -> bytes:
    return f"{name} {number} ".encode().ljust(size, b".")


def told(output: str) -> dict[int, int]:
    """Positions and numbers of all complete lines that a writer printed."""
    lines = [line for line in output.splitlines(keepends=True) if line.endswith("\n")]
    return {int(position): int(number) for position, number in (line.split() for line in lines)}


async def write(url: str, name: str, count: int, size: int) -> None:
    ledger = open_ledger(url)
    for number in range(count):
        while True:
            try:
                position = await ledger.append(ONE, payload(name, number, size))
                break
            except Retriable:
                await asyncio.sleep(PAUSE_SECONDS)
        print(position, number, flush=True)
    await ledger.close()


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 40))
