"""Stories about static members of classic groups, and about listing, describing and deleting groups."""

from __future__ import annotations

from tests.differential.stories_classic import (
    NOBODY,
    alone,
    beat,
    describe,
    enter,
    in_state,
    join,
    leave,
    subscription,
    sync,
)
from tests.differential.story import Begin, Call, Finish, Steps, Story, Told, add, call, story

# --- static members ------------------------------------------------------------------------------------


@story
def a_static_member_comes_back(told: Told) -> Steps:
    group = told.name("g")
    member = yield from alone(group, instance="one")
    yield describe(group)
    back = yield join(group, instance="one")
    yield describe(group)
    yield beat(group, member.generation, member.id, instance="one")
    yield beat(group, back.generation_id, back.member_id, instance="one")
    yield sync(group, back.generation_id, back.member_id, {back.member_id: b"new"}, instance="one")
    yield describe(group)


def _static_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        group = told.name("g")
        first = yield join(group, instance="one", version=version)
        yield sync(group, first.generation_id, first.member_id, {first.member_id: b"all"}, instance="one", version=3)
        back = yield join(group, instance="one", version=version)
        yield sync(group, back.generation_id, back.member_id, instance="one", version=3)
        yield leave(group, ("", "one"), version=3)
        yield describe(group)

    return steps


for _version in range(5, 10):
    add(f"static_member_v{_version}", _static_in_version(_version))


@story
def a_static_follower_comes_back_without_a_rebalance(told: Told) -> Steps:
    group = told.name("g")
    first = yield from alone(group, instance="one")
    joining = yield Begin(join(group, on="second", instance="two"))
    yield in_state(group, "PreparingRebalance", 2)
    again = yield join(group, first.id, instance="one")
    second = yield Finish(joining)
    generation = again.generation_id
    yield sync(group, generation, first.id, {first.id: b"l", second.member_id: b"r"}, instance="one")
    yield sync(group, generation, second.member_id, on="second", instance="two")
    back = yield join(group, on="second", instance="two")
    yield sync(group, generation, back.member_id, on="second", instance="two")
    yield beat(group, generation, first.id, instance="one")
    yield beat(group, generation, second.member_id, instance="two")
    yield describe(group)


@story
def a_static_member_with_another_subscription(told: Told) -> Steps:
    group = told.name("g")
    member = yield from alone(group, instance="one")
    back = yield join(group, instance="one", protocols=(("range", subscription("other")),))
    yield beat(group, member.generation, back.member_id, instance="one")
    yield describe(group)


@story
def static_members_are_fenced(told: Told) -> Steps:
    group = told.name("g")
    old = yield from alone(group, instance="one")
    back = yield join(group, instance="one")
    yield join(group, old.id, instance="one")
    yield join(group, NOBODY, instance="one")
    yield join(group, NOBODY, instance="unknown")
    yield join(group, back.member_id, instance="unknown")
    yield sync(group, back.generation_id, old.id, instance="one")
    yield beat(group, back.generation_id, old.id, instance="one")
    yield beat(group, back.generation_id, old.id)
    yield leave(group, (old.id, "one"))
    yield leave(group, ("", "unknown"))
    yield leave(group, (back.member_id, "one"))
    yield describe(group)


@story
def a_static_member_without_its_instance(told: Told) -> Steps:
    group = told.name("g")
    member = yield from alone(group, instance="one")
    yield beat(group, member.generation, member.id)
    yield sync(group, member.generation, member.id)
    yield join(group, member.id)


# --- lists, descriptions, deletion ---------------------------------------------------------------------


def _described_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        group = told.name("g")
        yield from alone(group)
        yield describe(group, told.name("unknown"), version=version)
        yield describe(version=version)

    return steps


for _version in range(7):
    add(f"describe_groups_v{_version}", _described_in_version(_version))


def _listed_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        yield from alone(told.name("stable"))
        yield from enter(told.name("completing"))
        member = yield from alone(told.name("empty"))
        yield leave(told.name("empty"), member.id)
        everything: list[list[str]] = [[], ["Stable"], ["empty", "COMPLETINGREBALANCE"], ["Nonsense"], ["Dead", ""]]
        for states in everything if version >= 4 else everything[:1]:
            yield call("list_groups", version, states_filter=states, types_filter=[])
        for types in (["classic"], ["Consumer", "CLASSIC"], ["nonsense"], ["share"]) if version >= 5 else ():
            yield call("list_groups", version, states_filter=[], types_filter=types)

    return steps


for _version in range(6):
    add(f"list_groups_v{_version}", _listed_in_version(_version))


def _deleted_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        def drop(*groups: str) -> Call:
            return call("delete_groups", version, groups_names=groups)

        group = told.name("g")
        member = yield from alone(group)
        yield drop(group, told.name("unknown"))
        yield leave(group, member.id)
        yield drop(group, group)
        yield drop(group)
        yield describe(group)
        yield drop()

    return steps


for _version in range(3):
    add(f"delete_groups_v{_version}", _deleted_in_version(_version))
