"""Objects in a local directory.

An object is written under a temporary name, synced, and renamed (or linked, if an older one must stay). Then its
directory is synced. A crash of the machine leaves the whole object or nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from headwater import modes, native
from headwater.clock import SystemClock
from headwater.errors import (
    ConfigError,
    Damaged,
    HeadwaterError,
    ObjectMissing,
    OutcomeUnknown,
    StoreFull,
    StoreUnavailable,
)
from headwater.native import rows
from headwater.objects.scratch import Scratch, is_gone
from headwater.objects.stats import OperationStats, StoreStats
from headwater.objects.store import ObjectInfo, checked_path
from headwater.threads import Threads
from headwater.types import Pieces

if TYPE_CHECKING:
    from headwater.objects.native_puts import NativePuts

THREADS = 4
TEMPORARY = ".tmp"
PRIVATE = "meta/"
"""Objects with this prefix are for Headwater's own user alone: checkpoints have users' salted keys."""
HANDLES_PER_THREAD = 16
_IOV_MAX = 1000
_FULL = (errno.ENOSPC, errno.EDQUOT)

_T = TypeVar("_T")


class LocalStore:
    """See `headwater.objects.store.ObjectStore`."""

    def __init__(self, root: str | Path, mode: int = modes.PRIVATE) -> None:
        """`mode` is that of files which are not private."""
        self._root = Path(root).absolute()
        self._mode = mode
        self.url = self._root.as_uri()
        self._base = str(self._root).rstrip("/")
        self._scratch = Scratch(self._root / TEMPORARY, modes.directory_mode(mode))
        self._threads = Threads(THREADS, "objects")
        self._native: NativePuts | None = None
        self._now = SystemClock().monotonic
        self.stats = StoreStats()
        self._known: set[str] = set()
        self._handles: dict[int, dict[str, int]] = {}
        """Handles of directories per thread, so that no thread closes one that another is about to sync."""
        try:
            self._make(str(self._root / TEMPORARY))
            self._scratch.prepare()
        except OSError as error:
            raise StoreUnavailable(f"cannot use {self._root}: {error}") from error

    def __repr__(self) -> str:
        return f"<LocalStore {self._root}>"

    def put(self, path: str, pieces: Pieces) -> Awaitable[None]:
        began = self._now()
        storing = None if native.serve is None else self._begin_natively(path, pieces)
        if storing is not None:
            return self._put_natively(path, pieces, began, storing)
        return self._threads.run(self._timed, self.stats.put, self._put, path, pieces)

    def _begin_natively(self, path: str, pieces: Pieces) -> asyncio.Future[Sequence[int]] | None:
        if self._native is None:
            from headwater.objects.native_puts import NativePuts

            self._native = NativePuts(self._scratch)
        try:
            target, directory = self._target(path)
        except ConfigError:
            return None
        if directory not in self._known:
            return None
        return self._native.begin(target, directory, pieces, self._mode_of(path))

    async def _put_natively(
        self, path: str, pieces: Pieces, began: float, storing: asyncio.Future[Sequence[int]]
    ) -> None:
        row = await storing
        if row[rows.RESULT] == rows.FAILED:
            await self._threads.run(self._timed, self.stats.put, self._put, path, pieces)
            return
        failed = row[rows.RESULT] != rows.DONE
        self.stats.put.done(self._now() - began, 0 if failed else row[rows.SIZE], failed=failed)
        if failed:
            raise StoreUnavailable(f"{path}: its directory could not be synced")

    async def create(self, path: str, pieces: Pieces) -> bool:
        return await self._run(self._timed, self.stats.create, self._create, checked_path(path), pieces)

    async def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        return await self._run(self._timed, self.stats.get, self._get, checked_path(path), start, length)

    async def get_many(self, paths: Sequence[str]) -> list[bytes | None]:
        return await self._run(self._get_many, [checked_path(path) for path in paths])

    async def size(self, path: str) -> int:
        return await self._run(self._timed, self.stats.size, self._size, checked_path(path))

    async def delete(self, path: str) -> None:
        await self._run(self._timed, self.stats.delete, self._delete, checked_path(path))

    async def scan(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        for info in await self._run(self._timed, self.stats.scan, self._scan, prefix):
            yield info

    async def close(self) -> None:
        if self._native is not None:
            await self._native.close()
        await self._threads.close()
        self._scratch.close()
        while self._handles:
            for handle in self._handles.popitem()[1].values():
                os.close(handle)

    # --- on the threads ------------------------------------------------------------------------------

    async def _run(self, call: Callable[..., _T], *arguments: object) -> _T:
        return await self._threads.run(call, *arguments)

    def _timed(self, counted: OperationStats, call: Callable[..., _T], *arguments: object) -> _T:
        began = self._now()
        try:
            result = call(*arguments)
        except (ObjectMissing, ConfigError):
            counted.done(self._now() - began)
            raise
        except HeadwaterError:
            counted.done(self._now() - began, failed=True)
            raise
        counted.done(self._now() - began)
        return result

    def _put(self, path: str, pieces: Pieces) -> None:
        target, directory = self._target(path)
        try:
            self._make(directory)
            size, _ = self._write(path, pieces, lambda temporary: os.rename(temporary, target))
            os.fsync(self._directory(directory))
        except FileNotFoundError as error:
            raise self._directory_gone(path, directory) from error
        except OSError as error:
            raise _translation(path, error) from error
        self.stats.put.bytes += size

    def _create(self, path: str, pieces: Pieces) -> bool:
        target, directory = self._target(path)
        try:
            self._make(directory)
            size, stored = self._write(path, pieces, lambda temporary: _linked(temporary, target))
        except FileNotFoundError as error:
            raise self._directory_gone(path, directory) from error
        except OSError as error:
            raise _translation(path, error) from error
        try:
            os.fsync(self._directory(directory))
        except OSError as error:
            raise OutcomeUnknown(f"{path}: {error}") from error
        if stored:
            self.stats.create.bytes += size
        return stored

    def _directory_gone(self, path: str, directory: str) -> StoreUnavailable:
        """The next attempt creates it again."""
        self._known.discard(directory)
        return StoreUnavailable(f"{path}: its directory was removed while it was written")

    def _target(self, path: str) -> tuple[str, str]:
        """Path and directory of an object, as strings: `pathlib` costs more than the system calls."""
        target = f"{self._base}/{checked_path(path)}"
        return target, target[: target.rindex("/")]

    def _mode_of(self, path: str) -> int:
        return modes.PRIVATE if path.startswith(PRIVATE) else self._mode

    def _write(self, path: str, pieces: Pieces, place: Callable[[str], _T]) -> tuple[int, _T]:
        """Write an object into a synced temporary file and call `place` on it; remove the file if that fails.

        Returns the number of bytes and the result of `place`.
        """
        temporary, handle = self._scratch.open(self._mode_of(path))
        try:
            try:
                size = _write_all(handle, pieces)
            finally:
                os.close(handle)
            return size, place(temporary)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def _directory(self, directory: str) -> int:
        """An open handle of a directory. Handles are kept, because every object syncs its directory."""
        handles = self._handles.setdefault(threading.get_ident(), {})
        handle = handles.get(directory)
        if handle is not None and is_gone(handle):
            os.close(handles.pop(directory))
            handle = None
        if handle is None:
            while len(handles) >= HANDLES_PER_THREAD:
                os.close(handles.pop(next(iter(handles))))
            handle = handles[directory] = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        return handle

    def _make(self, directory: str) -> None:
        """Create a directory and sync its entry, once per directory."""
        if directory in self._known:
            return
        path = Path(directory)
        if not path.is_dir():
            if path != path.parent:
                self._make(str(path.parent))
            if f"{directory}/".startswith(f"{self._base}/"):
                inside = f"{directory[len(self._base) + 1 :]}/"
                modes.make_directory(path, modes.directory_mode(self._mode_of(inside)))
            else:
                path.mkdir(exist_ok=True)  # above the root, so it is not Headwater's own
            _sync_directory(path.parent)
        self._known.add(directory)

    def _get(self, path: str, start: int, length: int | None) -> bytes:
        try:
            with open(self._root / path, "rb", buffering=0) as file:
                if start:
                    file.seek(start)
                data = (file.read() if length is None else file.read(length)) or b""
        except OSError as error:
            if error.errno == errno.EIO:
                raise Damaged(f"{path}: the medium cannot read it") from error
            raise _translation(path, error) from error
        self.stats.get.bytes += len(data)
        return data

    def _get_many(self, paths: list[str]) -> list[bytes | None]:
        found: list[bytes | None] = []
        for path in paths:
            try:
                found.append(self._timed(self.stats.get, self._get, path, 0, None))
            except ObjectMissing:
                found.append(None)
        return found

    def _size(self, path: str) -> int:
        with _translated(path):
            return os.stat(self._root / path).st_size

    def _delete(self, path: str) -> None:
        with _translated(path), contextlib.suppress(FileNotFoundError):
            os.unlink(self._root / path)

    def _scan(self, prefix: str) -> list[ObjectInfo]:
        found = []
        top = self._root / prefix
        with _translated(prefix):
            for directory, names, files in os.walk(top):
                if Path(directory) == self._root and TEMPORARY in names:
                    names.remove(TEMPORARY)
                for name in files:
                    full = Path(directory) / name
                    with contextlib.suppress(FileNotFoundError):
                        found.append(ObjectInfo(full.relative_to(self._root).as_posix(), full.stat().st_size))
        return found


def _write_all(handle: int, pieces: Pieces) -> int:
    size = sum(map(len, pieces))
    if len(pieces) <= _IOV_MAX:
        written = os.writev(handle, pieces)
        if written == size:
            return size
        pieces = [memoryview(b"".join(pieces))[written:]]
    for first in range(0, len(pieces), _IOV_MAX):
        rest = [memoryview(piece) for piece in pieces[first : first + _IOV_MAX]]
        while rest:
            written = os.writev(handle, rest)
            while rest and written >= len(rest[0]):
                written -= len(rest[0])
                del rest[0]
            if rest and written:
                rest[0] = rest[0][written:]
    return size


def _linked(temporary: str, target: str) -> bool:
    """Give a file a second name and remove the first; false if the second name is taken."""
    try:
        os.link(temporary, target)
        stored = True
    except FileExistsError:
        stored = False
    with contextlib.suppress(OSError):
        os.unlink(temporary)
    return stored


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _translation(path, error) from error


def _translation(path: str, error: OSError) -> HeadwaterError:
    """The error that a failed call means to the caller."""
    if isinstance(error, FileNotFoundError):
        return ObjectMissing(f"no object {path}")
    if error.errno in _FULL:
        return StoreFull(f"no space left to store {path}: {error.strerror}")
    return StoreUnavailable(f"{path}: {error}")
