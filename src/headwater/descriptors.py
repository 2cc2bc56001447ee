"""File descriptors of this process: the soft limit is raised, some are reserved, and connections share the others.

Files, stores and child processes use the reserved ones. When connections have taken all others, a new one takes the
place of the oldest one that has shown nothing yet: no log-in, and no request where none is needed.
"""

from __future__ import annotations

import errno
import os
import resource
import select
from collections.abc import Callable
from typing import Protocol

SPENT = (errno.EMFILE, errno.ENFILE)
"""The errors of a process, and of a machine, that has no descriptor left."""
MOST = 1 << 20
"""The soft limit is raised no further than this: some programs that a process starts look at each possible one."""
RESERVED = 128
"""Descriptors that connections do not get, at least. See `limits.reserved_descriptors`."""


class Seat:
    """The descriptor of one connection, from its acceptance to its end."""

    __slots__ = ("_taken", "address", "close", "own", "silent")

    def __init__(self, own: Descriptors, address: str, close: Callable[[], None], *, counted: bool = True) -> None:
        self.own = own
        self.address = address
        self.close = close
        """Ends the connection at once."""
        self.silent = True
        """Whether its client has shown nothing yet."""
        self._taken = counted

    def __repr__(self) -> str:
        return f"<Seat of {self.address}, {'silent' if self.silent else 'known'}>"

    def known(self) -> None:
        """Note that the client has logged in, or has sent a request where no log-in is needed."""
        self.own.heard(self)

    def release(self) -> None:
        """Give the descriptor back. To do so twice does no harm."""
        if self._taken:
            self._taken = False
            self.own.released(self)


class Descriptors:
    """Counts the connections of all listeners of a process against the descriptors that they may have."""

    def __init__(self, limit: int, reserved: int = RESERVED) -> None:
        self.limit = limit
        self.room = limit - min(max(reserved, limit // 10), limit // 2)
        """Connections at most."""
        self.share = max(1, self.room // 2)
        """Connections of one address at most."""
        self.count = 0
        self.closed = 0
        """Silent connections that were closed for others."""
        self.refused = 0
        self.spent = 0
        """How often the system had no descriptor for a new connection."""
        self._aside = 0
        self._addresses: dict[str, int] = {}
        self._silent: dict[Seat, None] = {}
        self._silent_of: dict[str, dict[Seat, None]] = {}

    def __repr__(self) -> str:
        return f"<Descriptors: {self.count} connections of {self.room}, limit {self.limit}>"

    def enter(self, address: str, close: Callable[[], None], extra: int = 0) -> Seat | None:
        """Let a connection in, or return None. `extra` says how many of the reserved ones its listener may use."""
        if self._addresses.get(address, 0) >= self.share + extra:
            entered = self._close_oldest(self._silent_of.get(address))
        else:
            entered = self.count < self.room + extra or self._close_oldest(self._silent)
        if not entered:
            self.refused += 1
            return None
        seat = Seat(self, address, close)
        self.count += 1
        self._addresses[address] = self._addresses.get(address, 0) + 1
        self._silent[seat] = None
        self._silent_of.setdefault(address, {})[seat] = None
        return seat

    def set_aside(self) -> int:
        """Give a quarter of the room, once, to the listener that counts its connections itself; returns that number."""
        if not self._aside:
            self._aside = max(1, self.room // 4)
            self.room -= self._aside
            self.share = max(1, self.room // 2)
        return self._aside

    def exhausted(self) -> None:
        """The system had no descriptor for a new connection: a silent one makes room."""
        self.spent += 1
        self._close_oldest(self._silent)

    def heard(self, seat: Seat) -> None:
        """See `Seat.known`."""
        if not seat.silent:
            return
        seat.silent = False
        self._silent.pop(seat, None)
        mine = self._silent_of.get(seat.address)
        if mine is not None:
            mine.pop(seat, None)
            if not mine:
                del self._silent_of[seat.address]

    def released(self, seat: Seat) -> None:
        """See `Seat.release`."""
        self.heard(seat)
        self.count -= 1
        left = self._addresses[seat.address] - 1
        if left:
            self._addresses[seat.address] = left
        else:
            del self._addresses[seat.address]

    def _close_oldest(self, among: dict[Seat, None] | None) -> bool:
        """Close the silent connection that is open for longest; false if there is none."""
        if not among:
            return False
        oldest = next(iter(among))
        oldest.release()
        self.closed += 1
        oldest.close()
        return True


def uncounted() -> Seat:
    """A seat for a connection without a socket."""
    return Seat(Descriptors(MOST), "", lambda: None, counted=False)


_own: Descriptors | None = None


def claim(reserved: int = RESERVED) -> Descriptors:
    """Raise the soft limit of this process to the hard limit, at its start. Returns its descriptors."""
    global _own
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            wanted = soft  # a system that lets no process have as many as its hard limit says
        soft = wanted
    _own = Descriptors(min(soft, MOST) if soft != resource.RLIM_INFINITY else MOST, reserved)
    return _own


def of_process() -> Descriptors:
    """The descriptors of this process: one limit of the system holds for all its listeners."""
    global _own
    if _own is None:
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        _own = Descriptors(MOST if soft == resource.RLIM_INFINITY else min(soft, MOST))
    return _own


def opened() -> int:
    """How many descriptors this process has open; -1 where the system does not tell."""
    for directory in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(directory)) - 1  # without that of the listing
        except OSError:
            continue
    return -1


class Numbered(Protocol):
    """What has a descriptor: a file, a pipe, a socket."""

    def fileno(self) -> int: ...


def readable(one: Numbered, seconds: float) -> bool:
    """Whether something can be read within a time, or its end. `select.select` refuses descriptors above 1,023."""
    poll = select.poll()
    poll.register(one.fileno(), select.POLLIN)
    return bool(poll.poll(seconds * 1_000))
