"""Stories by chance: seeded walks over the requests of groups and of administration, right and wrong ones mixed.

A walk knows a little of what it has done (who is a member, which generation there is) and picks what to ask next. Both
servers get the same walk as long as they answer alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.differential.stories_classic import NOBODY, beat, describe, enter, in_state, join, leave, sync
from tests.differential.stories_offsets import commit, committed, forget
from tests.differential.stories_records import LATEST, offsets, produce, records
from tests.differential.stories_topics import (
    DELETE,
    SET,
    TOPIC,
    alter,
    configs,
    create,
    delete,
    existing,
    gone,
    grow,
    grown,
    metadata,
)
from tests.differential.stories_topics import describe as describe_configs
from tests.differential.story import Begin, Finish, Steps, Told, Until, add, call

WALKS = 24
STEPS = 25


@dataclass(slots=True)
class Model:
    """What a walk over one group knows."""

    told: Told
    generation: int = 0
    members: list[tuple[str, str]] = field(default_factory=list)
    """Connections and ids of those who are in, the leader first."""
    gone: list[str] = field(default_factory=list)
    arrivals: int = 0

    @property
    def group(self) -> str:
        return self.told.name("g")

    def anybody(self) -> str:
        """A member's id, mostly of one that is in."""
        chance = self.told.chance.random()
        if self.members and chance < 0.7:
            return self.told.chance.choice(self.members)[1]
        return self.told.chance.choice([*self.gone, NOBODY, ""])

    def some_generation(self) -> int:
        return self.told.chance.choice([self.generation] * 4 + [self.generation - 1, self.generation + 1, -1])


def _arrive(model: Model) -> Steps:
    """Somebody joins, and everybody who is in joins again."""
    model.arrivals += 1
    on = f"member-{model.arrivals}"
    if not model.members:
        joined = yield from enter(model.group, on)
        model.members = [(on, joined.member_id)]
        model.generation = joined.generation_id
        yield sync(model.group, joined.generation_id, joined.member_id, {joined.member_id: b"all"}, on=on)
        return
    asked = yield join(model.group, on=on)
    joining = yield Begin(join(model.group, asked.member_id, on=on))
    yield in_state(model.group, "PreparingRebalance", len(model.members) + 1)
    model.members.append((on, asked.member_id))
    yield from _rejoin(model, [joining], model.members[:-1])


def _rejoin(model: Model, begun: list[int], rest: list[tuple[str, str]]) -> Steps:
    for on, member in rest:
        number = yield Begin(join(model.group, member, on=on))
        begun.append(number)
    for number in begun:
        answer = yield Finish(number)
    model.generation = answer.generation_id
    leading = next(pair for pair in model.members if pair[1] == answer.leader)
    plan = {member: b"part-%d" % i for i, (_, member) in enumerate(model.members)}
    yield sync(model.group, model.generation, leading[1], plan, on=leading[0])
    for on, member in model.members:
        if member != leading[1]:
            yield sync(model.group, model.generation, member, on=on)


def _depart(model: Model) -> Steps:
    """Somebody leaves, and the rest join again."""
    if not model.members:
        yield leave(model.group, NOBODY)
        return
    # Who follows a leader that leaves several others is up to the server.
    going = model.told.chance.choice(model.members if len(model.members) <= 2 else model.members[1:])
    yield leave(model.group, going[1])
    model.members.remove(going)
    model.gone.append(going[1])
    if model.members:
        yield in_state(model.group, "PreparingRebalance", len(model.members))
        yield beat(model.group, model.generation, model.members[0][1])
        yield from _rejoin(model, [], model.members)


def _beat(model: Model) -> Steps:
    yield beat(model.group, model.some_generation(), model.anybody())


def _sync(model: Model) -> Steps:
    yield sync(model.group, model.some_generation(), model.anybody())


def _commit(model: Model) -> Steps:
    place = (model.told.chance.randrange(3), model.told.chance.randrange(100), "note")
    by: dict[str, Any] = {"member": model.anybody(), "epoch": model.some_generation()}
    yield commit(model.group, model.told.name(), place, **by, version=model.told.chance.randrange(2, 10))


