"""Stories about offsets that are committed in transactions."""

from __future__ import annotations

from typing import Any

from tests.differential.stories_classic import NOBODY, alone, describe, leave
from tests.differential.stories_consumer import LEAVE, ONE, TWO, tell
from tests.differential.stories_offsets import commit, committed, forget
from tests.differential.stories_topics import delete, existing, gone
from tests.differential.stories_transactions import (
    ABORT,
    BOTH,
    COMMIT,
    FIRST,
    NO_PRODUCER,
    SECOND,
    Generation,
    described,
    each,
    producer,
    settled,
)
from tests.differential.story import Steps, Story, Told, Until, add, call, story


def both_ways(group: str, topics: dict[Any, Any] | None = None, *, version: int = 9) -> Steps:
    """Committed offsets, with and without those that a transaction may still change."""
    for stable in (False, True):
        yield committed(group, topics, version=version, stable=stable)


def _staged_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name(), 2)
        here, group = told.name(), told.name("g")
        one = yield from producer(told.name("tx"), SECOND if version >= 5 else FIRST)
        asked: dict[str, Any] = {"version": version}
        yield one.stage(group, here, (0, 5), **asked)
        yield one.add_offsets(group)
        yield one.stage(group, here, (0, 5), (1, 7), **asked)
        yield one.stage(group, here, (0, 6), **asked)
        yield one.stage(group, here, (7, 1), **asked)
        yield one.stage(group, told.name("unknown"), (0, 1), **asked)
        yield one.stage(told.name("other"), here, (0, 1), **asked)
        yield one.stage(group, here, (0, 1), producer_epoch=one.epoch + 1, **asked)
        yield one.stage(group, here, (0, 1), producer_id=NO_PRODUCER, **asked)
        yield one.stage(group, here, **asked)
        if version >= 3:
            yield one.stage(group, here, (0, 1), generation_id=3, **asked)
            yield one.stage(group, here, (0, 1), member_id=NOBODY, **asked)
            yield one.stage(group, here, (0, 1), generation_id=3, member_id=NOBODY, **asked)
            yield one.stage(group, here, (0, 1), group_instance_id="one", **asked)
            yield one.add_offsets(told.name("new"))
            for given in ({"generation_id": 3}, {"member_id": NOBODY}, {"generation_id": 3, "member_id": NOBODY}):
                yield one.stage(told.name("new"), here, (0, 2), **given, **asked)
        yield from both_ways(group, {here: [0, 1, 7]})
        yield described(one.id)
        yield from one.ended(COMMIT)
        yield from both_ways(group, {here: [0, 1, 7]})
        yield from both_ways(told.name("other"), {here: [0]})

    return steps


each("commit_offsets_in_a_transaction", _staged_in_version, (0, 3, 4, 5))


def _staged(by: Generation) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name(), 3)
        here, group = told.name(), told.name("g")
        one = yield from producer(told.name("tx"), by)
        yield commit(group, here, (0, 1), (2, 1))
        for outcome in (ABORT, COMMIT, COMMIT, ABORT):
            yield one.add_offsets(group)
            yield one.stage(group, here, (0, 10 + one.epoch), (1, 20))
            yield from both_ways(group, {here: [0, 1, 2]})
            yield from both_ways(group)
            yield describe(group)
            yield from one.ended(outcome)
            yield from both_ways(group, {here: [0, 1, 2]})
            yield from both_ways(group)

    return steps


each("offsets_of_a_transaction_are_staged", _staged)


def _staged_and_fetched(version: int) -> Story:
    def steps(told: Told) -> Steps:
        made = yield from existing(told.name(), 2)
        here, group = told.name(), told.name("g")
        topic: Any = made.topics[0].topic_id if version >= 10 else here
        one = yield from producer(told.name("tx"), SECOND)
        yield one.stage(group, here, (0, 5))
        yield from both_ways(group, {topic: [0, 1]}, version=version)
        yield from both_ways(group, version=version)
        yield from one.ended(COMMIT)
        yield from both_ways(group, {topic: [0, 1]}, version=version)

    return steps


each("fetch_offsets_that_are_staged", _staged_and_fetched, (6, 7, 8, 10))


