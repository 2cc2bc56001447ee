"""The directory that a backup writes to: whether it may, and what is in it already."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from headwater import modes
from headwater.app.absence import no_cluster
from headwater.app.backup.placing import LEDGER, OBJECTS, locked, place, staging_of
from headwater.app.backup.receipt import FOLDER, Receipt, folder_of, read_receipt, write_receipt
from headwater.errors import ConfigError, StoreUnavailable
from headwater.settings.objects import local_path
from headwater.settings.settings import Settings

_OF_THE_DISK = "lost+found"
_SCRATCH = "scratch"


class Source:
    """The files of an embedded cluster."""

    def __init__(self, settings: Settings) -> None:
        ledger, objects = local_path(settings.ledger_url, "sqlite"), local_path(settings.objects_url, "file")
        if ledger is None or objects is None:
            raise ConfigError(
                "`headwater backup` copies clusters with a SQLite ledger and a local directory of objects; "
                "docs/guides/backup.md says what to do with other stores"
            )
        if not ledger.is_file():
            raise no_cluster(settings)
        self.data = Path(settings.data).absolute()
        self.ledger = ledger
        self.objects = objects
        self.mode = settings.object_store.mode


class Target:
    """A directory that is empty, or holds an earlier backup."""

    def __init__(self, directory: Path, source: Source) -> None:
        self.data = directory.resolve() if ".." in directory.parts else directory.absolute()
        self.objects = self.data / OBJECTS
        self.place = self.objects.as_uri()
        self.staging = staging_of(self.data)
        self.scratch = folder_of(self.data) / _SCRATCH
        self._mode = source.mode
        _check_apart(self.data, source)

    def __repr__(self) -> str:
        return f"<Target {self.data}>"

    @contextlib.contextmanager
    def claimed(self) -> Iterator[Receipt]:
        """Hold the directory, and create it if necessary; yields its receipt. One of others' is refused unchanged."""
        self._check_usable()
        try:
            modes.make_directory(self.data, modes.PRIVATE_DIRECTORY | modes.directory_mode(self._mode) & 0o011)
            modes.make_directory(folder_of(self.data), modes.PRIVATE_DIRECTORY)
            with locked(self.data):
                self._check_usable()
                place(self.data)
                shutil.rmtree(self.scratch, ignore_errors=True)
                modes.make_directory(self.scratch, modes.PRIVATE_DIRECTORY)
                yield self._receipt()
                shutil.rmtree(self.scratch, ignore_errors=True)
        except OSError as error:
            raise StoreUnavailable(f"cannot write to {self.data}: {error}") from error

    def stage(self) -> Path:
        """An empty folder for what the last step puts into place; returns the path of its ledger."""
        shutil.rmtree(self.staging, ignore_errors=True)
        modes.make_directory(self.staging, modes.PRIVATE_DIRECTORY)
        return self.staging / LEDGER

    def _receipt(self) -> Receipt:
        found = read_receipt(self.data)
        if found is None:
            found = Receipt(place=self.place)
            write_receipt(self.data, found)
        return found

    def _check_usable(self) -> None:
        if not self.data.parent.is_dir():
            raise ConfigError(f"{self.data.parent} does not exist; create it, or mount what belongs there")
        if self.data.exists() and not self.data.is_dir():
            raise ConfigError(f"{self.data} is not a directory")
        names = set(os.listdir(self.data)) if self.data.exists() else set()
        if names - {FOLDER, _OF_THE_DISK} and read_receipt(self.data) is None:
            raise ConfigError(f"{self.data} is neither empty nor a backup; back up into another directory")


def _check_apart(target: Path, source: Source) -> None:
    """Raise if one of the directories is inside the other."""
    real = target.resolve()
    for used in (source.data, source.objects, source.ledger):
        path = used.resolve()
        if real == path or real in path.parents or path in real.parents:
            raise ConfigError(f"{target} and {used} overlap; back up into a directory of its own")
