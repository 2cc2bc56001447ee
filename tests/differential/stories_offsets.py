"""Stories about committed offsets and about finding coordinators."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from tests.differential.stories_classic import NOBODY, RANGE, alone, enter, in_state, join, leave, pair, subscription
from tests.differential.stories_topics import NOBODY as NO_TOPIC
from tests.differential.stories_topics import delete, existing, gone
from tests.differential.story import Begin, Call, Finish, Steps, Story, Told, add, call, story

GROUP, TRANSACTION, SHARE = range(3)
Place = tuple[int, int] | tuple[int, int, str | None]
"""A partition, an offset, and a note."""


def commit(
    group: str, topic: str | uuid.UUID, *places: Place, member: str = "", epoch: int = -1, version: int = 9, **more: Any
) -> Call:
    naming = {"name": topic} if isinstance(topic, str) else {"topic_id": topic}
    parts = [
        {"partition_index": p[0], "committed_offset": p[1], "committed_metadata": p[2] if len(p) > 2 else ""}
        for p in places
    ]
    fields = {"group_id": group, "generation_id_or_member_epoch": epoch, "member_id": member, **more}
    return call("offset_commit", version, topics=[{**naming, "partitions": parts}], **fields)


def committed(
    group: str, topics: dict[Any, Sequence[int]] | None = None, *, version: int = 9, stable: bool = False, **more: Any
) -> Call:
    """OffsetFetch; without topics, of all there are."""
    rows = None if topics is None else [
        {"name": t, "topic_id": t, "partition_indexes": list(parts)} for t, parts in topics.items()
    ]  # fmt: skip
    if version < 8:
        return call("offset_fetch", version, group_id=group, topics=rows, require_stable=stable)
    asked = {"group_id": group, "topics": rows, "member_id": None, "member_epoch": -1, **more}
    return call("offset_fetch", version, groups=[asked], require_stable=stable)


def forget(group: str, *places: tuple[str, int]) -> Call:
    names = dict.fromkeys(name for name, _ in places)
    topics = [{"name": n, "partitions": [{"partition_index": p} for t, p in places if t == n]} for n in names]
    return call("offset_delete", group_id=group, topics=topics)


# --- commit and fetch ----------------------------------------------------------------------------------


def _committed_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        made = yield from existing(told.name(), 2)
        topic: Any = made.topics[0].topic_id if version >= 10 else told.name()
        unknown: Any = NO_TOPIC if version >= 10 else told.name("unknown")
        group = told.name("g")
        yield commit(group, topic, (0, 5, "note"), (1, 7, None), version=version)
        yield commit(group, topic, (5, 1), version=version)
        yield commit(group, unknown, (0, 1), version=version)
        yield commit(group, topic, (0, 3), version=version, epoch=4)
        yield commit(group, topic, (0, 3), version=version, epoch=4, member=NOBODY)
        yield commit(told.name("other"), topic, (0, 3), version=version, epoch=4, member=NOBODY)
        yield committed(group, {told.name(): [0, 1, 5]})
        yield call("list_groups", states_filter=[], types_filter=[])

    return steps


for _version in range(2, 11):
    add(f"offset_commit_v{_version}", _committed_in_version(_version))


def _fetched_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        made = yield from existing(told.name(), 2)
        topic: Any = made.topics[0].topic_id if version >= 10 else told.name()
        unknown: Any = NO_TOPIC if version >= 10 else told.name("unknown")
        group = told.name("g")
        yield commit(group, told.name(), (0, 5, "note"))
        yield committed(group, {topic: [0, 1, 9]}, version=version)
        yield committed(group, {unknown: [0]}, version=version)
        yield committed(group, {}, version=version)
        yield committed(told.name("nobody"), {topic: [0]}, version=version)
        yield committed("", {topic: [0]}, version=version)
        if version >= 2:
            yield committed(group, version=version)
            yield committed(told.name("nobody"), version=version)
        if version >= 7:
            yield committed(group, {topic: [0, 1]}, version=version, stable=True)
        if version >= 9:
            yield committed(group, {topic: [0]}, version=version, member_id=NOBODY, member_epoch=3)
            yield committed(told.name("nobody"), {topic: [0]}, version=version, member_id=NOBODY, member_epoch=3)

    return steps


for _version in range(1, 11):
    add(f"offset_fetch_v{_version}", _fetched_in_version(_version))


@story
def fetch_offsets_of_several_groups(told: Told) -> Steps:
    yield from existing(told.name(), 2)
    groups = [told.name(name) for name in ("a", "b", "unknown")]
    for number, group in enumerate(groups[:2]):
        yield commit(group, told.name(), (number, 5))
    rows = [{"group_id": g, "member_id": None, "member_epoch": -1, "topics": None} for g in groups]
    yield call("offset_fetch", 9, groups=rows, require_stable=False)
    yield call("offset_fetch", 9, groups=[], require_stable=False)


@story
def commit_odd_things(told: Told) -> Steps:
    yield from existing(told.name(), 2)
    group = told.name("g")
    yield commit(group, told.name(), (0, -1))
    yield commit(group, told.name(), (0, -5))
    yield commit(group, told.name(), (0, 1 << 62))
    yield commit(group, told.name(), (-1, 1))
    yield commit(group, told.name(), (0, 1, "x" * 4096))
    yield commit(group, told.name(), (0, 1, "x" * 4097), (1, 2))
    yield commit(group, told.name())
    yield commit(group, "", (0, 1))
    yield commit(group, told.name(), (0, 1), (0, 2))
    yield call("offset_commit", 9, group_id=group, topics=[], member_id="", generation_id_or_member_epoch=-1)
    yield committed(group)


@story
def commit_by_a_member(told: Told) -> Steps:
    yield from existing(told.name())
    group = told.name("g")
    member = yield from alone(group)
    yield commit(group, told.name(), (0, 1), member=member.id, epoch=member.generation)
    yield commit(group, told.name(), (0, 2), member=member.id, epoch=member.generation - 1)
    yield commit(group, told.name(), (0, 2), member=member.id, epoch=member.generation + 1)
    yield commit(group, told.name(), (0, 2), member=member.id, epoch=-1)
    yield commit(group, told.name(), (0, 2), member=NOBODY, epoch=member.generation)
    yield commit(group, told.name(), (0, 2))
    yield commit(group, told.name(), (0, 2), member=member.id, epoch=member.generation, group_instance_id="x")
    yield committed(group, {told.name(): [0]})
    yield committed(group, {told.name(): [0]}, member_id=member.id, member_epoch=member.generation)
    yield committed(group, {told.name(): [0]}, member_id=NOBODY, member_epoch=9)
    yield leave(group, member.id)
    yield commit(group, told.name(), (0, 3), member=member.id, epoch=member.generation)
    yield commit(group, told.name(), (0, 3))
    yield committed(group, {told.name(): [0]})


@story
def commit_while_a_group_rebalances(told: Told) -> Steps:
    yield from existing(told.name())
    group = told.name("g")
    first, second = yield from pair(group)
    joining = yield Begin(join(group, first.id, on="first"))
    yield in_state(group, "PreparingRebalance", 2)
    yield commit(group, told.name(), (0, 1), member=second.id, epoch=second.generation)
    yield join(group, second.id, on="second")
    again = yield Finish(joining)
    yield commit(group, told.name(), (0, 2), member=second.id, epoch=again.generation_id)
    yield commit(group, told.name(), (0, 2), member=second.id, epoch=again.generation_id - 1)
    yield committed(group)


@story
def commit_by_a_static_member(told: Told) -> Steps:
    yield from existing(told.name())
    group = told.name("g")
    member = yield from alone(group, instance="one")
    by = {"member": member.id, "epoch": member.generation}
    yield commit(group, told.name(), (0, 1), **by, group_instance_id="one")
    yield commit(group, told.name(), (0, 2), **by)
    back = yield join(group, instance="one")
    yield commit(group, told.name(), (0, 3), **by, group_instance_id="one")
    yield commit(group, told.name(), (0, 4), member=back.member_id, epoch=back.generation_id, group_instance_id="one")
    yield committed(group)


@story
def offsets_go_with_their_topic(told: Told) -> Steps:
    yield from existing(told.name())
    yield from existing(told.name("stays"))
    group = told.name("g")
    yield commit(group, told.name(), (0, 1))
    yield commit(group, told.name("stays"), (0, 1))
    yield delete(told.name())
    yield gone(told.name())
    yield committed(group, {told.name("stays"): [0]})


# --- deletion ------------------------------------------------------------------------------------------


@story
def delete_offsets_of_a_group_without_members(told: Told) -> Steps:
    yield from existing(told.name(), 2)
    group = told.name("g")
    yield forget(group, (told.name(), 0))
    yield commit(group, told.name(), (0, 1), (1, 2))
    yield forget(group, (told.name(), 0), (told.name(), 7), (told.name("unknown"), 0))
    yield committed(group, {told.name(): [0, 1]})
    yield forget(group, (told.name(), 1))
    yield committed(group)
    yield forget("", (told.name(), 1))
    yield forget(group)


@story
def delete_offsets_while_subscribed(told: Told) -> Steps:
    yield from existing(told.name())
    yield from existing(told.name("other"))
    group = told.name("g")
    member = yield from alone(group, protocols=(("range", subscription(told.name())),))
    for topic in (told.name(), told.name("other")):
        yield commit(group, topic, (0, 1), member=member.id, epoch=member.generation)
    yield forget(group, (told.name(), 0), (told.name("other"), 0))
    yield committed(group)
    yield leave(group, member.id)
    yield forget(group, (told.name(), 0))
    yield committed(group)


@story
def delete_offsets_of_a_group_of_another_kind(told: Told) -> Steps:
    yield from existing(told.name())
    group = told.name("g")
    joined = yield from enter(group, protocol_type="connect", protocols=(("default", b"x"),))
    yield commit(group, told.name(), (0, 1), member=joined.member_id, epoch=joined.generation_id)
    yield forget(group, (told.name(), 0))
    yield leave(group, joined.member_id)
    yield forget(group, (told.name(), 0))


@story
def delete_offsets_of_members_without_a_readable_subscription(told: Told) -> Steps:
    yield from existing(told.name())
    group = told.name("g")
    member = yield from alone(group, protocols=(("range", b""),))
    yield commit(group, told.name(), (0, 1), member=member.id, epoch=member.generation)
    yield forget(group, (told.name(), 0))


@story
def a_group_without_a_name(told: Told) -> Steps:
    """The only story that writes to it: it is the same group for all stories."""
    yield from existing(told.name())
    yield commit("", told.name(), (0, 1))
    yield committed("", {told.name(): [0, 1]})
    yield call("describe_groups", groups=[""], include_authorized_operations=False)
    yield forget("", (told.name(), 0))
    for _ in range(2):
        yield call("delete_groups", groups_names=[""])
    yield call("describe_groups", groups=[""], include_authorized_operations=False)


@story
def delete_a_group_with_offsets(told: Told) -> Steps:
    yield from existing(told.name())
    group = told.name("g")
    yield commit(group, told.name(), (0, 1))
    yield call("describe_groups", groups=[group], include_authorized_operations=False)
    yield call("delete_groups", groups_names=[group])
    yield committed(group)
    yield call("describe_groups", groups=[group], include_authorized_operations=False)
    yield call("list_groups", states_filter=[], types_filter=[])


@story
def a_group_of_offsets_gets_members(told: Told) -> Steps:
    yield from existing(told.name())
    group = told.name("g")
    yield commit(group, told.name(), (0, 1))
    member = yield from alone(group, protocols=RANGE)
    yield committed(group)
    yield leave(group, member.id)
    yield call("list_groups", states_filter=["Empty"], types_filter=[])


# --- coordinators --------------------------------------------------------------------------------------


def _found_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        def find(kind: int, *keys: str) -> Call:
            key = keys[0] if keys else ""
            return call("find_coordinator", version, key=key, key_type=kind, coordinator_keys=keys)

        yield find(GROUP, told.name("g"))
        if version:
            yield find(9, told.name("g"))
        yield find(GROUP, "")
        if version >= 4:
            yield find(GROUP, told.name("a"), told.name("b"))
            yield find(GROUP, told.name("a"), told.name("a"))
            yield find(GROUP)
            yield find(SHARE, "not a share key")

    return steps


for _version in range(7):
    add(f"find_coordinator_v{_version}", _found_in_version(_version))


@story
def find_the_coordinator_of_a_transaction(told: Told) -> Steps:
    for version in range(1, 7):
        key = told.name("g")
        yield call("find_coordinator", version, key=key, key_type=TRANSACTION, coordinator_keys=(key,))
