"""Modes of files and directories. What is created gets exactly the mode that is asked for, whatever the umask is.

A mode is set after the creation, which has the same mode: a file is never open to more users than it should be, and a
file system without modes does no harm. Nothing here follows a symbolic link.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from pathlib import Path

log = logging.getLogger("headwater.modes")

PRIVATE = 0o600
"""The mode of files that only Headwater's own user may read."""
PRIVATE_DIRECTORY = 0o700


def directory_mode(mode: int) -> int:
    """The mode of directories with files of this mode: who may read the files may list and enter."""
    return mode | (mode & 0o444) >> 2


def create(path: str, flags: int, mode: int) -> int:
    """Create a file that must not exist; returns its handle."""
    handle = os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with contextlib.suppress(OSError):
        os.fchmod(handle, mode)
    return handle


def make_directory(path: str | Path, mode: int) -> bool:
    """Create a directory, unless it exists; returns whether it was created. Its parent must exist."""
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return False
    _change(path, add=mode)
    return True


def tighten(path: str | Path, mode: int) -> None:
    """Take all rights that are not in the mode from a file or directory. One that does not exist is left alone."""
    _change(path, remove=0o777 & ~mode)


def set_mode(path: str | Path, mode: int) -> None:
    """Give a file or directory exactly this mode. One that does not exist is left alone."""
    _change(path, add=mode, remove=0o777 & ~mode)


def _change(path: str | Path, *, add: int = 0, remove: int = 0) -> None:
    try:
        found = os.lstat(path).st_mode
        wanted = stat.S_IMODE(found) & ~remove | add
        if not stat.S_ISLNK(found) and wanted != stat.S_IMODE(found):
            _chmod(path, wanted)
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("the mode of a file cannot be changed", extra={"path": str(path), "reason": str(error)})


def _chmod(path: str | Path, mode: int) -> None:
    """Change a mode, but not that of what a link points to, even if the link has just taken the place of the file."""
    if os.chmod in os.supports_follow_symlinks:
        os.chmod(path, mode, follow_symlinks=False)
        return
    # Linux. Unlike other handles, this kind leaves the locks of the process (SQLite's) alone when it is closed.
    handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISLNK(os.fstat(handle).st_mode):
            os.chmod(f"/proc/self/fd/{handle}", mode)
    finally:
        os.close(handle)
