"""Members of a classic group, their requests and answers, and the encoding of a group in the ledger."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from headwater.coordination.common import decoded

FORMAT = 1
CONSUMER_PROTOCOL = "consumer"

Protocols = list[tuple[str, bytes]]
"""Names of assignors with the member's subscription for each. The member prefers earlier ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A request to join a group, or to join it again."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_id: bool
    """Whether a new member first gets an id and must join again with it (KIP-394)."""
    may_skip_assignment: bool
    """Whether a leader that joins again understands that the assignment stays the same (KIP-814)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """The answer to a member at the end of the join phase, or the reason why it cannot join."""

    code: str = "none"
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    """For the leader: (member id, instance id, subscription) of all members."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A request for the member's assignment. The leader's request has the assignments of all members."""

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
class ClassicMember:
    """One member. While its request waits for the end of a phase, `joining` or `syncing` has the request's token."""

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

    @property
    def weight(self) -> int:
        """The bytes that the member has brought, and those of its assignment."""
        return weight_of(self.id, self.instance_id, self.client_id, self.protocols) + len(self.assignment)

    def subscription(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: Iterable[str]) -> str:
        """The protocol that the member prefers among the candidates."""
        return next(name for name, _ in self.protocols if name in candidates)


def weight_of(member_id: str, instance_id: str | None, client_id: str, protocols: Protocols) -> int:
    """The bytes that a member brings."""
    names = len(member_id) + len(instance_id or "") + len(client_id)
    return names + sum([len(name) + len(metadata) for name, metadata in protocols])


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
    """Whether the leader has sent the assignments of this generation."""
    changed_ms: int
    """The time of the last change of state, by the wall clock."""


_members = msgspec.msgpack.Decoder(_StoredMember)
_heads = msgspec.msgpack.Decoder(Head)


def encode_member(member: ClassicMember) -> bytes:
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


def decode_member(member_id: str, data: bytes) -> ClassicMember:
    """Decode a member from its bytes in the ledger."""
    stored = decoded(_members, data, FORMAT)
    return ClassicMember(
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
    """Decode a head from its bytes in the ledger."""
    return decoded(_heads, data, FORMAT)


def topics_of(subscription: bytes) -> set[str] | None:
    """The topics in a consumer's subscription. `None` if it cannot be read.

    Every version of the format begins with the version number and the topics.
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


def partitions_of(assignment: bytes) -> dict[str, list[int]] | None:
    """The partitions by topic in a consumer's assignment. `None` if it cannot be read.

    Every version of the format begins with the version number and the partitions.
    """
    try:
        (count,) = struct.unpack_from(">i", assignment, 2)
        at, found = 6, {}
        for _ in range(count):
            (length,) = struct.unpack_from(">h", assignment, at)
            name = assignment[at + 2 : at + 2 + length]
            (size,) = struct.unpack_from(">i", assignment, at + 2 + length)
            if length < 0 or len(name) != length or not 0 <= size <= len(assignment):
                return None
            at += 6 + length
            found[name.decode()] = list(struct.unpack_from(f">{size}i", assignment, at))
            at += 4 * size
    except (struct.error, UnicodeDecodeError):
        return None
    return found
