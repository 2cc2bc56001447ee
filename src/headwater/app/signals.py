"""Signals that stop a server process."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable


def leave_on_signals(stop: asyncio.Event, on_second: Callable[[], None] | None = None) -> None:
    """The first SIGTERM or SIGINT drains the process, the second ends it at once."""

    def on_signal() -> None:
        if stop.is_set():
            if on_second is not None:
                on_second()
            os._exit(130)
        stop.set()

    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, on_signal)
