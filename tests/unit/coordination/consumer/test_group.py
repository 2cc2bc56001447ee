"""KIP-848 consumer groups by example: how members join, move, leave and are refused, as in Kafka."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from headwater.coordination.assignors import Assignment
from headwater.coordination.common import GroupError
from headwater.coordination.consumer.group import ConsumerGroup
from headwater.coordination.consumer.members import MemberState
from headwater.coordination.consumer.requests import Heartbeat, owned_partitions
from headwater.coordination.group import Commit
from headwater.errors import Halted
from tests.support.consumer_groups import REBALANCE_TIMEOUT_MS, Client, TopicTable, pairs, settings, settle
from tests.support.promise import promise

PROMISES = ("K9",)

JOIN = Heartbeat(
    member_id="m1", member_epoch=0, rebalance_timeout_ms=60_000, subscribed_topic_names=("a",), topic_partitions={}
)


def refused(group: ConsumerGroup, request: Heartbeat, topics: TopicTable) -> GroupError:
    """The refusal of a request, which has to leave the group as it was."""
    group.changes()
    before = dict(group.members), group.epoch, group.assignment_epoch, group.next_deadline()
    with pytest.raises(GroupError) as caught:
        group.heartbeat(request, topics, 1_000)
    assert group.changes() is None
    assert before == (dict(group.members), group.epoch, group.assignment_epoch, group.next_deadline())
    return caught.value


def group_of(topics: TopicTable, *clients: Client, **changes: object) -> ConsumerGroup:
    group = ConsumerGroup("group", settings(**changes))
    for client in clients:
        client.beat(group, topics)
    settle(group, topics, list(clients))
    return group


@promise("K9")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"member_id": "", "member_epoch": -1, "version": 0}, "MemberId can't be empty."),
        ({"member_id": "", "member_epoch": 3, "version": 0}, "MemberId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"member_epoch": -2}, "InstanceId can't be null."),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        ({"topic_partitions": {uuid.UUID(int=1): frozenset({0})}}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
    ],
)
def test_bad_requests_are_refused_with_kafkas_words(change: dict, message: str) -> None:
    """INVALID_REQUEST, and the group is as it was."""
    group = ConsumerGroup("group", settings())
    error = refused(group, replace(JOIN, **change), TopicTable(a=1))
    assert (error.code, error.message) == ("invalid_request", message)


@promise("K9")
def test_a_group_needs_an_id() -> None:
    """An empty group id is no group."""
    error = refused(ConsumerGroup("", settings()), JOIN, TopicTable(a=1))
    assert (error.code, error.message) == ("invalid_request", "GroupId can't be empty.")


@promise("K9")
def test_unknown_assignors_are_refused() -> None:
    """UNSUPPORTED_ASSIGNOR names those that there are."""
    error = refused(ConsumerGroup("group", settings()), replace(JOIN, server_assignor="sticky"), TopicTable(a=1))
    assert error.code == "unsupported_assignor"
    assert error.message == "ServerAssignor sticky is not supported. Supported assignors: uniform, range."


@promise("K9")
def test_the_first_member_gets_everything() -> None:
    """Joining is answered with an epoch, an interval and the whole assignment."""
    topics = TopicTable(a=3)
    group = ConsumerGroup("group", settings())
    answer = group.heartbeat(JOIN, topics, 0)
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("m1", 2, 5_000)
    assert answer.assignment == {topics.id("a"): frozenset({0, 1, 2})}
    assert group.state == "Stable"
    confirmed = group.heartbeat(
        Heartbeat(member_id="m1", member_epoch=2, topic_partitions=answer.assignment), topics, 0
    )
    again = group.heartbeat(Heartbeat(member_id="m1", member_epoch=2), topics, 0)
    assert confirmed.assignment is again.assignment is None, "a member that knows is not told again"
    full = replace(JOIN, member_epoch=2, topic_partitions=answer.assignment)
    assert group.heartbeat(full, topics, 0).assignment == answer.assignment, "one that asks for all is told all"


@promise("K9")
def test_an_assignment_is_told_until_it_is_confirmed() -> None:
    """librdkafka repeats a heartbeat that timed out as it was. What the lost answer said must reach it even so,
    or it would keep what it should give up, or never read what is its own."""
    topics, old, new = TopicTable(a=4), Client("old", ("a",)), Client("new", ("a",))
    group = group_of(topics, old)
    new.beat(group, topics)

    def beats(client: Client, now_ms: int, owned: Assignment | None = None) -> Assignment | None:
        beat = Heartbeat(member_id=client.member_id, member_epoch=group.members[client.member_id].epoch)
        return group.heartbeat(replace(beat, topic_partitions=owned), topics, now_ms).assignment

    less = beats(old, 1_000)
    assert less is not None and len(pairs(less)) == 2
    assert beats(old, 5_999) is None, "it has an interval to say that it knows"
    assert beats(old, 6_000) == less, "it may not know yet that it has to give up"
    assert beats(old, 7_000) is None
    assert beats(old, 15_999) is None, "the pauses double"
    assert beats(old, 16_000) == less
    assert beats(old, 17_000, less) is None
    assert beats(old, 20_000) is None
    more = beats(new, 20_000)
    assert more is not None and not pairs(more) & pairs(less)
    assert beats(new, 25_000) == more, "at the same epoch: only this tells it"
    assert beats(new, 26_000, more) is None
    assert beats(new, 40_000) is None


@promise("K9")
def test_a_group_that_was_taken_over_tells_assignments_again() -> None:
    """The answer to a heartbeat may be lost with the coordinator. The member repeats the heartbeat as it was."""
    topics, client = TopicTable(a=4), Client("m", ("a",))
    before = group_of(topics, client)
    change = before.changes()
    assert change is not None and change.head is not None
    group = ConsumerGroup.load("group", settings(), change.head, change.put, 1_000)
    same = Heartbeat(member_id=client.member_id, member_epoch=group.members[client.member_id].epoch)
    told = group.heartbeat(same, topics, 1_000).assignment
    assert told == before.members[client.member_id].assigned and told
    assert group.heartbeat(same, topics, 2_000).assignment is None
    assert group.heartbeat(same, topics, 11_000).assignment == told, "this answer may be lost too"
    times = [now for now in range(12_000, 300_000, 1_000) if group.heartbeat(same, topics, now).assignment is not None]
    assert times == [31_000, 71_000, 116_000, 161_000, 206_000, 251_000, 296_000], "at most once in a session"
    group.heartbeat(replace(same, topic_partitions=told), topics, 300_000)
    assert group.heartbeat(same, topics, 400_000).assignment is None


@promise("K9")
def test_version_0_gets_a_member_id() -> None:
    """A client of version 0 brings no id and gets one."""
    group = ConsumerGroup("group", settings())
    answer = group.heartbeat(replace(JOIN, member_id="", version=0), TopicTable(a=1), 0)
    assert answer.member_id == "made-1"
    assert set(group.members) == {"made-1"}


@promise("K9")
def test_a_heartbeat_that_says_nothing_new_changes_nothing() -> None:
    """Steady heartbeats write nothing to the ledger."""
    topics, client = TopicTable(a=3), Client("m1", ("a",))
    group = group_of(topics, client)
    group.changes()
    client.beat(group, topics, 10_000)
    assert group.changes() is None
    assert group.next_deadline() == 55_000


@promise("K9")
def test_partitions_move_only_after_they_were_given_up() -> None:
    """The old owner stays at its epoch until it says it gave up; only then does the new one get them."""
    topics, old, new = TopicTable(a=4), Client("old", ("a",)), Client("new", ("a",))
    group = group_of(topics, old)
    new.beat(group, topics)
    assert (new.epoch, new.owned) == (3, {})
    assert group.members["new"].state == MemberState.UNRELEASED_PARTITIONS
    answer = old.beat(group, topics, is_late=True)
    assert answer.member_epoch == 2
    assert answer.assignment is not None and len(pairs(answer.assignment)) == 2
    assert group.members["old"].state == MemberState.UNREVOKED_PARTITIONS
    assert len(pairs(old.owned)) == 4
    assert pairs(group.members["old"].held) == pairs(old.owned)
    old.beat(group, topics)
    new.beat(group, topics)
    assert (old.epoch, new.owned, group.state) == (2, {}, "Reconciling")
    old.revoke()
    old.beat(group, topics)
    assert old.epoch == 3
    new.beat(group, topics)
    assert pairs(old.owned) | pairs(new.owned) == {(topics.id("a"), p) for p in range(4)}
    assert group.state == "Stable"


@promise("K9")
def test_unknown_members_are_told_so() -> None:
    """UNKNOWN_MEMBER_ID for heartbeats, leaves and instance ids that nobody has."""
    topics = TopicTable(a=1)
    group = group_of(topics, Client("m1", ("a",)))
    for epoch in (1, -1):
        error = refused(group, Heartbeat(member_id="other", member_epoch=epoch), topics)
        assert (error.code, error.message) == ("unknown_member_id", "Member other is not a member of group group.")
    for epoch in (1, -1, -2):
        error = refused(group, Heartbeat(member_id="m1", member_epoch=epoch, instance_id="i"), topics)
        assert (error.code, error.message) == ("unknown_member_id", "Instance id i is unknown.")


@promise("K9")
def test_other_epochs_are_fenced() -> None:
    """FENCED_MEMBER_EPOCH for an epoch ahead, and for one behind that is not just an answer that was lost."""
    topics, first, second = TopicTable(a=2), Client("m1", ("a",)), Client("m2", ("a",))
    group = group_of(topics, first, second)
    assert (first.epoch, group.members["m1"].previous_epoch) == (3, 2)
    ahead = refused(group, Heartbeat(member_id="m1", member_epoch=4), topics)
    assert ahead.code == "fenced_member_epoch"
    assert ahead.message == (
        "The consumer group member has a greater member epoch (4) than the one known by the group coordinator (3). "
        "The member must abandon all its partitions and rejoin."
    )
    behind = Heartbeat(member_id="m1", member_epoch=2)
    assert "smaller member epoch (2)" in refused(group, behind, topics).message
    assert refused(group, replace(behind, topic_partitions=second.owned), topics).code == "fenced_member_epoch"
    assert group.heartbeat(replace(behind, topic_partitions=first.owned), topics, 0).member_epoch == 3
    assert group.heartbeat(replace(behind, topic_partitions={}), topics, 0).member_epoch == 3


@promise("K9")
def test_a_fenced_member_may_start_over_with_its_id() -> None:
    """Joining with the id of a member that is here gives it what is its, whether it is static or not."""
    for instance_id in (None, "i1"):
        topics, client, other = TopicTable(a=4), Client("m1", ("a",), instance_id=instance_id), Client("m2", ("a",))
        group = group_of(topics, client, other)
        topics.grow("a", 1)
        other.beat(group, topics)
        had = client.owned
        client.abandon()
        answer = client.beat(group, topics)
        assert answer.member_epoch == 4
        assert answer.assignment is not None and pairs(had) <= pairs(answer.assignment)
        assert group.state == "Stable"


@promise("K9")
def test_a_full_group_takes_nobody_else() -> None:
    """GROUP_MAX_SIZE_REACHED for one more, not for those who are there."""
    topics, client = TopicTable(a=2), Client("m1", ("a",))
    group = group_of(topics, client, max_size=1)
    error = refused(group, replace(JOIN, member_id="m2"), topics)
    assert error.code == "group_max_size_reached"
    assert error.message == "The consumer group has reached its maximum capacity of 1 members."
    assert client.beat(group, topics).member_epoch == 2


@promise("K9")
def test_a_static_member_comes_back_to_what_it_had() -> None:
    """Between a leave with -2 and its return under a new id, nobody gets a static member's partitions."""
    topics, static, other = TopicTable(a=4), Client("s1", ("a",), instance_id="i1"), Client("m1", ("a",))
    group = group_of(topics, static, other)
    had, epoch = static.owned, group.epoch
    assert static.leave(group, topics, epoch=-2).member_epoch == -2
    assert (group.members["s1"].epoch, group.state) == (-2, "Reconciling")
    other.beat(group, topics)
    assert not pairs(other.owned) & pairs(had)
    gone = refused(group, Heartbeat(member_id="s1", member_epoch=epoch, instance_id="i1"), topics)
    assert gone.code == "fenced_member_epoch"
    returned = Client("s2", ("a",), instance_id="i1")
    returned.beat(group, topics)
    assert (returned.owned, returned.epoch, group.epoch, group.state) == (had, epoch, epoch, "Stable")
    assert set(group.members) == {"s2", "m1"}
    change = group.changes()
    assert change is not None and change.drop == ("s1",)


