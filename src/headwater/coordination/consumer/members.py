"""Members of a KIP-848 consumer group, and the encoding of a group in the ledger."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from headwater.coordination.assignors import Assignment
from headwater.coordination.common import decoded
from headwater.errors import Halted

FORMAT = 1


class MemberState(enum.IntEnum):
    """The progress of a member towards its target. The numbers are stored in the ledger."""

    STABLE = 1
    """The member owns its target at its epoch."""
    UNREVOKED_PARTITIONS = 2
    """The member must give up partitions and has not confirmed it yet."""
    UNRELEASED_PARTITIONS = 3
    """The member waits for partitions that other members have not given up."""


class Wish(NamedTuple):
    """A subscription: topic names, and an expression that matches topics which the principal may describe."""

    topic_names: tuple[str, ...]
    topic_regex: str
    principal: str
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """One member: its identity, its subscription, the partitions that it has, and its target."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    principal: str = ""
    """The client's principal. The member's expression does not match topics that the principal may not describe."""
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] = ()
    """Sorted, without duplicates."""
    topic_regex: str = ""
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=dict)
    """The partitions that the member may own."""
    revoking: Assignment = field(default_factory=dict)
    """The partitions that the member was asked to give up. Others get them after it has confirmed."""
    target: Assignment = field(default_factory=dict)
    """The partitions that the member should own at the assignment epoch."""

    @property
    def weight(self) -> int:
        """The bytes of the member's ids and subscription."""
        ids = (self.member_id, self.instance_id or "", self.rack_id or "", self.client_id, self.topic_regex)
        return sum(map(len, ids)) + sum(map(len, self.topic_names))

    @property
    def wish(self) -> Wish:
        """The subscription. Principal and host are set only if there is an expression."""
        if not self.topic_regex:
            return Wish(self.topic_names, "", "", "")
        return Wish(self.topic_names, self.topic_regex, self.principal, self.client_host.removeprefix("/"))

    @property
    def held(self) -> Assignment:
        """The partitions that the member may still own: `assigned` and `revoking`."""
        topics = {**self.assigned, **self.revoking}
        nothing: frozenset[int] = frozenset()
        return {topic: self.assigned.get(topic, nothing) | self.revoking.get(topic, nothing) for topic in topics}

    def is_reconciled(self, assignment_epoch: int) -> bool:
        """Whether the member has reached its target."""
        return self.state == MemberState.STABLE and self.epoch == assignment_epoch


_Pairs = list[tuple[bytes, list[int]]]


class _StoredMember(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    format: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topic_names: tuple[str, ...]
    topic_regex: str
    assignor: str | None
    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: _Pairs
    revoking: _Pairs
    target: _Pairs
    principal: str = ""


class Head(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A group without its members."""

    format: int
    epoch: int
    assignment_epoch: int
    topics_digest: bytes
    """The digest of the topics for which the assignment was made."""


_members = msgspec.msgpack.Decoder(_StoredMember)
_heads = msgspec.msgpack.Decoder(Head)


def encode_member(member: ConsumerMember) -> bytes:
    """A member's bytes in the ledger. Equal members have equal bytes."""
    return msgspec.msgpack.encode(
        _StoredMember(
            FORMAT,
            member.instance_id,
            member.rack_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.topic_names,
            member.topic_regex,
            member.assignor,
            member.epoch,
            member.previous_epoch,
            member.state,
            _pack(member.assigned),
            _pack(member.revoking),
            _pack(member.target),
            member.principal,
        )
    )


def decode_member(member_id: str, data: bytes) -> ConsumerMember:
    """Decode a member from its bytes in the ledger."""
    stored = decoded(_members, data, FORMAT)
    return ConsumerMember(
        member_id=member_id,
        instance_id=stored.instance_id,
        rack_id=stored.rack_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        principal=stored.principal,
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        topic_names=stored.topic_names,
        topic_regex=stored.topic_regex,
        assignor=stored.assignor,
        epoch=stored.epoch,
        previous_epoch=stored.previous_epoch,
        state=stored.state,
        assigned=_unpack(stored.assigned),
        revoking=_unpack(stored.revoking),
        target=_unpack(stored.target),
    )


def decode_head(data: bytes) -> Head:
    """Decode a head from its bytes in the ledger."""
    return decoded(_heads, data, FORMAT)


def _pack(assignment: Assignment) -> _Pairs:
    return sorted((topic.bytes, sorted(partitions)) for topic, partitions in assignment.items())


def _unpack(pairs: _Pairs) -> Assignment:
    try:
        return {uuid.UUID(bytes=topic): frozenset(partitions) for topic, partitions in pairs}
    except ValueError as error:
        raise Halted(f"a group in the ledger has an invalid topic id: {error}; run `headwater doctor`") from error
