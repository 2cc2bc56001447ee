"""The last step of a backup, and what the directory of a backup is to other commands.

The ledger of a copy, its checkpoints and the Delta logs of its tables must change together. A Delta log is a set of
files, so that is more than one rename. The backup gathers them in the folder `.backup/placing`, and says so in the
receipt. From then on every process that meets the directory first puts them into their places; each step may be
repeated. Before that, an earlier backup in the directory is as it was.

The first process that writes to a copy removes the folder `.backup`. From then on the directory is a cluster's own, and
no later backup may replace what is in it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from headwater import modes
from headwater.app.backup.receipt import folder_of, read_receipt, write_receipt
from headwater.errors import ConfigError, StoreUnavailable
from headwater.lake.tables.delta.log import log_directory
from headwater.ledger.sqlite.snapshot import exchange

LEDGER, OBJECTS, TABLES = "ledger.db", "objects", "tables"
_LOCK = "lock"
_PLACING = "placing"
_LOGS = "logs.json"
"""The paths of all files of Delta logs in the new copy."""


def staging_of(data: Path) -> Path:
    """Where a backup gathers what is put into place in its last step."""
    return folder_of(data) / _PLACING


@contextlib.contextmanager
def locked(data: Path) -> Iterator[None]:
    """Hold the lock of a backup's folder, which exists. It is free as soon as its holder is gone."""
    handle = os.open(folder_of(data) / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, modes.PRIVATE)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"a backup into {data} is under way; wait for its end") from None
        yield
    finally:
        os.close(handle)


def check_whole(data: Path) -> None:
    """Raise if a directory is a backup that did not reach its end, or is under way."""
    if not folder_of(data).is_dir():
        return
    with locked(data):
        _check(data)


def take_over(data: Path) -> None:
    """Let a process write to a directory. If it is a whole backup, it ceases to be one."""
    if not folder_of(data).is_dir():
        return
    with contextlib.suppress(FileNotFoundError), locked(data):  # another process that starts now may be faster
        _check(data)
        shutil.rmtree(folder_of(data))


def _check(data: Path) -> None:
    place(data)
    receipt = read_receipt(data)
    if receipt is None or not receipt.complete:
        raise ConfigError(
            f"{data} is a backup that was interrupted and is not whole; "
            f"run `headwater backup {data}` on the cluster again, which continues it"
        )


def note_logs(data: Path, paths: list[str]) -> None:
    """Note which files of Delta logs the new copy has. Others are removed when it is put into place."""
    path = staging_of(data) / _LOGS
    path.unlink(missing_ok=True)
    handle = modes.create(str(path), os.O_WRONLY, modes.PRIVATE)
    with os.fdopen(handle, "wb") as file:
        file.write(msgspec.json.encode(sorted(paths)))
        file.flush()
        os.fsync(handle)
    _sync(path.parent)


def place(data: Path) -> None:
    """Put a complete copy into its place, if the receipt says that there is one. The caller holds the lock."""
    receipt = read_receipt(data)
    if receipt is None or not receipt.placing:
        return
    try:
        _place(data)
    except OSError as error:
        raise StoreUnavailable(f"the backup in {data} cannot be put into place: {error}") from error
    write_receipt(data, msgspec.structs.replace(receipt, placing=False, complete=True))
    shutil.rmtree(staging_of(data), ignore_errors=True)


def _place(data: Path) -> None:
    staged, objects = staging_of(data), data / OBJECTS
    wanted = set(msgspec.json.decode((staged / _LOGS).read_bytes(), type=list[str]))
    touched = set()
    for root in (objects / TABLES).glob("*"):
        log = objects / log_directory(root.relative_to(objects).as_posix())
        for file in log.iterdir() if log.is_dir() else ():
            if file.relative_to(objects).as_posix() not in wanted:
                file.unlink()
                touched.add(log)
    for directory, _, names in os.walk(staged / OBJECTS):  # nothing if it was moved before
        target = objects / Path(directory).relative_to(staged / OBJECTS)
        if names:
            _make_like(target, Path(directory), objects)
            touched.add(target)
        for name in names:
            os.replace(Path(directory) / name, target / name)
    for changed in touched:
        _sync(changed)
    if (staged / LEDGER).exists():
        exchange(staged / LEDGER, data / LEDGER)


def _make_like(target: Path, model: Path, top: Path) -> None:
    """Create a directory and those above it, with the modes that the gathered ones have."""
    if target.is_dir():
        return
    if target != top:
        _make_like(target.parent, model.parent, top)
    modes.make_directory(target, model.stat().st_mode & 0o777)
    _sync(target.parent)


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
