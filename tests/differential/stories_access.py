"""Stories about what clients of transactions may do.

Both servers allow everything on a resource that no rule names. A story names its own resources in rules; clients of the
tests are anonymous.
"""

from __future__ import annotations

import itertools
from typing import Any

from tests.differential.stories_offsets import TRANSACTION, committed
from tests.differential.stories_topics import existing
from tests.differential.stories_transactional_data import producers
from tests.differential.stories_transactions import (
    ABORT,
    BOTH,
    COMMIT,
    Generation,
    Producer,
    add_partitions,
    described,
    each,
    init,
    producer,
)
from tests.differential.story import Steps, Story, Told, Until, add, call

TOPIC, GROUP, TRANSACTIONAL_ID = 2, 3, 5
READ, WRITE, DESCRIBE = 3, 4, 8
DENY, ALLOW = 2, 3
LITERAL = 3
EVERYBODY, SOMEBODY = "User:ANONYMOUS", "User:somebody"


def ruled(kind: int, name: str, operation: int, principal: str = EVERYBODY, permission: int = ALLOW) -> Steps:
    """Put a rule, and wait until it counts."""
    row: dict[str, Any] = {"resource_type": kind, "resource_name": name, "resource_pattern_type": LITERAL}
    row |= {"principal": principal, "host": "*", "operation": operation, "permission_type": permission}
    yield call("create_acls", 3, creations=[row])
    wanted: dict[str, Any] = {"resource_type_filter": kind, "resource_name_filter": name, "operation": operation}
    wanted |= {"pattern_type_filter": LITERAL, "principal_filter": principal, "host_filter": None}
    found = call("describe_acls", 3, **wanted, permission_type=permission)
    yield Until(found, lambda a: len(a.resources) > 0, recorded=False)


def everything(one: Producer, topic: str, other: str, group: str) -> Steps:
    """Every request of a producer with a transactional id, and those that tell of it."""
    one.take((yield init(one.id)))
    for version in (0, 3):
        yield one.add({topic: [0], other: [0]}, version=version)
        yield one.add({topic: [0]}, version=version)
    yield one.write(topic)
    yield one.write(topic, version=3)
    for version in (0, 4):
        yield one.add_offsets(group, version=version)
    for version in (0, one.by.stage):
        yield one.stage(group, topic, (0, 5), version=version)
    yield described(one.id, f"{one.id}-unknown")
    yield call("list_transactions", state_filters=[], producer_id_filters=[], duration_filter=-1)
    for version in (1, 6):
        keys = {"key": one.id, "coordinator_keys": [one.id, f"{one.id}-unknown"]}
        yield call("find_coordinator", version, key_type=TRANSACTION, **keys)
    yield producers(topic)
    yield one.end(COMMIT, version=0)
    yield from one.ended(COMMIT)
    yield from one.ended(ABORT)
    yield committed(group, {topic: [0]})


def _guarded(by: Generation, kind: int, operation: int | None) -> Story:
    """One resource is guarded; of it one operation is allowed, or none."""

    def steps(told: Told) -> Steps:
        topic, other, group, id = (told.name(what) for what in ("t", "other", "g", "tx"))
        yield from existing(topic)
        yield from existing(other)
        one = yield from producer(id, by)
        name = {TOPIC: topic, GROUP: group, TRANSACTIONAL_ID: id}[kind]
        yield from ruled(kind, name, READ, SOMEBODY)
        if operation is not None:
            yield from ruled(kind, name, operation)
        yield from everything(one, topic, other, group)

    return steps


_KINDS = {TOPIC: "topic", GROUP: "group", TRANSACTIONAL_ID: "id"}
_OPERATIONS = {None: "nothing", READ: "read", WRITE: "write", DESCRIBE: "describe"}
for _number, (_kind, _operation) in enumerate(itertools.product(_KINDS, _OPERATIONS)):
    _by = BOTH[_number % 2]
    _name = f"transactions_with_{_OPERATIONS[_operation]}_allowed_on_the_{_KINDS[_kind]}"
    add(f"{_name}_in_generation_{_by.number}", _guarded(_by, _kind, _operation))


def _denied(by: Generation) -> Story:
    """What is denied is denied, whatever else is allowed."""

    def steps(told: Told) -> Steps:
        topic, other, group, id = (told.name(what) for what in ("t", "other", "g", "tx"))
        yield from existing(topic)
        yield from existing(other)
        one = yield from producer(id, by)
        yield from ruled(TRANSACTIONAL_ID, id, WRITE)
        yield from ruled(TRANSACTIONAL_ID, id, WRITE, permission=DENY)
        yield from everything(one, topic, other, group)

    return steps


each("transactions_with_write_denied_on_the_id", _denied)


def _taken_away(by: Generation) -> Story:
    """The right to write goes while a transaction is open."""

    def steps(told: Told) -> Steps:
        yield from existing(told.name())
        one = yield from producer(told.name("tx"), by)
        yield one.add({told.name(): [0]})
        yield one.write(told.name())
        yield from ruled(TRANSACTIONAL_ID, one.id, READ, SOMEBODY)
        yield one.write(told.name())
        yield one.end(COMMIT)
        yield one.init()
        yield described(one.id)
        yield from ruled(TRANSACTIONAL_ID, one.id, WRITE)
        yield one.write(told.name(), sequence=2)
        yield described(one.id)
        yield from one.ended(COMMIT)

    return steps


each("the_right_to_write_goes_during_a_transaction", _taken_away)


def _several(version: int) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name())
        made = []
        for name in ("one", "other"):
            made.append((yield from producer(told.name(name), BOTH[0])))
        yield from ruled(TRANSACTIONAL_ID, made[0].id, READ, SOMEBODY)
        rows = [{"transactional_id": p.id, "producer_id": p.who, "producer_epoch": p.epoch} for p in made]
        yield add_partitions(rows, {told.name(): [0]}, version=version)
        yield described(*(p.id for p in made))

    return steps


each("add_partitions_to_transactions_that_are_not_allowed", _several, (4, 5))
