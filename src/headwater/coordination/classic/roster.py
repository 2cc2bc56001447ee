"""The roster of a classic group: its members, assigned member ids, the leader, and the common protocol."""

from __future__ import annotations

from headwater.coordination.classic.members import CONSUMER_PROTOCOL, ClassicMember, Join, Sync, topics_of
from headwater.coordination.common import Topics

EMPTY, PREPARING, COMPLETING, STABLE = "Empty", "PreparingRebalance", "CompletingRebalance", "Stable"


class Roster:
    """The members of a group, and the checks of their requests."""

    def __init__(self, max_members: int) -> None:
        self._max_members = max_members
        self.state = EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self._static: dict[str, str] = {}
        """Member ids by instance id."""
        self._pending: set[str] = set()
        """Assigned member ids whose clients have not joined with them yet."""

    def enrol(self, member: ClassicMember) -> None:
        """Add a member. Its instance id, if any, now belongs to this member."""
        self.members[member.id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.id

    @property
    def is_empty(self) -> bool:
        return self.state == EMPTY

    @property
    def weight(self) -> int:
        """See `Group`. Assigned ids that are not used yet count."""
        return sum([member.weight for member in self.members.values()]) + sum(map(len, self._pending))

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def subscribed(self, topics: Topics) -> set[str] | None:
        """See `Group`. A subscription that cannot be read is not known."""
        if self.protocol_type != CONSUMER_PROTOCOL:
            return None
        wanted: set[str] = set()
        for member in self.members.values():
            names = topics_of(member.subscription(self.protocol))
            if names is None:
                return None
            wanted |= names
        return wanted

    def is_subscribed(self, topic: str, topics: Topics) -> bool:
        """See `Group`. If subscriptions are not known, consumers may be using every topic."""
        wanted = self.subscribed(topics)
        return self.protocol_type == CONSUMER_PROTOCOL if wanted is None else topic in wanted

    def _candidates(self) -> set[str]:
        """The protocols that all members know."""
        known = [{name for name, _ in member.protocols} for member in self.members.values()]
        return set.intersection(*known) if known else set()

    def _flaw(self, member_id: str, instance_id: str | None) -> str | None:
        """The error code if a request does not come from a current member; `None` if it does."""
        if instance_id is not None:
            owner = self._static.get(instance_id)
            if owner is not None and owner != member_id:
                return "fenced_instance_id"
            if owner is None:
                return "unknown_member_id"
        return None if member_id in self.members else "unknown_member_id"

    def _elect(self) -> bool:
        """Ensure that the leader has joined. Returns false if no member has joined."""
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.joining is not None:
            return True
        self.leader = next((m.id for m in self.members.values() if m.joining is not None), self.leader)
        return any(member.joining is not None for member in self.members.values())

    def _chosen(self) -> str:
        """The protocol with the most votes among those that all members know."""
        candidates = self._candidates()
        votes: dict[str, int] = {}
        for member in self.members.values():
            vote = member.vote(candidates)
            votes[vote] = votes.get(vote, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def _roster(self) -> tuple[tuple[str, str | None, bytes], ...]:
        return tuple((m.id, m.instance_id, m.subscription(self.protocol)) for m in self.members.values())

    def _all_joined(self) -> bool:
        return not self._pending and all(member.joining is not None for member in self.members.values())

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            self._static.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self._pending.discard(member_id)

    def _has_room(self, member_id: str) -> bool:
        if self.state == EMPTY:
            return True
        known = self.members.get(member_id)
        if self.state == PREPARING:
            waiting = sum(member.joining is not None for member in self.members.values())
            return (known is not None and known.joining is not None) or waiting < self._max_members
        return known is not None or len(self.members) < self._max_members

    def _knows_protocols(self, request: Join) -> bool:
        names = {name for name, _ in request.protocols}
        if self.state == EMPTY:
            return bool(request.protocol_type and names)
        if request.protocol_type != self.protocol_type:
            return False
        return not self.members or not names.isdisjoint(self._candidates())

    def _sync_refusal(self, request: Sync) -> str | None:
        if self.state == EMPTY:
            return "unknown_member_id"
        code = self._flaw(request.member_id, request.instance_id)
        if code is not None:
            return code
        if request.generation != self.generation:
            return "illegal_generation"
        if request.protocol_type not in (None, self.protocol_type) or request.protocol not in (None, self.protocol):
            return "inconsistent_group_protocol"
        return "rebalance_in_progress" if self.state == PREPARING else None
