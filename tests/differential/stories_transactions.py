"""Stories about transactions: their start, partitions, groups and end, in the lowest and the highest versions.

Apache Kafka answers CONCURRENT_TRANSACTIONS while it writes markers. Stories repeat such a request; Headwater never
answers so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from tests.differential.stories_offsets import commit, committed
from tests.differential.stories_topics import existing
from tests.differential.story import Call, Steps, Story, Told, Until, add, call, story

Who = tuple[int, int]
"""A producer id and an epoch."""
NOBODY: Who = (-1, -1)


def _codes(answer: Any) -> set[ErrorCode]:
    """All error codes of an answer."""
    codes = {getattr(answer, "error_code", ErrorCode.none)}
    for topic in [*getattr(answer, "results_by_topic_v3_and_below", ()), *getattr(answer, "topics", ())]:
        for partition in [*getattr(topic, "results_by_partition", ()), *getattr(topic, "partitions", ())]:
            named = "partition_error_code" if hasattr(partition, "partition_error_code") else "error_code"
            codes.add(getattr(partition, named))
    return codes


def settled(wanted: Call) -> Until:
    """The request's answer, once Apache Kafka has written its markers."""
    return Until(wanted, lambda answer: ErrorCode.concurrent_transactions not in _codes(answer))


def init(
    id: str | None, expected: Who = NOBODY, version: int | None = None, timeout_ms: int = 60_000, **more: Any
) -> Until:
    known = {"producer_id": expected[0], "producer_epoch": expected[1]}
    return settled(
        call("init_producer_id", version, transactional_id=id, transaction_timeout=timeout_ms, **known, **more)
    )


def join(id: str, who: Who, partitions: dict[str, Sequence[int]], version: int = 3) -> Until:
    topics = [{"name": name, "partitions": list(indexes)} for name, indexes in partitions.items()]
    names = {
        "v3_and_below_transactional_id": id,
        "v3_and_below_producer_id": who[0],
        "v3_and_below_producer_epoch": who[1],
    }
    return settled(call("add_partitions_to_txn", version, v3_and_below_topics=topics, **names))


def join_group(id: str, who: Who, group: str, version: int | None = None) -> Until:
    named = {"transactional_id": id, "producer_id": who[0], "producer_epoch": who[1]}
    return settled(call("add_offsets_to_txn", version, group_id=group, **named))


def stage(
    id: str, who: Who, group: str, topic: str, *places: tuple[int, int], version: int | None = None, **more: Any
) -> Until:
    parts = [{"partition_index": index, "committed_offset": at, "committed_metadata": ""} for index, at in places]
    named = {"transactional_id": id, "producer_id": who[0], "producer_epoch": who[1], "group_id": group}
    return settled(call("txn_offset_commit", version, topics=[{"name": topic, "partitions": parts}], **named, **more))


def end(id: str, who: Who, *, commit: bool = True, version: int | None = None) -> Until:
    named = {"transactional_id": id, "producer_id": who[0], "producer_epoch": who[1]}
    return settled(call("end_txn", version, committed=commit, **named))


def described(*ids: str) -> Call:
    return call("describe_transactions", transactional_ids=list(ids))


def who(answer: Any) -> Who:
    """Producer id and epoch of an answer."""
    return answer.producer_id, answer.producer_epoch


def _first_generation(version: int, ends: int) -> Story:
    def steps(told: Told) -> Steps:
        topic, group, id = told.name(), told.name("g"), told.name("tx")
        yield from existing(topic, 3)
        me = who((yield init(id, version=min(version, 2))))
        yield join(id, me, {topic: [0, 2]}, version)
        yield join_group(id, me, group, version)
        yield stage(id, me, group, topic, (0, 5), (1, 6), version=version)
        yield Until(described(id), lambda a: a.transaction_states[0].transaction_state == "Ongoing", recorded=False)
        yield committed(group, {topic: [0, 1, 2]}, version=8, stable=True)
        yield committed(group, {topic: [0, 1, 2]}, version=8)
        yield end(id, me, version=ends)
        yield end(id, me, version=ends)
        yield end(id, me, commit=False, version=ends)
        stable = committed(group, {topic: [0, 1, 2]}, version=8, stable=True)
        yield Until(stable, lambda a: all(p.error_code is ErrorCode.none for p in a.groups[0].topics[0].partitions))
        yield join(id, me, {topic: [1]}, version)
        yield end(id, me, commit=False, version=ends)
        yield end(id, me, commit=False, version=ends)
        yield end(id, me, version=ends)

    return steps


