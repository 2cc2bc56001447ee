"""Commands about streams, their records and WAL objects."""

from __future__ import annotations

import enum
import uuid
from typing import TypeAlias

import msgspec

from headwater.state.commands.base import Command, Fields


class StreamConfig(Fields, frozen=True):
    """The configs of a topic that `apply` needs."""

    append_time: bool


class CreateStreams(Command, frozen=True, tag="streams+"):
    """Create streams of a topic. Idempotent."""

    topic: uuid.UUID
    first_partition: int
    streams: tuple[int, ...]
    config: StreamConfig


class ConfigureStreams(Command, frozen=True, tag="streams="):
    """Copy a topic's configs into the domain. Idempotent."""

    streams: tuple[int, ...]
    config: StreamConfig


class DropStreams(Command, frozen=True, tag="streams-"):
    """Drop streams and release all that they refer to. Idempotent."""

    streams: tuple[int, ...]


class Chunk(Fields, frozen=True):
    """The batches of one stream inside a WAL object, in order.

    A batch is `(length, offsets, max timestamp)`. `producers` is empty if no batch is from an idempotent producer.
    Otherwise it has `(producer id, producer epoch, first sequence)` for every batch, with -1 as the id of a batch
    without a producer.
    """

    stream: int
    position: int
    batches: list[tuple[int, int, int]]
    producers: list[tuple[int, int, int]]


class AppendWal(Command, frozen=True, tag="wal"):
    """A WAL object is stored: judge its batches one by one and assign offsets to the accepted ones."""

    sequence: int
    size: int
    created_ms: int
    zone: str
    chunks: list[Chunk]


class Mode(enum.IntEnum):
    """What a batch has to do with a transaction."""

    PLAIN = 0
    JOINED = 1
    """The stream must be part of the producer's transaction already."""
    JOINS = 2
    """The batch makes its stream a part of the producer's transaction."""


class UnitChunk(Fields, frozen=True):
    """A `Chunk` with a byte for the `Mode` of each batch. Without modes all batches are plain."""

    stream: int
    position: int
    batches: list[tuple[int, int, int]]
    producers: list[tuple[int, int, int]]
    modes: bytes


class Condition(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What must hold when a unit is judged."""


class Present(Condition, frozen=True, tag="present"):
    """All streams of the unit exist, as those of every unit with conditions must. Alone it makes a unit one whole."""


class EndIs(Condition, frozen=True, tag="end"):
    """The next offset of a stream is this one. Open reservations and transactions do not hold it back."""

    stream: int
    offset: int


class StartAt(Condition, frozen=True, tag="start"):
    """The unit's records in a stream begin at this offset, at the end or beyond it. What is left out is a gap."""

    stream: int
    offset: int


class VersionIs(Condition, frozen=True, tag="version"):
    """The newest version of a topic's table is this one. 0: nothing was settled yet."""

    topic: uuid.UUID
    version: int


class MirrorIs(Condition, frozen=True, tag="mirror"):
    """A stream is a mirror under this generation."""

    stream: int
    generation: int


class CursorIs(Condition, frozen=True, tag="cursor"):
    """The dead letters of a stream are written up to this offset. A unit that is accepted moves that to `to`."""

    stream: int
    offset: int
    to: int


class Once(Condition, frozen=True, tag="once"):
    """The unit is appended once under a key. Judged first: a known key with the same body repeats its answer."""

    key: bytes
    """A hash of the owner, the topic's id and the caller's key."""
    body: bytes
    """A hash of what the caller sent."""
    owner: bytes
    """A hash of the principal. The number of keys of an owner is limited."""
    note: bytes
    """Kept with the answer, for the caller alone."""


AnyCondition: TypeAlias = Present | EndIs | StartAt | VersionIs | Once | MirrorIs | CursorIs


class Unit(Fields, frozen=True):
    """Chunks that are judged under the same conditions.

    A unit with conditions is accepted or refused as a whole, before any of its batches, and has no producers.
    """

    conditions: list[AnyCondition]
    chunks: list[UnitChunk]


class AppendUnits(Command, frozen=True, tag="units"):
    """A WAL object is stored, with batches of transactions or units with conditions in it.

    Judged as an `AppendWal`, unit by unit. A unit sees what those before it have changed.
    """

    sequence: int
    size: int
    created_ms: int
    zone: str
    units: list[Unit]


class TrimStreams(Command, frozen=True, tag="trim"):
    """Move log starts forward (retention, DeleteRecords). A start never moves past the end or back."""

    starts: list[tuple[int, int]]


class ExpireProducers(Command, frozen=True, tag="producers-"):
    """Forget producers that have not written since a time."""

    before_ms: int


class ForgetObjects(Command, frozen=True, tag="objects-"):
    """These dead WAL objects are deleted from the store."""

    lease: int
    objects: list[tuple[int, int]]


StreamsCommand: TypeAlias = (
    CreateStreams
    | ConfigureStreams
    | DropStreams
    | AppendWal
    | AppendUnits
    | TrimStreams
    | ExpireProducers
    | ForgetObjects
)
