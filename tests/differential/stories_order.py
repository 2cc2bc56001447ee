"""Stories about requests that are sent in one write: each sees what those before it on its connection did.

What Apache Kafka tells its brokers after it has answered (topics, configs, rules) is not among them: a request may come
too early there, on the same connection, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

from tests.differential.stories_classic import join
from tests.differential.stories_consumer import describe, tell
from tests.differential.stories_offsets import commit, committed, forget
from tests.differential.stories_records import EARLIEST, LATEST, fetch, produce, records
from tests.differential.stories_topics import existing
from tests.differential.stories_transactions import init
from tests.differential.story import Call, Steps, Story, Together, Told, add, call


def _offset(topic: str, timestamp: int) -> Call:
    part = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}
    return call("list_offsets", replica_id=-1, topics=[{"name": topic, "partitions": [part]}])


def _end(topic: str) -> Call:
    parts = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]
    return call("offset_for_leader_epoch", replica_id=-1, topics=[{"topic": topic, "partitions": parts}])


def _cut(topic: str, offset: int) -> Call:
    parts = [{"partition_index": 0, "offset": offset}]
    return call("delete_records", topics=[{"name": topic, "partitions": parts}], timeout=10_000)


def _groups(*names: str) -> Call:
    return call("describe_groups", 5, groups=list(names))


def _appends(t: str, g: str) -> list[Call]:
    return [_offset(t, LATEST), produce(t, records(2)), _offset(t, LATEST), produce(t, records(1)), _end(t)]


def _appends_and_reads(t: str, g: str) -> list[Call]:
    return [produce(t, records(2)), fetch(t, 2), produce(t, records(1)), fetch(t, 4), fetch(t, 2)]


def _deletes_records(t: str, g: str) -> list[Call]:
    return [produce(t, records(3)), _cut(t, 2), _offset(t, EARLIEST), fetch(t, 0), _cut(t, -1), _offset(t, EARLIEST)]


def _commits(t: str, g: str) -> list[Call]:
    asked = committed(g, {t: [0]})
    return [asked, commit(g, t, (0, 5)), asked, commit(g, t, (0, 7)), commit(g, t, (0, 6)), asked]


def _forgets(t: str, g: str) -> list[Call]:
    asked = committed(g, {t: [0]})
    return [commit(g, t, (0, 5)), forget(g, (t, 0)), asked, call("delete_groups", groups_names=[g]), _groups(g)]


def _joins(t: str, g: str) -> list[Call]:
    return [_groups(g), join(g), _groups(g), commit(g, t, (0, 1)), call("delete_groups", groups_names=[g]), _groups(g)]


def _beats(t: str, g: str) -> list[Call]:
    return [tell(g, subscribed_topic_names=[t]), describe(g), tell(g, epoch=-1), describe(g)]


def _transactions(t: str, g: str) -> list[Call]:
    asked = call("describe_transactions", transactional_ids=[g])
    return [asked, init(g), asked]


def _in_one_write(sent: Callable[[str, str], list[Call]]) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name())
        yield Together(tuple(sent(told.name(), told.name("g"))))

    return steps


PAIRED: Mapping[str, Callable[[str, str], Call]] = {
    "produce": lambda t, g: produce(t, records(1)),
    "fetch": lambda t, g: fetch(t, 0),
    "latest": lambda t, g: _offset(t, LATEST),
    "earliest": lambda t, g: _offset(t, EARLIEST),
    "epoch": lambda t, g: _end(t),
    "cut": lambda t, g: _cut(t, 1),
    "commit": lambda t, g: commit(g, t, (0, 7)),
    "committed": lambda t, g: committed(g, {t: [0]}),
    "forget": lambda t, g: forget(g, (t, 0)),
    "join": lambda t, g: join(g),
    "groups": lambda t, g: _groups(g),
    "delete": lambda t, g: call("delete_groups", groups_names=[g]),
    "init": lambda t, g: init(g),
    "transactions": lambda t, g: call("describe_transactions", transactional_ids=[g]),
}
"""One request of each API that changes something and of those that see it."""


def _pair(first: str, second: str) -> Story:
    def steps(told: Told) -> Steps:
        topic, group = told.name(), told.name("g")
        yield from existing(topic)
        yield produce(topic, records(2))
        yield commit(group, topic, (0, 5))
        yield Together((PAIRED[first](topic, group), PAIRED[second](topic, group)))

    return steps


for _number, _names in enumerate(itertools.product(PAIRED, repeat=2)):
    add(f"walk_pairs_{_number}_{_names[0]}_{_names[1]}", _pair(*_names))
for _sent in (
    _appends, _appends_and_reads, _deletes_records, _commits, _forgets, _joins, _beats, _transactions,
):  # fmt: skip
    add(f"in_one_write{_sent.__name__}", _in_one_write(_sent))
