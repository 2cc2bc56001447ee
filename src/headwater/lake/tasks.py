"""What a settling job is made of, as plain data that travels to executors and back.

A task says where bytes lie, never how to get at them: executors open the store by its URL with credentials of their
own.
"""

from __future__ import annotations

import msgspec

from headwater.metadata.commands import NewFile
from headwater.store_options import StoreOptions

VERSION = 2
"""Both sides must agree: an executor refuses a task of another version."""
_ADDRESSES = ("endpoint", "endpoint_url", "region", "virtual_hosted_style_request", "account_name")


class WalRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A run of batches inside a WAL object."""

    path: str
    position: int
    length: int
    start: int
    """The offset of its first record."""
    append_ms: int
    """The records' timestamp where the topic keeps the time of commit, else -1."""


class StreamPart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Offsets of one stream that go into a file. When merging there are no runs: the rows come from other files."""

    stream: int
    partition: int
    start: int
    end: int
    runs: list[WalRun]


class FileTask(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One file to write. Its name gets a suffix of its own in every attempt."""

    topic: bytes
    root: str
    prefix: str
    parts: list[StreamPart]
    sources: list[tuple[str, int]]
    """Files below the root, with the checksums of their footers, whose rows, all of them, become this file. Empty when
    settling."""

    @property
    def wal_bytes(self) -> int:
        return sum(run.length for part in self.parts for run in part.runs)


class Task(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one executor does in one go."""

    version: int
    store: str
    """The object store's URL."""
    files: list[FileTask]
    options: StoreOptions = StoreOptions()
    """How the store is used: encryption, checksums, patience, its address. See `public`."""


class PartRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a stream's offsets ended up. No row groups if none of them holds a record."""

    stream: int
    start: int
    end: int
    first_group: int
    groups: int


class FileFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What became of a file task. Without rows there is no file."""

    file: NewFile | None
    runs: list[PartRun]


class TaskFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What became of a task: one entry for each of its files, in order."""

    files: list[FileFacts]


def public(options: StoreOptions) -> StoreOptions:
    """The options that may travel: of those that only a cloud knows, addresses and nothing else."""
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