@promise("K9")
def test_an_instance_id_in_use_is_not_given_away() -> None:
    """UNRELEASED_INSTANCE_ID to one who joins with it, FENCED_INSTANCE_ID to one who lost it."""
    topics, static = TopicTable(a=4), Client("s1", ("a",), instance_id="i1")
    group = group_of(topics, static)
    error = refused(group, replace(JOIN, member_id="s2", instance_id="i1"), topics)
    assert error.code == "unreleased_instance_id"
    assert error.message == (
        "Static member s2 with instance id i1 cannot join the group because the instance id is owned by s1 member."
    )
    for epoch in (1, -1, -2):
        error = refused(group, Heartbeat(member_id="s2", member_epoch=epoch, instance_id="i1"), topics)
        assert error.code == "fenced_instance_id"
        assert error.message == "Static member s2 with instance id i1 was fenced by member s1."
    assert refused(group, replace(JOIN, member_id="s1", instance_id="i2"), topics).code == "invalid_request"


@promise("K9")
def test_a_static_member_that_stays_away_is_put_out() -> None:
    """After its session a static member's partitions go to others."""
    topics, static, other = TopicTable(a=4), Client("s1", ("a",), instance_id="i1"), Client("m1", ("a",))
    group = group_of(topics, static, other)
    static.leave(group, topics, epoch=-2)
    other.beat(group, topics, 40_000)
    group.tick(topics, 45_000, 0)
    assert set(group.members) == {"m1"}
    settle(group, topics, [other], 45_000)
    assert len(pairs(other.owned)) == 4


