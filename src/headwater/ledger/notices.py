"""Notices of new records between the processes of one machine. One that is lost costs a moment, nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from pathlib import Path

from headwater.clock import SystemClock

_now = SystemClock().monotonic
_PEERS_SECONDS = 0.01
"""The maximum age of the list of other processes."""
_NOTICE = struct.Struct("<iq")
_UNIX_PATH_LIMIT = 100


class Notices:
    """Datagrams between the processes that use one ledger, through sockets in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        self._waiters: dict[int, list[tuple[int, asyncio.Future[None]]]] = {}
        self._seen: dict[int, int] = {}
        self.watched: set[int] = set()
        """Domains that a caller has watched."""
        self.peers: list[str] = []
        """The sockets of other processes. An outdated list causes a slower lock or a late notice, nothing else."""
        self._look_at = 0.0
        self._name = f"{os.getpid()}-{id(self):x}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._bound = False
        self._loop: asyncio.AbstractEventLoop | None = None
        try:
            self._socket.bind(self._address(self._name))
            self._bound = True
        except OSError:  # a platform without such sockets: the ledger looks for new records
            self._bound = False

    def _address(self, name: str) -> str:
        full = str(self._directory / name)
        return full if len(full) < _UNIX_PATH_LIMIT else f"/proc/self/fd/{self._handle}/{name}"

    async def wait(self, domain: int, after: int) -> int:
        loop = asyncio.get_running_loop()
        if self._bound and self._loop is None:
            self._loop = loop
            loop.add_reader(self._socket.fileno(), self._receive)
        self.watched.add(domain)
        if self._seen.get(domain, 0) > after:
            return self._seen[domain]
        future: asyncio.Future[None] = loop.create_future()
        self._waiters.setdefault(domain, []).append((after, future))
        await future
        return self._seen.get(domain, 0)

    def send(self, domain: int, position: int) -> None:
        """Notify all processes, including this one, of a new record."""
        self.heard(domain, position)
        now = _now()
        if now >= self._look_at:
            self._look_at = now + _PEERS_SECONDS
            with contextlib.suppress(OSError):  # no descriptor is free for the listing
                self.peers = [name for name in os.listdir(self._handle) if name != self._name]
        message = _NOTICE.pack(domain, position)
        for name in self.peers:
            try:
                self._socket.sendto(message, self._address(name))
            except ConnectionRefusedError:  # its process is gone
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=self._handle)
            except OSError:  # the socket is full or closing: that process finds the record by itself
                continue

    def _receive(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                message = self._socket.recv(_NOTICE.size + 1)
                if len(message) == _NOTICE.size:
                    self.heard(*_NOTICE.unpack(message))

    def heard(self, domain: int, position: int) -> None:
        """Wake the callers that wait for a record at or before a position."""
        if position <= self._seen.get(domain, 0):
            return
        self._seen[domain] = position
        waiting = self._waiters.get(domain)
        if not waiting:
            return
        self._waiters[domain] = [w for w in waiting if w[0] >= position]
        for after, future in waiting:
            if after < position and not future.done():
                future.set_result(None)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        if self._bound:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._name, dir_fd=self._handle)
        os.close(self._handle)
