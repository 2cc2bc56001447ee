"""A broker or a gateway with all its real parts that kills itself, as `kill -9` does, at a step of the write path.

It does so for the WAL object that holds the word CRASH: `stored` is after the object is stored and before its record,
`entered` is after its record stands in the ledger and before anybody hears of it.

    python -m tests.invariants.crashing SETTINGS stored|entered [gateway]
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, NoReturn

from headwater.app import equipment, gateway
from headwater.app.node import Node
from headwater.broker import handlers as _registered  # noqa: F401 - fills the registry
from headwater.broker.net.server import Server
from headwater.clock import SystemChance, SystemClock
from headwater.ledger import open_ledger
from headwater.ledger.contract import Ledger
from headwater.objects import ObjectStore, open_store
from headwater.settings.settings import Settings, load, parse_address
from headwater.state.commands.cluster import Listener
from headwater.state.commands.streams import AppendUnits, AppendWal
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
        if (
            self._doom.near
            and domain == 1
            and any(isinstance(c, AppendWal | AppendUnits) for c in decode(record).commands)
        ):
            die()
        return position


async def main(file: str, step: str, kind: str = "broker") -> None:
    settings = load(file, {})
    doom = Doom(step)
    if kind == "gateway":
        await serve_gateway(settings, doom)
        return
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


async def serve_gateway(settings: Settings, doom: Doom) -> None:
    """Run a gateway whose ledger and store are doomed."""
    equipment.open_ledger = lambda *given: DoomedLedger(open_ledger(*given), doom)  # type: ignore[assignment]
    equipment.open_store = lambda *given: DoomedStore(open_store(*given), doom)  # type: ignore[assignment]
    await gateway.serve(settings, supervised=False)


def doomed_broker(directory: Path, data: Path, node: int, port: int, step: str) -> AbstractContextManager[Popen[bytes]]:
    """Run this module as a process."""
    return _doomed(directory, f'data = "{data}"\nnode = {node}\nkafka = "127.0.0.1:{port}"\n', step)


def doomed_gateway(directory: Path, data: Path, address: str, step: str) -> AbstractContextManager[Popen[bytes]]:
    """Run this module as a gateway."""
    return _doomed(
        directory, f'data = "{data}"\nhttp = "127.0.0.1:0"\n[gateway]\nhttp = "{address}"\n', step, "gateway"
    )


@contextmanager
def _doomed(directory: Path, settings: str, step: str, *kind: str) -> Iterator[Popen[bytes]]:
    file = directory / "doomed.toml"
    file.write_text(settings)
    with (directory / "doomed.stderr").open("wb") as errors:
        process = Popen(
            [sys.executable, "-m", "tests.invariants.crashing", str(file), step, *kind],
            cwd=Path(__file__).parents[2],
            stdout=PIPE,
            stderr=errors,
        )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(b"ready"), (directory / "doomed.stderr").read_text()
            yield process
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