def unrevoked_group(topics: TopicTable, old: Client, new: Client) -> ConsumerGroup:
    """A group in which one has to give up half of its partitions for another, and has not."""
    group = group_of(topics, old)
    new.beat(group, topics)
    old.beat(group, topics, is_late=True)
    assert group.members[old.member_id].state == MemberState.UNREVOKED_PARTITIONS
    return group


@promise("K9")
def test_a_static_member_that_leaves_for_a_while_gives_up_what_it_had_to() -> None:
    """What it was asked to give up is free at once, what it keeps is not, and it is in no hurry any more."""
    topics, old, new = TopicTable(a=4), Client("old", ("a",), instance_id="i1"), Client("new", ("a",))
    group = unrevoked_group(topics, old, new)
    old.leave(group, topics, epoch=-2)
    new.beat(group, topics)
    assert len(pairs(new.owned)) == 2
    assert len(pairs(group.members["old"].assigned)) == 2
    assert group.next_deadline() == 45_000
    change = group.changes()
    assert change is not None and change.head is not None
    loaded = ConsumerGroup.load("group", settings(session_timeout_ms=90_000), change.head, change.put, 0)
    assert loaded.next_deadline() == 90_000
    returned = Client("again", ("a",), instance_id="i1")
    returned.beat(loaded, topics)
    assert (loaded.state, len(pairs(returned.owned))) == ("Stable", 2)


