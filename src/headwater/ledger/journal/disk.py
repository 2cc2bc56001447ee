"""What a journal asks of an operating system, which is Linux. The simulation has another one, which loses and tears."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from headwater import modes
from headwater.clock import SystemClock
from headwater.errors import StoreFull, StoreUnavailable
from headwater.types import Pieces

_now = SystemClock().monotonic
LOCK_SECONDS = 5.0
_FULL = (errno.ENOSPC, errno.EDQUOT)
LOCK, PAGE = "lock", "page"
MOUNTS = Path("/proc/self/mountinfo")
REMOTE = frozenset(
    [
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "fuse.ceph",
        "fuse.glusterfs",
        "fuse.juicefs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "pvfs2",
        "smb3",
        "smbfs",
        "vboxsf",
        "virtiofs",
    ]
)
_IOV_MAX = 1024
"""How many pieces one call writes."""
_FLOCK = struct.Struct("hhqqi4x")
"""`struct flock` of 64-bit Linux, for locks that belong to an open file and not to a process."""


class SyncFailed(Exception):
    """A sync failed: nobody knows what is on the disk since the last one."""


class Disk(Protocol):
    """One process's view of a journal's directory. A call that raises `StoreFull` has changed nothing."""

    def names(self) -> list[str]:
        """The names of all files; none if there is no directory."""

    def create(self, name: str, size: int) -> None:
        """Make a file of zeros, on the disk with its name when this returns. Raises `FileExistsError`."""

    def size(self, name: str) -> int:
        """The bytes of a file."""

    def read(self, name: str, at: int, size: int) -> bytes:
        """Bytes of a file; fewer at its end. Raises `FileNotFoundError`."""

    def read_once(self, name: str, at: int, size: int) -> bytes:
        """Bytes of a file that is not kept open. Any thread may call this. Raises `FileNotFoundError`."""

    def write(self, name: str, at: int, pieces: Pieces) -> None:
        """Write into a file that exists, not beyond its end."""

    def sync(self, name: str) -> None:
        """What was written to the file before this call is on the disk when it returns. Raises `SyncFailed`."""

    def sync_name(self, name: str) -> None:
        """The file, and its name in the directory, are on the disk when this returns. Raises `SyncFailed`."""

    def forget(self, name: str) -> None:
        """Close a file. It is opened again if need be."""

    def remove(self, name: str) -> None:
        """Delete a file. Who has it open reads on."""

    def put_aside(self, name: str) -> None:
        """Give a file a name that nobody uses."""

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Keep other processes out of the block. Raises `StoreUnavailable` if the lock is not to be had soon."""

    def claim(self, slot: int) -> bool:
        """Take a slot until this process ends, or `release`; whether nobody else has it."""

    def claimed(self, slots: int) -> bool:
        """Whether any process, this one left out, has a slot."""

    def page(self, size: int) -> memoryview | None:
        """Bytes that all processes share, as they are now; None if there are none of this size."""

    def new_page(self, data: bytes) -> None:
        """Put others in their place. Who has the old ones keeps them."""

    def drop_page(self) -> None:
        """Have none of them. Who has them keeps them."""

    def same_page(self) -> bool:
        """Whether the bytes that `page` gave are still those that others get."""

    def boot(self) -> bytes:
        """16 bytes that differ after each start of the machine."""

    def release(self) -> None:
        """Close everything."""