def _staged_by_a_member(by: Generation) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name(), 2)
        here, group = told.name(), told.name("g")
        member = yield from alone(group)
        one = yield from producer(told.name("tx"), by)
        yield one.add_offsets(group)
        right = {"member_id": member.id, "generation_id": member.generation}
        yield one.stage(group, here, (0, 1), **right)
        yield one.stage(group, here, (0, 2), **{**right, "generation_id": member.generation + 1})
        yield one.stage(group, here, (0, 2), **{**right, "generation_id": member.generation - 1})
        yield one.stage(group, here, (0, 2), **{**right, "generation_id": -1})
        yield one.stage(group, here, (0, 2), **{**right, "member_id": NOBODY})
        yield one.stage(group, here, (0, 2), **{**right, "member_id": ""})
        yield one.stage(group, here, (0, 2), **right, group_instance_id="one")
        yield one.stage(group, here, (1, 2))
        yield from both_ways(group, {here: [0, 1]})
        yield from one.ended(COMMIT)
        yield from both_ways(group, {here: [0, 1]})
        yield leave(group, member.id)
        yield one.add_offsets(group)
        yield one.stage(group, here, (0, 3), **right)
        yield one.stage(group, here, (0, 3))
        yield from one.ended(COMMIT)
        yield from both_ways(group, {here: [0, 1]})

    return steps


each("a_member_commits_in_a_transaction", _staged_by_a_member)


def _staged_by_a_static_member(by: Generation) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name())
        here, group = told.name(), told.name("g")
        member = yield from alone(group, instance="one")
        one = yield from producer(told.name("tx"), by)
        yield one.add_offsets(group)
        right = {"member_id": member.id, "generation_id": member.generation, "group_instance_id": "one"}
        yield one.stage(group, here, (0, 1), **right)
        yield one.stage(group, here, (0, 2), **{**right, "member_id": NOBODY})
        yield one.stage(group, here, (0, 2), **{**right, "group_instance_id": "two"})
        yield one.stage(group, here, (0, 2), **{**right, "group_instance_id": None})
        yield from one.ended(COMMIT)
        yield from both_ways(group, {here: [0]})

    return steps


each("a_static_member_commits_in_a_transaction", _staged_by_a_static_member)


def _staged_by_a_consumer(by: Generation) -> Story:
    """A member of a group of the consumer protocol."""

    def steps(told: Told) -> Steps:
        yield from existing(told.name())
        here, group = told.name(), told.name("g")
        joined = yield tell(group, subscribed_topic_names=[here])
        one = yield from producer(told.name("tx"), by)
        yield one.add_offsets(group)
        right = {"member_id": ONE, "generation_id": joined.member_epoch}
        for version in (3, by.stage):
            yield one.stage(group, here, (0, 1), **right, version=version)
            yield one.stage(group, here, (0, 2), **{**right, "generation_id": joined.member_epoch + 1}, version=version)
            yield one.stage(group, here, (0, 2), **{**right, "generation_id": joined.member_epoch - 1}, version=version)
            yield one.stage(group, here, (0, 2), **{**right, "generation_id": -1}, version=version)
            yield one.stage(group, here, (0, 2), **{**right, "member_id": TWO}, version=version)
            yield one.stage(group, here, (0, 2), **{**right, "member_id": ""}, version=version)
        yield one.stage(group, here, (0, 3), version=0)
        yield from both_ways(group, {here: [0]})
        yield from one.ended(COMMIT)
        yield from both_ways(group, {here: [0]})
        yield tell(group, ONE, LEAVE)
        yield one.add_offsets(group)
        yield one.stage(group, here, (0, 4), **right)
        yield one.stage(group, here, (0, 4))
        yield from one.ended(COMMIT)
        yield from both_ways(group, {here: [0]})

    return steps


each("a_consumer_commits_in_a_transaction", _staged_by_a_consumer)


def _beside_plain_commits(by: Generation) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name(), 2)
        here, group = told.name(), told.name("g")
        one = yield from producer(told.name("tx"), by)
        yield one.add_offsets(group)
        yield one.stage(group, here, (0, 5), (1, 5))
        yield commit(group, here, (0, 9))
        yield committed(group, {here: [0, 1]})
        yield from one.ended(COMMIT)
        yield from both_ways(group, {here: [0, 1]})
        yield one.add_offsets(group)
        yield commit(group, here, (0, 11))
        yield one.stage(group, here, (0, 7))
        yield from one.ended(COMMIT)
        yield from both_ways(group, {here: [0, 1]})

    return steps


each("a_plain_commit_during_a_transaction", _beside_plain_commits)


@story
def a_plain_commit_is_stable_at_once(told: Told) -> Steps:
    yield from existing(told.name())
    one = yield from producer(told.name("tx"), SECOND)
    yield one.stage(told.name("g"), told.name(), (0, 5))
    yield commit(told.name("g"), told.name(), (0, 9))
    yield committed(told.name("g"), {told.name(): [0]}, stable=True)