@promise("K9")
def test_one_who_has_left_is_in_no_hurry() -> None:
    """A member's rebalance time-out goes with it."""
    topics, old, new = TopicTable(a=4), Client("old", ("a",)), Client("new", ("a",))
    group = unrevoked_group(topics, old, new)
    old.leave(group, topics)
    for now in (40_000, 80_000):
        new.beat(group, topics, now)
        group.tick(topics, now, 0)
    assert group.next_deadline() == 125_000
    assert set(group.members) == {"new"}


@promise("K9")
def test_who_gave_up_and_has_to_give_up_more_goes_one_epoch_on() -> None:
    """The target moved on while a member was busy: it gets nothing before it gave up that too."""
    topics, old, new = TopicTable(a=4), Client("old", ("a",)), Client("new", ("a",))
    group = unrevoked_group(topics, old, new)
    for number in range(2):
        Client(f"more{number}", ("a",)).beat(group, topics)
    assert (old.epoch, group.assignment_epoch) == (2, 5)
    old.revoke()
    answer = old.beat(group, topics, is_late=True)
    assert (answer.member_epoch, len(pairs(old.told)), len(pairs(old.owned))) == (3, 1, 2)
    old.revoke()
    assert old.beat(group, topics).member_epoch == 5


@promise("K9")
def test_several_lost_answers_in_an_epoch_do_not_fence() -> None:
    """A member that waits for others stays one epoch behind as long as no answer reaches it."""
    topics, old, new = TopicTable(a=4), Client("old", ("a",)), Client("new", ("a",))
    group = group_of(topics, old, Client("other", ("a",)))
    new.beat(group, topics)
    assert (new.epoch, new.owned) == (4, {})
    topics.grow("a", 1)
    for _ in range(3):
        assert new.beat(group, topics, is_lost=True).member_epoch == 5
    assert group.members["new"].state == MemberState.UNRELEASED_PARTITIONS
    assert new.beat(group, topics).member_epoch == 5


@promise("K9")
def test_one_without_a_subscription_starts_no_epoch() -> None:
    """It becomes a member, and nothing has to be assigned for it."""
    topics, client = TopicTable(a=1), Client("m1", ("a",))
    group = group_of(topics, client)
    client.leave(group, topics)
    topics.create("other", 1)
    idle = Client("m2", ())
    idle.beat(group, topics)
    assert (idle.epoch, group.epoch, group.state) == (3, 3, "Stable")


@promise("K9")
def test_silent_members_are_put_out() -> None:
    """A session that ends frees partitions and starts an epoch; the group says when it ends."""
    topics, silent, other = TopicTable(a=4), Client("m1", ("a",)), Client("m2", ("a",))
    group = group_of(topics, silent, other)
    other.beat(group, topics, 30_000)
    assert group.next_deadline() == 45_000
    group.tick(topics, 44_999, 0)
    assert len(group.members) == 2
    group.tick(topics, 45_000, 0)
    assert (set(group.members), group.state, group.epoch) == ({"m2"}, "Assigning", 4)
    other.beat(group, topics, 46_000)
    assert len(pairs(other.owned)) == 4
    assert refused(group, silent.request(), topics).code == "unknown_member_id"


