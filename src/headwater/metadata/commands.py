"""What a ledger record may say.

Every command is a tagged struct without defaults, so that an old record never changes its meaning with the
code. Unknown tags or fields make a replica halt: it must not guess. Structs are encoded as arrays.
"""

from __future__ import annotations

import uuid
from typing import TypeAlias

import msgspec

from headwater.errors import Halted
from headwater.metadata.access_commands import DropAcls, DropUser, PutAcls, PutUser
from headwater.metadata.rotation_commands import RotationCommand
from headwater.types import Domain


class _Command(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base of all commands."""


# --- any domain ----------------------------------------------------------------------------------


class Tick(_Command, frozen=True, tag="tick"):
    """Carries only the writer's clock, so that a domain's time moves while nothing else happens."""


class Fence(_Command, frozen=True, tag="fence"):
    """From here on nothing that this epoch appends to this domain counts."""

    epoch: int


class Check(_Command, frozen=True, tag="check"):
    """The writer's digest of the results up to a position; a replica with another one halts."""

    position: int
    digest: int


class TakeLease(_Command, frozen=True, tag="lease"):
    """Take or extend a named lease; it is refused while another unfenced epoch holds it."""

    name: str
    duration_ms: int


class SetLevel(_Command, frozen=True, tag="level"):
    """Raise the feature level that selects behaviour in `apply`."""

    level: int


# --- domain 0: the cluster -----------------------------------------------------------------------


class Listener(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where clients reach a broker."""

    name: str
    host: str
    port: int


class TakeEpoch(_Command, frozen=True, tag="epoch"):
    """A process announces a life of its own. The only command that epoch 0 may write."""

    process: str
    node: int
    zone: str
    listeners: tuple[Listener, ...]


class CreateTopic(_Command, frozen=True, tag="topic+"):
    """The intent to create a topic; its streams follow in their domain."""

    topic: uuid.UUID
    name: str
    partitions: int
    configs: dict[str, str]
    domain: Domain


class AddPartitions(_Command, frozen=True, tag="partitions+"):
    """The intent to grow a topic to a number of partitions."""

    topic: uuid.UUID
    total: int


class TopicReady(_Command, frozen=True, tag="topic="):
    """The topic's streams stand in their domain, up to a number of partitions."""

    topic: uuid.UUID
    partitions: int


class DeleteTopic(_Command, frozen=True, tag="topic-"):
    """The intent to delete a topic. Its name is free at once."""

    topic: uuid.UUID


class TopicGone(_Command, frozen=True, tag="topic--"):
    """The topic's streams are dropped from their domain."""

    topic: uuid.UUID


class AlterConfigs(_Command, frozen=True, tag="configs"):
    """Set and remove configs of a topic, judged against the configs at this point of the ledger."""

    topic: uuid.UUID
    put: dict[str, str]
    remove: tuple[str, ...]


class AllocateProducers(_Command, frozen=True, tag="producers+"):
    """Reserve a block of producer ids."""

    count: int


class AlterResource(_Command, frozen=True, tag="resource="):
    """Set and remove configs of a broker, a group or a subscription to clients' metrics."""

    kind: int
    name: str
    put: dict[str, str]
    remove: tuple[str, ...]


class AlterQuota(_Command, frozen=True, tag="quota="):
    """Set and remove quotas of an entity: (kind, name) sorted by kind, no name for a kind's default."""

    entity: tuple[tuple[str, str | None], ...]
    put: dict[str, str]
    remove: tuple[str, ...]


# --- domains 1 to N: streams ---------------------------------------------------------------------


class StreamConfig(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What `apply` needs to know of a topic's configs."""

    append_time: bool


class CreateStreams(_Command, frozen=True, tag="streams+"):
    """Create streams of a topic. Idempotent."""

    topic: uuid.UUID
    first_partition: int
    streams: tuple[int, ...]
    config: StreamConfig


class ConfigureStreams(_Command, frozen=True, tag="streams="):
    """Copy a topic's configs into the domain. Idempotent."""

    streams: tuple[int, ...]
    config: StreamConfig


class DropStreams(_Command, frozen=True, tag="streams-"):
    """Drop streams and all they refer to. Idempotent."""

    streams: tuple[int, ...]


class Chunk(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The batches of one stream inside a WAL object, in order.

    A batch is `(length, offsets, max timestamp)`. `producers` is empty if none of the batches comes from an
    idempotent producer, and else holds `(producer id, producer epoch, first sequence)` for every batch, with
    -1 as the id where there is none.
    """

    stream: int
    position: int
    batches: list[tuple[int, int, int]]
    producers: list[tuple[int, int, int]]


class AppendWal(_Command, frozen=True, tag="wal"):
    """A WAL object is stored: judge its batches one by one and give the good ones their offsets."""

    sequence: int
    size: int
    created_ms: int
    zone: str
    chunks: list[Chunk]


class TrimStreams(_Command, frozen=True, tag="trim"):
    """Move log starts forward (retention, DeleteRecords). Never past the end, never back."""

    starts: list[tuple[int, int]]


class ExpireProducers(_Command, frozen=True, tag="producers-"):
    """Forget producers that have not written since a time."""

    before_ms: int


class ForgetObjects(_Command, frozen=True, tag="objects-"):
    """These dead WAL objects are deleted from the store."""

    lease: int
    objects: list[tuple[int, int]]


# --- domains 1 to N: tables ------------------------------------------------------------------------


class NewFile(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A segment that is written and synced, named below its table's root."""

    name: str
    size: int
    rows: int
    groups: int
    first_partition: int
    last_partition: int
    first_offset: int
    last_offset: int
    min_timestamp: int
    max_timestamp: int
    timestamp_nulls: int
    footer_checksum: int


class SegmentRun(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Offsets of one stream and where they lie now: row groups of a new file, or nowhere if no record is left."""

    stream: int
    start: int
    end: int
    file: int
    """Which of the command's files, -1 for none."""
    first_group: int
    groups: int


class WantSettled(_Command, frozen=True, tag="settle?"):
    """Somebody waits for a topic's table: its turn has come, whatever its freshness target says."""

    topic: uuid.UUID


class Settle(_Command, frozen=True, tag="settle"):
    """WAL runs of a topic became segments: swap the index entries and enter the files into the table's journal."""

    lease: int
    topic: uuid.UUID
    root: str
    files: list[NewFile]
    runs: list[SegmentRun]


class Merge(_Command, frozen=True, tag="merge"):
    """Segments of a topic were rewritten into others with the same rows."""

    lease: int
    topic: uuid.UUID
    removed: list[int]
    files: list[NewFile]
    runs: list[SegmentRun]


class Follow(_Command, frozen=True, tag="follow"):
    """A follower has committed the journal up to a sequence. Refused unless its pointer is where it is expected."""

    lease: int
    topic: uuid.UUID
    follower: str
    expected: str
    location: str
    cursor: int
    oldest: int


class Unfollow(_Command, frozen=True, tag="unfollow"):
    """A catalog is no longer followed by anybody: it holds back no file."""

    lease: int
    topic: uuid.UUID
    follower: str


class Pin(_Command, frozen=True, tag="pin"):
    """Which versions a follower still shows before a sequence. Refused unless it stands where this was read."""

    lease: int
    topic: uuid.UUID
    follower: str
    location: str
    cursor: int
    recent: int
    pinned: tuple[int, ...]


class Retire(_Command, frozen=True, tag="retire"):
    """Files leave a topic's table for good, with their rows; the log keeps what its index still names."""

    lease: int
    topic: uuid.UUID
    files: list[int]


class WantExpired(_Command, frozen=True, tag="expire?"):
    """Somebody wants a table's old versions gone now; see `ExpiryRequest`. Yields the request's number."""

    topic: uuid.UUID
    keep: int
    before_ms: int


class Expired(_Command, frozen=True, tag="expired"):
    """A follower has dropped the versions that a request asked for."""

    lease: int
    topic: uuid.UUID
    follower: str
    request: int


class ForgetFiles(_Command, frozen=True, tag="files-"):
    """These segments are deleted from the store; a dropped table without files is forgotten as a whole."""

    lease: int
    topic: uuid.UUID
    files: list[int]


# --- domains 1 to N: bulk appends --------------------------------------------------------------------


class Reserve(_Command, frozen=True, tag="reserve"):
    """Give out offsets of a topic's streams whose records come later, in segments; yields the reservation's number.

    Readers see the log end there until it is filled or released. Appends go on behind it.
    """

    topic: uuid.UUID
    parts: list[tuple[int, int]]
    """(stream, how many offsets)"""
    limit_ms: int
    """From then on it can no longer be filled."""


class Fill(_Command, frozen=True, tag="fill"):
    """Every offset of a reservation lies in a segment now: swap the index entries, enter the files into the journal."""

    reservation: int
    root: str
    files: list[NewFile]
    runs: list[SegmentRun]
    newest: list[int]
    """The largest timestamp of each run."""


class Release(_Command, frozen=True, tag="release"):
    """A reservation is given up by who made it, or has expired: its offsets stay empty for ever."""

    reservation: int


# --- domains 1 to N: groups ----------------------------------------------------------------------------


class ClaimShard(_Command, frozen=True, tag="shard"):
    """Coordinate the groups of a shard from now on; yields the claim's number, which fences every earlier holder."""

    shard: int


class ChangeGroup(_Command, frozen=True, tag="group"):
    """What a group's coordinator has decided. Head and members mean nothing here; a head of nil stays as it is."""

    claim: int
    group: str
    kind: str
    head: bytes | None
    put: dict[str, bytes]
    drop: tuple[str, ...]


class DropGroup(_Command, frozen=True, tag="group-"):
    """A group goes, with its offsets."""

    claim: int
    group: str


class CommitOffsets(_Command, frozen=True, tag="offsets"):
    """Offsets of a group: (topic, partition, offset, leader epoch, metadata)."""

    claim: int
    group: str
    offsets: list[tuple[bytes, int, int, int, str]]


class DropOffsets(_Command, frozen=True, tag="offsets-"):
    """Committed offsets go: (topic, partition)."""

    claim: int
    group: str
    offsets: list[tuple[bytes, int]]


Command: TypeAlias = (
    Tick
    | Fence
    | Check
    | TakeLease
    | SetLevel
    | TakeEpoch
    | CreateTopic
    | AddPartitions
    | TopicReady
    | DeleteTopic
    | TopicGone
    | AlterConfigs
    | AllocateProducers
    | AlterResource
    | AlterQuota
    | PutAcls
    | DropAcls
    | PutUser
    | DropUser
    | RotationCommand
    | CreateStreams
    | ConfigureStreams
    | DropStreams
    | AppendWal
    | TrimStreams
    | ExpireProducers
    | ForgetObjects
    | WantSettled
    | Settle
    | Merge
    | Follow
    | Unfollow
    | Pin
    | Retire
    | WantExpired
    | Expired
    | ForgetFiles
    | Reserve
    | Fill
    | Release
    | ClaimShard
    | ChangeGroup
    | DropGroup
    | CommitOffsets
    | DropOffsets
)


class Record(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One entry of a ledger: who wrote it, its number among the writer's, the writer's clock, commands."""

    epoch: int
    counter: int
    clock_ms: int
    commands: list[Command]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)


def encode(record: Record) -> bytes:
    """A record's bytes in the ledger."""
    return _encoder.encode(record)


def decode(data: bytes) -> Record:
    """The record of some bytes; halts on anything this version does not know."""
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise Halted(f"a ledger record cannot be read by this version: {error}; upgrade this process") from error


def encode_command(command: Command) -> msgspec.Raw:
    """A command's bytes inside a record."""
    return msgspec.Raw(_encoder.encode(command))


def encode_record(epoch: int, counter: int, clock_ms: int, commands: list[msgspec.Raw]) -> bytes:
    """The bytes of a `Record` whose commands are encoded already."""
    return _encoder.encode((epoch, counter, clock_ms, commands))
