"""Stories by chance: seeded walks over the requests of two producers with transactions, right and wrong ones mixed.

A walk knows what it has done, and picks what to ask next. Both servers get the same walk as long as they answer alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.differential.stories_offsets import commit, committed
from tests.differential.stories_records import READ_COMMITTED, fetch, produce, records
from tests.differential.stories_topics import existing
from tests.differential.stories_transactional_data import seen
from tests.differential.stories_transactions import (
    BOTH,
    FIRST,
    NO_PRODUCER,
    SECOND,
    Generation,
    Producer,
    described,
    init,
    producer,
    settled,
)
from tests.differential.story import Steps, Story, Told, add, call, codes

WALKS = 5
STEPS = 30
PARTITIONS = 2


@dataclass(slots=True)
class Walker:
    """What a walk knows of one producer."""

    told: Told
    now: Producer
    both: list[Walker]
    """This one and the other."""
    past: list[Producer] = field(default_factory=list)
    """The same producer as it was before its epochs changed."""
    open: bool = False
    joined: set[int] = field(default_factory=set)

    @property
    def topic(self) -> str:
        return self.told.name()

    @property
    def group(self) -> str:
        return f"{self.now.id}-g"

    def somebody(self) -> Producer:
        """The producer, mostly as it is now."""
        if self.past and self.told.chance.random() < 0.25:
            return self.told.chance.choice(self.past[-3:]).before()
        return self.now

    def partition(self) -> int:
        return self.told.chance.randrange(PARTITIONS)

    def ended(self) -> None:
        self.open, self.joined = False, set()


def _start(walker: Walker) -> Steps:
    """The producer starts anew, and fences what it was before."""
    walker.past.append(walker.now.before())
    if walker.open:
        yield from walker.now.taken_over(expected=walker.told.chance.random() < 0.3)
    else:
        expected = walker.told.chance.choice([(-1, -1), (walker.now.who, walker.now.epoch), (NO_PRODUCER, 0)])
        walker.now.take((yield init(walker.now.id, *expected)))
    walker.ended()


def _join(walker: Walker) -> Steps:
    who = walker.somebody()
    partitions = walker.told.chance.choice([[0], [1], [0, 1], [0, 7]])
    answer = yield who.add({walker.topic: partitions}, version=walker.told.chance.randrange(4))
    if codes(answer) == {"none"}:
        walker.open, walker.joined = True, walker.joined | set(partitions)


def _write(walker: Walker) -> Steps:
    who, partition = walker.somebody(), walker.partition()
    if who is not walker.now:
        yield who.write(walker.topic, partition)
        return
    if who.by is FIRST and partition not in walker.joined:
        yield who.write(walker.topic, partition, sequence=who.sequences.get((walker.topic, partition), 0))
        return
    written = partition in walker.joined and (walker.topic, partition) in who.sequences
    if written and walker.told.chance.random() < 0.2:
        yield who.write(walker.topic, partition, sequence=walker.told.chance.choice([50, 0]))
        return
    answer = yield who.write(walker.topic, partition, walker.told.chance.randrange(1, 4))
    if codes(answer) == {"none"}:
        walker.open, walker.joined = True, walker.joined | {partition}


def _stage(walker: Walker) -> Steps:
    who = walker.somebody()
    if walker.told.chance.random() < 0.7:
        answer = yield who.add_offsets(walker.group, version=walker.told.chance.randrange(5))
        walker.open = walker.open or codes(answer) == {"none"}
    answer = yield who.stage(walker.group, walker.topic, (walker.partition(), walker.told.chance.randrange(100)))
    walker.open = walker.open or codes(answer) == {"none"}


def _end(walker: Walker) -> Steps:
    who, outcome = walker.somebody(), walker.told.chance.random() < 0.6
    before = walker.now.before()
    if who is not walker.now:
        yield who.end(outcome)
        return
    answer = yield who.end(outcome, version=who.by.end if who.by is SECOND else walker.told.chance.randrange(5))
    if answer.error_code.value == 0:
        walker.ended()
        who.take(answer)
        if who.epoch != before.epoch:
            walker.past.append(before)
    yield settled(who.id)


def _commit(walker: Walker) -> Steps:
    """A commit without a transaction. While one is open, the servers differ in what is stable; see `allowed.py`."""
    if walker.open:
        return
    yield commit(walker.group, walker.topic, (walker.partition(), walker.told.chance.randrange(100)))


def _look(walker: Walker) -> Steps:
    yield settled(walker.now.id)
    yield described(walker.now.id)
    yield from seen(walker.topic, 0)
    for offset in (walker.told.chance.randrange(20), walker.told.chance.randrange(20)):
        yield fetch(walker.topic, offset, walker.partition(), isolation_level=READ_COMMITTED)
    for stable in (False, True):
        yield committed(walker.group, {walker.topic: [0, 1]}, stable=stable)


def _plain(walker: Walker) -> Steps:
    yield produce(walker.topic, records(1), walker.partition())


def _cut(walker: Walker) -> Steps:
    """Delete records. What is left of a transaction that is open then, servers tell in different ways."""
    if any(one.open for one in walker.both):
        return
    part = {"partition_index": walker.partition(), "offset": walker.told.chance.randrange(10)}
    yield call("delete_records", topics=[{"name": walker.topic, "partitions": [part]}], timeout=10_000)


TRANSACTION_STEPS: tuple[tuple[Callable[[Walker], Steps], int], ...] = (
    (_start, 2), (_join, 5), (_write, 8), (_stage, 3), (_end, 6), (_commit, 1), (_look, 3), (_plain, 2), (_cut, 1),
)  # fmt: skip


def _walk(by: Generation) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name(), PARTITIONS)
        walkers: list[Walker] = []
        for name in ("one", "other"):
            made = yield from producer(told.name(name), by)
            walkers.append(Walker(told, made, walkers))
        kinds, weights = zip(*TRANSACTION_STEPS, strict=True)
        for _ in range(STEPS):
            yield from told.chance.choices(kinds, weights)[0](told.chance.choice(walkers))
        for walker in walkers:
            yield from _look(walker)

    return steps


for _number in range(WALKS):
    for _by in BOTH:
        add(f"walk_over_transactions_{_number}_in_generation_{_by.number}", _walk(_by))