@promise("K9")
def test_a_member_that_does_not_give_up_is_put_out() -> None:
    """Heartbeats alone do not help one that keeps what it should give up longer than its rebalance time-out."""
    topics, old, new = TopicTable(a=4), Client("old", ("a",)), Client("new", ("a",))
    group = group_of(topics, old)
    new.beat(group, topics)
    for now in range(0, REBALANCE_TIMEOUT_MS, 20_000):
        old.beat(group, topics, now, is_late=True)
        new.beat(group, topics, now)
        group.tick(topics, now, 0)
        assert len(group.members) == 2
    new.beat(group, topics, REBALANCE_TIMEOUT_MS)
    old.beat(group, topics, REBALANCE_TIMEOUT_MS, is_late=True)
    group.tick(topics, REBALANCE_TIMEOUT_MS, 0)
    assert set(group.members) == {"new"}
    settle(group, topics, [new], REBALANCE_TIMEOUT_MS)
    assert len(pairs(new.owned)) == 4


@promise("K9")
def test_the_last_one_to_leave_starts_an_epoch() -> None:
    """The last one to leave starts an epoch, for which nothing is assigned."""
    topics, client = TopicTable(a=1), Client("m1", ("a",))
    group = group_of(topics, client)
    answer = client.leave(group, topics)
    assert (answer.member_id, answer.member_epoch, answer.assignment) == ("m1", -1, None)
    assert group.is_empty
    assert (group.state, group.epoch, group.assignment_epoch) == ("Empty", 3, 2)
    assert group.next_deadline() is None
    client.beat(group, topics)
    assert (client.epoch, group.state) == (4, "Stable")


@promise("K9")
def test_members_can_be_removed() -> None:
    """An administrator removes members that are there, in one step, by their ids or by those of their instances."""
    topics, clients = TopicTable(a=4), [Client(f"m{n}", ("a",)) for n in range(3)]
    group = group_of(topics, *clients)
    epoch = group.epoch
    leaving = [("m0", None), ("m0", None), ("nobody", None), ("m2", None)]
    codes = ["none", "none", "unknown_member_id", "none"]
    assert group.leave(leaving) == [(*who, code) for who, code in zip(leaving, codes, strict=True)]
    assert (set(group.members), group.epoch) == ({"m1"}, epoch + 1)
    assert group.leave([("nobody", None)]) == [("nobody", None, "unknown_member_id")]
    assert group.epoch == epoch + 1


@promise("K9")
def test_static_members_can_be_removed() -> None:
    topics = TopicTable(a=4)
    group = group_of(topics, Client("m1", ("a",), instance_id="i"))
    leaving = [("", "j"), ("other", "i"), ("", "i"), ("m1", "i")]
    codes = ["unknown_member_id", "fenced_instance_id", "none", "none"]
    assert group.leave(leaving) == [(*who, code) for who, code in zip(leaving, codes, strict=True)]
    assert group.is_empty


@promise("K9")
def test_the_first_epoch_of_a_regex_that_matches_nothing() -> None:
    """Kafka counts the first match as a change of its own."""
    topics, client = TopicTable(a=1), Client("m1", (), regex="log.*")
    group = group_of(topics, client)
    assert (client.epoch, group.epoch) == (1, 1)
    topics.create("logs", 3)
    client.beat(group, topics)
    assert (client.epoch, group.epoch) == (2, 2)


@promise("K9")
def test_changes_that_follow_each_other_have_one_assignment() -> None:
    """Seen on Apache Kafka 4.3.1: who joins within a second of an assignment has its epoch and no partitions. Here it
    is told to come again in a second."""
    topics, clients = TopicTable(a=4), [Client(f"m{n}", ("a",)) for n in range(3)]
    group = ConsumerGroup("group", settings(assignment_interval_ms=1_000))
    assert clients[0].beat(group, topics, 100).heartbeat_interval_ms == group.settings.heartbeat_interval_ms
    assert (clients[0].epoch, len(pairs(clients[0].owned))) == (2, 4)
    for client, now_ms in ((clients[1], 200), (clients[2], 1_099)):
        assert client.beat(group, topics, now_ms).heartbeat_interval_ms == 1_000
        assert (client.epoch, client.owned) == (2, {})
    assert (group.epoch, group.assignment_epoch, group.state) == (4, 2, "Assigning")
    assert clients[0].beat(group, topics, 1_099).assignment is None
    settle(group, topics, clients, 1_100)
    assert {client.epoch for client in clients} == {4}
    assert sorted(len(pairs(client.owned)) for client in clients) == [1, 1, 2]
    change = group.changes()
    assert change is not None and change.head is not None
    loaded = ConsumerGroup.load("group", group.settings, change.head, change.put, 1_200)
    late = Client("m3", ("a",))
    late.beat(loaded, topics, 1_200)
    assert loaded.assignment_epoch == 5, "a coordinator that takes a group over does not wait"


