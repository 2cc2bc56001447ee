"""The progress of a query on one line of a terminal, while its user waits for the first rows."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

from headwater.errors import HeadwaterError

FIRST_SECONDS = 1.0
"""Queries that answer sooner show no progress."""
PAUSE_SECONDS = 0.5
_CLEAR = "\r\x1b[K"


class Progress:
    """Looks at queries through a gateway, and shows how far they are."""

    def __init__(self, look: Callable[[str], Any], write: Callable[[str], object]) -> None:
        """`look` gets a document of the gateway; `write` writes to the terminal at once."""
        self._look = look
        self._write = write
        self._shown = False

    @contextlib.contextmanager
    def __call__(self, query: str) -> Iterator[None]:
        """Show the progress of a query until the block ends. The line is empty then."""
        over, line = threading.Event(), threading.Lock()
        threading.Thread(target=self._show, args=(query, over, line), name="progress", daemon=True).start()
        try:
            yield
        finally:
            with line:  # the thread may wait for the gateway, and writes nothing from here on
                over.set()
                self._write(_CLEAR if self._shown else "")
                self._shown = False

    def _show(self, query: str, over: threading.Event, line: threading.Lock) -> None:
        pause = FIRST_SECONDS
        while not over.wait(pause):
            pause = PAUSE_SECONDS
            try:
                found = self._look(f"/v1/queries/{quote(query, safe='')}")
            except HeadwaterError:
                continue  # the gateway does not know it yet, or has much to do
            with line:
                if not over.is_set():
                    self._shown = True
                    self._write(f"{_CLEAR}{line_of(found)}")


def line_of(found: Any) -> str:
    """What is said of a query that runs."""
    seconds = f"{found['seconds']:.0f} s"
    if found["phase"] == "waiting":
        return f"waiting, {seconds} (Ctrl-C cancels)"
    read = found["file_bytes"] + found["hot_bytes"]
    return f"{found['percent']:.0f} % of {read / 1e6:,.1f} MB, {seconds}, {found['engine']} (Ctrl-C cancels)"