def _two_at_once(by: Generation) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name())
        here, group = told.name(), told.name("g")
        one = yield from producer(told.name("one"), by)
        other = yield from producer(told.name("other"), by)
        for who, at in ((one, 5), (other, 6)):
            yield who.add_offsets(group)
            yield who.stage(group, here, (0, at))
        yield from both_ways(group, {here: [0]})
        yield from other.ended(ABORT)
        yield from both_ways(group, {here: [0]})
        yield from one.ended(COMMIT)
        yield from both_ways(group, {here: [0]})
        for who, at in ((one, 7), (other, 8)):
            yield who.add_offsets(group)
            yield who.stage(group, here, (0, at))
        yield from one.ended(COMMIT)
        yield from both_ways(group, {here: [0]})
        yield from other.ended(COMMIT)
        yield from both_ways(group, {here: [0]})

    return steps


each("two_transactions_of_one_group", _two_at_once)


@story
def two_transactions_stage_one_offset(told: Told) -> Steps:
    yield from existing(told.name())
    here, group = told.name(), told.name("g")
    one = yield from producer(told.name("one"), SECOND)
    other = yield from producer(told.name("other"), SECOND)
    yield one.stage(group, here, (0, 7))
    yield other.stage(group, here, (0, 8))
    yield from other.ended(COMMIT)
    yield from one.ended(COMMIT)
    yield committed(group, {here: [0]})


def _fenced(by: Generation) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name())
        here, group = told.name(), told.name("g")
        one = yield from producer(told.name("tx"), by)
        yield one.add_offsets(group)
        yield one.stage(group, here, (0, 5))
        zombie = one.before()
        yield from one.taken_over()
        yield from both_ways(group, {here: [0]})
        yield zombie.stage(group, here, (0, 6))
        yield zombie.add_offsets(group)
        yield zombie.end(COMMIT)
        yield from both_ways(group, {here: [0]})

    return steps


each("offsets_of_a_zombie", _fenced)


def _group_and_topic_go(by: Generation) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name("goes"))
        yield from existing(told.name("stays"))
        goes, stays, group = told.name("goes"), told.name("stays"), told.name("g")
        one = yield from producer(told.name("tx"), by)
        yield one.add_offsets(group)
        for topic in (goes, stays):
            yield one.stage(group, topic, (0, 5))
        yield delete(goes)
        yield gone(goes)
        yield from one.ended(COMMIT)
        yield Until(committed(group), lambda a: len(a.groups[0].topics) == 1)
        yield committed(group, {stays: [0]}, stable=True)

    return steps


each("the_topic_of_a_staged_offset_goes", _group_and_topic_go)


@story
def a_group_of_staged_offsets(told: Told) -> Steps:
    """What there is of a group that has staged offsets only."""
    yield from existing(told.name())
    here, group = told.name(), told.name("g")
    one = yield from producer(told.name("tx"), SECOND)
    yield one.stage(group, here, (0, 5))
    yield describe(group)
    yield call("list_groups", states_filter=[], types_filter=[])
    yield forget(group, (here, 0))
    yield from both_ways(group, {here: [0]})
    yield from one.ended(COMMIT)
    yield from both_ways(group, {here: [0]})
    yield describe(group)


@story
def a_group_is_deleted_during_a_transaction(told: Told) -> Steps:
    yield from existing(told.name())
    here, group = told.name(), told.name("g")
    one = yield from producer(told.name("tx"), SECOND)
    yield one.stage(group, here, (0, 5))
    yield call("delete_groups", groups_names=[group])
    yield from one.ended(COMMIT)
    yield from both_ways(group, {here: [0]})


def _odd_offsets(by: Generation) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name(), 2)
        here, group = told.name(), told.name("g")
        one = yield from producer(told.name("tx"), by)
        yield one.add_offsets(group)
        yield one.stage(group, here, (0, -1))
        yield one.stage(group, here, (0, 1 << 62))
        yield one.stage(group, here, (-1, 1))
        yield one.stage(group, "", (0, 1))
        rows = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": "x" * 4097}]
        yield one.stage(group, here, topics=[{"name": here, "partitions": rows}])
        yield one.stage(group, here, topics=[])
        rows = [{"partition_index": 1, "committed_offset": 1, "committed_metadata": None}]
        yield one.stage(group, here, topics=[{"name": here, "partitions": rows}])
        yield from one.ended(COMMIT)
        yield committed(group)
        yield settled(one.id)

    return steps


for _by in BOTH:
    add(f"commit_odd_things_in_a_transaction_of_generation_{_by.number}", _odd_offsets(_by))
