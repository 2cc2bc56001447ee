"""Stories about groups of the classic protocol: their members' lives."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.differential.story import Begin, Call, Finish, Steps, Story, Told, Until, add, call, story

SESSION_MS = 30_000
NOBODY = "somebody-11111111-2222-4333-8444-555555555555"
"""A member id that no group has."""


def subscription(*topics: str) -> bytes:
    """What a consumer says in a join about the topics it wants."""
    named = b"".join(struct.pack(">h", len(t)) + t.encode() for t in topics)
    return struct.pack(">hi", 0, len(topics)) + named + struct.pack(">i", -1)


RANGE = (("range", subscription("topic")),)


def join(
    group: str,
    member: str = "",
    *,
    on: str = "main",
    version: int | None = None,
    protocols: Sequence[tuple[str, bytes]] = RANGE,
    instance: str | None = None,
    **more: Any,
) -> Call:
    rows = [{"name": name, "metadata": data} for name, data in protocols]
    fields = {"session_timeout": SESSION_MS, "rebalance_timeout": SESSION_MS, "protocol_type": "consumer", **more}
    named = {"group_id": group, "member_id": member, "group_instance_id": instance}
    return call("join_group", version, on, **named, protocols=rows, **fields)


def sync(
    group: str, generation: int, member: str, assignments: dict[str, bytes] | None = None, *,
    on: str = "main", version: int | None = None, instance: str | None = None, **more: Any,
) -> Call:  # fmt: skip
    rows = [{"member_id": name, "assignment": data} for name, data in (assignments or {}).items()]
    fields = {"protocol_type": "consumer", "protocol_name": "range", **more}
    named = {"group_id": group, "generation_id": generation, "member_id": member, "group_instance_id": instance}
    return call("sync_group", version, on, **named, assignments=rows, **fields)


def beat(group: str, generation: int, member: str, *, version: int | None = None, instance: str | None = None) -> Call:
    named = {"group_id": group, "generation_id": generation, "member_id": member, "group_instance_id": instance}
    return call("heartbeat", version, **named)


def leave(group: str, *members: str | tuple[str, str], version: int | None = None) -> Call:
    pairs = [(m, None) if isinstance(m, str) else m for m in members]
    rows = [{"member_id": member, "group_instance_id": instance, "reason": None} for member, instance in pairs]
    return call("leave_group", version, group_id=group, members=rows, member_id=pairs[0][0] if pairs else "")


def describe(*groups: str, version: int | None = None) -> Call:
    return call("describe_groups", version, groups=groups, include_authorized_operations=False)


def in_state(group: str, state: str, members: int | None = None, *, recorded: bool = False) -> Until:
    """Wait until a group is in a state."""

    def holds(answer: Any) -> bool:
        found = answer.groups[0]
        return found.group_state == state and members in (None, len(found.members))

    return Until(describe(group), holds, recorded)


@dataclass(slots=True)
class Member:
    """A member as the story knows it, on a connection of its own."""

    on: str
    id: str
    generation: int = 0


def enter(group: str, on: str = "main", **more: Any) -> Steps:
    """A join as clients do it: they are given an id first. Gives the answer, at once for a first member."""
    answer = yield join(group, on=on, **more)
    if answer.error_code.name == "member_id_required":
        answer = yield join(group, answer.member_id, on=on, **more)
    return answer


def alone(group: str, *, instance: str | None = None, **more: Any) -> Steps:
    """A stable group of one."""
    joined = yield from enter(group, instance=instance, **more)
    yield sync(group, joined.generation_id, joined.member_id, {joined.member_id: b"all"}, instance=instance)
    return Member("main", joined.member_id, joined.generation_id)


def pair(group: str, **more: Any) -> Steps:
    """A stable group of two, the first of which leads."""
    first = yield from alone(group, **more)
    asked = yield join(group, on="second", **more)
    joining = yield Begin(join(group, asked.member_id, on="second", **more))
    yield in_state(group, "PreparingRebalance", 2)
    joined = yield join(group, first.id, **more)
    second = yield Finish(joining)
    first.generation = joined.generation_id
    other = Member("second", second.member_id, second.generation_id)
    yield sync(group, first.generation, first.id, {first.id: b"left", other.id: b"right"})
    yield sync(group, other.generation, other.id, on="second")
    return first, other


# --- versions ----------------------------------------------------------------------------------------


def _life_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        group = told.name("g")
        joined = yield from enter(group, version=version)
        member, generation = joined.member_id, joined.generation_id
        yield describe(group)
        sync_version, beat_version, leave_version = min(version, 5), min(version, 4), min(version, 5)
        yield sync(group, generation, member, {member: b"all"}, version=sync_version)
        yield sync(group, generation, member, version=sync_version)
        yield describe(group, version=min(version, 6))
        yield beat(group, generation, member, version=beat_version)
        yield beat(group, generation + 1, member, version=beat_version)
        yield beat(group, generation, NOBODY, version=beat_version)
        yield leave(group, member, version=leave_version)
        yield leave(group, member, version=leave_version)
        yield describe(group)

    return steps


for _version in range(10):
    add(f"classic_life_v{_version}", _life_in_version(_version))


# --- refused joins -----------------------------------------------------------------------------------


def _refused(title: str, **more: Any) -> None:
    def steps(told: Told) -> Steps:
        for version in (0, 3, 5, 9):
            yield join(told.name("g"), version=version, **more)
        yield describe(told.name("g"))

    add(f"join_{title}", steps)


_refused("with_a_short_session", session_timeout=5_999)
_refused("with_a_long_session", session_timeout=1_800_001)
_refused("with_a_negative_session", session_timeout=-1)
_refused("as_an_unknown_member", member=NOBODY)
_refused("without_protocols", protocols=())
_refused("without_a_protocol_type", protocol_type="")
_refused("a_nameless_protocol", protocols=(("", b""),))


@story
def join_a_group_without_a_name(told: Told) -> Steps:
    yield join("")
    yield join("", version=0)
    yield sync("", 1, NOBODY)
    yield beat("", 1, NOBODY)
    yield leave("", NOBODY)


@story
def join_with_sessions_at_the_limits(told: Told) -> Steps:
    yield join(told.name("short"), session_timeout=6_000)
    yield join(told.name("long"), session_timeout=1_800_000)


@story
def join_with_another_protocol_type(told: Told) -> Steps:
    group = told.name("g")
    member = yield from alone(group)
    yield join(group, on="second", protocol_type="connect")
    yield join(group, on="second", protocol_type="connect", version=3)
    yield join(group, member.id, protocol_type="connect")
    yield beat(group, member.generation, member.id)


@story
def join_without_a_protocol_in_common(told: Told) -> Steps:
    group = told.name("g")
    member = yield from alone(group)
    yield join(group, on="second", protocols=(("sticky", b"x"),))
    yield join(group, on="second", protocols=(("sticky", b"x"),), version=3)
    yield join(group, member.id, protocols=(("sticky", b"x"),))
    yield describe(group)


@story
def join_with_a_member_id_in_an_empty_group(told: Told) -> Steps:
    group = told.name("g")
    member = yield from alone(group)
    yield leave(group, member.id)
    yield join(group, member.id)
    yield join(group, NOBODY)
    yield from alone(group)
    yield describe(group)


@story
def an_id_that_was_given_out_and_never_used(told: Told) -> Steps:
    group = told.name("g")
    asked = yield join(group)
    yield describe(group)
    yield call("list_groups", states_filter=[], types_filter=[])
    yield beat(group, -1, asked.member_id)
    yield sync(group, 0, asked.member_id)
    yield leave(group, asked.member_id)
    yield join(group, asked.member_id)
    yield describe(group)


@story
def the_only_member_leaves_while_another_has_an_id(told: Told) -> Steps:
    group = told.name("g")
    first = yield from alone(group)
    asked = yield join(group, on="second")
    yield leave(group, first.id)
    yield describe(group)
    joined = yield join(group, asked.member_id, on="second")
    yield sync(group, joined.generation_id, asked.member_id, {asked.member_id: b"all"}, on="second")
    yield describe(group)


# --- two members -------------------------------------------------------------------------------------


@story
def two_members(told: Told) -> Steps:
    group = told.name("g")
    first, second = yield from pair(group)
    yield describe(group)
    for member in (first, second):
        yield beat(group, member.generation, member.id)
    yield leave(group, second.id)
    yield beat(group, first.generation, first.id)
    joined = yield join(group, first.id)
    yield sync(group, joined.generation_id, first.id, {first.id: b"all"})
    yield describe(group)


@story
def two_members_of_old_clients(told: Told) -> Steps:
    group = told.name("g")
    joined = yield join(group, version=1)
    yield sync(group, joined.generation_id, joined.member_id, {joined.member_id: b"all"}, version=0)
    joining = yield Begin(join(group, on="second", version=1))
    yield in_state(group, "PreparingRebalance", 2)
    yield beat(group, joined.generation_id, joined.member_id, version=0)
    again = yield join(group, joined.member_id, version=1)
    other = yield Finish(joining)
    yield sync(group, again.generation_id, again.member_id, {other.member_id: b"all"}, version=0)
    yield sync(group, other.generation_id, other.member_id, on="second", version=0)
    yield describe(group, version=0)


@story
def the_leader_joins_again(told: Told) -> Steps:
    group = told.name("g")
    first, second = yield from pair(group)
    joining = yield Begin(join(group, first.id, on="first"))
    yield in_state(group, "PreparingRebalance", 2)
    yield beat(group, second.generation, second.id)
    yield join(group, second.id, on="second")
    again = yield Finish(joining)
    yield sync(group, again.generation_id, first.id, {second.id: b"all"})
    yield sync(group, again.generation_id, second.id, on="second")


@story
def a_follower_joins_again(told: Told) -> Steps:
    group = told.name("g")
    first, second = yield from pair(group)
    yield join(group, second.id, on="second")
    yield sync(group, second.generation, second.id, on="second")
    joining = yield Begin(join(group, second.id, on="second", protocols=(("range", subscription("other")),)))
    yield in_state(group, "PreparingRebalance", 2)
    yield beat(group, first.generation, first.id)
    yield join(group, first.id)
    yield Finish(joining)
    yield describe(group)


@story
def requests_while_a_group_prepares_to_rebalance(told: Told) -> Steps:
    group = told.name("g")
    first, second = yield from pair(group)
    joining = yield Begin(join(group, first.id, on="first"))
    yield in_state(group, "PreparingRebalance", 2)
    yield describe(group)
    yield beat(group, second.generation, second.id)
    yield beat(group, second.generation + 1, second.id)
    yield sync(group, second.generation, second.id, on="second")
    yield call("delete_groups", groups_names=[group])
    yield leave(group, second.id)
    yield Finish(joining)


@story
def requests_before_the_leader_has_decided(told: Told) -> Steps:
    group = told.name("g")
    first, second = yield from pair(group)
    joining = yield Begin(join(group, first.id, on="first"))
    yield in_state(group, "PreparingRebalance", 2)
    yield join(group, second.id, on="second")
    again = yield Finish(joining)
    yield describe(group)
    yield beat(group, again.generation_id, second.id)
    yield join(group, second.id, on="second")
    waiting = yield Begin(sync(group, again.generation_id, second.id, on="second"))
    yield sync(group, again.generation_id, first.id, {first.id: b"l", second.id: b"r"})
    yield Finish(waiting)


@story
def a_join_while_the_leader_decides(told: Told) -> Steps:
    group = told.name("g")
    first = yield from enter(group)
    asked = yield join(group, on="second")
    joining = yield Begin(join(group, asked.member_id, on="second"))
    yield in_state(group, "PreparingRebalance", 2)
    yield sync(group, first.generation_id, first.member_id, {first.member_id: b"all"})
    yield join(group, first.member_id)
    yield Finish(joining)


@story
def all_leave_a_rebalance_but_one_who_has_an_id(told: Told) -> Steps:
    group = told.name("g")
    first, second = yield from pair(group)
    asked = yield join(group, on="third")
    joining = yield Begin(join(group, first.id, on="first"))
    yield in_state(group, "PreparingRebalance", 2)
    yield leave(group, first.id, second.id)
    yield Finish(joining)
    yield describe(group)
    yield join(group, asked.member_id, on="third")
    yield describe(group)


@story
def a_member_that_does_not_come_back_is_left_out(told: Told) -> Steps:
    group = told.name("g")
    first, second = yield from pair(group, rebalance_timeout=1_000)
    again = yield join(group, first.id, rebalance_timeout=1_000)
    yield beat(group, second.generation, second.id)
    yield sync(group, again.generation_id, first.id, {first.id: b"all"})
    yield describe(group)


@story
def the_leader_leaves(told: Told) -> Steps:
    group = told.name("g")
    first, second = yield from pair(group)
    yield leave(group, first.id)
    yield beat(group, second.generation, second.id)
    again = yield join(group, second.id, on="second")
    yield sync(group, again.generation_id, second.id, {second.id: b"all"}, on="second")
    yield describe(group)


@story
def the_protocol_that_all_know_is_chosen(told: Told) -> Steps:
    group = told.name("g")
    many = (("sticky", b"s"), ("range", b"r"), ("roundrobin", b"o"))
    first = yield from alone(group, protocols=(("sticky", b"s"), ("range", b"r")))
    asked = yield join(group, on="second", protocols=many[1:])
    joining = yield Begin(join(group, asked.member_id, on="second", protocols=many[1:]))
    yield in_state(group, "PreparingRebalance", 2)
    yield join(group, first.id, protocols=many)
    yield Finish(joining)
    yield describe(group)


@story
def a_session_that_runs_out(told: Told) -> Steps:
    group = told.name("g")
    member = yield from alone(group, session_timeout=6_000)
    yield in_state(group, "Empty")
    yield beat(group, member.generation, member.id)
    yield describe(group)


# --- sync, heartbeat and leave refused -----------------------------------------------------------------


@story
def sync_refusals(told: Told) -> Steps:
    group = told.name("g")
    yield sync(group, 1, NOBODY)
    joined = yield from enter(group)
    member, generation = joined.member_id, joined.generation_id
    yield sync(group, generation, NOBODY)
    yield sync(group, generation + 1, member)
    yield sync(group, generation, member, protocol_type="connect")
    yield sync(group, generation, member, protocol_name="sticky")
    yield sync(group, generation, member, protocol_type=None, protocol_name=None)
    yield sync(group, generation, member, {member: b"mine", NOBODY: b"theirs"})
    yield sync(group, generation, member, {member: b"changed"})
    yield describe(group)


@story
def sync_without_an_assignment_for_somebody(told: Told) -> Steps:
    group = told.name("g")
    joined = yield from enter(group)
    yield sync(group, joined.generation_id, joined.member_id, {})
    yield describe(group)


@story
def heartbeat_refusals(told: Told) -> Steps:
    group = told.name("g")
    yield beat(group, 1, NOBODY)
    joined = yield from enter(group)
    member, generation = joined.member_id, joined.generation_id
    for wrong in (-1, 0, generation + 1):
        yield beat(group, wrong, member)
    yield beat(group, generation, "")
    yield beat(group, generation, member, instance="nobody")
    yield sync(group, generation, member, {member: b"all"})
    yield leave(group, member)
    yield beat(group, generation, member)


@story
def leave_refusals(told: Told) -> Steps:
    group = told.name("g")
    yield leave(group, NOBODY)
    yield leave(group, NOBODY, version=2)
    yield leave(group)
    member = yield from alone(group)
    yield leave(group, NOBODY)
    yield leave(group, ("", "nobody"))
    yield leave(group, (NOBODY, "nobody"))
    yield leave(group)
    yield leave(group, member.id, NOBODY)
    yield describe(group)