class LocalDisk:
    """See `Disk`: a directory of this machine."""

    def __init__(self, directory: Path, *, writing: bool = True) -> None:
        self._directory = directory
        self._writing = writing
        self._handles: dict[str, int] = {}
        self._lock = -1
        self._map: mmap.mmap | None = None
        self._inode = 0
        if writing:
            directory.parent.mkdir(parents=True, exist_ok=True)
            modes.make_directory(directory, modes.PRIVATE_DIRECTORY)
            with contextlib.suppress(FileExistsError):
                os.close(modes.create(str(directory / LOCK), os.O_WRONLY, modes.PRIVATE))
            modes.tighten(directory, modes.PRIVATE_DIRECTORY)
            for entry in os.scandir(directory):
                inside = modes.PRIVATE_DIRECTORY if entry.is_dir(follow_symlinks=False) else modes.PRIVATE
                modes.tighten(entry.path, inside)
        with contextlib.suppress(FileNotFoundError):
            self._lock = os.open(directory / LOCK, (os.O_RDWR if writing else os.O_RDONLY) | os.O_CLOEXEC)

    def __repr__(self) -> str:
        return f"<LocalDisk {self._directory}, {len(self._handles)} files open>"

    # --- files ---------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return sorted(os.listdir(self._directory))
        return []

    def create(self, name: str, size: int) -> None:
        handle = modes.create(str(self._directory / name), os.O_RDWR, modes.PRIVATE)
        try:
            os.posix_fallocate(handle, 0, size)
            os.fsync(handle)
            self._sync_directory()
        except OSError as error:
            os.close(handle)
            with contextlib.suppress(OSError):
                os.unlink(self._directory / name)
            raise _told(error, name) from error
        self._handles[name] = handle

    def size(self, name: str) -> int:
        return os.fstat(self._open(name)).st_size

    def read(self, name: str, at: int, size: int) -> bytes:
        try:
            return os.pread(self._open(name), size, at)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _told(error, name) from error

    def read_once(self, name: str, at: int, size: int) -> bytes:
        try:
            handle = os.open(self._directory / name, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return os.pread(handle, size, at)
            finally:
                os.close(handle)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _told(error, name) from error

    def write(self, name: str, at: int, pieces: Pieces) -> None:
        size = sum(map(len, pieces))
        try:
            written = os.pwritev(self._open(name), pieces if len(pieces) <= _IOV_MAX else [b"".join(pieces)], at)
        except OSError as error:
            raise _told(error, name) from error
        if written != size:
            raise StoreUnavailable(f"only {written} of {size} bytes were written to {name}")

    def sync(self, name: str) -> None:
        handle = self._open(name)
        try:
            os.fdatasync(handle)
        except OSError as error:
            raise SyncFailed(f"{self._directory / name}: {error}") from error

    def sync_name(self, name: str) -> None:
        try:
            os.fsync(self._open(name))
            self._sync_directory()
        except OSError as error:
            raise SyncFailed(f"{self._directory / name}: {error}") from error

    def forget(self, name: str) -> None:
        handle = self._handles.pop(name, -1)
        if handle >= 0:
            os.close(handle)

    def remove(self, name: str) -> None:
        self.forget(name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._directory / name)

    def put_aside(self, name: str) -> None:
        self.forget(name)
        aside = f"{name}-aside"
        while (self._directory / aside).exists():
            aside += "-aside"
        os.rename(self._directory / name, self._directory / aside)
        self._sync_directory()

    def _open(self, name: str) -> int:
        handle = self._handles.get(name)
        if handle is None:
            flags = os.O_RDWR if self._writing else os.O_RDONLY
            handle = self._handles[name] = os.open(self._directory / name, flags | os.O_CLOEXEC)
        return handle

    def _sync_directory(self) -> None:
        handle = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    # --- other processes -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        deadline, pause = _now() + LOCK_SECONDS, 0.0001
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if _now() > deadline:
                    raise StoreUnavailable(f"{self._directory} is locked by another process") from None
                time.sleep(pause)
                pause = min(pause * 2, 0.002)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def claim(self, slot: int) -> bool:
        try:
            fcntl.fcntl(self._lock, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, slot, 1, 0))
        except (BlockingIOError, PermissionError):
            return False
        return True

    def claimed(self, slots: int) -> bool:
        if self._lock < 0:
            return False
        asked = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, slots, 0)
        return bool(_FLOCK.unpack(fcntl.fcntl(self._lock, fcntl.F_OFD_GETLK, asked))[0] != fcntl.F_UNLCK)

    def page(self, size: int) -> memoryview | None:
        try:
            handle = os.open(self._directory / PAGE, (os.O_RDWR if self._writing else os.O_RDONLY) | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            status = os.fstat(handle)
            if status.st_size != size:
                return None
            access = mmap.ACCESS_WRITE if self._writing else mmap.ACCESS_READ
            self._map, self._inode = mmap.mmap(handle, size, access=access), status.st_ino
        finally:
            os.close(handle)
        return memoryview(self._map)

    def new_page(self, data: bytes) -> None:
        staged = self._directory / f"{PAGE}-new"
        staged.unlink(missing_ok=True)
        try:
            handle = modes.create(str(staged), os.O_RDWR, modes.PRIVATE)
            try:
                os.posix_fallocate(handle, 0, len(data))  # a page without a block would end a process that writes to it
                os.pwrite(handle, data, 0)
            finally:
                os.close(handle)
            os.rename(staged, self._directory / PAGE)
        except OSError as error:
            raise _told(error, PAGE) from error

    def drop_page(self) -> None:
        (self._directory / PAGE).unlink(missing_ok=True)

    def same_page(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return os.stat(self._directory / PAGE).st_ino == self._inode
        return False

    def boot(self) -> bytes:
        return bytes.fromhex(Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", ""))

    def release(self) -> None:
        for handle in (*self._handles.values(), self._lock):
            if handle >= 0:
                os.close(handle)
        self._handles.clear()
        self._lock = -1


def remote_type(directory: Path, mounts: Path = MOUNTS) -> str:
    """The type of the file system of a directory that is there, if it is one of another machine; else nothing.

    Where the kernel does not tell, nothing is found.
    """
    status = os.stat(directory)
    wanted = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    with contextlib.suppress(OSError):
        for line in mounts.read_text(errors="replace").splitlines():
            place, _, described = line.partition(" - ")
            fields = place.split()
            if len(fields) > 2 and fields[2] == wanted:
                kind = described.split(" ", 1)[0]
                return kind if kind in REMOTE else ""
    return ""


def _told(error: OSError, name: str) -> Exception:
    if error.errno in _FULL:
        return StoreFull(f"{name}: {error.strerror}; free some space")
    return StoreUnavailable(f"{name}: {error.strerror}")