for _version in range(4):
    add(f"transaction_of_the_first_generation_v{_version}", _first_generation(_version, _version + (_version == 3)))


@story
def transaction_of_the_second_generation(told: Told) -> Steps:
    topic, group, id = told.name(), told.name("g"), told.name("tx")
    yield from existing(topic, 2)
    first = who((yield init(id)))
    yield end(id, first)
    yield stage(id, first, group, topic, (0, 5), (1, 6))
    yield committed(group, {topic: [0]}, version=8, stable=True)
    second = who((yield end(id, first)))
    yield end(id, first)
    yield end(id, first, commit=False)
    yield end(id, second)
    third = who((yield end(id, second, commit=False)))
    yield end(id, second, commit=False)
    yield end(id, second)
    yield stage(id, second, group, topic, (0, 7))
    yield stage(id, third, group, topic, (0, 8))
    yield end(id, third, commit=False)
    yield end(id, third)
    stable = committed(group, {topic: [0, 1]}, version=8, stable=True)
    yield Until(stable, lambda a: all(p.error_code is ErrorCode.none for p in a.groups[0].topics[0].partitions))


def _fenced_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        topic, group, id = told.name(), told.name("g"), told.name("tx")
        yield from existing(topic)
        old = who((yield init(id)))
        new = who((yield init(id)))
        for one in (old, (new[0] + 1_000_000, new[1]), (new[0], new[1] + 5), NOBODY):
            yield join(id, one, {topic: [0]}, min(version, 3))
            yield join_group(id, one, group, min(version, 4))
            yield stage(id, one, group, topic, (0, 1), version=version)
            yield end(id, one, version=version)
        yield join(told.name("other"), new, {topic: [0]}, min(version, 3))
        yield join_group(told.name("other"), new, group, min(version, 4))
        yield stage(told.name("other"), new, group, topic, (0, 1), version=version)
        yield end(told.name("other"), new, version=version)
        yield end(id, new, version=version)
        yield end("", new, version=version)
        yield join("", new, {topic: [0]}, min(version, 3))
        yield join_group("", new, group, min(version, 4))

    return steps


for _version in range(6):
    add(f"transactions_fenced_v{_version}", _fenced_in_version(_version))


def _started_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        id = told.name("tx")
        first = who((yield init(id, version=version)))
        second = who((yield init(id, first, version=version)))
        yield init(id, first, version=version)
        third = who((yield init(id, second, version=version)))
        yield init(id, first, version=version)
        yield init(id, (third[0] + 1_000_000, 0), version=version)
        yield init(id, (third[0], third[1] + 9), version=version)
        yield init(told.name("new"), third, version=version)
        yield init(id, (-1, 3), version=version)
        yield init(id, (third[0], -1), version=version)
        yield init("", version=version)
        yield init("", version=version, timeout_ms=0)
        for timeout_ms in (-1, 0, 900_001, 900_000):
            yield init(id, version=version, timeout_ms=timeout_ms)
        yield init(None, version=version, timeout_ms=0)

    return steps


for _version in range(6):  # Apache Kafka closes the connection at version 6, which is not stable yet
    add(f"init_transactions_v{_version}", _started_in_version(_version))


@story
def init_ends_an_open_transaction(told: Told) -> Steps:
    topic, id = told.name(), told.name("tx")
    yield from existing(topic)
    me = who((yield init(id, version=2)))
    yield join(id, me, {topic: [0]})
    yield init(id, (me[0] + 1_000_000, 0))
    yield Until(init(id).call, lambda a: a.error_code is ErrorCode.none, recorded=False)
    yield end(id, me, version=3)