@promise("K9")
def test_a_change_of_a_subscription_does_not_wait() -> None:
    """Consumers refuse partitions of topics that they have not subscribed to."""
    topics, client = TopicTable(a=1, b=1), Client("m1", ("a", "b"))
    group = ConsumerGroup("group", settings(assignment_interval_ms=1_000))
    client.beat(group, topics, 100)
    assert len(pairs(client.owned)) == 2
    client.names, client.says_all = ("a",), True
    answer = client.beat(group, topics, 200)
    assert answer.assignment is not None and len(pairs(answer.assignment)) == 1
    assert (group.epoch, group.assignment_epoch) == (3, 3)


@promise("K9")
def test_topics_that_change_start_an_epoch() -> None:
    """Topics that come, grow, are replaced and go are followed at the next heartbeat; others do not matter."""
    topics, client = TopicTable(a=1), Client("m1", ("a", "b"))
    group = group_of(topics, client)
    topics.create("other", 3)
    client.beat(group, topics)
    assert group.epoch == 2
    topics.grow("a", 1)
    group.tick(topics, 0, 0)
    assert (group.epoch, group.state) == (3, "Assigning")
    client.beat(group, topics)
    assert client.owned == {topics.id("a"): frozenset({0, 1})}
    topics.create("b", 2)
    settle(group, topics, [client])
    assert (group.epoch, len(pairs(client.owned))) == (4, 4)
    topics.create("a", 1)
    topics.delete("b")
    settle(group, topics, [client])
    assert (group.epoch, client.owned) == (5, {topics.id("a"): frozenset({0})})


@promise("K9")
def test_most_members_decide_on_the_assignor() -> None:
    """The assignor that most ask for; without a wish the first one."""
    topics = TopicTable(a=2)
    group = group_of(topics, Client("m1", ("a",)))
    assert group.assignor == "uniform"
    Client("m2", ("a",), assignor="range").beat(group, topics)
    assert group.assignor == "range"
    Client("m3", ("a",), assignor="uniform").beat(group, topics)
    assert group.assignor == "uniform", "a tie is the first one's"


@promise("K9")
def test_a_regex_subscribes_to_topics_that_come_later() -> None:
    """Whole names only, together with names, and refreshed when topics change."""
    topics, client = TopicTable(logs=1, logs2=1, oldlogs=1, a=1), Client("m1", ("a",), regex="logs.*")
    group = group_of(topics, client)
    assert group.subscribed(topics) == {"a", "logs", "logs2"}
    assert set(client.owned) == {topics.id(name) for name in ("a", "logs", "logs2")}
    topics.create("logs3", 2)
    topics.delete("logs")
    settle(group, topics, [client])
    assert group.subscribed(topics) == {"a", "logs2", "logs3"}
    assert len(pairs(client.owned)) == 4
    client.regex, client.says_all = "", True
    settle(group, topics, [client])
    assert set(client.owned) == {topics.id("a")}


def names_of(topics: TopicTable, client: Client) -> set[str | None]:
    return {topics.name_of(topic) for topic, _ in pairs(client.owned)}


@promise("K9", "S2")
def test_a_regex_matches_what_its_member_may_know_of() -> None:
    """Each member by who it is, and a topic that is named is its own affair."""
    topics = TopicTable(a=4, b=4, c=4)
    topics.hide("User:low", "b", "c")
    high, low = Client("m1", (), regex="[ab]", principal="User:high"), Client(
        "m2", ("c",), regex="[ab]", principal="User:low"
    )  # fmt: skip
    group = group_of(topics, high, low)
    assert names_of(topics, low) <= {"a", "c"} and names_of(topics, high) >= {"b"}
    assert len(pairs(high.owned)) + len(pairs(low.owned)) == 12
    high.epoch = -1
    group.heartbeat(high.request(), topics, 0)
    settle(group, topics, [low])
    assert names_of(topics, low) == {"a", "c"}, "alone it does not get more"
    assert group.subscribed(topics) == {"a", "c"}


