"""The receipt of a backup: a file in the copy that says whether the copy is whole.

It is in the folder `.backup` of the copied data directory, with what a backup under way has gathered.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from headwater import modes
from headwater.errors import ConfigError

FOLDER = ".backup"
FORMAT = 1
_RECEIPT = "receipt.json"


class Receipt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known about a copy."""

    format: int = FORMAT
    place: str
    """The URL of the copy's objects. Iceberg tables name their files by it."""
    complete: bool = False
    """Whether ledger and objects are one whole. It stays true while a later backup adds to the copy."""
    placing: bool = False
    """Whether a later ledger is complete in the folder and is being put into its place (`app/backup/placing.py`)."""
    cluster: str = ""
    taken_ms: int = 0
    """When the ledger was copied. Everything acknowledged before is in the copy."""
    positions: dict[int, int] = {}
    """The end of the ledger of each domain."""
    objects: int = 0
    bytes: int = 0


def folder_of(data: Path) -> Path:
    """The folder of a backup in a data directory."""
    return data / FOLDER


def read_receipt(data: Path) -> Receipt | None:
    """The receipt in a directory; None if there is none."""
    path = folder_of(data) / _RECEIPT
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Receipt)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    if found.format != FORMAT:
        raise ConfigError(f"{path} has format {found.format}, this build reads {FORMAT}; use the build that wrote it")
    return found


def write_receipt(data: Path, receipt: Receipt) -> None:
    """Replace the receipt in one step."""
    folder = folder_of(data)
    temporary = folder / f"{_RECEIPT}.new"
    temporary.unlink(missing_ok=True)
    handle = modes.create(str(temporary), os.O_WRONLY, modes.PRIVATE)
    try:
        os.write(handle, msgspec.json.encode(receipt))
        os.fsync(handle)
    finally:
        os.close(handle)
    os.rename(temporary, folder / _RECEIPT)
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
