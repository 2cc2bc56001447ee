"""The classic group protocol: members join, a leader among them makes the assignment, all members sync.

The phases, time-outs and refusals are those of Apache Kafka's coordinator. One rule is stricter: a generation is stored
before any member learns it, so that no generation is used twice after a crash.

Times are milliseconds of a clock that never goes back, except `wall_ms`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import msgspec

from headwater.coordination.classic.members import (
    FORMAT,
    ClassicMember,
    Head,
    Join,
    JoinAnswer,
    Sync,
    SyncAnswer,
    decode_head,
    decode_member,
    encode_member,
)
from headwater.coordination.classic.roster import COMPLETING, EMPTY, PREPARING, STABLE, Roster
from headwater.coordination.classic.settings import ClassicSettings
from headwater.coordination.common import Change, GroupError, Reply, Topics
from headwater.coordination.group import Commit, GroupContext

_JOIN, _SYNC = ("join", ""), ("sync", "")
_Key = tuple[str, str]


class ClassicGroup(Roster):
    """One group. Requests that have to wait are answered through `replies`."""

    kind: ClassVar[str] = "classic"

    def __init__(self, name: str, settings: ClassicSettings, wall_ms: int) -> None:
        super().__init__(settings.max_members)
        self.name = name
        self._settings = settings
        self.changed_ms = wall_ms
        self._to_sync: set[str] = set()
        self._was_empty = False
        """Whether the current rebalance is the first since the group was empty."""
        self._late = False
        """Whether a member has joined since the first rebalance was last delayed."""
        self._remaining_ms = 0
        self._deadlines: dict[_Key, int] = {}
        self._replies: list[Reply] = []
        self._stored: dict[str, bytes] = {}
        self._stored_head = b""
        self._dirty = True

    def __repr__(self) -> str:
        return f"<ClassicGroup {self.name!r}, {self.state}, generation {self.generation}, {len(self.members)} members>"

    @classmethod
    def create(cls, name: str, context: GroupContext, wall_ms: int) -> ClassicGroup:
        """See `Group`."""
        return cls(name, ClassicSettings.of(context), wall_ms)

    @classmethod
    def restore(
        cls, name: str, context: GroupContext, head: bytes, members: Mapping[str, bytes], now_ms: int
    ) -> ClassicGroup:
        """See `Group`."""
        return cls.load(name, ClassicSettings.of(context), head, members, now_ms)

    @classmethod
    def load(
        cls, name: str, settings: ClassicSettings, head: bytes, members: Mapping[str, bytes], now_ms: int
    ) -> ClassicGroup:
        """A group from its bytes in the ledger. Session time-outs start again."""
        stored = decode_head(head)
        group = cls(name, settings, stored.changed_ms)
        group.generation, group.leader = stored.generation, stored.leader
        group.protocol_type, group.protocol = stored.protocol_type, stored.protocol
        for member_id, data in members.items():
            member = decode_member(member_id, data)
            group.enrol(member)
            group._expect(member, now_ms)
        if group.members:
            group.state = STABLE if stored.synced else COMPLETING
        if group.state == COMPLETING:
            group._to_sync = set(group.members)
            group._deadlines[_SYNC] = now_ms + group.rebalance_timeout_ms
        group._stored, group._stored_head, group._dirty = dict(members), head, False
        return group

    # --- answers and changes -------------------------------------------------------------------------

    def replies(self) -> list[Reply]:
        """See `Group`."""
        replies, self._replies = self._replies, []
        return replies

    def changes(self) -> Change | None:
        """See `Group`. Nothing is stored while members are joining."""
        if self.state == PREPARING or not self._dirty:
            return None
        self._dirty = False
        head = self._head()
        now = {member.id: encode_member(member) for member in self.members.values()}
        put = {name: data for name, data in now.items() if self._stored.get(name) != data}
        drop = tuple(name for name in self._stored if name not in now)
        if head == self._stored_head and not put and not drop:
            return None
        changed = head if head != self._stored_head else None
        self._stored, self._stored_head = now, head
        return Change(changed, put, drop)

    def _head(self) -> bytes:
        synced = self.state == STABLE
        return msgspec.msgpack.encode(
            Head(FORMAT, self.generation, self.protocol_type, self.protocol, self.leader, synced, self.changed_ms)
        )

    def next_deadline(self) -> int | None:
        """See `Group`."""
        return min(self._deadlines.values(), default=None)

    # --- joining -------------------------------------------------------------------------------------

    def join(self, request: Join, token: object, now_ms: int, wall_ms: int) -> None:
        """Let a member join, or join again. The answer comes when the join phase ends, or at once if it cannot join."""
        code = self._refusal(request)
        if code is not None:
            member_id = "" if code == "group_max_size_reached" else request.member_id
            if code == "group_max_size_reached":
                self._remove(request.member_id)
            self._answer(token, JoinAnswer(code=code, member_id=member_id))
        elif not request.member_id:
            self._join_new(request, token, now_ms, wall_ms)
        elif request.member_id in self._pending:
            self._add(request, request.member_id, token, now_ms, wall_ms)
        else:
            self._rejoin(request, self.members[request.member_id], token, now_ms, wall_ms)

    def _refusal(self, request: Join) -> str | None:
        if not self._has_room(request.member_id):
            return "group_max_size_reached"
        if not self._knows_protocols(request):
            return "inconsistent_group_protocol"
        if not request.member_id or request.member_id in self._pending:
            return None
        code = self._flaw(request.member_id, request.instance_id)
        return "unknown_member_id" if code is None and self.state == EMPTY else code

    def _join_new(self, request: Join, token: object, now_ms: int, wall_ms: int) -> None:
        member_id = f"{request.instance_id or request.client_id}-{self._settings.new_id()}"
        if request.instance_id is not None and request.instance_id in self._static:
            self._replace(request, self.members[self._static[request.instance_id]], member_id, token, now_ms, wall_ms)
        elif request.instance_id is None and request.needs_id and len(self._pending) >= self._settings.max_members:
            self._answer(token, JoinAnswer(code="group_max_size_reached"))
        elif request.instance_id is None and request.needs_id:
            self._pending.add(member_id)
            self._deadlines[("member", member_id)] = now_ms + request.session_timeout_ms
            self._answer(token, JoinAnswer(code="member_id_required", member_id=member_id))
        else:
            self._add(request, member_id, token, now_ms, wall_ms)

    def _add(self, request: Join, member_id: str, token: object, now_ms: int, wall_ms: int) -> None:
        member = ClassicMember(
            id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=request.protocols,
            is_new=True,
            joining=token,
        )
        if not self.members:
            self.protocol_type = request.protocol_type
        self.enrol(member)
        self.leader = self.leader or member_id
        self._pending.discard(member_id)
        self._late = True
        # A new member cannot send heartbeats while it waits. If its client gives up, it joins again with another id.
        self._deadlines[("member", member_id)] = now_ms + self._settings.new_member_timeout_ms
        self._rebalance(now_ms, wall_ms)

    def _rejoin(self, request: Join, member: ClassicMember, token: object, now_ms: int, wall_ms: int) -> None:
        same = member.protocols == request.protocols
        leads = member.id == self.leader
        if same and (self.state == COMPLETING or (self.state == STABLE and not leads)):
            # The member may not have received its answer: repeat it.
            told = self._roster() if leads else ()
            self._answer(token, self._joined(member, told))
            return
        self._update(member, request, token)
        self._rebalance(now_ms, wall_ms)

    def _update(self, member: ClassicMember, request: Join, token: object) -> None:
        if member.joining is not None:  # an older request of the same member, which its client has given up
            self._answer(member.joining, JoinAnswer(code="rebalance_in_progress", member_id=member.id))
        member.protocols, member.joining = request.protocols, token
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms

    def _replace(
        self, request: Join, old: ClassicMember, member_id: str, token: object, now_ms: int, wall_ms: int
    ) -> None:
        """A static member is back with a new id. A client that still uses the old id is fenced."""
        self._tell_gone(old, "fenced_instance_id", old.id)
        del self.members[old.id]
        self._deadlines.pop(("member", old.id), None)
        self._to_sync.discard(old.id)
        leads = self.leader == old.id
        member = self.members[member_id] = replace(old, id=member_id, is_new=False)
        self._dirty = True
        self._static[request.instance_id or ""] = member_id
        led_before = self.leader or ""
        if leads:
            self.leader = member_id
        self._expect(member, now_ms)
        self._update(member, request, token)
        if self.state != STABLE or self._chosen() != self.protocol:
            self._rebalance(now_ms, wall_ms)
        else:
            member.joining = None
            if request.may_skip_assignment:
                answer = self._joined(member, self._roster() if leads else (), skip=leads)
            else:  # the member must not believe that it leads, or it would make an assignment that is not used
                answer = self._joined(member, (), leader=led_before)
            self._answer(token, answer)

    # --- phases --------------------------------------------------------------------------------------

    def _rebalance(self, now_ms: int, wall_ms: int) -> None:
        if self.state == PREPARING:
            self._finish_join_if_all(now_ms, wall_ms)
        else:
            self._prepare(now_ms, wall_ms)

    def _prepare(self, now_ms: int, wall_ms: int) -> None:
        if self.state == COMPLETING:
            for member in self.members.values():
                member.assignment = b""
                self._answer_sync(member, SyncAnswer(code="rebalance_in_progress"))
        self._to_sync.clear()
        self._deadlines.pop(_SYNC, None)
        first = self.state == EMPTY
        self._enter(PREPARING, wall_ms)
        delay = self._settings.initial_delay_ms
        if first and delay:
            # A new group: give the other members time to join.
            self._late, self._remaining_ms = False, max(self.rebalance_timeout_ms - delay, 0)
            self._deadlines[_JOIN] = now_ms + delay
        elif first or self._all_joined():
            self._finish_join(now_ms, wall_ms)
        else:
            self._deadlines[_JOIN] = now_ms + self.rebalance_timeout_ms

    def _finish_join_if_all(self, now_ms: int, wall_ms: int) -> None:
        if self.state == PREPARING and not self._was_empty and self._all_joined():
            self._finish_join(now_ms, wall_ms)

    def _join_over(self, now_ms: int, wall_ms: int) -> None:
        """End the join phase, whose time is over. The first one of a group is extended while members still join."""
        if self._was_empty and self._late and self._remaining_ms:
            delay = min(self._settings.initial_delay_ms, self._remaining_ms)
            self._late, self._remaining_ms = False, self._remaining_ms - delay
            self._deadlines[_JOIN] = now_ms + delay
        else:
            self._finish_join(now_ms, wall_ms)

    def _finish_join(self, now_ms: int, wall_ms: int) -> None:
        self._deadlines.pop(_JOIN, None)
        for member in [m for m in self.members.values() if m.joining is None and m.instance_id is None]:
            self._remove(member.id)
        if self.members and not self._elect():
            # Only static members that have not joined again are left: wait until they join or their sessions end.
            self._deadlines[_JOIN] = now_ms + self.rebalance_timeout_ms
            return
        self.generation += 1
        if not self.members:
            self.protocol = None
            self._enter(EMPTY, wall_ms)
            return
        self.protocol = self._chosen()
        self._enter(COMPLETING, wall_ms)
        roster = self._roster()
        for member in self.members.values():
            member.is_new = False
            self._expect(member, now_ms)
            if member.joining is not None:
                self._answer(member.joining, self._joined(member, roster if member.id == self.leader else ()))
                member.joining = None
        self._to_sync = set(self.members)
        self._deadlines[_SYNC] = now_ms + self.rebalance_timeout_ms

    def _joined(
        self,
        member: ClassicMember,
        roster: tuple[tuple[str, str | None, bytes], ...],
        *,
        skip: bool = False,
        leader: str | None = None,
    ) -> JoinAnswer:
        return JoinAnswer(
            member_id=member.id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader or "" if leader is None else leader,
            skip_assignment=skip,
            members=roster,
        )

    def sync(self, request: Sync, token: object, now_ms: int, wall_ms: int) -> None:
        """Answer with a member's assignment, when the leader has sent the assignments."""
        code = self._sync_refusal(request)
        if code is not None:
            self._answer(token, SyncAnswer(code=code))
            return
        member = self.members[request.member_id]
        self._to_sync.discard(member.id)
        if self.state == STABLE:
            self._answer(token, self._assigned(member))
        else:
            if member.syncing is not None:
                self._answer(member.syncing, SyncAnswer(code="rebalance_in_progress"))
            member.syncing = token
            if member.id == self.leader:
                for each in self.members.values():
                    each.assignment = request.assignments.get(each.id, b"")
                self._enter(STABLE, wall_ms)
                for each in self.members.values():
                    if self._answer_sync(each, self._assigned(each)):
                        self._expect(each, now_ms)
        if not self._to_sync:
            self._deadlines.pop(_SYNC, None)

    def _assigned(self, member: ClassicMember) -> SyncAnswer:
        return SyncAnswer(protocol_type=self.protocol_type, protocol=self.protocol, assignment=member.assignment)

    # --- staying and leaving ---------------------------------------------------------------------------

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        """Extend a member's session. A `GroupError` tells the member what to do."""
        code = self._flaw(member_id, instance_id)
        if code is None and generation != self.generation:
            code = "illegal_generation"
        if code is not None:
            raise GroupError(code)
        self._expect(self.members[member_id], now_ms)
        if self.state == PREPARING:
            raise GroupError("rebalance_in_progress")

    def leave(
        self, leaving: Iterable[tuple[str, str | None]], now_ms: int, wall_ms: int
    ) -> list[tuple[str, str | None, str]]:
        """Remove members. Returns (member id, instance id, error code) of each. A static one may have no member id."""
        outcome = []
        for member_id, instance_id in leaving:
            code = "none"
            if not member_id:
                owner = self._static.get(instance_id) if instance_id is not None else None
                code = "none" if owner is not None else "unknown_member_id"
                self._dismiss(owner)
            elif member_id in self._pending:
                self._remove(member_id)
            else:
                code = self._flaw(member_id, instance_id) or "none"
                if code == "none":
                    self._dismiss(member_id)
            outcome.append((member_id, instance_id, code))
        if any(code == "none" for *_, code in outcome) and self.state != EMPTY:
            self._rebalance(now_ms, wall_ms)
        return outcome

    def _dismiss(self, member_id: str | None) -> None:
        if member_id is not None:
            self._tell_gone(self.members[member_id], "unknown_member_id", "")
            self._remove(member_id)

    def _tell_gone(self, member: ClassicMember, code: str, member_id: str) -> None:
        """Answer the waiting requests of a member that is being removed."""
        if member.joining is not None:
            self._answer(member.joining, JoinAnswer(code=code, member_id=member_id))
            member.joining = None
        self._answer_sync(member, SyncAnswer(code=code))

    def _remove(self, member_id: str) -> None:
        super()._remove(member_id)
        self._to_sync.discard(member_id)
        self._deadlines.pop(("member", member_id), None)

    def tick(self, topics: Topics, now_ms: int, wall_ms: int) -> None:
        """See `Group`. Ends sessions and phases that took too long."""
        for key in [key for key, due in self._deadlines.items() if due <= now_ms]:
            if self._deadlines.get(key, now_ms + 1) > now_ms:
                continue  # an earlier deadline in this loop has extended this one
            del self._deadlines[key]
            if key == _JOIN:
                self._join_over(now_ms, wall_ms)
            elif key == _SYNC:
                self._sync_over(now_ms, wall_ms)
            else:
                self._session_over(key[1], now_ms, wall_ms)

    def _sync_over(self, now_ms: int, wall_ms: int) -> None:
        late = set(self._to_sync)
        for member_id in late:
            self._dismiss(member_id)
        if late and self.state in (COMPLETING, STABLE):
            self._prepare(now_ms, wall_ms)

    def _session_over(self, member_id: str, now_ms: int, wall_ms: int) -> None:
        member = self.members.get(member_id)
        if member is None:
            self._remove(member_id)
            self._finish_join_if_all(now_ms, wall_ms)
        elif member.is_new or (member.joining is None and member.syncing is None):
            self._dismiss(member_id)
            self._rebalance(now_ms, wall_ms)

    def _expect(self, member: ClassicMember, now_ms: int) -> None:
        """Start the member's session again."""
        self._deadlines[("member", member.id)] = now_ms + member.session_timeout_ms

    # --- offsets -----------------------------------------------------------------------------------------

    def check_commit(self, commit: Commit, now_ms: int) -> None:
        """See `Group`. A member's commit extends its session."""
        if commit.epoch < 0 and self.state == EMPTY:
            return
        if commit.epoch < 0 and not commit.member_id and commit.instance_id is None:
            if commit.is_transactional:
                return  # its first versions do not name a member
            raise GroupError("unknown_member_id")
        code = self._flaw(commit.member_id, commit.instance_id)
        if code is None and commit.epoch != self.generation:
            code = "illegal_generation"
        if code is None and self.state == COMPLETING and not commit.is_transactional:
            code = "rebalance_in_progress"
        if code is not None:
            raise GroupError(code)
        self._expect(self.members[commit.member_id], now_ms)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """See `Group`. The classic protocol does not name the member that fetches, so all callers may."""

    # --- small parts -------------------------------------------------------------------------------------

    def _enter(self, state: str, wall_ms: int) -> None:
        self._was_empty = self.state == EMPTY
        self.state, self.changed_ms, self._dirty = state, wall_ms, True

    def _answer(self, token: object, answer: Any) -> None:
        self._replies.append(Reply(token, answer))

    def _answer_sync(self, member: ClassicMember, answer: SyncAnswer) -> bool:
        if member.syncing is None:
            return False
        self._answer(member.syncing, answer)
        member.syncing = None
        return True

    def abandon(self, code: str) -> list[Reply]:
        """See `Group`."""
        for member in self.members.values():
            self._tell_gone(member, code, member.id)
        return self.replies()