@promise("K9", "S2")
def test_what_members_may_know_of_changes() -> None:
    """At the next heartbeat, whoever sends it, and only where it changes something."""
    topics = TopicTable(a=2, b=2)
    one, two = (Client(f"m{i}", (), regex=".*", principal=f"User:{i}") for i in (1, 2))
    group = group_of(topics, one, two)
    topics.hide("User:1", "b")
    settle(group, topics, [one, two])
    assert names_of(topics, one) == {"a"} and "b" in names_of(topics, two)
    topics.hide("User:2", "b")
    two.beat(group, topics)
    settle(group, topics, [one, two])
    assert names_of(topics, one) == names_of(topics, two) == {"a"}
    topics.hide("User:1")
    settle(group, topics, [one, two])
    assert "b" in names_of(topics, one) and "b" not in names_of(topics, two)
    epoch = group.epoch
    topics.hide("User:3", "a", "b")
    topics.hide("User:1", "nothing")
    settle(group, topics, [one, two])
    assert group.epoch == epoch


@promise("K9", "S2")
def test_a_hidden_topic_is_taken_away_though_another_member_names_it() -> None:
    """The topics of the group stay the same, those of the expression do not."""
    topics = TopicTable(a=1, c=1)
    topics.hide("User:low", "a")
    low, other = Client("m1", (), regex=".*", principal="User:low"), Client("m2", ("a", "c"))
    group = group_of(topics, low, other)
    assert names_of(topics, low) == {"c"}
    epoch = group.epoch
    topics.hide("User:low", "a", "c")
    settle(group, topics, [low, other])
    assert group.epoch > epoch
    assert names_of(topics, low) == set() and names_of(topics, other) == {"a", "c"}


@promise("K9", "S2")
def test_no_epoch_tells_of_a_topic_that_nobody_may_know_of() -> None:
    """It comes, grows and goes, and the group stays as it is."""
    topics, client = TopicTable(a=1), Client("m1", (), regex=".*", principal="User:1")
    topics.hide("User:1", "secret")
    group = group_of(topics, client)
    epoch = group.epoch
    for change in (
        lambda: topics.create("secret", 1),
        lambda: topics.grow("secret", 2),
        lambda: topics.delete("secret"),
    ):
        change()
        settle(group, topics, [client])
        assert group.epoch == epoch and names_of(topics, client) == {"a"}


@promise("K9", "S2")
def test_a_member_that_becomes_somebody_else() -> None:
    """What counts is who sends the heartbeat now, also of a static member's successor and after a take-over."""
    topics = TopicTable(a=1, b=1)
    topics.hide("User:low", "b")
    client = Client("m1", (), regex=".*", principal="User:high", instance_id="i")
    group = group_of(topics, client)
    assert names_of(topics, client) == {"a", "b"}
    client.principal = "User:low"
    settle(group, topics, [client])
    assert names_of(topics, client) == {"a"}
    change = group.changes()
    assert change is not None and change.head is not None
    loaded = ConsumerGroup.load("group", settings(), change.head, change.put, 0)
    assert loaded.subscribed(topics) == {"a"}
    epoch = loaded.epoch
    loaded.tick(topics, 0, 0)
    assert loaded.epoch == epoch
    leaving = replace(client.request(), member_epoch=-2)
    loaded.heartbeat(leaving, topics, 0)
    heir = Client("m2", (), regex=".*", principal="User:high", instance_id="i")
    heir.beat(loaded, topics)
    settle(loaded, topics, [heir])
    assert names_of(topics, heir) == {"a", "b"}


@promise("K9")
@pytest.mark.parametrize(
    "regex", ["(", "[a", "a**", r"\1", "(?=a)", "a{2000}", r"\C", r"a\Q(\E\C", r"\pL{30}", "x" * 5000]
)
def test_bad_regexes_are_refused(regex: str) -> None:
    """INVALID_REGULAR_EXPRESSION for what RE2 does not know, when joining and later."""
    topics, client = TopicTable(a=1), Client("m1", ("a",))
    group = group_of(topics, client)
    for request in (replace(JOIN, member_id="m2"), replace(client.request(), member_epoch=2)):
        error = refused(group, replace(request, subscribed_topic_regex=regex), topics)
        assert error.code == "invalid_regular_expression"
        assert error.message.startswith("SubscribedTopicRegex `")
        assert "is not a valid regular expression: " in error.message


@promise("K9")
def test_a_group_has_a_limited_number_of_regexes() -> None:
    """One more than the limit is refused; one that is in use already is not one more."""
    topics = TopicTable(a=1)
    group = group_of(topics, Client("m1", (), regex="a"), max_regexes=1)
    error = refused(group, replace(JOIN, member_id="m2", subscribed_topic_regex="b"), topics)
    assert error.code == "invalid_request"
    change = Heartbeat(member_id="m1", member_epoch=2, subscribed_topic_regex="b")
    assert group.heartbeat(change, topics, 0).member_epoch == 2, "one in the place of another is not one more"
    assert group.subscribed(topics) == set()
    assert group.heartbeat(replace(JOIN, member_id="m2", subscribed_topic_regex="b"), topics, 0).member_epoch == 4


