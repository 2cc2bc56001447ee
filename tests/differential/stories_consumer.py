"""Stories about groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

import uuid
from typing import Any

from tests.differential.stories_classic import NOBODY, alone, beat, enter, in_state, join, leave, sync
from tests.differential.stories_classic import describe as describe_classic
from tests.differential.stories_offsets import commit, committed, forget
from tests.differential.stories_topics import NOBODY as NO_TOPIC
from tests.differential.stories_topics import delete, existing, gone, grow, grown
from tests.differential.story import Call, Note, Steps, Told, Until, call, story

LEAVE, LEAVE_STATIC = -1, -2
ONE, TWO = "AAAAAAAAAAAAAAAAAAAAA1", "AAAAAAAAAAAAAAAAAAAAA2"
"""Ids that clients make for themselves."""


def tell(group: str, member: str = ONE, epoch: int = 0, *, version: int | None = None, **more: Any) -> Call:
    """A heartbeat; with epoch 0 the one that joins."""
    fields: dict[str, Any] = {"rebalance_timeout": 30_000, "topic_partitions": None}
    if epoch == 0:
        fields |= {"subscribed_topic_names": ["none"], "topic_partitions": []}
    named = {"group_id": group, "member_id": member, "member_epoch": epoch}
    return call("consumer_group_heartbeat", version, **named, **{**fields, **more})


def describe(*groups: str) -> Call:
    return call("consumer_group_describe", group_ids=groups, include_authorized_operations=False)


def owned(topic: uuid.UUID, *partitions: int) -> list[dict[str, Any]]:
    return [{"topic_id": topic, "partitions": list(partitions)}]


def _ready(told: Told, partitions: int = 4) -> Steps:
    """A topic that the members of the story want; gives its id and the fields that say so."""
    made = yield from existing(told.name(), partitions)
    return made.topics[0].topic_id, {"subscribed_topic_names": [told.name()]}


# --- life ------------------------------------------------------------------------------------------------


@story
def consumer_life(told: Told) -> Steps:
    topic, wants = yield from _ready(told)
    group = told.name("g")
    joined = yield tell(group, **wants)
    yield describe(group)
    yield tell(group, ONE, joined.member_epoch)
    yield tell(group, ONE, joined.member_epoch, topic_partitions=owned(topic, 0, 1, 2, 3))
    yield describe(group)
    yield call("list_groups", states_filter=[], types_filter=["consumer"])
    yield call("list_groups", states_filter=["stable"], types_filter=[])
    yield tell(group, ONE, LEAVE)
    yield describe(group)
    yield tell(group, ONE, LEAVE)


@story
def consumer_life_with_an_id_of_the_server(told: Told) -> Steps:
    _, wants = yield from _ready(told)
    group = told.name("g")
    joined = yield tell(group, "", version=0, **wants)
    yield tell(group, joined.member_id, joined.member_epoch, version=0)
    yield tell(group, joined.member_id, LEAVE, version=0)
    yield describe(group)


@story
def consumer_partitions_are_handed_over(told: Told) -> Steps:
    topic, wants = yield from _ready(told)
    group = told.name("g")
    first = yield tell(group, **wants)
    yield tell(group, ONE, first.member_epoch, topic_partitions=owned(topic, 0, 1, 2, 3))
    second = yield tell(group, TWO, **wants)
    yield tell(group, TWO, second.member_epoch, topic_partitions=[])
    yield describe(group)
    told_to = yield tell(group, ONE, first.member_epoch)
    kept = told_to.assignment.topic_partitions[0].partitions
    yield describe(group)
    yield tell(group, TWO, second.member_epoch)
    released = yield tell(group, ONE, first.member_epoch, topic_partitions=owned(topic, *kept))
    yield tell(group, TWO, second.member_epoch)
    yield describe(group)
    yield tell(group, TWO, LEAVE)
    yield tell(group, ONE, released.member_epoch)
    yield describe(group)


@story
def consumers_are_removed_by_leave_group(told: Told) -> Steps:
    """As an administrator removes them."""
    _, wants = yield from _ready(told, 2)
    group = told.name("g")
    yield tell(group, ONE, **wants)
    yield tell(group, TWO, **wants, instance_id="i")
    yield call("leave_group", 2, group_id=group, member_id=told.name("nobody"))
    yield call("leave_group", 2, group_id=group, member_id=ONE)
    for named in ((ONE, None), ("", "j"), (ONE, "i"), ("", "i")):
        rows = [{"member_id": named[0], "group_instance_id": named[1], "reason": "told to"}]
        yield call("leave_group", 5, group_id=group, members=rows)
    yield call("leave_group", 5, group_id=group, members=[])
    yield describe(group)


@story
def consumer_expression_matches_nothing_yet(told: Told) -> Steps:
    group, topic = told.name("g"), told.name("later")
    pattern = {"subscribed_topic_names": None, "subscribed_topic_regex": f"{topic}.*"}
    joined = yield tell(group, **pattern)
    yield describe(group)
    yield from existing(topic, 2)
    yield Until(tell(group, epoch=joined.member_epoch), lambda answer: answer.assignment is not None)


@story
def consumer_expression_matches_internal_topics(told: Told) -> Steps:
    group = told.name("g")
    # Apache Kafka looks for the topics in the background, so the first answer may or may not have them.
    pattern = {"subscribed_topic_names": None, "subscribed_topic_regex": "__consumer_offset."}
    joined = yield Until(tell(group, **pattern), lambda _: True, recorded=False)
    yield Until(tell(group, epoch=joined.member_epoch), lambda answer: answer.member_epoch == 2, recorded=False)
    shown = yield Until(describe(group), lambda answer: answer.groups[0].group_epoch == 2, recorded=False)
    rows = shown.groups[0].members[0].target_assignment.topic_partitions
    yield Note("topics", [row.topic_name for row in rows])


@story
def consumer_range_assignor(told: Told) -> Steps:
    topic, wants = yield from _ready(told, 5)
    group = told.name("g")
    wants["server_assignor"] = "range"
    first = yield tell(group, ONE, **wants)
    second = yield tell(group, TWO, **wants)
    yield tell(group, ONE, first.member_epoch, topic_partitions=owned(topic, 0, 1, 2, 3, 4))
    yield tell(group, ONE, first.member_epoch, topic_partitions=owned(topic, 0, 1, 2))
    yield tell(group, TWO, second.member_epoch)
    yield describe(group)


@story
def consumer_sees_new_partitions_and_topics(told: Told) -> Steps:
    topic, wants = yield from _ready(told, 1)
    group = told.name("g")
    wants["subscribed_topic_names"] += [told.name("later")]
    joined = yield tell(group, **wants)
    yield tell(group, ONE, joined.member_epoch, topic_partitions=owned(topic, 0))
    yield grow(told.name(), 3)
    yield grown(told.name(), 3)
    news = yield Until(tell(group, ONE, joined.member_epoch), lambda a: a.member_epoch > joined.member_epoch)
    yield tell(group, ONE, news.member_epoch, topic_partitions=owned(topic, 0, 1, 2))
    yield describe(group)


@story
def consumer_topic_is_deleted(told: Told) -> Steps:
    topic, wants = yield from _ready(told, 1)
    group = told.name("g")
    joined = yield tell(group, **wants)
    yield tell(group, ONE, joined.member_epoch, topic_partitions=owned(topic, 0))
    yield delete(told.name())
    yield gone(told.name())
    yield Until(tell(group, ONE, joined.member_epoch), lambda a: a.assignment is not None)
    yield describe(group)


@story
def consumer_subscribes_to_something_else(told: Told) -> Steps:
    topic, wants = yield from _ready(told, 2)
    other = yield from existing(told.name("other"), 1)
    group = told.name("g")
    joined = yield tell(group, **wants)
    yield tell(group, ONE, joined.member_epoch, topic_partitions=owned(topic, 0, 1))
    changed = {"subscribed_topic_names": [told.name("other")], "topic_partitions": owned(topic, 0, 1)}
    yield tell(group, ONE, joined.member_epoch, **changed)
    done = yield tell(group, ONE, joined.member_epoch, topic_partitions=[])
    yield tell(group, ONE, done.member_epoch, topic_partitions=owned(other.topics[0].topic_id, 0))
    yield describe(group)


@story
def consumer_subscribes_by_a_pattern(told: Told) -> Steps:
    topic, _ = yield from _ready(told, 2)
    yield from existing(told.name("other"), 1)
    group = told.name("g")
    pattern = {"subscribed_topic_names": None, "subscribed_topic_regex": f"{told.prefix}-t.*"}
    # Apache Kafka looks for the topics in the background, so the first answer may or may not have them.
    joined = yield Until(tell(group, **pattern), lambda _: True, recorded=False)
    assigned = yield Until(
        tell(group, ONE, joined.member_epoch), lambda a: bool(a.assignment and a.assignment.topic_partitions), False
    )
    yield tell(group, ONE, max(assigned.member_epoch, joined.member_epoch), topic_partitions=owned(topic, 0, 1))
    yield describe(group)


# --- refusals ----------------------------------------------------------------------------------------------


@story
def consumer_heartbeats_that_make_no_sense(told: Told) -> Steps:
    group = told.name("g")
    yield tell("")
    yield tell(group, "")
    yield tell(group, "", version=0)
    yield tell(group, rebalance_timeout=-1)
    yield tell(group, rebalance_timeout=0)
    yield tell(group, topic_partitions=None)
    yield tell(group, topic_partitions=owned(NO_TOPIC, 0))
    yield tell(group, subscribed_topic_names=None)
    yield tell(group, subscribed_topic_names=[])
    yield tell(group, subscribed_topic_names=[], subscribed_topic_regex="")
    yield tell(group, instance_id="")
    yield tell(group, rack_id="")
    yield tell(group, server_assignor="nonsense")
    yield tell(group, server_assignor="")
    yield tell(group, subscribed_topic_regex="[")
    yield tell(group, epoch=-3)
    yield tell(group, epoch=LEAVE_STATIC)
    yield tell(group, "", epoch=1)
    yield describe(group)


@story
def consumer_heartbeats_of_strangers(told: Told) -> Steps:
    _, wants = yield from _ready(told, 1)
    group = told.name("g")
    yield tell(group, ONE, 1)
    yield tell(group, ONE, LEAVE)
    yield tell(group, ONE, LEAVE_STATIC, instance_id="one")
    yield tell(group, **wants)
    yield tell(group, TWO, 1)
    yield tell(group, TWO, LEAVE)
    yield tell(group, TWO, LEAVE_STATIC, instance_id="two")
    yield describe(group, told.name("unknown"), "")


@story
def consumer_epochs(told: Told) -> Steps:
    topic, wants = yield from _ready(told, 2)
    group = told.name("g")
    joined = yield tell(group, **wants)
    yield tell(group, ONE, joined.member_epoch, topic_partitions=owned(topic, 0, 1))
    yield tell(group, ONE, joined.member_epoch + 1)
    yield tell(group, ONE, 99)
    yield tell(group, TWO, **wants)
    yield tell(group, ONE, joined.member_epoch)
    yield tell(group, ONE, joined.member_epoch, topic_partitions=owned(topic, 0))
    yield tell(group, ONE, joined.member_epoch, topic_partitions=owned(topic, 0))
    yield tell(group, ONE, joined.member_epoch, topic_partitions=owned(topic, 0, 1))
    yield describe(group)


@story
def consumer_joins_again(told: Told) -> Steps:
    topic, wants = yield from _ready(told, 2)
    group = told.name("g")
    joined = yield tell(group, **wants)
    yield tell(group, ONE, joined.member_epoch, topic_partitions=owned(topic, 0, 1))
    yield tell(group, **wants)
    yield describe(group)


@story
def consumer_claims_partitions_it_does_not_have(told: Told) -> Steps:
    topic, wants = yield from _ready(told, 2)
    group = told.name("g")
    joined = yield tell(group, **wants)
    yield tell(group, ONE, joined.member_epoch, topic_partitions=owned(NO_TOPIC, 0))
    yield tell(group, ONE, joined.member_epoch, topic_partitions=owned(topic, 9))
    yield describe(group)


# --- static members -------------------------------------------------------------------------------------


@story
def consumer_static_member_comes_back(told: Told) -> Steps:
    topic, wants = yield from _ready(told, 2)
    group = told.name("g")
    joined = yield tell(group, instance_id="one", **wants)
    yield tell(group, ONE, joined.member_epoch, instance_id="one", topic_partitions=owned(topic, 0, 1))
    yield tell(group, TWO, instance_id="one", **wants)
    yield tell(group, ONE, LEAVE_STATIC, instance_id="one")
    yield describe(group)
    yield tell(group, TWO, instance_id="one", **wants)
    yield tell(group, ONE, joined.member_epoch, instance_id="one")
    yield tell(group, TWO, joined.member_epoch, instance_id="unknown")
    yield describe(group)
    yield tell(group, TWO, LEAVE, instance_id="one")
    yield describe(group)


# --- offsets and administration ----------------------------------------------------------------------------


@story
def consumer_commits(told: Told) -> Steps:
    topic, wants = yield from _ready(told, 2)
    group = told.name("g")
    joined = yield tell(group, **wants)
    epoch = joined.member_epoch
    yield tell(group, ONE, epoch, topic_partitions=owned(topic, 0, 1))
    for version in (7, 8, 9):
        yield commit(group, told.name(), (0, version), member=ONE, epoch=epoch, version=version)
        yield commit(group, told.name(), (0, 99), member=ONE, epoch=epoch + 1, version=version)
        yield commit(group, told.name(), (0, 99), member=ONE, epoch=epoch - 1, version=version)
        yield commit(group, told.name(), (0, 99), member=NOBODY, epoch=epoch, version=version)
        yield commit(group, told.name(), (0, 99), version=version)
    yield committed(group, {told.name(): [0]})
    yield committed(group, {told.name(): [0]}, member_id=ONE, member_epoch=epoch)
    yield committed(group, {told.name(): [0]}, member_id=ONE, member_epoch=epoch + 1)
    yield committed(group, {told.name(): [0]}, member_id=NOBODY, member_epoch=epoch)
    yield committed(group, {told.name(): [0]}, member_id="", member_epoch=epoch)
    yield committed(group, {told.name(): [0]}, version=8)
    yield forget(group, (told.name(), 0))
    yield call("delete_groups", groups_names=[group])
    yield tell(group, ONE, LEAVE)
    yield commit(group, told.name(), (0, 99), member=ONE, epoch=epoch)
    yield commit(group, told.name(), (1, 50))
    yield committed(group)
    yield forget(group, (told.name(), 0))
    yield call("delete_groups", groups_names=[group])
    yield describe(group)


@story
def consumer_groups_to_classic_calls(told: Told) -> Steps:
    _, wants = yield from _ready(told, 1)
    group = told.name("g")
    yield tell(group, **wants)
    yield describe_classic(group)
    yield describe_classic(group, version=5)
    yield join(group)
    yield join(group, ONE)
    yield sync(group, 1, ONE)
    yield beat(group, 1, ONE)
    yield leave(group, ONE)
    yield describe(group)


@story
def classic_groups_to_consumer_calls(told: Told) -> Steps:
    _, wants = yield from _ready(told, 1)
    group = told.name("g")
    yield from enter(group, protocol_type="connect", protocols=(("default", b"x"),))
    yield describe(group)
    yield tell(group, **wants)
    yield tell(group, ONE, 1)
    yield tell(group, ONE, LEAVE)


@story
def an_empty_classic_group_becomes_a_consumer_group(told: Told) -> Steps:
    _, wants = yield from _ready(told, 1)
    group = told.name("g")
    member = yield from alone(group)
    yield commit(group, told.name(), (0, 5), member=member.id, epoch=member.generation)
    yield leave(group, member.id)
    yield in_state(group, "Empty")
    yield tell(group, **wants)
    yield describe(group)
    yield committed(group, {told.name(): [0]})
    yield tell(group, ONE, LEAVE)
    yield describe(group)
    yield join(group)
    yield describe_classic(group)
    yield call("list_groups", states_filter=[], types_filter=[])
