"""The start and the end of server processes."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from headwater import descriptors
from headwater.app.signals import leave_on_signals
from headwater.background import Background, Duty, OnDeath, launch
from headwater.clock import SystemClock
from headwater.errors import ConfigError, DutyFailed, HeadwaterError, LedgerWentBack
from headwater.settings.settings import Settings

log = logging.getLogger("headwater.process")
PARENT = Duty("parent", OnDeath.END, "ends the process when its supervisor has ended")
LINKS_WORD = "links"
"""What a broker says to its supervisor when there are links to copy."""
FAILED_SECONDS = 3.0
"""How long a process may take to stop after a duty has failed. It may wait for something that never happens."""
FAILED_CODE = 7
"""The exit code of a process whose duty has failed."""
INPUT_CODE = 1
"""The exit code of a process whose settings or data directory are wrong."""
LEDGER_CODE = 5
"""The exit code of a process that cannot go on with the ledger as it is."""


class ServerProcess(Protocol):
    """A process that serves until it is told to stop."""

    @property
    def ready(self) -> str:
        """The line that says where the process listens, for its supervisor."""
        ...

    async def start(self) -> None:
        """Begin to serve."""

    async def stop(self) -> None:
        """Serve no more."""


async def serve_until_told(
    make: Callable[[Background, str, asyncio.Event], ServerProcess], settings: Settings, *, supervised: bool
) -> None:
    """Run a process until a signal stops it. `make` gets its duties, its supervisor's secret and what stops it."""
    descriptors.claim(settings.limits.reserved_descriptors)
    stop = until_told()
    background = supervised_by(stop)
    process = make(background, await watch_parent(stop, background) if supervised else "", stop)
    if not await started(process.start(), stop, background):
        return
    print(process.ready, flush=True)  # noqa: T201
    await stop.wait()
    await stopped(process.stop(), background)


def until_told() -> asyncio.Event:
    """An event that a signal sets."""
    stop = asyncio.Event()
    leave_on_signals(stop)
    return stop


def supervised_by(stop: asyncio.Event) -> Background:
    """The duties of a process that stops when one of them fails."""

    def failed(failure: DutyFailed) -> None:
        log.critical("the process ends", extra={"reason": str(failure)})
        stop.set()

    return Background(SystemClock(), failed)


async def started(start: Coroutine[Any, Any, None], stop: asyncio.Event, background: Background) -> bool:
    """Start, unless the process is stopped first. A store that does not answer must not keep a process from ending."""
    starting, stopping = launch(start), launch(stop.wait())
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if starting.done():
        starting.result()
        return True
    starting.cancel()
    if background.failure is not None:
        raise background.failure
    return False


async def stopped(stop: Coroutine[Any, Any, None], background: Background) -> None:
    """Stop a process. If a duty has failed, raise its failure; if stopping then takes too long, exit at once."""
    failure = background.failure
    if failure is None:
        await stop
        await background.close()
        return
    stopping = launch(stop)
    await asyncio.wait([stopping], timeout=FAILED_SECONDS)
    if not stopping.done():
        log.critical("the process does not stop and is ended", extra={"seconds": FAILED_SECONDS})
        os._exit(LEDGER_CODE if isinstance(failure.__cause__, LedgerWentBack) else FAILED_CODE)
    error = stopping.exception()
    if error is not None:
        log.error("stopping failed", exc_info=error)
    raise failure


def halt(error: HeadwaterError, stop: asyncio.Event) -> None:
    """End the process, because it must not continue after this error."""
    log.critical("halted", extra={"reason": str(error)})
    stop.set()


async def watch_parent(stop: asyncio.Event, background: Background) -> str:
    """Read the supervisor's secret from standard input, then watch the pipe. When it closes, the supervisor is gone."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    async def wait() -> None:
        await reader.read()
        stop.set()

    secret = (await reader.readline()).decode("ascii").strip()
    background.run(PARENT, wait)
    if not secret:
        raise ConfigError("a supervised process needs a supervisor")
    return secret


def tell_supervisor(word: str) -> None:
    """Say a word to the supervisor, which reads the output of this process line by line."""
    sys.stdout.write(word + "\n")
    sys.stdout.flush()
