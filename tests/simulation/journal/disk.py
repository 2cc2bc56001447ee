"""A machine of the simulation: its disk, its memory, its processes' locks, and whose turn it is.

Every call of a process to its disk is a turn. Between two turns any other process may run or be killed, or all lose
power.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator

from headwater.errors import StoreFull, StoreUnavailable
from headwater.ledger.journal.disk import SyncFailed
from headwater.types import Pieces

PAGE = 4096
SECTOR = 512
LOCK_TURNS = 400


class Killed(BaseException):
    """The process is gone. Nothing that it does from now on has an effect."""


class File:
    """A file as processes see it, and as it is on the disk."""

    def __init__(self, size: int) -> None:
        self.seen = bytearray(size)
        self.stored = bytearray(size)
        self.dirty: set[int] = set()

    def lose_power(self, random: random.Random) -> None:
        """Each page that was written since the last sync is there, is not there, or is torn."""
        for page in self.dirty:
            choice = random.random()
            for at in range(page * PAGE, (page + 1) * PAGE, SECTOR):
                if choice < 0.4 or (choice < 0.6 and random.random() < 0.5):
                    self.stored[at : at + SECTOR] = self.seen[at : at + SECTOR]
        self.dirty.clear()
        self.seen = bytearray(self.stored)


class Machine:
    """One machine. `run` gives turns to its processes until they have ended."""

    def __init__(self, seed: int, *, failing: float = 0.0, full: float = 0.0) -> None:
        self.random = random.Random(seed)
        self.files: dict[str, File] = {}
        self.removed: dict[str, File] = {}
        """Files whose removal is not yet on the disk."""
        self.failing = failing
        self.full = full
        self.boot = self.random.randbytes(16)
        self.page = bytearray()
        self.holder: Process | None = None
        self.claims: dict[int, Process] = {}
        self.processes: list[Process] = []
        self.turns = 0

    def lose_power(self) -> None:
        """All processes are gone, and what was not synced may be."""
        for process in self.processes:
            process.kill()
        self.settle()
        for file in self.files.values():
            file.lose_power(self.random)
        for name, file in self.removed.items():
            if self.random.random() < 0.5:
                file.lose_power(self.random)
                self.files[name] = file
        self.removed.clear()
        self.boot = self.random.randbytes(16)

    def settle(self) -> None:
        """Let killed processes end."""
        for process in [process for process in self.processes if process.killed]:
            process.turn_over()
        self.processes = [process for process in self.processes if not process.ended]

    def run(self, turns: int) -> None:
        """Give so many turns."""
        for _ in range(turns):
            self.processes = [process for process in self.processes if not process.ended]
            able = [process for process in self.processes if process.paused <= self.turns]
            self.turns += 1
            if able:
                self.random.choice(able).turn_over()

    def finish(self) -> None:
        """Let all processes end by themselves."""
        while any(not process.ended for process in self.processes):
            self.run(1)


class Process:
    """A process of the machine: work that runs in a thread, one call at a time."""

    def __init__(self, machine: Machine, work: Callable[[SimulatedDisk], None]) -> None:
        self.machine = machine
        self.killed = self.ended = False
        self.paused = 0
        self.error: Exception | None = None
        self._may_go = threading.Semaphore(0)
        self._has_gone = threading.Semaphore(0)
        self._work = work
        self.disk = SimulatedDisk(self)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        machine.processes.append(self)

    def _run(self) -> None:
        self._may_go.acquire()
        try:
            if not self.killed:
                self._work(self.disk)
        except Killed:
            pass
        except Exception as error:  # noqa: BLE001 - whoever started the process asks for it
            self.error = error
        self.ended = True
        self.release()
        self._has_gone.release()

    def turn_over(self) -> None:
        """Let it go on until its next call."""
        if not self.ended:
            self._may_go.release()
            self._has_gone.acquire()

    def turn(self) -> None:
        """Called by the process itself, before a call has its effect."""
        if not self.killed:
            self._has_gone.release()
            self._may_go.acquire()
        if self.killed:
            raise Killed

    def kill(self) -> None:
        """From now on it has no effect, and no locks."""
        self.killed = True
        self.release()

    def release(self) -> None:
        if self.machine.holder is self:
            self.machine.holder = None
        for slot in [slot for slot, owner in self.machine.claims.items() if owner is self]:
            del self.machine.claims[slot]


class SimulatedDisk:
    """See `headwater.ledger.journal.disk.Disk`."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._machine = process.machine
        self._page = bytearray()
        self._open: dict[str, File] = {}

    # --- files ---------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        self._process.turn()
        return sorted(self._machine.files)

    def create(self, name: str, size: int) -> None:
        self._process.turn()
        if name in self._machine.files:
            raise FileExistsError(name)
        if self._machine.random.random() < self._machine.full:
            raise StoreFull(name)
        self._machine.files[name] = self._open[name] = File(size)

    def size(self, name: str) -> int:
        return len(self._file(name).seen)

    def read(self, name: str, at: int, size: int) -> bytes:
        self._process.turn()
        return bytes(self._file(name).seen[at : at + size])

    read_once = read

    def write(self, name: str, at: int, pieces: Pieces) -> None:
        """A process may be killed in the middle of it."""
        file, data = self._file(name), b"".join(pieces)
        assert at % PAGE == 0 and len(data) % PAGE == 0 and at + len(data) <= len(file.seen), (name, at, len(data))
        half = self._machine.random.randrange(len(data) // PAGE + 1) * PAGE
        self._process.turn()
        _put(file, at, data[:half])
        self._process.turn()
        _put(file, at + half, data[half:])

    def sync(self, name: str) -> None:
        """Covers what was written before it began."""
        file = self._file(name)
        self._process.turn()
        begun = {page: bytes(file.seen[page * PAGE : (page + 1) * PAGE]) for page in file.dirty}
        self._process.turn()
        failed = self._machine.random.random() < self._machine.failing
        for page, data in begun.items():
            now = file.seen[page * PAGE : (page + 1) * PAGE]
            if not failed:
                file.stored[page * PAGE : (page + 1) * PAGE] = data
            if now == data:
                file.dirty.discard(page)  # after a failure nobody writes it again: it is in memory only
        if failed:
            raise SyncFailed(name)

    def sync_name(self, name: str) -> None:
        self.sync(name)
        self._machine.removed.clear()

    def forget(self, name: str) -> None:
        self._open.pop(name, None)

    def remove(self, name: str) -> None:
        self._process.turn()
        self._open.pop(name, None)
        file = self._machine.files.pop(name, None)
        if file is not None:
            self._machine.removed[name] = file

    def put_aside(self, name: str) -> None:
        self._machine.files[f"{name}-aside"] = self._machine.files.pop(name)

    def _file(self, name: str) -> File:
        file = self._open.get(name) or self._machine.files.get(name)
        if file is None:
            raise FileNotFoundError(name)
        self._open[name] = file
        return file

    # --- other processes -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        for _ in range(LOCK_TURNS):
            self._process.turn()
            if self._machine.holder is None:
                self._machine.holder = self._process
                break
        else:
            raise StoreUnavailable("locked by another process")
        try:
            yield
        finally:
            if self._machine.holder is self._process:
                self._machine.holder = None

    def claim(self, slot: int) -> bool:
        return self._machine.claims.setdefault(slot, self._process) is self._process

    def claimed(self, slots: int) -> bool:
        return any(owner is not self._process for owner in self._machine.claims.values())

    def page(self, size: int) -> memoryview | None:
        self._process.turn()
        if len(self._machine.page) != size:
            return None
        self._page = self._machine.page
        return memoryview(self._page)

    def new_page(self, data: bytes) -> None:
        self._process.turn()
        self._machine.page = bytearray(data)

    def drop_page(self) -> None:
        self._process.turn()
        self._machine.page = bytearray()

    def same_page(self) -> bool:
        self._process.turn()
        return self._machine.page is self._page

    def boot(self) -> bytes:
        return self._machine.boot

    def release(self) -> None:
        self._process.release()


def _put(file: File, at: int, data: bytes) -> None:
    file.seen[at : at + len(data)] = data
    file.dirty.update(range(at // PAGE, (at + len(data)) // PAGE))
