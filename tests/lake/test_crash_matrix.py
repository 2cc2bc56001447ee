"""T1, T2, T5, L3: a compactor that dies before or after any of its writes loses, doubles and leaves nothing.

The whole way is covered: plan, run, settle, follow, merge, expire and garbage collection. A second compactor takes
over; then the log, the Iceberg table and the Delta table hold exactly what was produced.
"""

import asyncio
from pathlib import Path

import pytest

from headwater.app.node import Node
from headwater.metadata.cluster import Topic
from tests.support.batches import Rec, batch
from tests.support.lake import Fate, LakeWorld, files_left, log_rows
from tests.support.virtual import run
from tests.support.virtual_nodes import sent, topic

ROUNDS = 12
"""Enough small segments for a merge, and for versions to expire."""


async def produce(node: Node, made: Topic, number: int) -> None:
    for partition, stream in enumerate(made.streams):
        records = [Rec(b"v%d-%d-%d" % (number, partition, i), key=b"k%d" % i) for i in range(3)]
        await sent(node, stream, batch(records))


async def story(world: LakeWorld, fate: Fate) -> list[str]:
    """Produce and settle until the compactor dies or all is done; then have another one finish."""
    node = await world.node()
    made = await topic(node, partitions=2)
    first = await world.compaction(fate)
    number = 0
    while number < ROUNDS and not fate.dead:
        await produce(node, made, number)
        await asyncio.sleep(0.05)
        await fate.outlived(first.round())
        number += 1
    if not fate.dead:
        await fate.outlived(first.finish())
    await first.abandon()
    for later in range(number, ROUNDS):
        await produce(node, made, later)
    await asyncio.sleep(10)  # of virtual time: the broker sees that the beats have stopped
    second = await world.compaction()
    await second.finish()
    await check(world, node, made)
    await second.close()
    await node.stop()
    return fate.steps


async def check(world: LakeWorld, node: Node, made: Topic) -> None:
    await node.domains[1].barrier()  # type: ignore[index]
    await asyncio.sleep(0.01)
    wanted = [
        (p, n * 3 + i, b"k%d" % i, b"v%d-%d-%d" % (n, p, i)) for p in range(2) for n in range(ROUNDS) for i in range(3)
    ]
    world.lay_out()
    in_log = await log_rows(node, made)
    assert [(p, o, k, v) for p, o, _, k, v, _ in in_log] == wanted
    assert world.iceberg_rows(node, made) == in_log
    assert world.delta_rows(node, made) == in_log
    stored, known = files_left(world, node)
    assert stored == known
    assert all(s.settled == s.next_offset for s in node.domains[1].state.streams.values())  # type: ignore[index]


def test_nobody_dies(tmp_path: Path) -> None:
    """T1, T5: the story itself; it covers every kind of write."""
    steps = run(story(LakeWorld(tmp_path / "objects"), Fate()))
    assert {"put _data", "put _iceberg", "create _delta_log", "append", "delete _data", "delete _iceberg"} <= set(steps)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_every_write(tmp_path: Path, after: bool) -> None:
    """T1, T2, T5"""
    count = len(run(story(LakeWorld(tmp_path / "objects"), Fate())))
    for step in range(count):
        fate = Fate(step, after=after)
        try:
            run(story(LakeWorld(tmp_path / "objects"), fate))
        except BaseException as error:
            raise AssertionError(f"died {'after' if after else 'before'} write {step}: {fate.steps[-1]}") from error
