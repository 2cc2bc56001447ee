"""What every server process does at its start and at its end."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Coroutine
from typing import Any

from headwater.app.signals import leave_on_signals
from headwater.errors import ConfigError, HeadwaterError

log = logging.getLogger("headwater.process")
_background: set[asyncio.Task[None]] = set()


def until_told() -> asyncio.Event:
    """An event that a signal sets."""
    stop = asyncio.Event()
    leave_on_signals(stop)
    return stop


async def started(start: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Start, unless told to stop first: a store that does not answer must not keep a process from leaving."""
    starting, stopping = asyncio.create_task(start), asyncio.create_task(stop.wait())
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if starting.done():
        starting.result()
        return True
    starting.cancel()
    return False


def halt(error: HeadwaterError, stop: asyncio.Event) -> None:
    """This process must not go on."""
    log.critical("halted", extra={"reason": str(error)})
    stop.set()


async def watch_parent(stop: asyncio.Event) -> str:
    """Standard input is a pipe from the supervisor, which says the secret by which it is known, and nothing else. When
    it closes, the supervisor is gone."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    async def wait() -> None:
        await reader.read()
        stop.set()

    secret = (await reader.readline()).decode("ascii").strip()
    task = asyncio.create_task(wait(), name="parent")
    _background.add(task)
    if not secret:
        raise ConfigError("a supervised process needs a supervisor")
    return secret