def _committed(model: Model) -> Steps:
    yield committed(model.group, {model.told.name(): [0, 1, 2]}, version=model.told.chance.randrange(1, 10))


def _forget(model: Model) -> Steps:
    yield forget(model.group, (model.told.name(), model.told.chance.randrange(2)))


def _describe(model: Model) -> Steps:
    yield describe(model.group, version=model.told.chance.randrange(0, 7))
    yield call("list_groups", states_filter=[], types_filter=[])


def _drop(model: Model) -> Steps:
    answer = yield call("delete_groups", groups_names=[model.group])
    if answer.results[0].error_code.value == 0:
        model.generation = 0


GROUP_STEPS: tuple[tuple[Callable[[Model], Steps], int], ...] = (
    (_arrive, 4), (_depart, 3), (_beat, 5), (_sync, 3), (_commit, 6), (_committed, 3), (_forget, 1), (_describe, 3),
    (_drop, 1),
)  # fmt: skip


def _group_walk(told: Told) -> Steps:
    yield from existing(told.name(), 2)
    model = Model(told)
    kinds, weights = zip(*GROUP_STEPS, strict=True)
    for _ in range(STEPS):
        if len(model.members) > 3:
            yield from _depart(model)
        yield from told.chance.choices(kinds, weights)[0](model)


# --- administration ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Shelf:
    """What a walk over topics knows: how many partitions each has."""

    told: Told
    topics: dict[str, int] = field(default_factory=dict)

    def name(self) -> str:
        return self.told.name(self.told.chance.choice("abc"))


def _create(shelf: Shelf) -> Steps:
    name, count = shelf.name(), shelf.told.chance.choice([1, 2, 3, 0, -2])
    policy = shelf.told.chance.choice(["delete", "compact", "shred"])
    answer = yield create(name, count, version=4, configs=configs(cleanup_policy=policy))
    if answer.topics[0].error_code.value == 0:
        shelf.topics[name] = count
        yield grown(name, count)


def _delete(shelf: Shelf) -> Steps:
    name = shelf.name()
    yield delete(name, version=5)
    shelf.topics.pop(name, None)
    yield gone(name)


def _grow(shelf: Shelf) -> Steps:
    name, count = shelf.name(), shelf.told.chance.randrange(0, 6)
    answer = yield grow(name, count)
    if answer.results[0].error_code.value == 0:
        shelf.topics[name] = count
        yield grown(name, count)


def _configure(shelf: Shelf) -> Steps:
    name, value = shelf.name(), shelf.told.chance.choice(["1000000000", "2000000000", "soon", "-5"])
    answer = yield alter(name, ("retention.ms", shelf.told.chance.choice([SET, DELETE]), value))
    if answer.responses[0].error_code.value == 0:
        yield Until(describe_configs(TOPIC, name, "retention.ms"), lambda _: True, recorded=False)


def _look(shelf: Shelf) -> Steps:
    yield metadata(shelf.name(), version=shelf.told.chance.randrange(4, 13))


def _write(shelf: Shelf) -> Steps:
    name = shelf.name()
    partition = shelf.told.chance.randrange(4)
    if partition < shelf.topics.get(name, 0):
        parts = [{"partition_index": partition, "timestamp": LATEST, "current_leader_epoch": -1}]
        ready = call("list_offsets", replica_id=-1, topics=[{"name": name, "partitions": parts}])
        yield Until(ready, lambda a: a.topics[0].partitions[0].error_code.value == 0, recorded=False)
    yield produce(name, records(2), partition)
    yield from offsets(name, LATEST, partition=partition)


SHELF_STEPS: tuple[tuple[Callable[[Shelf], Steps], int], ...] = (
    (_create, 5), (_delete, 2), (_grow, 3), (_configure, 3), (_look, 3), (_write, 4),
)  # fmt: skip


def _admin_walk(told: Told) -> Steps:
    shelf = Shelf(told)
    kinds, weights = zip(*SHELF_STEPS, strict=True)
    for _ in range(STEPS):
        yield from told.chance.choices(kinds, weights)[0](shelf)


for _number in range(WALKS):
    add(f"walk_over_a_group_{_number}", _group_walk)
    add(f"walk_over_topics_{_number}", _admin_walk)
