"""The classic group protocol, one event at a time."""

from typing import Any

import pytest

from headwater.coordination.classic.members import JoinAnswer, SyncAnswer
from headwater.coordination.common import Change
from tests.support.promise import promise
from tests.unit.coordination.classic.story import REBALANCE, SESSION, Story

PROMISES = ("K8",)


def test_a_first_member_leads_and_gets_what_it_assigned() -> None:
    story = Story()
    answer = story.joined(story.join())
    assert (answer.code, answer.generation, answer.leader, answer.protocol) == ("none", 1, answer.member_id, "range")
    assert answer.members == ((answer.member_id, None, b"topics"),)
    token = story.sync(answer.member_id, 1, {answer.member_id: b"mine"})
    assert story.synced(token) == SyncAnswer(protocol_type="consumer", protocol="range", assignment=b"mine")
    assert story.group.state == "Stable"


def test_a_new_group_waits_for_more_members_and_a_little_longer_for_each() -> None:
    story = Story(delay_ms=3_000)
    first = story.join()
    story.wait(2_000)
    second = story.join()
    story.wait(1_500)
    assert first not in story.answers
    story.wait(3_000)
    assert story.joined(first).generation == story.joined(second).generation == 1
    assert len(story.joined(first).members) == 2
    assert story.joined(second).members == ()


def test_a_member_without_id_is_given_one_and_comes_again() -> None:
    """KIP-394."""
    story = Story()
    answer = story.joined(story.join(needs_id=True))
    assert (answer.code, answer.generation) == ("member_id_required", -1)
    again = story.joined(story.join(answer.member_id, needs_id=True))
    assert (again.code, again.member_id, again.generation) == ("none", answer.member_id, 1)


def test_an_id_that_nobody_came_back_with_is_forgotten() -> None:
    story = Story()
    member_id = story.joined(story.join(needs_id=True)).member_id
    story.wait(SESSION)
    assert story.joined(story.join(member_id)).code == "unknown_member_id"


def test_followers_wait_for_the_leader_and_everybody_hears_of_a_new_member() -> None:
    story = Story()
    [one, two] = story.stable(2)
    assert story.beat(one, 2) == "none"
    third = story.join()
    assert third not in story.answers
    assert story.beat(one, 2) == "rebalance_in_progress"
    assert story.synced(story.sync(two, 2)).code == "rebalance_in_progress"
    story.join(one)
    last = story.join(two)
    assert story.joined(third).generation == story.joined(last).generation == 3
    kept = {member.id: member.assignment for member in story.group.members.values()}
    assert kept[one] and kept[two], "what they had is shown until the leader has decided anew"
    waiting = story.sync(two, 3)
    assert waiting not in story.answers
    story.sync(one, 3, {two: b"yours"})
    assert story.synced(waiting).assignment == b"yours"


