"""Typed columns of tables, and what is known of the rows of their files.

A version of the columns is a number of additions. Columns are only added, with rising ids, so a version is kept as its
last id. A version holds for journal entries behind the one at which it was made.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from headwater.state.commands.columns import FIRST_COLUMN, Column, up_to
from headwater.state.commands.tables import FileTyping
from headwater.state.streams.tables import DataFile

DIGEST_MASK = (1 << 64) - 1


class ColumnsVersion(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A version of a table's columns."""

    last_id: int
    """Columns with an id up to this one are part of the version."""
    after: int
    """The journal sequence of the table when the version was made."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The typed columns of a table, with their history. Version 0 has none."""

    newest: tuple[Column, ...] = ()
    versions: tuple[ColumnsVersion, ...] = ()

    @property
    def version(self) -> int:
        """The number of the newest version."""
        return len(self.versions)

    @property
    def last_id(self) -> int:
        """The last id that is used."""
        return self.versions[-1].last_id if self.versions else FIRST_COLUMN - 1

    def at(self, sequence: int) -> int:
        """The version that holds for a journal entry."""
        return bisect_left(self.versions, sequence, key=lambda version: version.after)

    def of(self, version: int) -> tuple[Column, ...]:
        """The columns of a version."""
        if version == self.version:
            return self.newest
        return up_to(self.newest, self.versions[version - 1].last_id) if version else ()


NO_COLUMNS = Columns()


class TypedImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The typed columns of a table inside a checkpoint."""

    topic: bytes
    columns: tuple[Column, ...]
    versions: tuple[ColumnsVersion, ...]
    files: list[tuple[int, FileTyping]]
    failed_up_to: int
    all_up_to: int


class TypedTable:
    """The typed columns of one table."""

    __slots__ = ("all_up_to", "columns", "failed_up_to", "files")

    def __init__(self) -> None:
        self.columns = Columns()
        self.files: dict[int, FileTyping] = {}
        """What is known of the rows of each file of the table, by the file's number."""
        self.failed_up_to = 0
        """A caller wants files up to this number decoded again if rows of them could not be decoded."""
        self.all_up_to = 0
        """A caller wants all files up to this number decoded again."""

    def __repr__(self) -> str:
        return f"<TypedTable: version {self.columns.version}, {len(self.files)} files>"

    def is_decoded(self, number: int) -> bool:
        """Whether the rows of a file were decoded, and nobody wants them decoded again."""
        typing = self.files.get(number)
        if typing is None or not typing.version or number <= self.all_up_to:
            return False
        return not typing.failures or number > self.failed_up_to

    def undecoded(self, files: Iterable[DataFile]) -> Iterator[DataFile]:
        """The files whose rows have to be decoded."""
        return (file for file in files if not self.is_decoded(file.number))

    def digest(self, numbers: Iterable[int]) -> int:
        """The sum of the digests of files."""
        return sum(self.files[number].digest for number in numbers) & DIGEST_MASK

    def pack(self, topic: uuid.UUID) -> TypedImage:
        """The table as plain data, for a checkpoint."""
        columns = self.columns
        return TypedImage(
            topic=topic.bytes,
            columns=columns.newest,
            versions=columns.versions,
            files=list(self.files.items()),
            failed_up_to=self.failed_up_to,
            all_up_to=self.all_up_to,
        )

    @classmethod
    def unpack(cls, image: TypedImage) -> TypedTable:
        """The inverse of `pack`."""
        self = cls()
        self.columns = Columns(image.columns, image.versions)
        self.files = dict(image.files)
        self.failed_up_to, self.all_up_to = image.failed_up_to, image.all_up_to
        return self