@promise("K9")
def test_regexes_that_nobody_uses_are_forgotten() -> None:
    """What a group keeps of expressions does not grow with the number of those it ever had."""
    topics, client = TopicTable(a=1), Client("m1", ())
    group = ConsumerGroup("group", settings())
    for number in range(5):
        client.regex, client.says_all = f"a|{number}", True
        settle(group, topics, [client])
    assert repr(group._resolver) == "Resolver(1 expressions, 1 topics)"


def commit(member_id: str, epoch: int, version: int = 9, *, is_transactional: bool = False) -> Commit:
    return Commit(
        member_id=member_id, instance_id=None, epoch=epoch, version=version, is_transactional=is_transactional
    )


@promise("K9", "K7")
def test_only_members_at_their_epoch_commit() -> None:
    """UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, UNSUPPORTED_VERSION as Kafka has them."""
    topics, client = TopicTable(a=1), Client("m1", ("a",))
    group = ConsumerGroup("group", settings())
    group.check_commit(commit("", -1), 0)
    settle(group, topics, [client])
    group.check_commit(commit("m1", 2), 0)
    group.check_commit(commit("", -1, is_transactional=True), 0)
    group.check_commit(commit("m1", 2, 3, is_transactional=True), 0)
    for member_id, epoch, version, code, message in [
        ("", -1, 9, "unknown_member_id", "Member  is not a member of group group."),
        ("m2", 1, 9, "unknown_member_id", "Member m2 is not a member of group group."),
        ("m1", 0, 9, "stale_member_epoch", "The received member epoch 0 does not match the expected member epoch 2."),
        ("m1", -1, 9, "stale_member_epoch", "The received member epoch -1 does not match the expected member epoch 2."),
        (
            "m1",
            1,
            8,
            "unsupported_version",
            "OffsetCommit version 9 or above must be used by members using the modern group protocol",
        ),
    ]:
        with pytest.raises(GroupError) as caught:
            group.check_commit(commit(member_id, epoch, version), 0)
        assert (caught.value.code, caught.value.message) == (code, message)


@promise("K9", "K7")
def test_only_members_at_their_epoch_fetch_offsets_as_members() -> None:
    """One who says nothing about a member may fetch; one who does has to be it."""
    topics, client = TopicTable(a=1), Client("m1", ("a",))
    group = group_of(topics, client)
    group.check_fetch(None, -1)
    group.check_fetch("m1", 2)
    for member_id, epoch, code in [
        ("m1", 1, "stale_member_epoch"),
        ("m2", 1, "unknown_member_id"),
        ("", -1, "unknown_member_id"),
        (None, 1, "unknown_member_id"),
    ]:
        with pytest.raises(GroupError) as caught:
            group.check_fetch(member_id, epoch)
        assert caught.value.code == code


@promise("K9")
def test_timers_start_anew_when_a_group_is_loaded() -> None:
    """A broker that takes a group over puts nobody out for what happened before."""
    topics, old, new = TopicTable(a=4), Client("old", ("a",)), Client("new", ("a",))
    group = group_of(topics, old)
    new.beat(group, topics)
    old.beat(group, topics, is_late=True)
    change = group.changes()
    assert change is not None and change.head is not None
    loaded = ConsumerGroup.load("group", settings(), change.head, change.put, 1_000_000)
    assert loaded.next_deadline() == 1_045_000
    for client in (old, new):
        client.beat(loaded, topics, 1_040_000, is_late=True)
    assert loaded.next_deadline() == 1_060_000, "the old owner has its rebalance time-out"


@promise("K9")
def test_what_cannot_be_read_is_not_guessed_at() -> None:
    """Bytes of another version stop the group from being loaded."""
    topics = TopicTable(a=1)
    group = group_of(topics, Client("m1", ("a",)))
    change = group.changes()
    assert change is not None and change.head is not None
    newer = b"\x94\x02" + change.head[2:]
    for head, members in [(b"", {}), (b"\x94", {}), (newer, {}), (change.head, {"m1": b"x"})]:
        with pytest.raises(Halted):
            ConsumerGroup.load("group", settings(), head, members, 0)
    with pytest.raises(Halted, match="is held by"):
        ConsumerGroup.load("group", settings(), change.head, {"m1": change.put["m1"], "m2": change.put["m1"]}, 0)


@promise("K9")
def test_a_topic_listed_twice_adds_up() -> None:
    """Owned partitions of one topic may come in pieces."""
    topic = uuid.UUID(int=7)
    assert owned_partitions([(topic, [1]), (topic, [2, 1]), (uuid.UUID(int=8), [])]) == {topic: frozenset({1, 2})}