def test_who_does_not_come_back_in_time_is_out() -> None:
    story = Story()
    [one, two] = story.stable(2)
    third = story.join()
    story.join(one)
    for _ in range(REBALANCE // 5_000):
        assert story.beat(two, 2) in ("rebalance_in_progress", "unknown_member_id")
        story.wait(5_000)
    assert story.joined(third).code == "none"
    assert two not in story.group.members
    assert story.beat(two, 3) == "unknown_member_id"


def test_a_silent_member_is_out_after_its_session() -> None:
    story = Story()
    [one, two] = story.stable(2)
    for _ in range(3):
        story.wait(SESSION // 2)
        story.beat(one, 2)
    assert story.group.state == "PreparingRebalance"
    assert story.joined(story.join(one)).generation == 3
    assert list(story.group.members) == [one]
    assert story.beat(two, 2) == "unknown_member_id"


def test_members_that_never_sync_are_out_when_the_time_for_it_is_over() -> None:
    story = Story()
    one = story.joined(story.join()).member_id
    two = story.join()
    story.join(one)
    follower = story.joined(two).member_id
    assert story.group.state == "CompletingRebalance"
    for _ in range(REBALANCE // 5_000 + 1):
        story.wait(5_000)
        story.beat(one, 2)
        story.beat(follower, 2)
    assert story.group.members == {} and story.group.state == "Empty"


def test_leaving_ends_a_membership_at_once() -> None:
    story = Story()
    [one, two] = story.stable(2)
    assert story.leave((two, None), ("nobody", None), ("", None)) == ["none", "unknown_member_id", "unknown_member_id"]
    assert story.beat(one, 2) == "rebalance_in_progress"
    assert story.joined(story.join(one)).generation == 3
    assert story.leave((one, None)) == ["none"]
    assert (story.group.state, story.group.generation) == ("Empty", 4)
    assert story.stored[1] == {}


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    story = Story()
    old = story.joined(story.join(instance_id="i")).member_id
    story.sync(old, 1, {old: b"mine"}, instance_id="i")
    answer = story.joined(story.join(instance_id="i"))
    assert (answer.code, answer.generation, answer.skip_assignment) == ("none", 1, True)
    assert answer.member_id != old
    assert story.beat(old, 1, "i") == "fenced_instance_id"
    assert story.joined(story.join(old, instance_id="i")).code == "fenced_instance_id"
    assert story.synced(story.sync(answer.member_id, 1, instance_id="i")).assignment == b"mine"
    assert story.group.state == "Stable"


def test_an_older_client_that_leads_must_not_believe_so_when_it_comes_back() -> None:
    story = Story()
    old = story.joined(story.join(instance_id="i")).member_id
    story.sync(old, 1, {old: b"mine"}, instance_id="i")
    answer = story.joined(story.join(instance_id="i", may_skip_assignment=False))
    assert (answer.leader, answer.members, answer.skip_assignment) == (old, (), False)


def test_a_static_member_that_changes_the_protocol_causes_a_rebalance() -> None:
    story = Story()
    both = [("range", b"r"), ("sticky", b"s")]
    old = story.joined(story.join(instance_id="i", protocols=both)).member_id
    story.sync(old, 1, {old: b"mine"}, instance_id="i")
    answer = story.joined(story.join(instance_id="i", protocols=[("sticky", b"s")]))
    assert (answer.generation, answer.protocol) == (2, "sticky")


def test_a_static_member_that_waits_is_fenced_by_its_successor() -> None:
    story = Story(delay_ms=3_000)
    old = story.join(instance_id="i")
    new = story.join(instance_id="i")
    assert story.joined(old).code == "fenced_instance_id"
    story.wait(3_000)
    assert story.joined(new).code == "none"


def test_an_admin_removes_a_static_member_by_its_instance() -> None:
    story = Story()
    story.join(instance_id="i")
    assert story.leave(("", "i")) == ["none"]
    assert story.group.is_empty


def test_the_protocol_is_one_that_all_know_with_the_most_votes() -> None:
    story = Story(delay_ms=3_000)
    tokens = [
        story.join(protocols=[("a", b""), ("b", b""), ("c", b"")]),
        story.join(protocols=[("c", b""), ("b", b"")]),
        story.join(protocols=[("b", b""), ("c", b"")]),
    ]
    story.wait(10_000)
    assert {story.joined(token).protocol for token in tokens} == {"b"}
    assert story.joined(story.join(protocols=[("a", b"")])).code == "inconsistent_group_protocol"
    assert story.joined(story.join(protocol_type="connect")).code == "inconsistent_group_protocol"


@pytest.mark.parametrize("given", [{"protocols": []}, {"protocol_type": ""}])
def test_nobody_joins_without_a_protocol(given: dict[str, Any]) -> None:
    story = Story()
    assert story.joined(story.join(**given)).code == "inconsistent_group_protocol"
    assert story.group.is_empty


def test_a_full_group_takes_nobody_else() -> None:
    story = Story(max_members=2)
    names = story.stable(2)
    assert story.joined(story.join()).code == "group_max_size_reached"
    assert story.beat(names[0], 2) == "none"


def test_ids_that_are_given_out_are_bounded() -> None:
    story = Story(max_members=2)
    codes = [story.joined(story.join(needs_id=True)).code for _ in range(3)]
    assert codes == ["member_id_required", "member_id_required", "group_max_size_reached"]
    story.wait(SESSION)
    assert story.joined(story.join(needs_id=True)).code == "member_id_required"


def test_a_follower_that_asks_again_is_told_what_stands() -> None:
    story = Story()
    [_one, two] = story.stable(2)
    answer = story.joined(story.join(two))
    assert (answer.generation, answer.members) == (2, ())
    assert story.group.state == "Stable"


def test_a_leader_that_asks_again_wants_a_rebalance() -> None:
    story = Story()
    [one, two] = story.stable(2)
    token = story.join(one)
    assert story.beat(two, 2) == "rebalance_in_progress"
    story.join(two)
    assert story.joined(token).generation == 3


def test_requests_with_a_wrong_generation_or_protocol_are_refused() -> None:
    story = Story()
    [one] = story.stable(1)
    assert story.beat(one, 7) == "illegal_generation"
    assert story.synced(story.sync(one, 7)).code == "illegal_generation"
    assert story.synced(story.sync(one, 1, protocol="other")).code == "inconsistent_group_protocol"
    assert story.synced(story.sync("x", 1)).code == "unknown_member_id"


@promise("K10")
def test_who_may_commit_offsets() -> None:
    story = Story()
    assert story.commit("", -1) == "none"
    [one] = story.stable(1)
    assert story.commit(one, 1) == "none"
    assert story.commit("", -1) == "unknown_member_id"
    assert story.commit("x", 1) == "unknown_member_id"
    assert story.commit(one, 2) == "illegal_generation"
    story.join(one)
    assert story.commit(one, 2) == "rebalance_in_progress"


@promise("K12")
def test_who_may_commit_offsets_in_a_transaction() -> None:
    """Older producers name no member; those that do must be current, also while the group rebalances."""
    story = Story()
    assert story.commit("", -1, in_transaction=True) == "none"
    [one] = story.stable(1)
    assert story.commit(one, 1, in_transaction=True) == "none"
    assert story.commit("", -1, in_transaction=True) == "none"
    assert story.commit("x", 1, in_transaction=True) == "unknown_member_id"
    assert story.commit("x", -1, in_transaction=True) == "unknown_member_id"
    assert story.commit(one, 2, in_transaction=True) == "illegal_generation"
    story.join(one)
    assert story.commit(one, 2, in_transaction=True) == "none"


def test_a_successor_goes_on_where_the_coordinator_stopped() -> None:
    """What was told is stored: generation, members, assignments."""
    story = Story()
    [one, two] = story.stable(2)
    story.fail_over()
    assert (story.group.state, story.group.generation, story.group.leader) == ("Stable", 2, one)
    assert story.beat(two, 2) == "none"
    assert story.synced(story.sync(two, 2)).assignment == two.encode()
    story.wait(SESSION)
    assert story.group.state == "Empty"


def test_a_successor_between_join_and_sync_waits_for_the_leader() -> None:
    story = Story()
    one = story.joined(story.join()).member_id
    story.fail_over()
    assert story.group.state == "CompletingRebalance"
    assert story.synced(story.sync(one, 1, {one: b"mine"})).assignment == b"mine"


def test_what_was_not_told_yet_is_not_stored() -> None:
    story = Story(delay_ms=3_000)
    story.join()
    assert story.stored == (b"", {})
    assert story.group.changes() is None


def test_changes_add_up() -> None:
    first = Change(b"1", {"a": b"1", "b": b"1"}, ("z",))
    second = Change(None, {"z": b"2"}, ("a",))
    assert first.then(second) == Change(b"1", {"b": b"1", "z": b"2"}, ("a",))


def test_a_coordinator_that_gives_up_tells_everybody_who_waits() -> None:
    story = Story(delay_ms=3_000)
    token = story.join()
    [reply] = story.group.abandon("not_coordinator")
    assert reply.token == token
    assert isinstance(reply.answer, JoinAnswer) and reply.answer.code == "not_coordinator"
