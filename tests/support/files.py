"""Files below a directory, and open ones."""

import contextlib
import gc
import os
import stat
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.objects.local import TEMPORARY


def temporary_files(root: Path) -> list[Path]:
    """The temporary files of a local store at `root`: of writes under way, or left behind."""
    return [path for path in (root / TEMPORARY).rglob("*") if path.is_file()]


def unpack(archive: Path, directory: Path) -> None:
    """Unpack an archive of ours, with all that it says of its files."""
    with tarfile.open(archive) as opened:
        opened.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)
        opened.extractall(directory)


def mode_of(path: Path) -> int:
    """The rights of a file or directory."""
    return stat.S_IMODE(path.lstat().st_mode)


def modes_below(top: Path) -> set[int]:
    """The rights of a directory and of everything below it."""
    return {mode_of(path) for path in (top, *top.rglob("*"))}


@contextmanager
def umask_of(mask: int) -> Iterator[None]:
    """This process, and those that it starts, have another umask."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def open_handles() -> int:
    """How many handles this process has, without those that other tests have left to the garbage collector, and without
    those of `/proc`, which the watchdog of the tests has for a moment each second.
    """
    gc.collect()
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the handle of this listing, or one that was closed meanwhile
            count += not os.readlink(f"/proc/self/fd/{name}").startswith("/proc")
    return count
