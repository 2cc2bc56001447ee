"""Ledgers in one SQLite file, for several processes on one machine.

Writers take a lock file first, so that they queue in the kernel's order and not in SQLite's sleeping retries.
A commit is synced to disk before `append` returns (`synchronous=FULL` in WAL mode). Other processes hear of it
by a datagram to the sockets beside the file; whoever misses one sees `data_version` change soon after.
"""

from __future__ import annotations

import _sqlite3
import asyncio
import contextlib
import fcntl
import os
import socket
import sqlite3
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from headwater import native
from headwater.errors import ConfigError, OutcomeUnknown, StoreFull, StoreUnavailable, Truncated
from headwater.metadata.ledger import MAX_RECORD_BYTES, Beat, Entry, Pointer
from headwater.native import rows
from headwater.threads import Threads
from headwater.types import Domain, Position

if TYPE_CHECKING:
    from headwater.metadata.native_appends import NativeAppends

_SCHEMA = """
CREATE TABLE IF NOT EXISTS heads (
    domain INTEGER PRIMARY KEY, truncated INTEGER NOT NULL, pointer BLOB) STRICT;
CREATE TABLE IF NOT EXISTS records (
    domain INTEGER NOT NULL, position INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (domain, position)) STRICT, WITHOUT ROWID;
"""
# The newest position: of the last record, or of the last one that was truncated away, so that none is used again.
_LAST = """max(coalesce((SELECT max(position) FROM records WHERE domain = ?1), 0),
               coalesce((SELECT truncated FROM heads WHERE domain = ?1), 0))"""
_APPEND = f"INSERT INTO records SELECT ?1, 1 + {_LAST}, ?2 RETURNING position"

_BEATS_SCHEMA = """
CREATE TABLE IF NOT EXISTS beats (process TEXT PRIMARY KEY, count INTEGER NOT NULL) STRICT;
"""
_LOCK_SECONDS = 5.0
_FALLBACK_SECONDS = 0.1
_PEERS_SECONDS = 0.01
"""How old the list of other processes may be."""
_NOTICE = struct.Struct("<iq")
_UNIX_PATH_LIMIT = 100

_T = TypeVar("_T")


