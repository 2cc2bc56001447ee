"""Commands about groups and their committed offsets."""

from __future__ import annotations

from typing import TypeAlias

from headwater.state.commands.base import Command


class ClaimShard(Command, frozen=True, tag="shard"):
    """The writer coordinates the groups of a shard from now on. Returns the claim's number; earlier claims are void."""

    shard: int


class ChangeGroup(Command, frozen=True, tag="group"):
    """A decision of a group's coordinator. The state does not interpret head and members. A head of `None` is kept."""

    claim: int
    group: str
    kind: str
    head: bytes | None
    put: dict[str, bytes]
    drop: tuple[str, ...]


class DropGroup(Command, frozen=True, tag="group-"):
    """Remove a group with its offsets."""

    claim: int
    group: str


class CommitOffsets(Command, frozen=True, tag="offsets"):
    """Commit offsets of a group: (topic, partition, offset, leader epoch, metadata)."""

    claim: int
    group: str
    offsets: list[tuple[bytes, int, int, int, str]]


class DropOffsets(Command, frozen=True, tag="offsets-"):
    """Remove committed offsets of a group: (topic, partition)."""

    claim: int
    group: str
    offsets: list[tuple[bytes, int]]


class CommitAlone(Command, frozen=True, tag="offsets alone"):
    """Commit offsets of a group without members, without a claim.

    An offset is (topic, partition, offset, leader epoch, metadata).
    """

    group: str
    offsets: list[tuple[bytes, int, int, int, str]]


class DropAlone(Command, frozen=True, tag="group- alone"):
    """Remove a group that has nothing but offsets, without a claim."""

    group: str


GroupsCommand: TypeAlias = ClaimShard | ChangeGroup | DropGroup | CommitOffsets | DropOffsets | CommitAlone | DropAlone