@story
def partitions_that_cannot_join(told: Told) -> Steps:
    topic, id = told.name(), told.name("tx")
    yield from existing(topic, 2)
    me = who((yield init(id)))
    for version in range(4):
        yield join(id, me, {topic: [0, 7]}, version)
        yield join(id, me, {topic: [0], told.name("none"): [0]}, version)
        yield join(id, me, {topic: [0], "__consumer_offsets": [0]}, version)
        yield join(id, me, {}, version)
    yield end(id, me, version=4)


def _batched(version: int) -> Story:
    def steps(told: Told) -> Steps:
        topic, one, two = told.name(), told.name("one"), told.name("two")
        yield from existing(topic, 2)
        first, second = who((yield init(one))), who((yield init(two)))

        def ask(id: str, me: Who, *partitions: int, only: bool) -> Call:
            row = {"transactional_id": id, "producer_id": me[0], "producer_epoch": me[1], "verify_only": only,
                   "topics": [{"name": topic, "partitions": list(partitions)}]}  # fmt: skip
            return call("add_partitions_to_txn", version, transactions=[row])

        yield ask(one, first, 0, only=True)
        yield ask(one, first, 0, only=False)
        yield ask(one, first, 0, 1, only=True)
        yield ask(one, first, 0, 9, only=True)
        yield ask(two, (second[0], 9), 0, only=True)
        yield ask(two, (second[0] + 1_000_000, 0), 0, only=True)
        yield ask(told.name("none"), second, 0, only=True)
        yield ask("", second, 0, only=False)

    return steps


for _version in (4, 5):
    add(f"partitions_join_in_batches_v{_version}", _batched(_version))


def _staged_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        topic, group, id = told.name(), told.name("g"), told.name("tx")
        yield from existing(topic, 2)
        me = who((yield init(id)))
        yield stage(id, me, group, topic, (0, 1), version=version)
        yield join_group(id, me, group)
        yield stage(id, me, group, topic, (0, 1), (9, 1), version=version)
        yield stage(id, me, group, told.name("none"), (0, 1), version=version)
        yield join_group(id, me, told.name("third"))
        if version >= 3:
            for given in ({"generation_id": 3}, {"member_id": "nobody"}, {"generation_id": 3, "member_id": "nobody"}):
                yield stage(id, me, group, topic, (0, 2), version=version, **given)
                yield stage(id, me, told.name("third"), topic, (0, 2), version=version, **given)

    return steps


for _version in range(6):
    add(f"offsets_staged_v{_version}", _staged_in_version(_version))


@story
def a_plain_commit_after_a_staged_one(told: Told) -> Steps:
    topic, group, id = told.name(), told.name("g"), told.name("tx")
    yield from existing(topic)
    me = who((yield init(id)))
    yield commit(group, topic, (0, 1))
    yield stage(id, me, group, topic, (0, 5))
    for version in (7, 8, 9):
        yield committed(group, {topic: [0]}, version=version, stable=True)
        yield committed(group, version=version, stable=True)
        yield committed(group, version=version)
    yield commit(group, topic, (0, 2))
    yield end(id, me)
    stable = committed(group, {topic: [0]}, version=8, stable=True)
    yield Until(stable, lambda a: a.groups[0].topics[0].partitions[0].error_code is ErrorCode.none)


@story
def transactions_described(told: Told) -> Steps:
    topic, id = told.name(), told.name("tx")
    yield from existing(topic, 2)
    yield described(id, "")
    me = who((yield init(id, timeout_ms=7_000)))
    yield described(id)
    yield join(id, me, {topic: [1, 0]})
    yield call("list_transactions", 2, state_filters=["Ongoing", "No"], producer_id_filters=[me[0]], duration_filter=-1)
    yield call("list_transactions", 1, state_filters=["Empty"], producer_id_filters=[me[0]], duration_filter=-1)
    yield call("list_transactions", 1, state_filters=[], producer_id_filters=[me[0]], duration_filter=3_600_000)
    for pattern in (f"{id}.*", id[:-1], "(", ""):
        filters = {"state_filters": [], "producer_id_filters": [me[0]], "duration_filter": -1}
        yield call("list_transactions", 2, transactional_id_pattern=pattern, **filters)
    yield end(id, me, commit=False, version=4)
    done = Until(described(id), lambda a: a.transaction_states[0].transaction_state == "CompleteAbort")
    yield Until(done.call, done.holds, recorded=False)
