"""Members of a classic group, what they ask for and are told, and how a group lies in the ledger."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from headwater.coordination.common import decoded

FORMAT = 1
CONSUMER_PROTOCOL = "consumer"

Protocols = list[tuple[str, bytes]]
"""Names of assignors with the member's subscription for each, in the order it prefers them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A request to become, or stay, a member."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_id: bool
    """Whether a new member is given an id first and has to come again with it (KIP-394)."""
    may_skip_assignment: bool
    """Whether a leader that comes back understands that the assignment stands (KIP-814)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """What a member is told at the end of the join phase, or why it cannot join."""

    code: str = "none"
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    """For the leader: (member id, instance id, subscription) of everybody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A request for the member's assignment; the leader's brings everybody's."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: dict[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    """A member's assignment."""

    code: str = "none"
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(slots=True, kw_only=True)
class Member:
    """One member. While it waits for the end of a phase, its request's token is kept."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    joining: object | None = field(default=None, compare=False)
    syncing: object | None = field(default=None, compare=False)

    def subscription(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: Iterable[str]) -> str:
        """The protocol it likes best among those that everybody knows."""
        return next(name for name, _ in self.protocols if name in candidates)


class _StoredMember(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    format: int
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes


class Head(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A group without its members."""

    format: int
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    synced: bool
    """Whether the leader has brought the assignments of this generation."""
    changed_ms: int
    """When it last changed its state, by the wall clock."""


_members = msgspec.msgpack.Decoder(_StoredMember)
_heads = msgspec.msgpack.Decoder(Head)


def encode_member(member: Member) -> bytes:
    """A member's bytes in the ledger."""
    return msgspec.msgpack.encode(
        _StoredMember(
            FORMAT,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
            member.protocols,
            member.assignment,
        )
    )


def decode_member(member_id: str, data: bytes) -> Member:
    """The member that some bytes stand for."""
    stored = decoded(_members, data, FORMAT)
    return Member(
        id=member_id,
        instance_id=stored.instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        session_timeout_ms=stored.session_timeout_ms,
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        protocols=stored.protocols,
        assignment=stored.assignment,
    )


def decode_head(data: bytes) -> Head:
    """The group that some bytes stand for."""
    return decoded(_heads, data, FORMAT)


def topics_of(subscription: bytes) -> set[str] | None:
    """The topics in a consumer's subscription, or nothing if it cannot be read.

    Every version of it begins with a version and the topics.
    """
    try:
        (count,) = struct.unpack_from(">i", subscription, 2)
        at, topics = 6, set()
        for _ in range(count):
            (length,) = struct.unpack_from(">h", subscription, at)
            name = subscription[at + 2 : at + 2 + length]
            if length < 0 or len(name) != length:
                return None
            topics.add(name.decode())
            at += 2 + length
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
