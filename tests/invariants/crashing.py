"""A broker with all its real parts that kills itself, as `kill -9` does, at a chosen step of the write path.

It does so for the WAL object that holds the word CRASH: `stored` is after the object is stored and before its record,
`entered` is after its record stands in the ledger and before anybody hears of it.

    python -m tests.invariants.crashing SETTINGS stored|entered
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, NoReturn

from headwater.app.node import Node
from headwater.broker import handlers as _registered  # noqa: F401 - fills the registry
from headwater.broker.net.server import Server
from headwater.clock import SystemChance, SystemClock
from headwater.ledger import open_ledger
from headwater.ledger.contract import Ledger
from headwater.objects import ObjectStore, open_store
from headwater.settings.settings import load, parse_address
from headwater.state.commands.cluster import Listener
from headwater.state.commands.streams import AppendWal
from headwater.state.records import decode
from headwater.types import Domain, Pieces, Position

WORD = b"CRASH"


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nobody survives that")


class Doom:
    """Whether the fatal object has been stored."""

    def __init__(self, step: str) -> None:
        self.step = step
        self.near = False


class DoomedStore:
    """A store that may be the last thing its process uses."""

    def __init__(self, inner: ObjectStore, doom: Doom) -> None:
        self._inner = inner
        self._doom = doom

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def put(self, path: str, pieces: Pieces) -> None:
        await self._inner.put(path, pieces)
        if path.startswith("wal/") and WORD in b"".join(pieces):
            if self._doom.step == "stored":
                die()
            self._doom.near = True


class DoomedLedger:
    """A ledger that may be the last thing its process uses."""

    def __init__(self, inner: Ledger, doom: Doom) -> None:
        self._inner = inner
        self._doom = doom

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def append(self, domain: Domain, record: bytes) -> Position:
        position = await self._inner.append(domain, record)
        if self._doom.near and domain == 1 and any(isinstance(c, AppendWal) for c in decode(record).commands):
            die()
        return position


async def main(file: str, step: str) -> None:
    settings = load(file, {})
    doom = Doom(step)
    host, port = parse_address(settings.kafka)
    node = Node(
        settings,
        DoomedLedger(open_ledger(settings.ledger_url), doom),  # type: ignore[arg-type]
        DoomedStore(open_store(settings.objects_url), doom),  # type: ignore[arg-type]
        SystemClock(),
        SystemChance(),
        listeners=(Listener("PLAINTEXT", host, port),),
    )
    server = Server(node.broker)
    await server.listen("PLAINTEXT", host, port)
    await node.start()
    print("ready", flush=True)
    await asyncio.Event().wait()


@contextmanager
def doomed_broker(directory: Path, data: Path, node: int, port: int, step: str) -> Iterator[Popen[bytes]]:
    """Run this module as a process."""
    file = directory / "doomed.toml"
    file.write_text(f'data = "{data}"\nnode = {node}\nkafka = "127.0.0.1:{port}"\n')
    with (directory / "doomed.stderr").open("wb") as errors:
        process = Popen(
            [sys.executable, "-m", "tests.invariants.crashing", str(file), step],
            cwd=Path(__file__).parents[2],
            stdout=PIPE,
            stderr=errors,
        )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n", (directory / "doomed.stderr").read_text()
            yield process
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
