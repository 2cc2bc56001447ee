"""Who may read what in the data directory. A server sets the modes when it starts, also those of earlier builds.

The ledger, `run/` and `objects/meta/` are for Headwater's own user alone. `object_store.file_mode` decides who may read
WAL objects and tables. Of these only the directories at the top are changed at a start, because there may be millions
of files below. The ledger's files are the ledger's own matter (`ledger/local.py`).
"""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

from headwater import modes
from headwater.app.absence import no_cluster
from headwater.app.backup.receipt import folder_of
from headwater.errors import ConfigError, LedgerWentBack
from headwater.ledger.local import local_files
from headwater.ledger.marks import read_files
from headwater.objects.local import PRIVATE, TEMPORARY
from headwater.replica.marking import MARK_PATH, WHAT_TO_DO
from headwater.settings.objects import local_path
from headwater.settings.settings import Settings

log = logging.getLogger("headwater.directories")
RUN = "run"
"""Settings and secrets that the supervisor writes for its processes."""
SPILL = "spill"
"""What queries do not have in memory, unless `sql.spill` names another place."""
SHARED = (TEMPORARY, "wal", "tables")
_OF_THE_DISK = "lost+found"


def prepare(settings: Settings, *, run: bool = False) -> Path:
    """Create the data directory if something will be in it, and set the modes; returns the directory `run/`.

    With `run` that directory is created too. A backup becomes the directory of a cluster; one that is not whole is
    refused.
    """
    data = Path(settings.data).absolute()
    objects, files = local_path(settings.objects_url, "file"), local_files(settings.ledger_url)
    ledger = files.path if files is not None else None
    begin(settings, create=True)
    try:
        if run or is_used(settings):
            _prepare_data(data, objects, ledger, settings.object_store.mode)
            _prepare_run(data / RUN, create=run)
        if objects is not None:
            _prepare_objects(objects, settings.object_store.mode, own=data in objects.parents)
    except OSError as error:
        raise ConfigError(f"cannot use the data directory: {error}") from error
    return data / RUN


def is_used(settings: Settings) -> bool:
    """Whether the ledger or the objects are in the data directory."""
    data = Path(settings.data).absolute()
    files = local_files(settings.ledger_url)
    paths = (local_path(settings.objects_url, "file"), files.path if files is not None else None)
    return any(path is not None and data in path.parents for path in paths)


def begin(settings: Settings, *, writing: bool = True, create: bool = False, accepting: bool = False) -> None:
    """Call this before a process opens the ledger of a data directory.

    Raises if the ledger's file has another format or, unless that is about to be accepted, has gone back, before
    anything is changed; and for a backup that is not whole. Unless the process may create a cluster, it raises if there
    is none.
    """
    files = local_files(settings.ledger_url)
    if files is not None:
        try:
            files.check_format()
            looking = not accepting and not folder_of(Path(settings.data).absolute()).is_dir()
            if looking and (missing := missing_in(settings)):
                raise LedgerWentBack(missing)
            if not create and not files.exists():
                raise no_cluster(settings)
        except OSError as error:
            raise ConfigError(f"cannot use the data directory: {error}") from error
    data = Path(settings.data).absolute()
    if not folder_of(data).is_dir():
        return
    from headwater.app.backup.placing import check_whole, take_over

    if writing:
        take_over(data)
    else:
        check_whole(data)


def missing_in(settings: Settings) -> str:
    """What a ledger on this machine lacks that marks know of; empty if nothing. It is looked at in its files only.

    Whether the ledger has come as far as it should is checked once more when it is read.
    """
    files, objects = local_files(settings.ledger_url), local_path(settings.objects_url, "file")
    if files is None:
        return ""
    marks, shared = read_files([files.mark]), read_files([objects / MARK_PATH] if objects is not None else [])
    if not files.exists():
        wal = objects / "wal" if objects is not None else None
        if not marks and not shared and not (wal is not None and wal.is_dir() and any(wal.rglob("*.wo*"))):
            return ""
        missing = "it is empty, and there are objects of its records"
    else:
        missing = files.what_is_missing([*marks, *(mark for mark in shared if mark.place == str(files.mark))])
    return f"the ledger {files.path} has gone back: {missing}. {WHAT_TO_DO}" if missing else ""


def _prepare_data(data: Path, objects: Path | None, ledger: Path | None, mode: int) -> None:
    """The data directory is private. If others may read objects below it, they may enter it, but not list it."""
    wanted = modes.PRIVATE_DIRECTORY
    if objects is not None and data in objects.parents:
        wanted |= modes.directory_mode(mode) & 0o011
    data.parent.mkdir(parents=True, exist_ok=True)
    if modes.make_directory(data, wanted):
        return
    names = {path.relative_to(data).parts[0] for path in (objects, ledger) if path is not None and data in path.parents}
    foreign = [n for n in os.listdir(data) if n not in (RUN, SPILL, _OF_THE_DISK) and not any(map(n.startswith, names))]
    if foreign or data.stat().st_mode & stat.S_ISVTX:
        what = f"it also has {sorted(foreign)[0]!r}" if foreign else "it is shared by several users"
        log.warning("the mode of the data directory is left as it is", extra={"path": str(data), "reason": what})
        return
    modes.set_mode(data, wanted)


def _prepare_run(run: Path, *, create: bool) -> None:
    if create:
        modes.make_directory(run, modes.PRIVATE_DIRECTORY)
    _tighten_all(run)


def _prepare_objects(root: Path, mode: int, *, own: bool) -> None:
    """`own`: the root is part of the data directory. Another root keeps its mode, other programs may use it."""
    if own:
        modes.set_mode(root, modes.directory_mode(mode))
    for name in SHARED:
        modes.set_mode(root / name, modes.directory_mode(mode))
    _tighten_all(root / PRIVATE.rstrip("/"))


def _tighten_all(top: Path) -> None:
    """Make a directory and everything below it private. Links are not followed."""
    modes.tighten(top, modes.PRIVATE_DIRECTORY)
    if top.is_symlink():
        return
    for directory, names, files in os.walk(top):
        for name in names:
            modes.tighten(Path(directory) / name, modes.PRIVATE_DIRECTORY)
        for name in files:
            modes.tighten(Path(directory) / name, modes.PRIVATE)
