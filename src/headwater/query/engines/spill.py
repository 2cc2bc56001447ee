"""The directory for what queries do not have in memory. Every gateway has one below it, with one for each worker.

A gateway holds a lock in its directory for as long as it lives. What a gateway that was killed has left is removed by
the next one that starts.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
from pathlib import Path

from headwater import modes
from headwater.clock import Chance
from headwater.errors import ConfigError

log = logging.getLogger("headwater.sql")
LOCK = "lock"


class Spill:
    """The directory of one gateway."""

    def __init__(self, root: str, chance: Chance) -> None:
        self._root = Path(root)
        self._chance = chance
        self._own: Path | None = None
        self._lock = -1

    def __repr__(self) -> str:
        return f"<Spill {self._own or self._root}>"

    def open(self) -> None:
        """Create the gateway's directory, and remove those of gateways that are gone. Blocks."""
        try:
            self._root.parent.mkdir(parents=True, exist_ok=True)
            modes.make_directory(self._root, modes.PRIVATE_DIRECTORY)
            self._own = self._root / f"gateway-{self._chance.uuid().hex}"
            modes.make_directory(self._own, modes.PRIVATE_DIRECTORY)
            self._lock = modes.create(str(self._own / LOCK), os.O_RDWR, modes.PRIVATE)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(f"cannot use the directory for queries {self._root}: {error}") from error
        for other in self._root.glob("gateway-*"):
            if other != self._own:
                _remove_if_left(other)

    def new(self) -> str:
        """A new directory for a worker. Blocks."""
        assert self._own is not None
        found = self._own / self._chance.uuid().hex
        modes.make_directory(found, modes.PRIVATE_DIRECTORY)
        return str(found)

    def remove(self, directory: str) -> None:
        """Remove the directory of a worker that is gone. Blocks."""
        shutil.rmtree(directory, ignore_errors=True)

    def close(self) -> None:
        """Remove the gateway's directory. Blocks."""
        if self._own is None:
            return
        shutil.rmtree(self._own, ignore_errors=True)
        os.close(self._lock)
        self._own = None


def _remove_if_left(directory: Path) -> None:
    """Remove the directory of a gateway, unless it runs. One without a lock is being created."""
    with contextlib.suppress(OSError):
        handle = os.open(directory / LOCK, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
            log.info("what a gateway has left was removed", extra={"path": str(directory)})
        finally:
            os.close(handle)