class SqliteLedger:
    """See `headwater.metadata.ledger.Ledger`."""

    dense = True

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._writing = Threads(1, "ledger-write")
        self._reading = Threads(1, "ledger-read")
        self._native: NativeAppends | None = None
        self._native_tried = False
        self._closed = False
        try:
            with self._locked():
                self._writer = self._connect(path)
                self._writer.executescript(_SCHEMA)
                self._beats = self._connect(Path(f"{path}-beats"))
                self._beats.execute("PRAGMA synchronous=OFF")
                self._beats.executescript(_BEATS_SCHEMA)
            self._reader = self._connect(path)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"cannot open the ledger {path}: {error}") from error
        self._notices = _Notices(Path(f"{path}-notices"))
        self._fallback: asyncio.Task[None] | None = None

    @classmethod
    def from_url(cls, url: str) -> SqliteLedger:
        """`sqlite:///absolute/path/ledger.db`"""
        parts = urlsplit(url)
        if parts.netloc or not parts.path.startswith("/"):
            raise ConfigError(f"{url!r} is not of the form sqlite:///absolute/path")
        return cls(Path(unquote(parts.path)))

    def __repr__(self) -> str:
        return f"<SqliteLedger {self._path}>"

    @staticmethod
    def _connect(path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=_LOCK_SECONDS, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        return connection

    # --- the contract ------------------------------------------------------------------------------

    async def append(self, domain: Domain, record: bytes) -> Position:
        if len(record) > MAX_RECORD_BYTES:
            raise ValueError(f"a ledger record of {len(record)} bytes; the limit is {MAX_RECORD_BYTES}")
        position = await self._append_natively(domain, record)
        if position is None:
            position = await self._run(self._writing, self._append, domain, record)
        self._notices.send(domain, position)
        return position

    async def _append_natively(self, domain: Domain, record: bytes) -> Position | None:
        """As `_append`, but by a thread that Python does not hold up; nothing if it must be done in the other way."""
        if native.serve is None or self._closed:
            return None
        if not self._native_tried:
            from headwater.metadata.native_appends import open_appends

            self._native_tried = True
            self._native = open_appends(self._path, _APPEND, _sqlite3)
        if self._native is None:
            return None
        row = await self._native.append(domain, record, alone=not self._notices.peers)
        if row is None or row[rows.RESULT] == rows.FAILED:
            return None
        if row[rows.RESULT] != rows.DONE:
            raise OutcomeUnknown(f"{self._path}: an append failed")
        return Position(row[rows.POSITION])

    async def read(self, domain: Domain, after: Position, limit: int) -> list[Entry]:
        return await self._run(self._reading, self._read, domain, after, limit)

    async def last(self, domain: Domain) -> Position:
        return await self._run(self._reading, self._last, domain)

    async def watch(self, domain: Domain, after: Position) -> Position:
        if self._fallback is None:
            self._fallback = asyncio.create_task(self._look_for_changes(), name="ledger-fallback")
        return Position(max(await self._notices.wait(domain, after), after + 1))

    async def truncate(self, domain: Domain, through: Position) -> None:
        await self._run(self._writing, self._truncate, domain, through)

    async def pointer(self, domain: Domain) -> Pointer | None:
        return await self._run(self._reading, self._pointer, self._reader, domain)

    async def set_pointer(self, domain: Domain, expected: Position, pointer: Pointer) -> bool:
        return await self._run(self._writing, self._set_pointer, domain, expected, pointer)

    async def beat(self, process: str) -> None:
        await self._run(self._reading, self._beat, process)

    async def beats(self) -> list[Beat]:
        return await self._run(self._reading, self._read_beats)

    async def forget_beat(self, process: str) -> None:
        await self._run(self._reading, self._forget_beat, process)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._fallback is not None:
            self._fallback.cancel()
        self._notices.close()
        if self._native is not None:
            await self._native.close()
        await self._writing.close()
        await self._reading.close()
        for connection in (self._writer, self._reader, self._beats):
            connection.close()
        os.close(self._lock)

    # --- on the threads ----------------------------------------------------------------------------

    async def _run(self, threads: Threads, call: Callable[..., _T], *arguments: object) -> _T:
        if self._closed:
            raise StoreUnavailable(f"the ledger {self._path} is closed")
        return await threads.run(call, *arguments)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock file. A holder that was stopped must not hang everybody else for ever."""
        deadline, pause = time.monotonic() + _LOCK_SECONDS, 0.0001
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise StoreUnavailable(f"{self._path} is locked by another process") from None
                time.sleep(pause)
                pause = min(pause * 2, 0.002)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def _writes(self, connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
        """One transaction. An error before COMMIT means for certain that nothing was written."""
        with self._locked(), _translated(self._path):
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException as error:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.OperationalError) and not _surely_undone(error):
                    raise OutcomeUnknown(f"{self._path}: {error}") from error
                raise

    def _append(self, domain: int, record: bytes) -> Position:
        """One statement is one transaction, and the fewest changes of threads that Python's SQLite allows."""
        alone = not self._notices.peers
        with contextlib.nullcontext() if alone else self._locked(), _translated(self._path):
            try:
                [row] = self._writer.execute(_APPEND, (domain, record)).fetchall()
            except sqlite3.OperationalError as error:
                if not _surely_undone(error):
                    raise OutcomeUnknown(f"{self._path}: {error}") from error
                raise
        return Position(row[0])

    def _read(self, domain: int, after: int, limit: int) -> list[Entry]:
        with _translated(self._path):
            db = self._reader
            db.execute("BEGIN")
            try:
                head = db.execute("SELECT truncated FROM heads WHERE domain = ?", (domain,)).fetchone()
                if head and head[0] > after:
                    raise Truncated(f"domain {domain} is truncated through {head[0]}, asked after {after}")
                rows = db.execute(
                    "SELECT position, data FROM records WHERE domain = ? AND position > ? ORDER BY position LIMIT ?",
                    (domain, after, limit),
                ).fetchall()
            finally:
                db.execute("ROLLBACK")
        return [Entry(Position(position), data) for position, data in rows]

    def _last(self, domain: int) -> Position:
        with _translated(self._path):
            [row] = self._reader.execute(f"SELECT {_LAST}", (domain,)).fetchall()
        return Position(row[0])

    def _truncate(self, domain: int, through: int) -> None:
        with self._writes(self._writer) as db:
            db.execute("INSERT INTO heads VALUES (?, 0, NULL) ON CONFLICT DO NOTHING", (domain,))
            db.execute(
                f"UPDATE heads SET truncated = max(truncated, min({_LAST}, ?2)) WHERE domain = ?1", (domain, through)
            )
            db.execute(
                "DELETE FROM records WHERE domain = ?1 AND position <= (SELECT truncated FROM heads WHERE domain = ?1)",
                (domain,),
            )

    def _pointer(self, db: sqlite3.Connection, domain: int) -> Pointer | None:
        with _translated(self._path):
            row = db.execute("SELECT pointer FROM heads WHERE domain = ?", (domain,)).fetchone()
        if row is None or row[0] is None:
            return None
        return msgspec.msgpack.decode(row[0], type=Pointer)

    def _set_pointer(self, domain: int, expected: int, pointer: Pointer) -> bool:
        with self._writes(self._writer) as db:
            now = self._pointer(db, domain)
            current = now.position if now else 0
            if current != expected or pointer.position <= current:
                return False
            db.execute(
                "INSERT INTO heads VALUES (?1, 0, ?2) ON CONFLICT DO UPDATE SET pointer = ?2",
                (domain, msgspec.msgpack.encode(pointer)),
            )
        return True

    def _beat(self, process: str) -> None:
        with _translated(self._path):
            self._beats.execute(
                "INSERT INTO beats VALUES (?, 1) ON CONFLICT DO UPDATE SET count = count + 1", (process,)
            )

    def _read_beats(self) -> list[Beat]:
        with _translated(self._path):
            rows = self._beats.execute("SELECT process, count FROM beats").fetchall()
        return [Beat(process, count) for process, count in rows]

    def _forget_beat(self, process: str) -> None:
        with _translated(self._path):
            self._beats.execute("DELETE FROM beats WHERE process = ?", (process,))

    def _data_version(self) -> int:
        version: int = self._reader.execute("PRAGMA data_version").fetchone()[0]
        return version

    def _ends(self, domains: list[int]) -> list[tuple[int, Position]]:
        return [(domain, self._last(domain)) for domain in domains]

    async def _look_for_changes(self) -> None:
        """Hear how far each watched domain reaches when the file changed, in case that a datagram did not arrive.

        Also while nobody waits: the next `watch` must not wait for what is there already.
        """
        version, known = -1, 0
        while not self._closed:
            await asyncio.sleep(_FALLBACK_SECONDS)
            with contextlib.suppress(sqlite3.Error, StoreUnavailable):
                now = await self._run(self._reading, self._data_version)
                domains = list(self._notices.watched)
                if now != version or len(domains) != known:
                    for domain, end in await self._run(self._reading, self._ends, domains):
                        self._notices.heard(domain, end)
                    version, known = now, len(domains)


def _surely_undone(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_FULL:
            raise StoreFull(f"{path}: {error}; free some space") from error
        raise StoreUnavailable(f"{path}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise StoreUnavailable(f"{path}: {error}; run `headwater doctor`") from error


class _Notices:
    """Datagrams between the processes that use one file."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(exist_ok=True)
        self._handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        self._waiters: dict[int, list[tuple[int, asyncio.Future[None]]]] = {}
        self._seen: dict[int, int] = {}
        self.watched: set[int] = set()
        """Domains that somebody has waited for."""
        self.peers: list[str] = []
        """Other processes' sockets. A stale list costs a slower lock or a late notice, nothing else."""
        self._look_at = 0.0
        self._name = f"{os.getpid()}-{id(self):x}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._bound = False
        self._loop: asyncio.AbstractEventLoop | None = None
        try:
            self._socket.bind(self._address(self._name))
            self._bound = True
        except OSError:  # a platform without such sockets: the fallback serves
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
        """Tell everybody, this process included."""
        self.heard(domain, position)
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + _PEERS_SECONDS
            self.peers = [name for name in os.listdir(self._handle) if name != self._name]
        message = _NOTICE.pack(domain, position)
        for name in self.peers:
            try:
                self._socket.sendto(message, self._address(name))
            except ConnectionRefusedError:  # its process is gone
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=self._handle)
            except OSError:  # full, or just leaving: it will look by itself
                continue

    def _receive(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                message = self._socket.recv(_NOTICE.size + 1)
                if len(message) == _NOTICE.size:
                    self.heard(*_NOTICE.unpack(message))

    def heard(self, domain: int, position: int) -> None:
        """Wake whoever waits for something at or before a position."""
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
