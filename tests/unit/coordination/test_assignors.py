"""The uniform and range assignors give every partition one owner, fairly, and move little."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.coordination.assignors import ASSIGNORS, Assignment, MemberSpec, contiguous, uniform
from tests.support.consumer_groups import pairs
from tests.support.promise import promise

PROMISES = ("K9",)

TOPICS = [uuid.UUID(int=number) for number in range(1, 6)]


def spec(
    member_id: str, topics: list[uuid.UUID], target: Assignment | None = None, instance: str | None = None
) -> MemberSpec:
    return MemberSpec(member_id, instance, frozenset(topics), target or {})


@st.composite
def groups(draw: st.DrawFn, *, is_same: bool = False) -> tuple[list[MemberSpec], dict[uuid.UUID, int]]:
    """Members with old targets, each partition one's, perhaps of topics that are gone, smaller or not wanted."""
    counts = {topic: draw(st.integers(1, 12)) for topic in TOPICS[: draw(st.integers(1, 4))]}
    wants = st.frozensets(st.sampled_from(sorted(counts)))
    ids = draw(st.lists(st.text("abcdef", min_size=1, max_size=3), min_size=1, max_size=8, unique=True))
    targets: dict[str, dict[uuid.UUID, set[int]]] = {member_id: {} for member_id in ids}
    for topic in TOPICS:
        for partition in range(counts.get(topic, 2) + 1):
            owner = draw(st.sampled_from([None, *ids]))
            if owner is not None:
                targets[owner].setdefault(topic, set()).add(partition)
    same = draw(wants)
    members = [
        MemberSpec(
            member_id,
            draw(st.sampled_from([None, f"instance-{member_id}"])),
            same if is_same else draw(wants),
            {topic: frozenset(partitions) for topic, partitions in targets[member_id].items()},
        )
        for member_id in ids
    ]
    return members, counts


def check_complete(members: list[MemberSpec], counts: dict[uuid.UUID, int], result: dict[str, Assignment]) -> None:
    assert set(result) == {member.member_id for member in members}
    owned = [pair for assignment in result.values() for pair in pairs(assignment)]
    wanted = {topic for member in members for topic in member.subscription}
    assert len(owned) == len(set(owned))
    assert set(owned) == {(topic, partition) for topic in wanted for partition in range(counts[topic])}
    for member in members:
        assert set(result[member.member_id]) <= member.subscription
        assert all(result[member.member_id].values()), "a topic without partitions"


@promise("K9")
@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=groups(), order=st.randoms(use_true_random=False))
def test_every_partition_has_one_owner_that_wants_it(name: str, group: tuple, order: object) -> None:
    """Complete whatever the subscriptions, and the same in whatever order members are given."""
    members, counts = group
    result = ASSIGNORS[name](members, counts)
    check_complete(members, counts, result)
    shuffled = list(members)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    assert ASSIGNORS[name](shuffled, counts) == result


@promise("K9")
@given(group=groups(is_same=True))
def test_uniform_is_even_and_sticky_when_all_want_the_same(group: tuple) -> None:
    """Numbers differ by one at most, and nobody loses more than what is over a fair share."""
    members, counts = group
    result = uniform(members, counts)
    sizes = {member_id: len(pairs(assignment)) for member_id, assignment in result.items()}
    assert max(sizes.values()) - min(sizes.values()) <= 1
    valid = {(topic, p) for topic in members[0].subscription for p in range(counts[topic])}
    for member in members:
        held = pairs(member.target) & valid
        assert len(held & pairs(result[member.member_id])) == min(len(held), sizes[member.member_id])
    again = [MemberSpec(m.member_id, m.instance_id, m.subscription, result[m.member_id]) for m in members]
    assert uniform(again, counts) == result


@promise("K9")
@given(group=groups())
def test_uniform_cannot_be_evened_out_by_one_move(group: tuple) -> None:
    """With different subscriptions, no partition could move to a member that wants it and has two fewer."""
    members, counts = group
    result = uniform(members, counts)
    sizes = {member_id: len(pairs(assignment)) for member_id, assignment in result.items()}
    for giver in members:
        for topic in result[giver.member_id]:
            for taker in members:
                if topic in taker.subscription:
                    assert sizes[giver.member_id] - sizes[taker.member_id] <= 1
    again = [MemberSpec(m.member_id, m.instance_id, m.subscription, result[m.member_id]) for m in members]
    assert uniform(again, counts) == result, "a second time moves something"


@promise("K9")
@given(group=groups())
def test_range_gives_runs(group: tuple) -> None:
    """Of each topic a member has one run, and runs differ by one at most."""
    members, counts = group
    result = contiguous(members, counts)
    for topic in counts:
        runs = [result[m.member_id].get(topic, frozenset()) for m in members if topic in m.subscription]
        for run in runs:
            assert not run or max(run) - min(run) + 1 == len(run)
        assert not runs or max(map(len, runs)) - min(map(len, runs)) <= 1


@promise("K9")
def test_range_cuts_equal_topics_in_the_same_places() -> None:
    """Topics with equally many partitions are assigned together."""
    counts = {TOPICS[0]: 5, TOPICS[1]: 5}
    result = contiguous([spec("b", TOPICS[:2]), spec("a", TOPICS[:2])], counts)
    assert result == {
        "a": {topic: frozenset({0, 1, 2}) for topic in TOPICS[:2]},
        "b": {topic: frozenset({3, 4}) for topic in TOPICS[:2]},
    }


@promise("K9")
def test_range_puts_static_members_first_by_instance() -> None:
    """A static member's run depends on its instance id, not on the member id of the day."""
    counts = {TOPICS[0]: 6}
    for ids in (("x", "y"), ("y", "x")):
        members = [
            spec("a", TOPICS[:1]),
            spec(ids[0], TOPICS[:1], instance="i1"),
            spec(ids[1], TOPICS[:1], instance="i2"),
        ]
        result = contiguous(members, counts)
        assert result[ids[0]] == {TOPICS[0]: frozenset({0, 1})}
        assert result[ids[1]] == {TOPICS[0]: frozenset({2, 3})}
        assert result["a"] == {TOPICS[0]: frozenset({4, 5})}


@promise("K9")
def test_uniform_moves_only_what_a_new_member_needs() -> None:
    """One who joins gets its share, and nobody else gets anything."""
    counts = {TOPICS[0]: 12}
    members = [spec(f"m{n}", TOPICS[:1], {TOPICS[0]: frozenset(range(n * 4, n * 4 + 4))}) for n in range(3)]
    result = uniform([*members, spec("a", TOPICS[:1])], counts)
    for member in members:
        assert result[member.member_id][TOPICS[0]] < member.target[TOPICS[0]]
        assert len(result[member.member_id][TOPICS[0]]) == 3


@promise("K9")
@pytest.mark.parametrize("name", ASSIGNORS)
def test_nobody_gets_nothing(name: str) -> None:
    """No members, and members without topics, are no trouble."""
    assert ASSIGNORS[name]([], {}) == {}
    assert ASSIGNORS[name]([spec("a", []), spec("b", [])], {}) == {"a": {}, "b": {}}
