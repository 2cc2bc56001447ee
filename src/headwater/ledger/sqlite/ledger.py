"""Ledgers in one SQLite file, for several processes on one machine.

Writers take a lock file first, so that they do not meet in SQLite's sleeping retries. A commit is synced to disk before
`append` returns (`synchronous=FULL` in WAL mode). A datagram to the sockets beside the file informs the other processes
of a new record. A process that misses the datagram soon finds that `data_version` has changed.
"""

from __future__ import annotations

import _sqlite3
import asyncio
import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from headwater import modes, native
from headwater.background import Background, Duty, OnDeath, Supervised
from headwater.clock import SystemClock
from headwater.errors import ConfigError, OutcomeUnknown, StoreFull, StoreUnavailable, Truncated
from headwater.ledger.contract import MAX_RECORD_BYTES, Beat, Entry, Pointer
from headwater.ledger.notices import Notices
from headwater.native import rows
from headwater.state.records import FORMAT, other_format
from headwater.threads import Threads
from headwater.types import Domain, Position

CHANGES = Duty("ledger-changes", OnDeath.RESTART, "notices changes of the ledger's file whose notice was lost")

if TYPE_CHECKING:
    from headwater.ledger.sqlite.native_appends import NativeAppends

_SCHEMA = """
CREATE TABLE IF NOT EXISTS heads (
    domain INTEGER PRIMARY KEY, truncated INTEGER NOT NULL, pointer BLOB) STRICT;
CREATE TABLE IF NOT EXISTS records (
    domain INTEGER NOT NULL, position INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (domain, position)) STRICT, WITHOUT ROWID;
"""
# The newest position: that of the last record, or the last truncated one, so that no position is used again.
_LAST = """max(coalesce((SELECT max(position) FROM records WHERE domain = ?1), 0),
               coalesce((SELECT truncated FROM heads WHERE domain = ?1), 0))"""
_APPEND = f"INSERT INTO records SELECT ?1, 1 + {_LAST}, ?2 RETURNING position"

_BEATS_SCHEMA = """
CREATE TABLE IF NOT EXISTS beats (process TEXT PRIMARY KEY, count INTEGER NOT NULL) STRICT;
"""
_now = SystemClock().monotonic
_LOCK_SECONDS = 5.0
_HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\0"
_USER_VERSION = slice(60, 64)
"""The place of `PRAGMA user_version` in SQLite's file header. It is the format number of the records."""
_FALLBACK_SECONDS = 0.1

_T = TypeVar("_T")


def mark_of(path: Path) -> Path:
    """The file of marks beside a ledger."""
    return path.with_name(f"{path.name}-mark")


def check_format(path: Path) -> None:
    """Refuse a file of another format before SQLite opens it, because opening may change the file."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        return
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        return  # an empty file is new; what is no SQLite file is refused when it is opened
    found = int.from_bytes(header[_USER_VERSION], "big")
    if found != FORMAT:
        raise ConfigError(other_format(f"the ledger {path}", found))


def _mark_format(path: Path) -> None:
    """Write the format number into a new file before anything else."""
    with contextlib.closing(sqlite3.connect(path, timeout=_LOCK_SECONDS, isolation_level=None)) as connection:
        if not connection.execute("PRAGMA user_version").fetchone()[0]:
            connection.execute(f"PRAGMA user_version={FORMAT}")


def _make_private(path: Path) -> None:
    """Create the files, and let no other user read them or hold the lock. SQLite gives the mode to those it adds."""
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    modes.make_directory(path.parent, modes.PRIVATE_DIRECTORY)
    modes.make_directory(f"{path}-notices", modes.PRIVATE_DIRECTORY)
    for name in (str(path), f"{path}-beats", f"{path}.lock"):
        with contextlib.suppress(FileExistsError):
            os.close(modes.create(name, os.O_WRONLY, modes.PRIVATE))
        for suffix in ("", "-wal", "-shm", "-journal"):
            modes.tighten(f"{name}{suffix}", modes.PRIVATE)
    modes.tighten(f"{path}-mark", modes.PRIVATE)
    modes.tighten(f"{path}-notices", modes.PRIVATE_DIRECTORY)


class SqliteLedger:
    """See `headwater.ledger.contract.Ledger`."""

    dense = True

    def __init__(self, path: Path, background: Background | None = None) -> None:
        self._path = path
        self.mark_path = mark_of(path)
        check_format(path)
        self._background = background or Background()
        _make_private(path)
        self._lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CLOEXEC)
        self._writing = Threads(1, "ledger-write")
        self._reading = Threads(1, "ledger-read")
        self._native: NativeAppends | None = None
        self._native_tried = False
        self._closed = False
        try:
            with self._locked():
                _mark_format(path)
                self._writer = self._connect(path)
                self._writer.executescript(_SCHEMA)
                self._beats = self._connect(Path(f"{path}-beats"))
                self._beats.execute("PRAGMA synchronous=OFF")
                self._beats.executescript(_BEATS_SCHEMA)
            self._reader = self._connect(path)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"cannot open the ledger {path}: {error}") from error
        self._notices = Notices(Path(f"{path}-notices"))
        self._fallback: Supervised | None = None

    @classmethod
    def from_url(cls, url: str, background: Background | None = None) -> SqliteLedger:
        """`sqlite:///absolute/path/ledger.db`"""
        parts = urlsplit(url)
        if parts.netloc or not parts.path.startswith("/"):
            raise ConfigError(f"{url!r} is not of the form sqlite:///absolute/path")
        return cls(Path(unquote(parts.path)), background)

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
            raise ValueError(f"a ledger record has {len(record)} bytes; the limit is {MAX_RECORD_BYTES}")
        position = await self._append_natively(domain, record)
        if position is None:
            position = await self._run(self._writing, self._append, domain, record)
        self._notices.send(domain, position)
        return position

    async def _append_natively(self, domain: Domain, record: bytes) -> Position | None:
        """Append by a native thread. Returns `None` if that is not possible; the caller then uses `_append`."""
        if native.serve is None or self._closed:
            return None
        if not self._native_tried:
            from headwater.ledger.sqlite.native_appends import open_appends

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
            self._fallback = self._background.run(CHANGES, self._look_for_changes)
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
            await self._fallback.stop()
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
        """Hold the lock file. The wait is limited: a holder that was stopped must not block the others for ever."""
        deadline, pause = _now() + _LOCK_SECONDS, 0.0001
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if _now() > deadline:
                    raise StoreUnavailable(f"{self._path} is locked by another process") from None
                time.sleep(pause)
                pause = min(pause * 2, 0.002)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def _writes(self, connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
        """One transaction. After an error before COMMIT nothing is written."""
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
        """Append by one statement, which is one transaction and needs the fewest switches between threads."""
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
                    raise Truncated(
                        f"domain {domain} is truncated through {head[0]}, so it cannot be read after {after}"
                    )
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
        """Read the last position of each watched domain when the file has changed, in case a datagram was lost.

        It also runs while no caller waits, because the next `watch` must not wait for a record that is there already.
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
