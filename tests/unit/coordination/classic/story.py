"""One classic group, its time, and everything that it has said."""

import itertools
from dataclasses import dataclass, field
from typing import Any

from headwater.coordination.classic.group import ClassicGroup
from headwater.coordination.classic.members import Join, JoinAnswer, Sync, SyncAnswer
from headwater.coordination.classic.settings import ClassicSettings
from headwater.coordination.common import GroupError
from headwater.coordination.group import Commit
from tests.support.consumer_groups import TopicTable

WALL = 1_700_000_000_000
SESSION, REBALANCE, NEW_MEMBER = 10_000, 30_000, 300_000
RANGE = [("range", b"topics")]


@dataclass
class Story:
    """One group, its time, and everything that it has said."""

    delay_ms: int = 0
    max_members: int = 100
    now: int = 0
    answers: dict[object, Any] = field(default_factory=dict)
    stored: tuple[bytes, dict[str, bytes]] = (b"", {})

    def __post_init__(self) -> None:
        ids = itertools.count(1)
        self.settings = ClassicSettings(
            initial_delay_ms=self.delay_ms,
            new_member_timeout_ms=NEW_MEMBER,
            max_members=self.max_members,
            new_id=lambda: str(next(ids)),
        )
        self.tokens = itertools.count(1)
        self.topics = TopicTable()
        self.group = ClassicGroup("g", self.settings, WALL)

    def heard(self) -> None:
        change = self.group.changes()
        if change is not None:
            head, members = self.stored
            members = {k: v for k, v in members.items() if k not in change.drop} | change.put
            self.stored = (change.head if change.head is not None else head, members)
        for reply in self.group.replies():
            assert reply.token not in self.answers, "answered twice"
            self.answers[reply.token] = reply.answer

    def join(self, member_id: str = "", **given: Any) -> int:
        token = next(self.tokens)
        facts: dict[str, Any] = {
            "member_id": member_id,
            "instance_id": None,
            "client_id": "c",
            "client_host": "/127.0.0.1",
            "session_timeout_ms": SESSION,
            "rebalance_timeout_ms": REBALANCE,
            "protocol_type": "consumer",
            "protocols": RANGE,
            "needs_id": False,
            "may_skip_assignment": True,
            **given,
        }
        self.group.join(Join(**facts), token, self.now, WALL + self.now)
        self.heard()
        return token

    def sync(self, member_id: str, generation: int, assignments: dict[str, bytes] | None = None, **given: Any) -> int:
        token = next(self.tokens)
        facts: dict[str, Any] = {"instance_id": None, "protocol_type": None, "protocol": None, **given}
        request = Sync(member_id=member_id, generation=generation, assignments=assignments or {}, **facts)
        self.group.sync(request, token, self.now, WALL + self.now)
        self.heard()
        return token

    def leave(self, *leaving: tuple[str, str | None]) -> list[str]:
        outcome = self.group.leave(leaving, self.now, WALL + self.now)
        self.heard()
        return [code for *_, code in outcome]

    def wait(self, ms: int) -> None:
        """Let time pass, event by event."""
        end = self.now + ms
        while (due := self.group.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.group.tick(self.topics, self.now, WALL + self.now)
            self.heard()
        self.now = end

    def commit(self, member_id: str, generation: int, *, in_transaction: bool = False) -> str:
        """What the group says of a commit; `none` if it may be made."""
        try:
            commit = Commit(
                member_id=member_id, instance_id=None, epoch=generation, version=8, is_transactional=in_transaction
            )
            self.group.check_commit(commit, self.now)
        except GroupError as error:
            return error.code
        return "none"

    def beat(self, member_id: str, generation: int, instance: str | None = None) -> str:
        try:
            self.group.heartbeat(member_id, instance, generation, self.now)
        except GroupError as error:
            return error.code
        return "none"

    def joined(self, token: int) -> JoinAnswer:
        answer = self.answers[token]
        assert isinstance(answer, JoinAnswer)
        return answer

    def synced(self, token: int) -> SyncAnswer:
        answer = self.answers[token]
        assert isinstance(answer, SyncAnswer)
        return answer

    def fail_over(self) -> None:
        """Another coordinator takes over what is stored."""
        head, members = self.stored
        self.group = ClassicGroup.load("g", self.settings, head, members, self.now)

    def stable(self, count: int, **given: Any) -> list[str]:
        """A stable group of so many members; the first one leads."""
        names: list[str] = []
        for _ in range(count):
            token = self.join(**given)
            again = [self.join(name) for name in names]
            self.wait(self.delay_ms)
            names.append(self.joined(token).member_id)
            assert all(self.joined(each).code == "none" for each in again)
        generation = self.group.generation
        leader = self.group.leader or ""
        self.sync(leader, generation, {name: name.encode() for name in names})
        for name in names:
            if name != leader:
                assert self.synced(self.sync(name, generation)).assignment == name.encode()
        assert self.group.state == "Stable"
        return names
