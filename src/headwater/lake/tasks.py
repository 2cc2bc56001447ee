"""The parts of a settling job, as plain data that is sent to executors and back.

A task has the positions of bytes but no credentials: executors open the store by its URL with credentials of their own.
"""

from __future__ import annotations

import msgspec

from headwater.schemas.typing import Typing, Wants
from headwater.settings.objects import StoreOptions
from headwater.state.commands.columns import Column
from headwater.state.commands.tables import Bounds, NewFile

VERSION = 8
"""Both sides must agree: an executor refuses a task of another version."""
_ADDRESSES = ("endpoint", "endpoint_url", "region", "virtual_hosted_style_request", "account_name")


class WalRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A run of batches inside a WAL object."""

    path: str
    position: int
    length: int
    start: int
    """The offset of its first record."""
    end: int
    """The offset behind its last record."""
    append_ms: int
    """The timestamp of the records if the topic has log-append time, else -1."""


class StreamPart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Offsets of one stream that go into a file. A merge has no runs: the rows come from other files.

    Offsets between runs are markers of transactions.
    """

    stream: int
    partition: int
    start: int
    end: int
    runs: list[WalRun]
    aborted: list[tuple[int, int, int]]
    """The aborted transactions that may have records in the runs: producer id, first offset, offset of the marker."""


class FileTask(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One file to write. Every attempt adds its own suffix to the name."""

    topic: bytes
    root: str
    prefix: str
    parts: list[StreamPart]
    sources: list[tuple[str, int]]
    """The files to merge: paths below the root, with the checksums of their footers. All of their rows go into this
    file, unless `only` or `without` says less. Empty when settling."""
    typing: Typing | None = None
    """How the rows get their typed columns. None: they are not decoded."""
    columns: tuple[Column, ...] = ()
    """The typed columns that a merge takes over from its sources."""
    index: tuple[str, ...] = ()
    """The typed columns that get bounds and bloom filters: names, with dots between the levels."""
    only: tuple[int, ...] = ()
    """If there are any, a merge takes the rows of these partitions."""
    without: tuple[int, ...] = ()
    """A merge leaves the rows of these partitions to other files."""

    def takes(self, partition: int) -> bool:
        """Whether a merge takes rows of a partition."""
        return partition not in self.without and (not self.only or partition in self.only)

    @property
    def wal_bytes(self) -> int:
        return sum(run.length for part in self.parts for run in part.runs)


class Task(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The unit of work of one executor."""

    version: int
    store: str
    """The object store's URL."""
    files: list[FileTask]
    options: StoreOptions = StoreOptions()
    """Options of the store: encryption, checksums, time limits, its address. See `public`."""


class PartRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The row groups with a stream's offsets. There are none if the offsets have no records."""

    stream: int
    start: int
    end: int
    first_group: int
    groups: int
    newest: int
    """The largest timestamp in the row groups, or -1."""


class DamagedInput(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An input of a file task that is missing or damaged: a run of a WAL object, or a file to merge."""

    stream: int
    """-1 for a file to merge."""
    start: int
    """The offset of the first record of the run."""
    path: str
    """The object of a run, or a file's path below the root."""
    reason: str


class TypedFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What became of the typed columns of a file."""

    version: int = 0
    """The version of the columns that the rows were decoded with; 0 if they were not."""
    failures: int = 0
    """Rows that could not be decoded."""
    wants: Wants = Wants()
    """What is missing. There is no file then."""
    flaw: str = ""
    """An error of a decoder. Rows that met it have no typed values, and the file counts as not decoded."""


class FileFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The result of a file task. Without rows there is no file."""

    file: NewFile | None
    runs: list[PartRun]
    damaged: list[DamagedInput]
    """Inputs that cannot be read: the first of each stream. There is no file then."""
    typed: TypedFacts = TypedFacts()
    digest: int = 0
    """The sum, modulo 2^64, of a hash of each row's log columns."""
    bounds: tuple[Bounds, ...] = ()
    """Bounds of the key and of the columns in `FileTask.index`."""


class TaskFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The result of a task: one entry for each of its files, in order."""

    files: list[FileFacts]
    unavailable: str
    """What the object store did not do, which may succeed later; empty if it did all. Then there are no files."""


def public(options: StoreOptions) -> StoreOptions:
    """The options that may be sent to executors. Of the provider's own options, these are only addresses."""
    known = {name: value for name, value in options.provider.items() if name.lower().endswith(_ADDRESSES)}
    return msgspec.structs.replace(options, provider=known)


_task = msgspec.msgpack.Decoder(Task)
_facts = msgspec.msgpack.Decoder(TaskFacts)


def encode(item: Task | TaskFacts) -> bytes:
    return msgspec.msgpack.encode(item)


def decode_task(data: bytes) -> Task:
    return _task.decode(data)


def decode_facts(data: bytes) -> TaskFacts:
    return _facts.decode(data)
