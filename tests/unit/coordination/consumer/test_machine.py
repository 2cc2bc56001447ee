"""Whatever members, topics, rules and time do, no partition of a group has two owners, in the end each has one,
and nobody is given what it may not know of."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.coordination.assignors import ASSIGNORS
from headwater.coordination.common import GroupError
from headwater.coordination.consumer.group import ConsumerGroup
from headwater.coordination.consumer.members import decode_member, encode_member
from tests.support.consumer_groups import Client, TopicTable, pairs, settings, settle
from tests.support.soak import examples

PROMISES = ("K9", "S2")

NAMES = ("a", "b", "c", "d")
SUBSCRIPTIONS = st.one_of(
    st.lists(st.sampled_from(NAMES), max_size=3, unique=True).map(lambda names: (tuple(names), None)),
    st.sampled_from([((), "[ab]"), ((), ".*"), (("a",), "c|d"), (("a", "b"), None), (("a", "b"), None)]),
)
INDEX = st.integers(0, 30)
PRINCIPALS = st.sampled_from(["User:high", "User:low"])


class ConsumerGroupMachine(RuleBasedStateMachine):
    """Members of all kinds against a group that is stored after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = settings()
        self.topics = TopicTable()
        self.now = 0
        self.group = ConsumerGroup("group", self.settings)
        self.head: bytes | None = None
        self.stored: dict[str, bytes] = {}
        self.clients: list[Client] = []
        self.crashed: list[Client] = []
        self.away: list[Client] = []
        self.ids = itertools.count(1)
        self.epochs = (0, 0)
        self.assignor: str | None = None
        self.shown: dict[str, set[uuid.UUID]] = {}
        """The topics that the last answer with an assignment told each member of."""

    @initialize(assignor=st.sampled_from([None, *ASSIGNORS]), counts=st.lists(st.integers(1, 5), max_size=4))
    def begin(self, assignor: str | None, counts: list[int]) -> None:
        self.assignor = assignor
        for name, count in zip(NAMES, counts, strict=False):
            self.topics.create(name, count)

    def attempt(self, action: Callable[[], object], *expected: str) -> bool:
        """Whether it was accepted. What was refused changed nothing."""
        self.store()
        try:
            action()
        except GroupError as error:
            assert error.code in expected, error
            assert error.message
            assert self.group.changes() is None
            return False
        return True

    def pick(self, clients: list[Client], index: int) -> Client:
        return clients[index % len(clients)]

    # --- members ---------------------------------------------------------------------------------

    @precondition(lambda self: len(self.clients) + len(self.crashed) + len(self.away) < 6)
    @rule(subscription=SUBSCRIPTIONS, is_static=st.booleans(), principal=PRINCIPALS)
    def join(self, subscription: tuple[tuple[str, ...], str | None], is_static: bool, principal: str) -> None:
        number = next(self.ids)
        client = Client(
            f"m{number * 7 % 10}-{number}",
            subscription[0],
            regex=subscription[1],
            instance_id=f"i{number}" if is_static else None,
            assignor=self.assignor,
            principal=principal,
        )
        self.heard(client, is_late=False, is_lost=False)
        self.clients.append(client)

    @precondition(lambda self: self.clients)
    @rule(index=INDEX, is_late=st.booleans(), is_lost=st.booleans())
    def beat(self, index: int, is_late: bool, is_lost: bool) -> None:
        client = self.pick(self.clients, index)
        refusals = ("fenced_member_epoch", "unknown_member_id")
        if not self.attempt(lambda: self.heard(client, is_late=is_late, is_lost=is_lost), *refusals):
            client.abandon()

    def heard(self, client: Client, *, is_late: bool, is_lost: bool) -> None:
        """A heartbeat whose answer tells of nothing that its member may not know of, unless it named it itself. What it
        was told of before it has to give up first, and it is told so step by step."""
        answer = client.beat(self.group, self.topics, self.now, is_late=is_late, is_lost=is_lost)
        given = set(answer.assignment or ())
        fresh = {self.topics.name_of(topic) for topic in given - self.shown.setdefault(client.member_id, set())}
        names = frozenset(name for name in fresh - {*(client.names or ())} if name is not None)
        assert self.topics.visible(client.principal, "127.0.0.1", names) == names
        self.shown[client.member_id] = given if answer.assignment is not None else self.shown[client.member_id]

    @precondition(lambda self: self.clients)
    @rule()
    def everybody_beats(self) -> None:
        for index, client in enumerate(self.clients):
            client.revoke()
            self.beat(index, False, False)

    @precondition(lambda self: self.clients)
    @rule(index=INDEX)
    def revoke(self, index: int) -> None:
        self.pick(self.clients, index).revoke()

    @precondition(lambda self: self.clients)
    @rule(index=INDEX, subscription=SUBSCRIPTIONS)
    def subscribe(self, index: int, subscription: tuple[tuple[str, ...], str | None]) -> None:
        client = self.pick(self.clients, index)
        client.names, client.regex, client.says_all = subscription[0], subscription[1] or "", True

    @precondition(lambda self: self.clients)
    @rule(index=INDEX)
    def leave(self, index: int) -> None:
        client = self.pick(self.clients, index)
        self.clients.remove(client)
        self.attempt(lambda: client.leave(self.group, self.topics), "unknown_member_id")

    @precondition(lambda self: any(client.instance_id for client in self.clients))
    @rule(index=INDEX)
    def leave_for_a_while(self, index: int) -> None:
        client = self.pick([client for client in self.clients if client.instance_id], index)
        self.clients.remove(client)
        if self.attempt(lambda: client.leave(self.group, self.topics, epoch=-2), "unknown_member_id"):
            self.away.append(client)

    @precondition(lambda self: self.away)
    @rule(index=INDEX, principal=PRINCIPALS)
    def come_back(self, index: int, principal: str) -> None:
        old = self.pick(self.away, index)
        self.away.remove(old)
        member_id = f"again{next(self.ids)}"
        client = Client(
            member_id,
            old.names,
            regex=old.regex,
            instance_id=old.instance_id,
            assignor=self.assignor,
            principal=principal,
        )
        self.heard(client, is_late=False, is_lost=False)
        self.clients.append(client)

    @precondition(lambda self: self.clients)
    @rule(index=INDEX)
    def crash(self, index: int) -> None:
        client = self.pick(self.clients, index)
        self.clients.remove(client)
        self.crashed.append(client)

    @precondition(lambda self: any(self.holder(client) for client in self.crashed))
    @rule(index=INDEX)
    def restart_too_soon(self, index: int) -> None:
        old = self.pick([client for client in self.crashed if self.holder(client)], index)
        client = Client(f"again{next(self.ids)}", old.names or (), instance_id=old.instance_id)
        accepted = self.attempt(lambda: client.beat(self.group, self.topics, self.now), "unreleased_instance_id")
        assert not accepted

    def holder(self, client: Client) -> str | None:
        """The member that has the client's instance id."""
        members = self.group.members.values()
        return next((m.member_id for m in members if client.instance_id and m.instance_id == client.instance_id), None)

    @precondition(lambda self: self.clients)
    @rule(index=INDEX, principal=PRINCIPALS)
    def become(self, index: int, principal: str) -> None:
        self.pick(self.clients, index).principal = principal

    @rule(principal=PRINCIPALS, hidden=st.sets(st.sampled_from(NAMES)))
    def change_rules(self, principal: str, hidden: set[str]) -> None:
        self.topics.hide(principal, *hidden)

    # --- the world ---------------------------------------------------------------------------------

    @rule(duration=st.integers(1, 30_000))
    def time_passes(self, duration: int) -> None:
        self.now += duration
        deadline = self.group.next_deadline()
        known = set(self.group.members)
        self.group.tick(self.topics, self.now, 0)
        assert (known != set(self.group.members)) == (deadline is not None and deadline <= self.now)
        self.forget()

    def forget(self) -> None:
        """Those whose session is over, or who did not give up what they had to, are not members any more."""
        self.crashed = [client for client in self.crashed if client.member_id in self.group.members]
        self.away = [client for client in self.away if client.member_id in self.group.members]

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 5))
    def create_topic(self, name: str, count: int) -> None:
        self.topics.create(name, count)

    @precondition(lambda self: self.topics.names())
    @rule(index=INDEX, more=st.integers(1, 3))
    def grow_topic(self, index: int, more: int) -> None:
        names = sorted(self.topics.names())
        self.topics.grow(names[index % len(names)], more)

    @precondition(lambda self: self.topics.names())
    @rule(index=INDEX)
    def delete_topic(self, index: int) -> None:
        names = sorted(self.topics.names())
        self.topics.delete(names[index % len(names)])

    @precondition(lambda self: self.head is not None)
    @rule()
    def move_to_another_broker(self) -> None:
        self.store()
        assert self.head is not None
        self.group = ConsumerGroup.load("group", self.settings, self.head, self.stored, self.now)

    @rule()
    def come_to_rest(self) -> None:
        """Silent members go, everybody else beats: then all partitions have an owner, and fairly."""
        while self.crashed or self.away:
            self.now += 20_000
            self.everybody_beats()
            self.group.tick(self.topics, self.now, 0)
            self.forget()
        if self.clients:
            self.everybody_beats()
            settle(self.group, self.topics, self.clients, self.now)
        self.check_rest()

    def check_rest(self) -> None:
        assert self.group.state == ("Stable" if self.clients else "Empty")
        assert set(self.group.members) == {client.member_id for client in self.clients}
        wanted = set()
        for name in self.group.subscribed(self.topics):
            if (topic := self.topics.get(name)) is not None:
                wanted |= {(topic[0], partition) for partition in range(topic[1])}
        owned = [pair for client in self.clients for pair in pairs(client.owned)]
        assert len(owned) == len(set(owned))
        assert set(owned) == wanted
        for client in self.clients:
            member = self.group.members[client.member_id]
            assert client.owned == member.assigned == member.target
        if self.group.assignor == "range":
            for client in self.clients:
                for partitions in client.owned.values():
                    assert max(partitions) - min(partitions) + 1 == len(partitions)
        elif (
            len({(client.names, client.regex or None, client.regex and client.principal) for client in self.clients})
            == 1
        ):
            sizes = [len(pairs(client.owned)) for client in self.clients]
            assert max(sizes) - min(sizes) <= 1

    # --- what always holds -----------------------------------------------------------------------------

    def store(self) -> None:
        change = self.group.changes()
        if change is not None:
            self.head = change.head if change.head is not None else self.head
            for name in change.drop:
                self.stored.pop(name, None)
            self.stored.update(change.put)

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        owners: dict[object, str] = {}
        for client in [*self.clients, *self.crashed]:
            if client.member_id in self.group.members:
                member = self.group.members[client.member_id]
                assert pairs(client.owned) <= pairs(member.assigned) | pairs(member.revoking)
                for pair in pairs(client.owned):
                    assert owners.setdefault(pair, client.member_id) == client.member_id

    @invariant()
    def epochs_never_go_back(self) -> None:
        assert self.group.epoch >= self.epochs[0]
        assert self.epochs[1] <= self.group.assignment_epoch <= self.group.epoch
        self.epochs = (self.group.epoch, self.group.assignment_epoch)
        assert all(member.epoch <= self.group.assignment_epoch for member in self.group.members.values())

    @invariant()
    def what_is_stored_is_the_group(self) -> None:
        self.store()
        if self.head is None:
            assert not self.group.members
            return
        loaded = ConsumerGroup.load("group", self.settings, self.head, self.stored, self.now)
        assert loaded.changes() is None
        assert dict(loaded.members) == dict(self.group.members)
        assert (loaded.state, loaded.epoch, loaded.assignment_epoch, loaded.assignor) == (
            self.group.state,
            self.group.epoch,
            self.group.assignment_epoch,
            self.group.assignor,
        )
        for name, blob in self.stored.items():
            assert encode_member(decode_member(name, blob)) == blob == encode_member(self.group.members[name])


ConsumerGroupMachine.TestCase.settings = hypothesis_settings(
    max_examples=examples(150), stateful_step_count=40, deadline=None
)
TestConsumerGroup = ConsumerGroupMachine.TestCase
